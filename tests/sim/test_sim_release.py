"""Opening a release and reading its tables."""

from __future__ import annotations

import gc
from pathlib import Path
from types import ModuleType

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from pipelines.contracts import CONTRACTS
from pipelines.errors import IntegrityError, ReleaseError
from pipelines.packaged import SAMPLE_HOME
from pipelines.store import Store
from sim import Release, open_release


@pytest.mark.parametrize("ref", ["latest", "movies", "movies@latest"])
def test_every_form_of_the_latest_opens_the_same_release(
    ref: str, home: Path, release: Release
) -> None:
    assert open_release(ref, home=home) == release
    assert open_release(ref, home=home).ref == f"movies@{release.version}"


def test_a_version_its_prefix_and_the_lock_file_open_it_too(home: Path, release: Release) -> None:
    for ref in (f"movies@{release.version}", f"movies@{release.version[:5]}", release.path):
        assert open_release(ref, home=home) == release


def test_a_lock_file_is_enough(release: Release) -> None:
    # No home: the tables are found beside the lock file.
    assert open_release(release.path)["items"].rows == 24


def test_the_home_comes_from_the_environment(
    home: Path, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UNDERSTUDY_HOME", str(home))
    assert open_release() == release


def test_latest_is_the_configured_name_not_the_newest_of_any(
    small: ModuleType, tmp_path: Path
) -> None:
    movies = small.build(tmp_path)
    small.build(tmp_path, name="trial", without=("score_plan",))
    assert open_release("latest", home=tmp_path).ref == str(movies)
    assert open_release("trial", home=tmp_path).name == "trial"


def test_a_version_stays_what_it_was_when_a_newer_one_is_published(
    small: ModuleType, tmp_path: Path
) -> None:
    old = open_release(str(small.build(tmp_path)), home=tmp_path)
    items = small.frames()["movies.items"].head(20)
    small.build(tmp_path, replace={"movies.items": items})
    assert open_release("latest", home=tmp_path)["items"].rows == 20
    assert open_release(old.ref, home=tmp_path)["items"].polars().height == 24


@pytest.mark.parametrize("ref", ["moveis", "moveis@latest"])
def test_an_unknown_name_is_a_release_error_with_the_nearest(ref: str, home: Path) -> None:
    with pytest.raises(ReleaseError, match="did you mean movies"):
        open_release(ref, home=home)


def test_an_empty_store_says_how_to_publish(tmp_path: Path) -> None:
    with pytest.raises(ReleaseError, match="understudy run"):
        open_release("latest", home=tmp_path)


def test_it_is_a_mapping_of_short_names(release: Release) -> None:
    assert len(release) == 11
    assert set(release) == set(release.tables) == set(release.keys())
    assert "items" in release
    assert "films" not in release
    assert release.get("films") is None
    assert release.get("items") is release["items"]
    assert dict(release.items())["personas"].dataset == "movies.personas"
    assert release["items"].dataset == "movies.items"


def test_an_unknown_table_is_a_release_error_listing_the_nearest(release: Release) -> None:
    with pytest.raises(ReleaseError, match=r"no table 'item'.*nearest: items"):
        release["item"]
    with pytest.raises(ReleaseError, match=r"it has .*personas"):
        release["zzz"]
    with pytest.raises(KeyError):
        release["zzz"]


def test_require_names_every_missing_table(release: Release) -> None:
    release.require("items", "personas")
    with pytest.raises(ReleaseError, match="tables captions, products") as caught:
        release.require("captions", "items", "products")
    assert caught.value.details["missing"] == ["captions", "products"]


def test_nothing_is_read_before_a_reader_is_called(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path)
    release = open_release("movies", home=tmp_path)
    table = release["items"]
    lazy = table.lazy()
    # The same length, so that only reading the content can tell.
    (file,) = table.files
    file.chmod(0o644)
    file.write_bytes(b"\0" * file.stat().st_size)
    assert (table.rows, table.columns[0]) == (24, "item_id")
    assert "24 rows" in repr(table)
    with pytest.raises(pl.exceptions.ComputeError):
        lazy.collect()


def test_every_form_holds_the_same_rows(release: Release, small: ModuleType) -> None:
    table = release["interactions"]
    expected = small.frames()["movies.interactions"].sort("user_id", "item_id")
    frame = table.polars()
    assert frame.sort("user_id", "item_id").equals(expected)
    assert isinstance(table.lazy(), pl.LazyFrame)
    assert table.lazy().collect().equals(frame)
    arrow = table.arrow()
    assert isinstance(arrow, pa.Table)
    assert pl.from_arrow(arrow).equals(frame)
    pandas = table.pandas()
    assert isinstance(pandas, pd.DataFrame)
    assert pandas["rating"].tolist() == frame["rating"].to_list()
    assert table.duckdb().order("user_id, item_id").pl()["rating"].equals(frame["rating"])
    assert len(table) == frame.height == table.rows == 640


def test_columns_can_be_chosen_and_a_typo_names_the_nearest(release: Release) -> None:
    table = release["items"]
    assert table.polars(["year", "title"]).columns == ["year", "title"]
    assert table.arrow(["title"]).column_names == ["title"]
    assert list(table.pandas(["title"]).columns) == ["title"]
    for read in (table.polars, table.arrow, table.pandas):
        with pytest.raises(ReleaseError, match=r"no column 'titel'.*nearest: title"):
            read(["titel"])


def test_missing_values_stay_missing_in_pandas(release: Release) -> None:
    frame = release["items"].pandas(["item_id", "year"]).set_index("item_id")
    assert frame.loc["ml:24", "year"] is pd.NA
    assert frame.loc["ml:1", "year"] == 1972


def test_a_duckdb_relation_can_live_in_a_given_connection(release: Release) -> None:
    with duckdb.connect() as connection:
        items = release["items"].duckdb(connection)  # noqa: F841 - found by name below
        assert connection.sql("select count(*) from items").fetchone() == (24,)


def test_a_duckdb_relation_of_its_own_outlives_everything_else(home: Path) -> None:
    relation = open_release("movies", home=home)["items"].duckdb()
    gc.collect()
    assert relation.count("item_id").fetchone() == (24,)


def test_schema_names_and_types_are_those_of_the_contract(release: Release) -> None:
    for table in release.values():
        assert table.columns == list(CONTRACTS[table.dataset].polars_schema())
    assert release["items"].schema["year"] == "int64"


def test_it_knows_its_world_card_path_and_settings(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path, world="ml-latest-small", settings={"scoring": {"scale": "1-5"}})
    release = open_release("movies", home=tmp_path)
    assert release.world == "ml-latest-small"
    assert release.card.startswith("# Movies")
    assert release.path == tmp_path / "releases" / f"{release.ref}.json"
    assert release.settings == {"scoring": {"scale": "1-5"}}
    assert release["items"].path.is_relative_to(tmp_path / "data" / "movies.items")


def test_its_representations_name_tables_rows_and_versions(release: Release) -> None:
    text = repr(release)
    assert text.startswith(f"<Release {release.ref} (world sample")
    assert all(name in text for name in release)
    page = release._repr_html_()
    assert page.count("<tr>") == len(release) + 1
    assert release["items"].version in page
    table = release["items"]
    assert "item_id" in repr(table)
    assert "<td>genres</td>" in table._repr_html_()


def test_verification_reads_every_byte_when_asked(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path)
    assert open_release("movies", home=tmp_path, verify=True)
    (file,) = Store(tmp_path).release("movies").snapshot("personas").files()
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[10] ^= 1
    file.write_bytes(bytes(data))
    open_release("movies", home=tmp_path)
    with pytest.raises(IntegrityError, match="personas"):
        open_release("movies", home=tmp_path, verify=True)


def test_an_open_release_verifies_itself(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path)
    release = open_release("movies", home=tmp_path)
    release.verify(lineage=True)
    release._stored.snapshot("items").files()[0].unlink()
    with pytest.raises(IntegrityError, match="items"):
        release.verify()


def test_a_table_that_is_gone_is_an_integrity_error(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path)
    release = open_release("movies", home=tmp_path)
    (file,) = Store(tmp_path).release("movies").snapshot("items").files()
    file.unlink()
    with pytest.raises(IntegrityError, match=file.name):
        release["items"]


def test_numpy_types_on_request(release: Release) -> None:
    frame = release["items"].pandas(["item_id", "year"], arrow=False)
    assert frame["year"].dtype == "float64"  # one film has no year
    assert frame["year"].isna().sum() == 1
    assert release["items"].pandas(["year"])["year"].dtype == "int64[pyarrow]"


def test_vectors_are_one_array(release: Release) -> None:
    table = release["item_embeddings"]
    vectors = table.numpy("vector")
    assert (vectors.shape, vectors.dtype) == ((24, 8), "float32")
    assert vectors[3].tolist() == table.polars(["vector"])["vector"][3].to_list()


def test_vectors_are_one_tensor(release: Release) -> None:
    pytest.importorskip("torch", reason="torch is not in this environment")
    table = release["item_embeddings"]
    tensor = table.torch("vector")
    assert tensor.shape == (24, 8)
    assert tensor.numpy().tolist() == table.numpy("vector").tolist()


def test_refused_scores_are_nan_in_arrays(release: Release) -> None:
    table = release["preference_scores"]
    refused = [s != "ok" for s in table.polars(["status"])["status"]]
    for column in ("expected", "probabilities"):
        missing = np.isnan(table.numpy(column)).reshape(len(refused), -1)
        assert missing.all(axis=1).tolist() == missing.any(axis=1).tolist() == refused


def test_arrays_of_what_is_no_array_are_refused(release: Release) -> None:
    with pytest.raises(ReleaseError, match="lists of genres differ in length"):
        release["items"].numpy("genres")


def test_tensors_of_texts_are_refused(release: Release) -> None:
    pytest.importorskip("torch", reason="torch is not in this environment")
    with pytest.raises(ReleaseError, match="title does not hold numbers"):
        release["items"].torch("title")


def test_splits_partition_interactions(release: Release) -> None:
    parts = {s: release.split(s).collect() for s in ("train", "validation", "test")}
    assert {s: part.height for s, part in parts.items()} == {
        "train": 40 * 14,
        "validation": 40,
        "test": 40,
    }
    latest = release["interactions"].polars().group_by("user_id").agg(pl.col("rated_at").max())
    assert parts["test"].join(latest, on=["user_id", "rated_at"]).height == 40
    with pytest.raises(ReleaseError, match=r"no split 'dev'.*test, train, validation"):
        release.split("dev")


@pytest.mark.parametrize("name", ["movies", "products"])
def test_packaged_release_is_whole_and_of_the_present_contracts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNDERSTUDY_HOME", raising=False)
    packaged = open_release(name, verify=True)
    assert packaged.home == SAMPLE_HOME
    assert packaged.world == "sample"
    for table in packaged.values():
        # If one differs: python docs/sample_release.py
        assert table.lazy().collect_schema() == CONTRACTS[table.dataset].polars_schema()
    assert not list(tmp_path.iterdir())


def test_only_an_unnamed_home_without_tables_falls_back(
    small: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("UNDERSTUDY_HOME", raising=False)
    version = open_release().version
    assert open_release(f"movies@{version[:6]}").version == version
    for ref in ("books", "movies@0000", "unheard"):
        with pytest.raises(ReleaseError, match="understudy run"):
            open_release(ref)
    with pytest.raises(ReleaseError, match="understudy run"):
        open_release(home=tmp_path / "empty")
    monkeypatch.setenv("UNDERSTUDY_HOME", str(tmp_path / "empty"))
    with pytest.raises(ReleaseError, match="understudy run"):
        open_release()
    monkeypatch.delenv("UNDERSTUDY_HOME")
    own = str(small.build(tmp_path / ".understudy"))
    assert open_release().ref == own
