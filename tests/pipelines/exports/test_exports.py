"""Exports of a release, read by parsers of their own."""

from __future__ import annotations

import csv
import hashlib
import json
import subprocess
import sys
from pathlib import Path

import minari
import polars as pl
import pytest
import yaml
from support import small_release
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.config import Settings
from pipelines.errors import ConfigError, ReleaseError, StoreError
from pipelines.exports import ExportOptions, export_release, push_to_hub
from pipelines.sources import RejectLog, Workspace, open_source
from pipelines.store import Release

#: 6 personas times 24 films, one pair never scored and one refused.
SCORES = 6 * 24 - 2
#: 40 people rate two thirds of 24 films.
PEOPLE_RATINGS = 40 * 16


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports")
    small_release.build(folder)
    return folder


@pytest.fixture(scope="module")
def generated(home: Path) -> Release:
    """A release of a generated world."""
    return small_release.Store(home).release("movies")


@pytest.fixture(scope="module")
def real(home: Path) -> Release:
    """The same rows as of real files, whose texts nobody may pass on."""
    return small_release.build(home, name="real", world="ml-latest-small")


def rows(path: Path, separator: str = ",") -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        quoting = csv.QUOTE_NONE if separator == "\t" else csv.QUOTE_MINIMAL
        return list(csv.DictReader(file, delimiter=separator, quoting=quoting))


def test_movielens_has_scored_pairs_only(generated: Release, tmp_path: Path) -> None:
    written = export_release(generated, "movielens", tmp_path / "ml")
    ratings = rows(tmp_path / "ml" / "ratings.csv")
    assert len(ratings) == SCORES
    # The persona with digit n gives n + 1, and at most 5; ids of films are MovieLens' own.
    assert ratings[0] == {"userId": "1", "movieId": "1", "rating": "1.0", "timestamp": "0"}
    assert {r["rating"] for r in ratings if r["userId"] == "3"} == {"3.0"}
    movies = {r["movieId"]: r for r in rows(tmp_path / "ml" / "movies.csv")}
    assert movies["13"] == {
        "movieId": "13", "title": "Film 13 (1996)", "genres": "Drama|Romance",
    }  # fmt: skip
    assert movies["24"]["title"] == "The [bold]Bracket[/bold] & Söhne"
    assert movies["24"]["genres"] == "(no genres listed)"
    users = rows(tmp_path / "ml" / "users.csv")
    assert (users[2]["userId"], users[2]["user_id"]) == ("3", "persona:default:2")
    assert written["scale"] == "1-5"


def test_movielens_export_is_read_by_our_own_reader(generated: Release, tmp_path: Path) -> None:
    people = ExportOptions(users="people")
    export_release(generated, "movielens", tmp_path / "data" / "movielens", people)
    settings = Settings(world={"folder": tmp_path / "data"})
    work = Workspace(tmp_path / "work", settings, RejectLog(tmp_path / "rejects"))
    work.scratch.mkdir()
    heights = {
        table.dataset.removeprefix("raw.movielens_"): sum(batch.height for batch in table.batches)
        for table in open_source("movielens", settings).read(tmp_path / "data", work)
    }
    # 17 films have two genres, six have one, the last has none.
    assert heights == {"movies": 24, "ratings": PEOPLE_RATINGS, "links": 24, "tags": 41, "users": 0}
    assert not any(batch.height for batch in work.rejects.batches())


def test_people_and_personas_are_never_mixed(generated: Release, tmp_path: Path) -> None:
    export_release(generated, "movielens", tmp_path / "ml", ExportOptions(users="people"))
    ratings = rows(tmp_path / "ml" / "ratings.csv")
    assert len(ratings) == PEOPLE_RATINGS
    assert int(ratings[0]["timestamp"]) > 1_577_836_800  # 2020
    assert all(u["user_id"].startswith("ml-user:") for u in rows(tmp_path / "ml" / "users.csv"))


def test_recbole_files_have_typed_headers(generated: Release, tmp_path: Path) -> None:
    export_release(generated, "recbole", tmp_path / "rb", ExportOptions(users="people"))
    folder = tmp_path / "rb"
    inter = rows(folder / "movies.inter", "\t")
    assert list(inter[0]) == [
        "user_id:token", "item_id:token", "rating:float", "timestamp:float", "split:token",
    ]  # fmt: skip
    assert [r["split:token"] for r in inter].count("test") == 40
    items = {r["item_id:token"]: r for r in rows(folder / "movies.item", "\t")}
    assert items["ml:13"]["genres:token_seq"] == "Drama Romance"
    assert len(items) == 24
    facts = rows(folder / "movies.kg", "\t")
    assert {r["relation_id:token"] for r in facts} == {"belongs-to"}
    entities = {r["entity_id:token"] for r in rows(folder / "movies.link", "\t")}
    assert {r["head_id:token"] for r in facts} == entities


def test_hostile_titles_stay_one_field(tmp_path: Path) -> None:
    title = 'A\t"quoted"\n line'
    items = small_release.frames()["movies.items"].with_columns(title=pl.lit(title))
    release = small_release.build(tmp_path / "home", replace={"movies.items": items})
    export_release(release, "recbole", tmp_path / "rb")
    export_release(release, "movielens", tmp_path / "ml")
    shown = rows(tmp_path / "rb" / "movies.item", "\t")
    assert {r["title:token_seq"] for r in shown} == {"A 'quoted' line"}
    assert rows(tmp_path / "ml" / "movies.csv")[0]["title"] == f"{title} (1972)"


def test_lenskit_rows_are_sorted_by_number(generated: Release, tmp_path: Path) -> None:
    export_release(generated, "lenskit", tmp_path / "lk", ExportOptions(rating="expected"))
    folder = tmp_path / "lk" / "dataset"
    schema = json.loads((folder / "schema.json").read_text())
    assert schema["relationships"]["rating"]["attributes"] == {"rating": {"layout": "scalar"}}
    rating = pl.read_parquet(folder / "rating.parquet")
    assert rating.height == SCORES
    assert rating.equals(rating.sort("user_num", "item_num"))
    items = pl.read_parquet(folder / "item.parquet")["item_id"]
    users = pl.read_parquet(folder / "user.parquet")["user_id"]
    named = rating.with_columns(item=items[rating["item_num"]], user=users[rating["user_num"]])
    assert named.filter(user="persona:default:1", item="ml:2").is_empty()  # refused
    assert named.filter(user="persona:default:2", item="ml:2")["rating"].to_list() == [3.0]


def test_hugging_face_folder_has_a_config_per_table(generated: Release, tmp_path: Path) -> None:
    export_release(generated, "huggingface", tmp_path / "hf")
    _, header, text = (tmp_path / "hf" / "README.md").read_text().split("---\n", 2)
    configs = yaml.safe_load(header)["configs"]
    assert {c["config_name"] for c in configs} == set(generated.tables)
    for config in configs:
        (data,) = config["data_files"]
        frame = pl.read_parquet(tmp_path / "hf" / data["path"])
        assert frame.equals(generated.snapshot(config["config_name"]).read())
    assert "made by hand for tests" in text


def test_croissant_states_hashes_and_columns(generated: Release, tmp_path: Path) -> None:
    export_release(generated, "croissant", tmp_path / "cr")
    document = json.loads((tmp_path / "cr" / "croissant.json").read_text())
    assert document["conformsTo"].endswith("/croissant/1.1")
    for file in document["distribution"]:
        content = (tmp_path / "cr" / file["contentUrl"]).read_bytes()
        assert file["sha256"] == hashlib.sha256(content).hexdigest()
    records = {r["name"]: r for r in document["recordSet"]}
    fields = {f["name"]: f for f in records["item_embeddings"]["field"]}
    vector = fields["vector"]
    assert (vector["dataType"], vector["isArray"], vector["arrayShape"]) == (
        "cr:Float32", True, "-1",
    )  # fmt: skip
    assert records["preference_scores"]["key"] == [
        {"@id": "preference_scores/persona_id"},
        {"@id": "preference_scores/item_id"},
    ]


def test_minari_reads_exported_episodes(
    generated: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export_release(generated, "minari", tmp_path / "mi", ExportOptions(episodes=3, steps=4))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "mi" / "data"))
    found = minari.load_dataset("understudy/movies-random-v0")
    assert (found.total_episodes, found.total_steps) == (3, 12)


def test_texts_of_a_generated_world_are_exported(generated: Release, tmp_path: Path) -> None:
    written = export_release(generated, "croissant", tmp_path / "cr")
    assert written["left_out"] == {}
    assert not (tmp_path / "cr" / "join_texts.py").exists()
    assert "overview" in pl.read_parquet_schema(tmp_path / "cr" / "data" / "items.parquet")


@pytest.mark.parametrize(
    ("form", "place"), [("croissant", "data/items.parquet"), ("lenskit", "dataset/item.parquet")]
)
def test_texts_of_a_real_world_are_left_out(
    form: str, place: str, real: Release, tmp_path: Path
) -> None:
    written = export_release(real, form, tmp_path / "x")
    assert "overview" in written["left_out"]["items"]["columns"]
    assert "overview" not in pl.read_parquet_schema(tmp_path / "x" / place)
    whole = b"".join(f.read_bytes() for f in (tmp_path / "x").rglob("*") if f.is_file())
    assert b"What happens in film" not in whole
    assert "does not allow redistribution" in (tmp_path / "x" / "TERMS.md").read_text()
    export_release(real, form, tmp_path / "asked", ExportOptions(texts=True))
    assert "overview" in pl.read_parquet_schema(tmp_path / "asked" / place)


def test_facts_from_left_out_columns_are_left_out(home: Path, tmp_path: Path) -> None:
    facts = pl.DataFrame(
        [
            ("ml:1", "Movie", "features", "actor:Ann", "Actor"),
            ("actor:Ann", "Actor", "acts-in", "ml:1", "Movie"),
            ("ml:1", "Movie", "belongs-to", "genre:Drama", "Genre"),
        ],
        schema=["head", "head_type", "relation", "tail", "tail_type"],
        orient="row",
    )
    release = small_release.build(
        tmp_path / "home", world="ml-25m", replace={"movies.graph_triples": facts}
    )
    export_release(release, "croissant", tmp_path / "cr")
    kept = pl.read_parquet(tmp_path / "cr" / "data" / "graph_triples.parquet")
    assert kept["relation"].to_list() == ["belongs-to"]
    export_release(release, "recbole", tmp_path / "rb")
    assert [r["relation_id:token"] for r in rows(tmp_path / "rb" / "movies.kg", "\t")] == [
        "belongs-to"
    ]


@pytest.mark.pipeline
@pytest.mark.parametrize("form", ["huggingface", "recbole"])
def test_join_script_adds_texts_of_an_own_release(
    form: str, home: Path, real: Release, tmp_path: Path
) -> None:
    folder = tmp_path / "x"
    export_release(real, form, folder)
    done = subprocess.run(
        [sys.executable, folder / "join_texts.py", "movies@latest", "--home", home],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    joined = pl.read_parquet(folder / "with_texts" / "items.parquet")
    assert joined.height == 24
    key = "item_id" if form == "huggingface" else "item_id:token"
    found = joined.filter(pl.col(key) == "ml:7")["overview"].to_list()
    assert found == ["What happens in film 7."]


def test_failed_export_leaves_nothing(generated: Release, tmp_path: Path) -> None:
    release = small_release.build(tmp_path / "home", without=("personas",))
    with pytest.raises(ReleaseError, match="lacks the table personas"):
        export_release(release, "recbole", tmp_path / "out" / "rb")
    assert list((tmp_path / "out").iterdir()) == []
    (tmp_path / "full").mkdir()
    with pytest.raises(ConfigError, match="already exists"):
        export_release(generated, "recbole", tmp_path / "full")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="the export can't be written"):
        export_release(generated, "recbole", tmp_path / "file" / "rb")
    with pytest.raises(ConfigError, match="did you mean recbole"):
        export_release(generated, "recbol", tmp_path / "rb")


def test_upload_needs_permission_and_a_token(
    generated: Release, real: Release, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="may restrict"):
        push_to_hub(tmp_path, "someone/movies", real, permitted=False)
    with pytest.raises(ConfigError, match="HF_TOKEN"):
        push_to_hub(tmp_path, "someone/movies", generated, permitted=False)


def test_command_exports_and_lists_what_is_left_out(
    home: Path, real: Release, tmp_path: Path
) -> None:
    words = ["release", "export", str(real), "--format", "movielens", "--home", str(home)]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "ml"), "--json"])
    assert done.exit_code == 0, done.output
    written = json.loads(done.stdout)
    assert json.loads((tmp_path / "ml" / "export.json").read_text()).items() <= written.items()
    again = CliRunner().invoke(app, [*words, "--out", str(tmp_path / "ml")])
    assert again.exit_code == 2
    table = CliRunner().invoke(app, [*words[:-4], "--format", "croissant", *words[-2:],
                                     "--out", str(tmp_path / "cr")])  # fmt: skip
    assert "left out of items: overview" in " ".join(table.stdout.split())
