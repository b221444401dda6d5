"""Comparison with the last release, and gates that stop publishing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.contracts._base import Contract
from pipelines.errors import ReleaseError
from pipelines.quality import (
    SUITES,
    check_dataset,
    previous_snapshot,
    required_checks,
    world_of,
)
from pipelines.stages import contract_record
from pipelines.store import CheckRecord, Snapshot, Store

#: The world of these tests has films and books.
TESTED = [d for d in SUITES if d.partition(".")[0] not in ("games", "products", "own")]


def _drift(world: Any, snapshot: Snapshot, previous: Snapshot) -> dict[str, CheckRecord]:
    views = {e.name for e in SUITES[snapshot.dataset] if e.view.startswith("drift_")}
    records = check_dataset(
        snapshot.dataset, snapshot, store=world.store, settings=world.settings, previous=previous
    )
    return {r.name: r for r in records if r.name in views}


@pytest.mark.parametrize("dataset", TESTED)
def test_nothing_drifts_from_itself(world: Any, dataset: str) -> None:
    table = world.tables[dataset]
    records = _drift(world, table, table)
    # Lost rows are judged from fifty on.
    small = {"row_drop"} if table.rows < 50 else set()
    assert {name for name, r in records.items() if not r.passed} == small
    assert {r.status for r in records.values()} <= {"passed", "not applicable"}


@pytest.mark.parametrize("dataset", TESTED)
def test_first_release_has_no_previous(world: Any, dataset: str) -> None:
    records = check_dataset(
        dataset, world.tables[dataset], store=world.store, settings=world.settings
    )
    skipped = [r for r in records if r.details.get("skipped") == "no previous"]
    assert all(r.status == "not applicable" and not r.blocks for r in skipped)
    assert {"row_drop", "schema_unchanged"} <= {r.name for r in skipped}


@pytest.mark.parametrize(
    ("kept", "passed"), [(75, True), (74, False)], ids=["half is allowed", "less is not"]
)
def test_lost_rows_stop_at_the_setting(world: Any, kept: int, passed: bool) -> None:
    fewer = world.broken("movies.items", lambda f: f.head(kept))
    record = _drift(world, fewer, world.tables["movies.items"])["row_drop"]
    assert record.passed is passed
    assert record.severity == "error"
    assert record.details["observed"] == pytest.approx(1 - kept / 150)
    if not passed:
        assert record.details["rows"][0]["rows_before"] == "150"


def test_a_smaller_cohort_only_warns(world: Any) -> None:
    fewer = world.broken("movies.personas", lambda f: f.head(100))
    record = _drift(world, fewer, world.tables["movies.personas"])["row_drop"]
    assert (record.passed, record.severity) == (False, "warn")


def test_moved_ratings_stop_with_the_values_that_moved_most(world: Any) -> None:
    moved = world.broken(
        "movies.interactions",
        lambda f: f.with_columns(
            rating=pl.when(pl.int_range(pl.len()) < 540).then(5.0).otherwise("rating")
        ),
    )
    record = _drift(world, moved, world.tables["movies.interactions"])["rating_drift"]
    assert (record.passed, record.severity) == (False, "error")
    before = world.frames["movies.interactions"]["rating"]
    stays = before.head(540).filter(before.head(540) != 5.0).len()
    # Each rating that became five moves 1/1800 of the mass.
    assert record.details["observed"] == pytest.approx(stays / 1800)
    assert record.details["rows"][0]["rating"] == "5.0"


@pytest.mark.pipeline
def test_ages_of_another_seed_are_no_drift(world: Any) -> None:
    from pipelines.config import PersonaSettings
    from pipelines.personas import generate

    other = world.broken("movies.personas", lambda _: generate(PersonaSettings(count=300, seed=8)))
    assert _drift(world, other, world.tables["movies.personas"])["age_drift"].passed
    old = world.broken("movies.personas", lambda f: f.with_columns(age=pl.lit(80, pl.Int64)))
    assert not _drift(world, old, world.tables["movies.personas"])["age_drift"].passed


def test_a_changed_column_type_is_noted(world: Any) -> None:
    import pandera.polars as pa

    class Older(pa.DataFrameModel):
        user_id: pl.String
        ratings: pl.Int32

    contract = Contract("human_users", Older, ("user_id",), ("user_id",))
    frame = world.frames["movies.human_users"]
    current = world.store.current("movies.human_users").version
    older = world.store.commit(
        "movies.human_users",
        frame.select("user_id", pl.col("ratings").cast(pl.Int32)),
        code_version="0",
        contract=contract,
    )
    world.store.point("movies.human_users", current)
    record = _drift(world, world.tables["movies.human_users"], older)["schema_unchanged"]
    assert (record.passed, record.severity) == (False, "warn")
    changed = {row["column"]: row["type_before"] for row in record.details["rows"]}
    assert changed["ratings"] == "int32"
    assert changed["mean_rating"] is None
    assert "user_id" not in changed


# -- gates of a release ----------------------------------------------------------------------


def _inventory(store: Store, sha: str, origin: str = "generated", name: str = "sample") -> None:
    frame = pl.DataFrame(
        {
            "file": ["movielens/ratings.csv"],
            "sha256": [sha],
            "bytes": [10],
            "source": ["movielens"],
            "origin": [origin],
            "licence": ["none"],
        }
    )
    inputs = {"file:movielens/ratings.csv": sha}
    store.commit("raw.world_files", frame, code_version="1", inputs=inputs, stats={"world": name})


def _commit(store: Store, frame: pl.DataFrame, sha: str, code: str = "1") -> Snapshot:
    inputs = {"file:movielens/ratings.csv": sha}
    return store.commit("movies.items", frame, code_version=code, inputs=inputs)


def _publish(store: Store, settings: Any, snapshot: Snapshot, **options: Any) -> Any:
    records = check_dataset(
        "movies.items",
        snapshot,
        store=store,
        settings=settings,
        previous=previous_snapshot(store, "movies.items", "movies"),
    )
    contract = contract_record(snapshot)
    store.record_checks("movies.items", snapshot.version, [contract, *records])
    return store.publish(
        "movies",
        {"items": snapshot},
        world=world_of(store),
        required={"movies.items": required_checks("movies.items")},
        card="card",
        settings={},
        **options,
    )


def test_a_failed_expectation_stops_the_release(world: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    frame = world.frames["movies.items"]
    _inventory(store, "a" * 64)
    good = _publish(store, world.settings, _commit(store, frame, "a" * 64))
    bare = frame.with_columns(genres=pl.lit([], pl.List(pl.String)))
    with pytest.raises(ReleaseError, match="genre_coverage failed"):
        _publish(store, world.settings, _commit(store, bare, "a" * 64))
    assert store.release("movies@latest").version == good.version


def test_lost_films_stop_the_next_release_of_the_same_world(world: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    frame = world.frames["movies.items"]
    _inventory(store, "a" * 64, origin="given", name="ml-latest-small")
    assert previous_snapshot(store, "movies.items", "movies") is None
    first = _publish(store, world.settings, _commit(store, frame, "a" * 64))
    _inventory(store, "b" * 64, origin="given", name="ml-latest-small")
    found = previous_snapshot(store, "movies.items", "movies")
    assert found is not None
    assert found.version == first.tables["items"].version
    with pytest.raises(ReleaseError, match="row_drop failed"):
        _publish(store, world.settings, _commit(store, frame.head(60), "b" * 64))


def test_another_world_is_not_drift(world: Any, tmp_path: Path) -> None:
    store = Store(tmp_path / "home")
    frame = world.frames["movies.items"]
    _inventory(store, "a" * 64)
    _publish(store, world.settings, _commit(store, frame, "a" * 64))
    assert previous_snapshot(store, "movies.items", "movies") is not None
    assert previous_snapshot(store, "movies.items", "books") is None
    # Generated files with other bytes: another size or seed of the sample world.
    _inventory(store, "b" * 64)
    assert previous_snapshot(store, "movies.items", "movies") is None
    smaller = _publish(store, world.settings, _commit(store, frame.head(60), "b" * 64))
    assert store.release("movies@latest").version == smaller.version
    _inventory(store, "c" * 64, origin="given", name="ml-25m")
    assert previous_snapshot(store, "movies.items", "movies") is None
