"""Settings: precedence, suggestions, identity, secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from pipelines.config import Section, Settings, load_settings
from pipelines.errors import ConfigError

TOKEN = "s3cr3t-bearer-token"


def test_defaults_need_nothing() -> None:
    settings = load_settings(environ={})
    assert settings.world.source == "sample"
    assert (settings.world.sample.films, settings.world.sample.users) == (300, 200)
    assert settings.world.sample.ratings == 20_000


def test_command_line_wins_over_environment_over_file(tmp_path: Path) -> None:
    file = tmp_path / "understudy.yaml"
    file.write_text("personas: {count: 1, seed: 1, cohort: from-file}\n", encoding="utf-8")
    env = {"UNDERSTUDY_PERSONAS__COUNT": "2", "UNDERSTUDY_PERSONAS__SEED": "2"}
    personas = load_settings(file, {"personas": {"count": 3}}, env).personas
    assert (personas.count, personas.seed, personas.cohort) == (3, 2, "from-file")


def test_a_nested_variable_changes_only_its_own_key() -> None:
    sample = load_settings(environ={"UNDERSTUDY_WORLD__SAMPLE__FILMS": "40"}).world.sample
    assert (sample.films, sample.users) == (40, 200)


def test_understudy_home_is_the_home() -> None:
    assert load_settings(environ={"UNDERSTUDY_HOME": "/x"}).runtime.home == Path("/x")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (
            {"UNDERSTUDY_WRLD__SOURCE": "x"},
            "unknown setting wrld: environment (did you mean world?)",
        ),
        (
            {"UNDERSTUDY_WORLD__SORCE": "x"},
            "unknown setting world.sorce: environment (did you mean world.source?)",
        ),
        (
            {"UNDERSTUDY_WORLD__SAMPLE__FILM": "30"},
            "unknown setting world.sample.film: environment (did you mean world.sample.films?)",
        ),
    ],
)
def test_an_unknown_key_is_an_error_that_suggests_the_nearest(
    env: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ=env)
    assert str(caught.value) == message


def test_replaced_setting_is_an_error_that_names_its_successor() -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings(environ={"UNDERSTUDY_RUNTIME__LANES": "2"})
    assert str(caught.value) == (
        "runtime.lanes is no longer a setting: environment "
        "(set runtime.executor=multiprocess and runtime.processes instead)"
    )


def test_removed_setting_in_a_file_is_named_on_one_line(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("games: {hours: [1, 2]}")
    with pytest.raises(ConfigError) as caught:
        load_settings(file)
    assert str(caught.value) == (
        f"games.hours is no longer a setting: {file} (leave it out: it is what its default was)"
    )


def test_an_unknown_key_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("personas: {cont: 5}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"personas\.cont: .*mine\.yaml .*personas\.count"):
        load_settings(file, environ={})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("world", "source", "ml-26m"),
        ("personas", "count", 0),
        ("personas", "cohort", "Not A Slug"),
        ("ingest", "max_rejected_share", 1.5),
        ("runtime", "ui_port", 70_000),
    ],
)
def test_a_value_out_of_range_names_its_key(section: str, key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"{section}.{key}"):
        load_settings(overrides={section: {key: value}}, environ={})


def test_splits_must_leave_training_data() -> None:
    with pytest.raises(ConfigError, match="leave a share for training"):
        load_settings(overrides={"splits": {"validation": 0.5, "test": 0.5}}, environ={})


@pytest.mark.parametrize("text", ["- a\n- b\n", "a: [", "\x00"])
def test_a_file_that_is_no_settings_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"broken\.yaml"):
        load_settings(file, environ={})


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such settings file"):
        load_settings(tmp_path / "absent.yaml", environ={})


def _secrets(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted names of all secret settings."""
    found = []
    for name, field in model.model_fields.items():
        if "SecretStr" in str(field.annotation):
            found.append(prefix + name)
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            found += _secrets(field.annotation, f"{prefix}{name}.")
    return found


SECRETS = _secrets(Settings)


def test_secret_settings_are_found() -> None:
    assert set(SECRETS) == {"runtime.failure_webhook", "serving.api_key", "tmdb.token"}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_taken_from_the_environment_only(name: str, tmp_path: Path) -> None:
    section, key = name.split(".")
    variable = f"UNDERSTUDY_{section}__{key}".upper()
    file = tmp_path / "understudy.yaml"
    file.write_text(f"{section}: {{{key}: {TOKEN}}}\n", encoding="utf-8")
    for path, overrides in ((file, None), (None, {section: {key: TOKEN}})):
        with pytest.raises(ConfigError) as caught:
            load_settings(path, overrides, environ={})
        assert TOKEN not in str(caught.value)
        assert variable in str(caught.value)
        assert name in str(caught.value)
    loaded = getattr(getattr(load_settings(environ={variable: TOKEN}), section), key)
    assert loaded.get_secret_value() == TOKEN


def test_whether_a_reply_is_taken_changes_no_identity() -> None:
    exact = Settings(engine={"require_model": "exact"})
    assert exact.identity() == Settings().identity()
    assert "require_model" not in exact.identity("engine")["engine"]


@pytest.mark.parametrize("name", ["UNDERSTUDY_TMDB__TOKEN", "TMDB_TOKEN"])
def test_a_secret_is_never_printed_or_serialised(name: str) -> None:
    settings = load_settings(environ={name: TOKEN})
    assert settings.tmdb.token is not None
    assert settings.tmdb.token.get_secret_value() == TOKEN
    for text in (
        repr(settings),
        str(settings),
        settings.model_dump_json(),
        str(settings.identity()),
    ):
        assert TOKEN not in text


INCLUDE = {
    "books",
    "embedding",
    "engine",
    "games",
    "graph",
    "ingest",
    "personas",
    "product_scoring",
    "products",
    "quality",
    "scoring",
    "splits",
    "world",
}
EXCLUDE = {
    *("captions", "data", "dialogue", "matching", "runtime", "serving", "tmdb", "training"),
    *("execution", "surrogate", "tuning"),
}


@pytest.mark.parametrize("section", sorted(INCLUDE))
def test_identity_includes(section: str) -> None:
    assert section in load_settings(environ={}).identity()


@pytest.mark.parametrize("section", sorted(EXCLUDE))
def test_identity_excludes(section: str) -> None:
    settings = load_settings(environ={})
    assert section not in settings.identity()
    with pytest.raises(ConfigError, match="no identity"):
        settings.identity(section)


def test_every_section_is_on_one_of_the_two_lists() -> None:
    assert set(Settings.model_fields) == INCLUDE | EXCLUDE | {"release"}


def test_the_data_folders_path_is_not_identity() -> None:
    one = load_settings(overrides={"world": {"folder": "/a"}}, environ={})
    two = load_settings(overrides={"world": {"folder": "/b"}}, environ={})
    assert one.identity() == two.identity()


def _sections() -> list[type[Section]]:
    found = []
    for field in Settings.model_fields.values():
        assert isinstance(field.annotation, type)
        found.append(field.annotation)
    return found


@pytest.mark.parametrize("section", _sections(), ids=lambda s: s.__name__)
def test_every_field_is_documented(section: type[Section]) -> None:
    for name, field in section.model_fields.items():
        assert field.description, f"{section.__name__}.{name}"
        assert field.description.rstrip().endswith((".", ")")), name


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("personas.count", "abc", "takes a whole number from 1 to 10000000, not abc"),
        ("personas.count", "0", "takes a whole number from 1 to 10000000, not 0"),
        ("personas.count", "", 'takes a whole number from 1 to 10000000, not ""'),
        ("personas.count", {"x": 1}, 'takes a whole number from 1 to 10000000, not {"x": 1}'),
        ("personas.writer", "poet", "takes one of statistical, model, not poet"),
        ("splits.test", "-1", "takes a number from 0 to 1, not -1"),
        ("serving.timeout", "0", "takes a number above 0, not 0"),
        ("serving.prefix_reuse", "maybe", "takes true or false, not maybe"),
        ("world.folder", [1], "takes a path, not [1]"),
        ("training.seeds", 1, "a list (each a whole number of at least 0), not 1"),
        ("world.sample", "3", "takes a mapping of settings"),
        ("scoring.rater", "oracle", "or module:Class or file.py:Class of your own, not oracle"),
        ("scoring.ensemble", [{"ratr": 1}], "unknown setting scoring.ensemble.ratr"),
    ],
)
def test_refused_value_is_shown_with_what_the_setting_takes(
    key: str, value: Any, says: str
) -> None:
    tree: Any = value
    for part in reversed(key.split(".")):
        tree = {part: tree}
    with pytest.raises(ConfigError) as refused:
        load_settings(None, tree, {})
    assert key in str(refused.value)
    assert says in str(refused.value)
    assert "command line" in str(refused.value)
    assert "Input should" not in str(refused.value)


def test_refused_value_of_an_environment_variable_names_its_origin() -> None:
    with pytest.raises(ConfigError, match="not ten: environment"):
        load_settings(environ={"UNDERSTUDY_PERSONAS__COUNT": "ten"})


@pytest.mark.parametrize("name", ["UNDERSTUDY_SERVING", "UNDERSTUDY_TMDB__TOKEN"])
def test_refused_value_that_may_be_a_secret_is_not_shown(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_settings(environ={name: '["s3cret"]'})
    assert "s3cret" not in str(refused.value)
