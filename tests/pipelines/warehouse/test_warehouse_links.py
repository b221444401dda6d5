from __future__ import annotations

import os
import shutil
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import IntegrityError, StoreError
from pipelines.store import Store
from pipelines.warehouse import SOURCES, WarehouseLayout, link_sources, linked_sources


def new_missing(store: Store, tmdb_id: int) -> str:
    frame = pl.DataFrame({"tmdb_id": [tmdb_id], "reason": ["not_found"]})
    return store.commit("raw.tmdb_missing", frame, code_version="t").version


def test_links_lead_to_the_current_snapshots(raw_store: Store) -> None:
    found = link_sources(raw_store)
    assert found == {name: raw_store.current(name).version for name in SOURCES}
    assert linked_sources(raw_store.home) == found
    for name in SOURCES:
        link = WarehouseLayout(raw_store.home).sources / name.removeprefix("raw.")
        assert pl.read_parquet(link / "*.parquet").height == 1
        assert link.resolve() == raw_store.current(name).path.resolve()


def test_a_new_version_is_linked_only_when_asked(raw_store: Store) -> None:
    link_sources(raw_store)
    old = raw_store.current("raw.tmdb_missing").version
    new = new_missing(raw_store, 5)
    link = WarehouseLayout(raw_store.home).sources / "tmdb_missing"
    assert pl.read_parquet(link / "*.parquet")["tmdb_id"].to_list() == [1]
    assert link_sources(raw_store)["raw.tmdb_missing"] == new
    assert pl.read_parquet(link / "*.parquet")["tmdb_id"].to_list() == [5]
    assert link_sources(raw_store, {"raw.tmdb_missing": old})["raw.tmdb_missing"] == old
    assert pl.read_parquet(link / "*.parquet")["tmdb_id"].to_list() == [1]


def test_links_survive_moving_the_home(raw_store: Store, tmp_path: Path) -> None:
    link_sources(raw_store)
    moved = tmp_path / "elsewhere" / "deep"
    moved.parent.mkdir()
    shutil.move(raw_store.home, moved)
    assert pl.read_parquet(moved / "warehouse/sources/tmdb_missing/*.parquet").height == 1


def test_nothing_is_linked_when_a_required_table_is_missing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    new_missing(store, 5)
    with pytest.raises(StoreError, match=r"no raw\.movielens_movies in this store"):
        link_sources(store, required=["raw.movielens_movies"])
    assert linked_sources(tmp_path) == {}
    assert not WarehouseLayout(tmp_path).sources.exists()


def test_what_the_store_does_not_have_is_not_linked(raw_store: Store, tmp_path: Path) -> None:
    store = Store(tmp_path)
    with pytest.raises(StoreError, match="no raw dataset in this store"):
        link_sources(store)
    version = new_missing(store, 5)
    assert link_sources(store) == {"raw.tmdb_missing": version}
    # A link that an earlier world left leads nowhere any more.
    layout = WarehouseLayout(tmp_path)
    stale = layout.sources / "movielens_tags"
    stale.symlink_to(raw_store.current("raw.movielens_tags").path)
    new_missing(store, 6)
    link_sources(store)
    assert [p.name for p in layout.sources.iterdir()] == ["tmdb_missing"]


@pytest.mark.faults
def test_a_fault_while_linking_leaves_no_record_of_a_mixture(
    raw_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    link_sources(raw_store)
    new_missing(raw_store, 5)
    real = Path.symlink_to

    def full(self: Path, target: str, target_is_directory: bool = False) -> None:
        if "tmdb_missing" in self.name:
            raise OSError(28, os.strerror(28))
        real(self, target, target_is_directory)

    monkeypatch.setattr(Path, "symlink_to", full)
    with pytest.raises(StoreError, match="can't be linked"):
        link_sources(raw_store)
    assert linked_sources(raw_store.home) == {}
    monkeypatch.undo()
    assert link_sources(raw_store)["raw.tmdb_missing"] == linked_sources(raw_store.home).get(
        "raw.tmdb_missing"
    )


def test_a_damaged_record_is_named(raw_store: Store) -> None:
    link_sources(raw_store)
    WarehouseLayout(raw_store.home).linked.write_text("[]")
    with pytest.raises(IntegrityError, match=r"sources\.json"):
        linked_sources(raw_store.home)
