"""Committing and reading snapshots."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandera.polars as pa_polars
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipelines.contracts import CONTRACTS, Contract
from pipelines.errors import ContractError, IntegrityError, StoreError
from pipelines.store import Build, SnapshotWriter, Store, Table, build_key

SPLITS = "movies.splits"


def splits(*rows: tuple[int, int, str]) -> pl.DataFrame:
    return pl.DataFrame(
        [(f"ml-user:{u}", f"ml:{i}", s) for u, i, s in rows],
        schema=["user_id", "item_id", "split"],
        orient="row",
    )


THREE = splits((1, 10, "train"), (1, 20, "test"), (2, 10, "train"))


def append(store: Store, dataset: str, *frames: pl.DataFrame, **options: Any) -> SnapshotWriter:
    with store.write(dataset, code_version="1", **options) as writer:
        for frame in frames:
            writer.append(frame)
    return writer


def tree(home: Path) -> dict[str, tuple[int, bytes]]:
    """Every file but locks, with the time it was written and its content."""
    return {
        str(f.relative_to(home)): (f.stat().st_mtime_ns, f.read_bytes())
        for f in sorted(home.rglob("*"))
        if f.is_file() and f.parent.name != "_locks"
    }


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


def test_what_is_committed_is_read_back_in_every_form(store: Store) -> None:
    snapshot = store.commit(SPLITS, THREE.reverse(), code_version="1", run_id="r1")
    assert snapshot.read().equals(THREE)
    assert snapshot.scan().filter(pl.col("split") == "test").collect().height == 1
    assert snapshot.read(["split", "item_id"]).columns == ["split", "item_id"]
    assert pl.DataFrame(snapshot.arrow()).equals(THREE)
    assert snapshot.arrow(["split"]).column_names == ["split"]
    assert snapshot.arrow_dataset().count_rows() == 3
    assert snapshot.rows == 3
    assert [f.name for f in snapshot.files()] == ["part-00000.parquet"]
    assert snapshot.bytes == snapshot.files()[0].stat().st_size
    snapshot.verify()
    assert store.current(SPLITS) == snapshot
    assert store.get(SPLITS, snapshot.version[:5]) == snapshot
    assert store.has(SPLITS)
    assert store.datasets() == [SPLITS]
    assert store.versions(SPLITS) == [snapshot.version]


def test_a_manifest_says_what_was_made_from_what(store: Store) -> None:
    snapshot = store.commit(
        SPLITS,
        THREE,
        code_version="7",
        config={"share": 0.1},
        inputs={"raw.movielens_ratings": "a" * 16},
        run_id="r1",
        stats={"users": 2},
    )
    manifest = snapshot.manifest
    assert manifest.dataset == SPLITS
    assert manifest.version == snapshot.version == snapshot.path.name
    assert manifest.code_version == "7"
    assert manifest.config == {"share": 0.1}
    assert manifest.inputs == {"raw.movielens_ratings": "a" * 16}
    assert manifest.build_key == build_key("7", {"share": 0.1}, {"raw.movielens_ratings": "a" * 16})
    assert manifest.run_id == "r1"
    assert manifest.stats == {"users": 2}
    assert manifest.key == ("user_id", "item_id")
    assert [c["name"] for c in manifest.schema] == ["user_id", "item_id", "split"]
    assert manifest.created_at.endswith("+00:00")


def test_snapshot_files_are_read_only_and_carry_no_times_or_library_metadata(store: Store) -> None:
    import pandas as pd

    frame = pa.Table.from_pandas(pd.DataFrame(THREE.to_dicts(), index=[5, 6, 7]))
    frame = frame.drop_columns(["__index_level_0__"])
    assert b"pandas" in frame.schema.metadata
    snapshot = store.commit(SPLITS, frame, code_version="1")
    for file in snapshot.path.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o444
    assert list(pq.read_metadata(snapshot.files()[0]).metadata) == [b"ARROW:schema"]
    assert pq.read_schema(snapshot.files()[0]).metadata is None
    assert pq.read_metadata(snapshot.files()[0]).row_group(0).column(0).compression == "ZSTD"


def test_the_same_rows_in_any_order_and_by_any_code_are_the_same_version(store: Store) -> None:
    first = store.commit(SPLITS, THREE, code_version="1", run_id="first")
    second = store.commit(SPLITS, THREE.reverse(), code_version="2", run_id="second")
    assert second == first
    assert second.manifest.run_id == "first"
    assert store.versions(SPLITS) == [first.version]


def test_an_unchanged_rebuild_writes_no_byte(store: Store) -> None:
    store.commit(SPLITS, THREE, code_version="1", config={"a": 1})
    before = tree(store.home)
    store.commit(SPLITS, THREE, code_version="1", config={"a": 1})
    assert tree(store.home) == before
    assert not list((store.home / "_staging").iterdir())


def test_other_rows_are_another_version_and_the_old_one_stays(store: Store) -> None:
    old = store.commit(SPLITS, THREE, code_version="1")
    new = store.commit(SPLITS, THREE.head(2), code_version="1")
    assert new.version != old.version
    assert store.current(SPLITS) == new
    assert store.versions(SPLITS) == [old.version, new.version]
    assert store.get(SPLITS, old.version).read().equals(THREE)


def test_a_known_build_is_found_and_can_be_made_current(store: Store) -> None:
    old = store.commit(SPLITS, THREE, code_version="1", inputs={"raw.x": "v1"})
    store.commit(SPLITS, THREE.head(1), code_version="1", inputs={"raw.x": "v2"})
    key = build_key("1", {}, {"raw.x": "v1"})
    found = store.find_build(SPLITS, key)
    assert found == old
    assert store.find_build(SPLITS, build_key("1", {}, {"raw.x": "v3"})) is None
    assert store.point(SPLITS, old.version) == old
    assert store.current(SPLITS) == old


def test_another_build_that_comes_to_the_same_content_is_found_by_its_own_key(
    store: Store,
) -> None:
    first = store.commit(SPLITS, THREE, code_version="1")
    store.commit(SPLITS, THREE, code_version="2")
    for code in ("1", "2"):
        assert store.find_build(SPLITS, build_key(code, {}, {})) == first


def test_a_build_whose_snapshot_is_damaged_is_not_found_and_a_rebuild_repairs_it(
    store: Store,
) -> None:
    snapshot = store.commit(SPLITS, THREE, code_version="1")
    file = snapshot.files()[0]
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1])
    assert store.find_build(SPLITS, snapshot.manifest.build_key) is None
    store.commit(SPLITS, THREE, code_version="1").verify()
    assert store.find_build(SPLITS, snapshot.manifest.build_key) is not None
    assert not list((store.home / "_staging").iterdir())


def test_rows_appended_in_batches_are_one_snapshot(store: Store) -> None:
    with store.write(SPLITS, code_version="1") as writer:
        writer.append(THREE.head(1))
        writer.append(THREE.slice(1, 0))
        writer.append(THREE.slice(1).to_arrow().to_batches()[0])
        writer.note(seen=3)
        assert writer.rows == 3
    assert writer.snapshot == store.current(SPLITS)
    assert writer.snapshot.manifest.stats == {"seen": 3}
    again = store.commit(SPLITS, THREE, code_version="1")
    assert again.version == writer.snapshot.version


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (splits((1, 10, "train")), "rows are out of order.*ml:10.*comes after.*ml:20"),
        (splits((1, 20, "test")), "1 rows share a key"),
        (splits((3, 1, "train"), (2, 1, "train")), "rows are out of order"),
    ],
    ids=["before the last batch", "key of the last batch", "within a batch"],
)
def test_unsorted_or_doubled_appends_are_refused_and_leave_nothing(
    store: Store, second: pl.DataFrame, message: str
) -> None:
    with pytest.raises(ContractError, match=message):
        append(store, SPLITS, THREE.head(2), second)
    assert not store.has(SPLITS)
    assert not (store.home / "data").exists()
    assert not list((store.home / "_staging").iterdir())


class _Nullable(pa_polars.DataFrameModel):
    class Config:
        strict = True
        ordered = True

    a: pl.Int64 = pa_polars.Field(nullable=True)
    b: pl.Float64 = pa_polars.Field(nullable=True)


def test_nulls_come_first_and_a_key_outside_the_order_breaks_ties(store: Store) -> None:
    contract = Contract("t", _Nullable, ("b",), ("a",))
    rows = [(None, 1.0), (None, 2.0), (1, None), (1, 0.5), (2, -1.0), (2, float("nan"))]
    frame = pl.DataFrame(rows, schema={"a": pl.Int64, "b": pl.Float64}, orient="row")
    committed = store.commit("t", frame.reverse(), code_version="1", contract=contract)
    assert committed.read().equals(frame)
    writer = append(store, "t", *frame.iter_slices(1), contract=contract)
    assert writer.snapshot == committed
    with pytest.raises(ContractError, match="out of order"):
        append(store, "t", frame[[0, 2]], frame[[1]], contract=contract)


def test_a_key_that_is_only_part_of_the_order_is_looked_for_in_any_case(store: Store) -> None:
    contract = Contract("t", _Nullable, ("b",), ("a",))
    ascending = pl.DataFrame({"a": [1, 2], "b": [5.0, 5.0]})
    with pytest.raises(ContractError, match=r"2 rows share a key \(b\)"):
        append(store, "t", ascending, contract=contract)


def test_rows_that_break_the_contract_are_refused(store: Store) -> None:
    bad = THREE.with_columns(split=pl.lit("holdout"))
    with pytest.raises(ContractError, match=r"split.*movies\.splits"):
        store.commit(SPLITS, bad, code_version="1")
    assert not store.has(SPLITS)


def test_no_rows_are_an_error_unless_allowed(store: Store) -> None:
    with pytest.raises(ContractError, match=r"no rows: movies\.splits"):
        store.commit(SPLITS, THREE.head(0), code_version="1")
    with pytest.raises(ContractError, match="no rows"), store.write(SPLITS, code_version="1"):
        pass
    empty = store.commit(SPLITS, THREE.head(0), code_version="1", allow_empty=True)
    assert empty.rows == 0
    assert empty.read().schema == CONTRACTS[SPLITS].polars_schema()
    with store.write(SPLITS, code_version="2", allow_empty=True) as writer:
        pass
    assert writer.snapshot.version == empty.version
    empty.verify()


def test_an_exception_in_the_block_commits_nothing(store: Store) -> None:
    w = store.write(SPLITS, code_version="1")

    def broken_step() -> None:
        with w:
            w.append(THREE)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        broken_step()
    assert not store.has(SPLITS)
    assert not list((store.home / "_staging").iterdir())
    with pytest.raises(StoreError, match="not committed"):
        _ = w.snapshot
    with pytest.raises(StoreError, match="closed"):
        w.append(THREE)


@pytest.mark.parametrize("dataset", sorted(CONTRACTS))
def test_every_contract_keeps_its_types_through_the_store(store: Store, dataset: str) -> None:
    schema = CONTRACTS[dataset].polars_schema()
    snapshot = store.commit(
        dataset, pl.DataFrame(schema=schema), code_version="1", allow_empty=True
    )
    assert snapshot.read().schema == schema
    assert snapshot.arrow().schema == CONTRACTS[dataset].arrow_schema()


def test_an_exception_after_row_groups_were_written_leaves_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.store._writer.ROW_GROUP", 1)
    monkeypatch.setattr("pipelines.store._writer.GROUPS_PER_FILE", 2)
    with pytest.raises(ContractError, match="share a key"):
        append(store, SPLITS, THREE, THREE.tail(1))
    assert not list((store.home / "_staging").iterdir())
    snapshot = append(store, SPLITS, THREE).snapshot
    assert [f.rows for f in snapshot.manifest.files] == [2, 1]
    assert snapshot.read().equals(THREE)
    assert snapshot.arrow().num_rows == snapshot.arrow_dataset().count_rows() == 3
    snapshot.verify()


def test_tables_of_a_build_appear_together_or_not_at_all(store: Store) -> None:
    users = pl.DataFrame({"tmdb_id": [1], "reason": ["not_found"]})

    def build(ids: pl.DataFrame) -> Build:
        def make() -> Iterator[Table]:
            yield Table(SPLITS, [THREE])
            assert store.datasets() == []
            yield Table("raw.tmdb_missing", [ids])

        return Build((SPLITS, "raw.tmdb_missing"), make, "1", {}, {})

    with pytest.raises(ContractError, match="tmdb_id"):
        store.build(build(users.with_columns(tmdb_id=-1)))
    assert store.datasets() == []
    assert not list((store.home / "_staging").iterdir())

    made = store.build(build(users))
    assert made == {d: store.current(d) for d in (SPLITS, "raw.tmdb_missing")}
    assert store.datasets() == [SPLITS, "raw.tmdb_missing"]


def test_an_empty_table_among_several_stops_all_of_them(store: Store) -> None:
    writers = [
        store.write(SPLITS, code_version="1"),
        store.write("raw.tmdb_missing", code_version="1"),
    ]
    writers[0].append(THREE)
    with pytest.raises(ContractError, match=r"no rows: raw\.tmdb_missing"):
        store.commit_together(writers)
    assert store.datasets() == []


def test_unknown_things_are_named(store: Store) -> None:
    with pytest.raises(StoreError, match=r"no movies\.splits in this store.*understudy run"):
        store.current(SPLITS)
    with pytest.raises(StoreError, match=r"no contract for this dataset: movies\.nothing"):
        store.commit("movies.nothing", THREE, code_version="1")
    snapshot = store.commit(SPLITS, THREE, code_version="1")
    with pytest.raises(StoreError, match=f"no versions .*{snapshot.version}"):
        store.get(SPLITS, "zzz")
    with pytest.raises(StoreError, match="no versions"):
        store.get(SPLITS, "")
    with pytest.raises(StoreError, match=r"no column 'spilt'.*split"):
        snapshot.read(["spilt"])
    with pytest.raises(StoreError, match="no column 'spilt'"):
        snapshot.arrow(["spilt"])


def test_an_ambiguous_prefix_is_refused(store: Store) -> None:
    for rows in range(1, 4):
        store.commit(SPLITS, THREE.head(rows), code_version="1")
    versions = store.versions(SPLITS)
    folder = store.home / "data" / SPLITS / (versions[0][:3] + "0" * 13)
    folder.mkdir()
    with pytest.raises(StoreError, match="2 versions"):
        store.get(SPLITS, versions[0][:3])


@pytest.mark.parametrize("name", ["../up", "a/b", "", "Movies", "a..b", "a.", ".a", "a b"])
def test_dataset_names_that_are_no_folder_names_are_refused(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="not a dataset name"):
        store.commit(name, THREE, code_version="1", contract=CONTRACTS[SPLITS])
    with pytest.raises(StoreError, match="not a dataset name"):
        store.current(name)


@pytest.mark.parametrize("config", [{"a": object()}, {1: 2}, {"a": Path("x")}])
def test_a_configuration_that_json_cannot_say_is_refused(
    store: Store, config: dict[Any, Any]
) -> None:
    with pytest.raises(StoreError, match="JSON"):
        store.commit(SPLITS, THREE, code_version="1", config=config)


def test_corrupt_and_foreign_things_are_left_out_of_lists_and_named_when_asked_for(
    store: Store,
) -> None:
    snapshot = store.commit(SPLITS, THREE, code_version="1")
    data = store.home / "data" / SPLITS
    (data / "0123456789abcdef").mkdir()
    (data / "fedcba9876543210").mkdir()
    (data / "fedcba9876543210" / "_manifest.json").write_text("{")
    (data / "notes").mkdir()
    (store.home / "data" / "README").write_text("mine")
    (store.home / "refs" / "notes.txt").write_text("mine")
    (store.home / "_staging" / "mine").mkdir()
    assert store.versions(SPLITS) == [snapshot.version]
    assert store.datasets() == [SPLITS]
    assert store.sweep() == 0
    with pytest.raises(IntegrityError, match="0123456789abcdef"):
        store.get(SPLITS, "0123")
    with pytest.raises(IntegrityError, match=r"damaged.*fedcba9876543210/_manifest\.json"):
        store.get(SPLITS, "fedc")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"version": 3}', "\x00\xff"])
def test_a_damaged_pointer_is_named_and_the_next_commit_mends_it(
    store: Store, content: str
) -> None:
    snapshot = store.commit(SPLITS, THREE, code_version="1")
    pointer = store.home / "refs" / f"{SPLITS}.json"
    build = store.home / "builds" / SPLITS / f"{snapshot.manifest.build_key}.json"
    pointer.write_text(content)
    build.write_text(content)
    with pytest.raises(IntegrityError, match=f"refs/{SPLITS}.json"):
        store.current(SPLITS)
    assert store.find_build(SPLITS, snapshot.manifest.build_key) is None
    store.commit(SPLITS, THREE, code_version="1")
    assert store.current(SPLITS) == snapshot
    assert store.find_build(SPLITS, snapshot.manifest.build_key) == snapshot


@pytest.mark.pipeline
def test_opening_and_reading_load_no_heavy_package(store: Store) -> None:
    store.commit(SPLITS, THREE, code_version="1")
    store.publish("m", {"s": store.current(SPLITS)}, world="w", required={}, card="c", settings={})
    code = (
        "import sys\n"
        "import pipelines.store\n"
        "light = {'polars', 'pyarrow', 'pandas', 'numpy'}\n"
        "heavy = {'pandera', 'torch', 'dagster', 'duckdb', 'dbt', 'great_expectations'}\n"
        "assert not (light | heavy) & set(sys.modules)\n"
        f"store = pipelines.store.Store({str(store.home)!r})\n"
        "assert store.verify('m@latest').ok\n"
        "assert not (light | heavy) & set(sys.modules)\n"
        "snapshot = store.release('m').snapshot('s')\n"
        "assert snapshot.read().height == snapshot.arrow().num_rows == 3\n"
        "assert not heavy & set(sys.modules)\n"
    )
    environment = {k: v for k, v in os.environ.items() if not k.startswith("COV")}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert result.returncode == 0, result.stderr
