"""Loading the settings tree from defaults, a file, the environment and arguments."""

from __future__ import annotations

import difflib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import orjson
import yaml
from pydantic import BaseModel, SecretStr, ValidationError
from pydantic.fields import FieldInfo

from pipelines.config._inputs import Section
from pipelines.config._sections import COHORT_NAME, COHORT_NAME_IN_WORDS, ENV_PREFIX, Settings
from pipelines.errors import ConfigError

#: Variables with the prefix that are not settings keys.
_ENV_ALIASES = {"UNDERSTUDY_HOME", "UNDERSTUDY_CONFIG", "UNDERSTUDY_DEBUG"}
#: Settings of earlier versions, and what to do instead.
_REPLACED = {
    "runtime.lanes": "set runtime.executor=multiprocess and runtime.processes instead",
    "scoring.shards": "leave it out: a cohort is scored in one pass",
    "product_scoring.shards": "leave it out: a cohort is scored in one pass",
    **dict.fromkeys(
        (
            *("games.hours", "games.recommended", "games.not_recommended"),
            *("products.excluded", "products.min_similarity", "products.bridge_first"),
            *("training.components", "training.retrieved", "surrogate.hold_out_pairs"),
            *("dialogue.delta", "dialogue.types", "dialogue.question_cost"),
            *("graph.max_path_length", "matching.temperature", "runtime.embed_batch"),
            *("matching.seed", "dialogue.unfaithful"),
            *("graph.top_k", "graph.raters_per_item", "traits", "surrogate.rank", "surrogate.seed"),
            *("surrogate.sweeps", "surrogate.hold_out_personas", "surrogate.hold_out_items"),
            *("surrogate.seed",),
            *("tuning.window", "tuning.cuts", "tuning.width", "tuning.layers", "tuning.looked_at"),
            *("tuning.patience", "tuning.seed", "tuning.hold_out_users", "tuning.hold_out_items"),
        ),
        "leave it out: it is what its default was",
    ),
}

#: Characters of a refused value that its error shows (count).
_LONGEST_SHOWN = 60


def identity_hash(value: Mapping[str, Any]) -> str:
    """SHA-256 (hex) of canonical JSON: keys sorted, no white space.

    >>> identity_hash({"b": 1, "a": 2}) == identity_hash({"a": 2, "b": 1})
    True
    """
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def load_settings(
    file: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Settings from defaults, a YAML file, the environment and explicit overrides.

    Parameters
    ----------
    file
        YAML file; default: ``$UNDERSTUDY_CONFIG``, else ``understudy.yaml`` in the working
        directory if there is one.
    overrides
        Nested mapping that wins over everything (command-line options).
    environ
        The environment to read; default ``os.environ``.

    Raises
    ------
    ConfigError
        Naming the file or variable, the key, what is wrong, and the nearest known key.
    """
    return explain_settings(file, overrides, environ)[0]


def explain_settings(
    file: Path | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
) -> tuple[Settings, dict[str, str]]:
    """As :func:`load_settings`, and where each value comes from.

    By dotted key (``runtime.home``) that is the settings file's path, ``environment`` or ``command
    line``; keys with their default are absent.
    """
    env = os.environ if environ is None else environ
    merged: dict[str, Any] = {}
    path = Path(file) if file else Path(env.get("UNDERSTUDY_CONFIG") or "understudy.yaml")
    origin: dict[tuple[str, ...], str] = {}
    if path.is_file():
        _merge(merged, _read_yaml(path), str(path), origin)
    elif file or env.get("UNDERSTUDY_CONFIG"):
        raise ConfigError("no such settings file", where=str(path))
    _merge(merged, _read_environ(env), "environment", origin)
    given = dict(overrides or {})
    # Arguments are visible to every user of the machine and kept in histories.
    _reject_secrets(Settings, given, (), "a secret can't be set on the command line", "")
    _merge(merged, given, "command line", origin)
    _reject_unknown(Settings, merged, (), origin)
    try:
        settings = Settings(**merged)
    except ValidationError as error:
        raise _refused(error, merged, origin) from None
    return settings, {".".join(key): name for key, name in origin.items() if len(key) > 1}


def setting_of(key: str) -> tuple[FieldInfo, str]:
    """The field of a dotted key, and in words the values that it takes, or each of a list.

    >>> setting_of("personas.count")[1]
    'a whole number from 1 to 10000000'
    """
    model: type[BaseModel] = Settings
    *sections, name = key.split(".")
    for section in sections:
        inner = _section_of(model.model_fields[section].annotation)
        assert inner is not None, key
        model = inner
    field = model.model_fields[name]
    of_list = get_origin(field.annotation) is tuple
    kind = get_args(field.annotation)[0] if of_list else field.annotation
    return field, _takes(kind, field.metadata)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("the settings file can't be read", where=f"{path}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError("the settings file is not YAML", where=f"{path}{line}") from None
    if not isinstance(content, dict):
        raise ConfigError("the settings file must be a mapping of sections", where=str(path))
    _reject_secrets(Settings, content, (), "secrets don't belong in a file", str(path))
    return content


def read_value(text: str) -> Any:
    """Value of a setting's text on the command line or in the environment.

    Lists and mappings are written as JSON; everything else is text, which the setting's own type
    reads.

    >>> read_value("[1, 2]"), read_value("12"), read_value("[INST] Rate films.")
    ([1, 2], '12', '[INST] Rate films.')
    """
    if not text.lstrip().startswith(("[", "{")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def _read_environ(env: Mapping[str, str]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, value in env.items():
        if not key.startswith(ENV_PREFIX) or key in _ENV_ALIASES or not value:
            continue
        parts = key.removeprefix(ENV_PREFIX).lower().split("__")
        node = out
        for part in parts[:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise ConfigError("two variables set the same key", where=key)
        node[parts[-1]] = read_value(value)
    if env.get("UNDERSTUDY_HOME"):
        out.setdefault("runtime", {}).setdefault("home", env["UNDERSTUDY_HOME"])
    if env.get("TMDB_TOKEN"):
        out.setdefault("tmdb", {}).setdefault("token", env["TMDB_TOKEN"])
    if env.get("OPENAI_API_KEY"):
        out.setdefault("serving", {}).setdefault("api_key", env["OPENAI_API_KEY"])
    return out


def _merge(
    into: dict[str, Any],
    new: Mapping[str, Any],
    name: str,
    origin: dict[tuple[str, ...], str],
    prefix: tuple[str, ...] = (),
) -> None:
    for key, value in new.items():
        here = (*prefix, str(key))
        origin[here] = name
        if isinstance(value, Mapping) and isinstance(into.get(key), dict):
            _merge(into[key], value, name, origin, here)
        elif isinstance(value, Mapping):
            into[key] = {}
            _merge(into[key], value, name, origin, here)
        else:
            into[key] = value


def _origin_of(loc: tuple[str, ...], origin: Mapping[tuple[str, ...], str]) -> str:
    for n in range(len(loc), 0, -1):
        if loc[:n] in origin:
            return origin[loc[:n]]
    return "defaults"


#: Patterns of settings in words.
_PATTERNS = {COHORT_NAME: COHORT_NAME_IN_WORDS}


def _refused(
    error: ValidationError,
    values: Mapping[str, Any],
    origin: Mapping[tuple[str, ...], str],
) -> ConfigError:
    """The first fault of a validation, with the setting's name, its value and what it takes."""
    first = error.errors(include_input=False, include_url=False)[0]
    model: type[BaseModel] | None = Settings
    path: list[str] = []
    given: Any = values
    takes, secret = "", False
    for part in first["loc"]:
        if isinstance(part, str) and model is not None and part in model.model_fields:
            field = model.model_fields[part]
            model, takes = _section_of(field.annotation), _takes(field.annotation, field.metadata)
            secret = secret or SecretStr in (field.annotation, *get_args(field.annotation))
            given = given.get(part) if isinstance(given, Mapping) else None
        elif isinstance(part, int) and model is not None and isinstance(given, list | tuple):
            given = given[part]
        else:
            break  # an element of a list, or the name of a type
        path.append(str(part))
    name = ".".join(path)
    if first["type"] == "missing" and model is None and given is None:
        what = f"{name} is missing, it takes {takes}"
    elif first["type"] == "string_pattern_mismatch":
        pattern = first.get("ctx", {}).get("pattern", "")
        what = f"{name} takes {_PATTERNS.get(pattern, f'text that matches {pattern}')}"
        what += "" if secret else f", not {_shown(given)}"
    elif first["type"] == "value_error":
        what = f"{name}: {first['msg'].removeprefix('Value error, ')}"
        what += "" if model or secret else f", not {_shown(given)}"
    else:
        what = f"{name} takes {takes}" + ("" if model or secret else f", not {_shown(given)}")
    return ConfigError(
        what, where=_origin_of(tuple(path), origin), hint="see docs/reference/settings.md"
    )


def _shown(value: Any) -> str:
    """A given value on one line."""
    text = value if isinstance(value, str) and value.strip() else json.dumps(value, default=str)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def _takes(annotation: Any, constraints: Iterable[Any] = ()) -> str:
    """Values that a setting's type takes, in words.

    >>> from pydantic import Field
    >>> _takes(int, Field(ge=1, le=9).metadata), _takes(tuple[float, float] | None)
    ('a whole number from 1 to 9', 'a list of 2 (each a number)')
    """
    kind, inner = get_origin(annotation), get_args(annotation)
    if kind is Annotated:
        more = (c for a in inner[1:] for c in getattr(a, "metadata", (a,)))
        return _takes(inner[0], (*constraints, *more))
    if kind is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if kind is tuple:
        count = "" if inner[-1] is Ellipsis else f" of {len(inner)}"
        return f"a list{count} (each {_takes(inner[0])})"
    options = [option for option in inner if option is not type(None)]
    if kind in (Union, UnionType):
        return " or ".join(dict.fromkeys(_takes(o, constraints) for o in options))
    if _section_of(annotation) is not None:
        return "a mapping of settings"
    words = {int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}
    if annotation not in words:
        return "a mapping" if dict in (kind, annotation) else "text"
    return words[annotation] + _bounds(constraints)


def _bounds(constraints: Iterable[Any]) -> str:
    bounds = {
        name: f"{getattr(c, name):g}" if isinstance(getattr(c, name), float) else getattr(c, name)
        for c in constraints
        for name in ("ge", "gt", "le", "lt")
        if hasattr(c, name)
    }
    if {"ge", "le"} <= bounds.keys():
        return f" from {bounds['ge']} to {bounds['le']}"
    words = {"ge": "of at least", "gt": "above", "le": "of at most", "lt": "below"}
    texts = [f"{word} {bounds[name]}" for name, word in words.items() if name in bounds]
    return "".join(f" {text}" for text in (" and ".join(texts),) if text)


def _reject_unknown(
    model: type[BaseModel],
    values: Mapping[str, Any],
    prefix: tuple[str, ...],
    origin: Mapping[tuple[str, ...], str],
) -> None:
    for key, value in values.items():
        here = (*prefix, str(key))
        field = model.model_fields.get(str(key))
        if field is None:
            name = ".".join(here)
            if name in _REPLACED:
                raise ConfigError(
                    f"{name} is no longer a setting",
                    where=_origin_of(here, origin),
                    hint=_REPLACED[name],
                )
            near = difflib.get_close_matches(str(key), list(model.model_fields), n=1, cutoff=0.5)
            known = ".".join((*prefix, near[0])) if near else ""
            raise ConfigError(
                f"unknown setting {name}",
                where=_origin_of(here, origin),
                hint=f"did you mean {known}?" if near else "see docs/reference/settings.md",
            )
        inner = _section_of(field.annotation)
        for entry in value if isinstance(value, list | tuple) else (value,):
            if inner is not None and isinstance(entry, Mapping):
                _reject_unknown(inner, entry, here, origin)


def _reject_secrets(
    model: type[BaseModel], values: Any, prefix: tuple[str, ...], what: str, where: str
) -> None:
    """Refuse values of secret fields, wherever they are; those come from the environment only."""
    for key, value in values.items() if isinstance(values, Mapping) else ():
        here = (*prefix, str(key))
        field = model.model_fields.get(str(key))
        if field is None:
            continue
        if SecretStr in (field.annotation, *get_args(field.annotation)):
            if value:
                raise ConfigError(
                    f"{what}: {'.'.join(here)}" if where else what,
                    where=where or ".".join(here),
                    hint=f"set {ENV_PREFIX}{'__'.join(here).upper()} in the environment instead",
                )
        elif (inner := _section_of(field.annotation)) is not None:
            for one in value if isinstance(value, list | tuple) else (value,):
                _reject_secrets(inner, one, here, what, where)


def _section_of(annotation: Any) -> type[Section] | None:
    """The section in an annotation such as ``Section | None`` or ``tuple[Section, ...]``."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_section_of, get_args(annotation))), None)
