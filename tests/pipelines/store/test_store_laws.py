"""Laws of content addressing, on generated tables."""

from __future__ import annotations

import itertools
import tempfile
from datetime import UTC
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.store import FileEntry, Store, build_key
from pipelines.store import _writer as parquet
from pipelines.store._lineage import resolve_lineage
from pipelines.store._writer import PartWriter

COLUMNS = {
    "number": st.none() | st.integers(-(2**63), 2**63 - 1),
    "share": st.none() | st.floats(allow_nan=True),
    "text": st.none() | st.text(max_size=6),
    "words": st.none() | st.lists(st.text(max_size=3), max_size=3),
    "vector": st.lists(st.floats(width=32, allow_nan=False), max_size=2),
    "at": st.datetimes(timezones=st.just(UTC)),
}
SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("share", pa.float64()),
        ("text", pa.large_string()),
        ("words", pa.large_list(pa.large_string())),
        ("vector", pa.large_list(pa.float32())),
        ("at", pa.timestamp("us", "UTC")),
    ]
)
ROWS = st.lists(st.fixed_dictionaries(COLUMNS), max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=6)


@pytest.fixture(scope="module", autouse=True)
def _small_files() -> Any:
    """Row groups of 8 rows and files of 16, so that small tables cross every border."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet, "ROW_GROUP", 8)
        patch.setattr(parquet, "ROW_GROUP_NESTED", 8)
        patch.setattr(parquet, "GROUPS_PER_FILE", 2)
        yield


def write(tables: list[pa.Table]) -> tuple[tuple[FileEntry, ...], list[bytes]]:
    with tempfile.TemporaryDirectory() as folder:
        writer = PartWriter(Path(folder), SCHEMA)
        for table in tables:
            writer.write(table)
        entries = writer.finish()
        return entries, [(Path(folder) / e.name).read_bytes() for e in entries]


def cut(table: pa.Table, cuts: list[int]) -> list[pa.Table]:
    borders = sorted({0, *(min(c, table.num_rows) for c in cuts), table.num_rows})
    return [table.slice(a, b - a) for a, b in itertools.pairwise(borders)]


@given(rows=ROWS, one=CUTS, other=CUTS)
@settings(max_examples=60, deadline=None)
def test_bytes_follow_from_the_rows_however_they_are_cut(
    rows: list[dict[str, Any]], one: list[int], other: list[int]
) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    # The second time each batch is built anew, so that buffers, offsets and chunks differ.
    rebuilt = [pa.Table.from_pylist(t.to_pylist(), schema=SCHEMA) for t in cut(table, other)]
    assert write(cut(table, one)) == write(rebuilt)


@given(rows=ROWS)
@settings(max_examples=30, deadline=None)
def test_rows_come_back_in_files_and_row_groups_of_fixed_size(rows: list[dict[str, Any]]) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    with tempfile.TemporaryDirectory() as folder:
        writer = PartWriter(Path(folder), SCHEMA)
        writer.write(table)
        entries = writer.finish()
        files = [Path(folder) / e.name for e in entries]
        read = pl.concat([pl.read_parquet(f, hive_partitioning=False) for f in files])
    expected = [16] * (len(rows) // 16) + ([len(rows) % 16] if len(rows) % 16 or not rows else [])
    assert [e.rows for e in entries] == expected
    assert read.equals(pl.DataFrame(table))


PAIRS = st.dictionaries(
    st.tuples(st.integers(1, 30), st.integers(1, 30)),
    st.sampled_from(["train", "validation", "test"]),
    min_size=1,
    max_size=40,
)


def frame(pairs: dict[tuple[int, int], str]) -> pl.DataFrame:
    rows = [(f"ml-user:{u}", f"ml:{i}", s) for (u, i), s in pairs.items()]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "split"], orient="row")


@given(pairs=PAIRS, other=PAIRS, seed=st.integers(0, 9), batch=st.integers(1, 20))
@settings(max_examples=25, deadline=None)
def test_versions_are_equal_exactly_when_the_rows_are(
    pairs: dict[tuple[int, int], str], other: dict[tuple[int, int], str], seed: int, batch: int
) -> None:
    table = frame(pairs)
    with tempfile.TemporaryDirectory() as home:
        store = Store(home)
        first = store.commit("movies.splits", table, code_version="1")
        shuffled = table.sample(fraction=1, shuffle=True, seed=seed)
        assert store.commit("movies.splits", shuffled, code_version="2") == first
        with store.write("movies.splits", code_version="3") as writer:
            for piece in table.sort("user_id", "item_id").iter_slices(batch):
                writer.append(piece)
        assert writer.snapshot == first
        second = store.commit("movies.splits", frame(other), code_version="1")
        assert (second.version == first.version) == (pairs == other)
        assert set(store.versions("movies.splits")) == {first.version, second.version}
        for snapshot in (first, second):
            snapshot.verify()


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=8,
)


@given(config=st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_a_build_key_ignores_the_order_of_keys_only(config: dict[str, Any]) -> None:
    backwards = dict(reversed(config.items()))
    assert build_key("1", config, {}) == build_key("1", backwards, {})
    assert build_key("1", config, {}) != build_key("1", {**config, "more": 1}, {})
    assert build_key("1", config, {}) != build_key("2", config, {})


VERSIONS = st.sampled_from(["v1", "v2"])
GRAPH = st.fixed_dictionaries(
    {
        (name, version): st.lists(
            st.fixed_dictionaries({}, optional=dict.fromkeys("abcde"[:level], VERSIONS)),
            max_size=3,
        )
        for level, name in enumerate("abcde")
        for version in ("v1", "v2")
    }
)


@given(graph=GRAPH, pins=st.dictionaries(st.sampled_from("cde"), VERSIONS, min_size=1))
@settings(max_examples=200, deadline=None)
def test_a_lineage_is_consistent_exactly_when_trying_every_choice_of_builds_finds_one(
    graph: dict[tuple[str, str], list[dict[str, str]]], pins: dict[str, str]
) -> None:
    def reachable(versions: dict[str, str]) -> bool:
        """Whether some choice of builds explains exactly these versions."""
        return all(
            not graph[node]
            or any(all(versions.get(n) == v for n, v in inputs.items()) for inputs in graph[node])
            for node in versions.items()
        )

    universe = [n for n in "abcde" if n not in pins]
    possible = any(
        reachable({**pins, **{n: v for n, v in zip(universe, choice, strict=True) if v}})
        for choice in itertools.product(["v1", "v2", None], repeat=len(universe))
    )

    class Pinned:
        def __init__(self, dataset: str, version: str) -> None:
            self.dataset, self.version = dataset, version
            self.snapshots = (self,)

    lineage, problems, _ = resolve_lineage(
        [Pinned(*p) for p in pins.items()],  # type: ignore[misc]
        lambda dataset, version: graph[dataset, version],
    )
    assert (not problems) == possible
    if possible:
        assert reachable(lineage)
        assert pins.items() <= lineage.items()
