"""Cohorts: each a snapshot of its own, read as their union, pinned one by one."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pipelines.contracts import CONTRACTS
from pipelines.errors import ContractError, IntegrityError, ReleaseError
from pipelines.stages import STAGES, Inputs, PipelineContext, Report, Stage, build
from pipelines.store import CheckRecord, Release, Snapshot, Store, restore

PLAN, ITEMS = "movies.score_plan", "movies.splits"
#: Rows of a cohort.
ROWS = 200


def plan(cohort: str, personas: int) -> pl.DataFrame:
    rows = [(f"persona:{cohort}:{p:07}", "ml:1", "all", 1.0, 0.5) for p in range(personas)]
    return pl.DataFrame(rows, schema=CONTRACTS[PLAN].polars_schema(), orient="row")


def write(home: Path, cohort: str, personas: int = ROWS, **changes: Any) -> Snapshot:
    """Build one cohort; the whole table."""

    def make(inputs: Inputs, settings: Any, report: Report) -> Iterator[pl.DataFrame]:
        report.stats["newest"] = cohort
        report.cohort_stats["pairs"] = personas
        return plan(cohort, personas).iter_slices(70)

    given = {"datasets": (PLAN,), "code_version": "1", "make": make, "by_cohort": True}
    stage = Stage(**{**given, **changes})
    context = PipelineContext({"runtime": {"home": str(home)}})
    return build(stage, context, cohort=cohort).snapshots[PLAN]


def items(store: Store, *users: int) -> Snapshot:
    rows = [(f"ml-user:{u}", "ml:1", "train") for u in users]
    frame = pl.DataFrame(rows, schema=["user_id", "item_id", "split"], orient="row")
    return store.commit(ITEMS, frame, code_version="1")


def publish(store: Store, **tables: Snapshot) -> Release:
    for table in tables.values():
        store.record_checks(table.dataset, table.version, [CheckRecord("rows", passed=True)])
    return store.publish("movies", tables, world="w", required={}, card="# x\n", settings={})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


# -- union ---------------------------------------------------------------------------------------


def test_stages_by_cohort_write_tables_by_cohort() -> None:
    built = {d for stage in STAGES if stage.by_cohort for d in stage.datasets}
    assert built == {name for name, contract in CONTRACTS.items() if contract.by_cohort}


@pytest.mark.parametrize("order", list(itertools.permutations(["a-1", "a", "a1"])))
def test_rows_stand_in_the_order_of_ids_whoever_was_built_first(
    home: Path, order: tuple[str, ...]
) -> None:
    for cohort in order:
        table = write(home, cohort, len(cohort))
    assert table.read().equals(pl.concat([plan("a-1", 3), plan("a1", 2), plan("a", 1)]))
    assert (table.rows, table.cohorts()) == (6, {"a", "a-1", "a1"})
    assert table.of_cohort("a").collect().equals(plan("a", 1))
    assert table.of_cohort("b").collect().is_empty()
    assert table.version == write(home, order[0], len(order[0])).version


def test_facts_and_settings_of_a_cohort_are_by_its_name(home: Path) -> None:
    write(home, "a", 5, identity=lambda *_: {"n": 1})
    table = write(home, "b", 6, identity=lambda *_: {"n": 2})
    assert table.manifest.stats == {"newest": "b", "pairs": {"a": 5, "b": 6}}
    assert {c: own["n"] for c, own in table.manifest.config["cohorts"].items()} == {"a": 1, "b": 2}


def test_another_cohort_is_neither_read_nor_written(home: Path) -> None:
    (old,) = write(home, "a").snapshots
    file = old.files()[0]
    file.chmod(0o644)
    file.write_bytes(bytes(file.stat().st_size))
    table = write(home, "b")
    assert table.snapshots[0] == old
    with pytest.raises(IntegrityError, match=r"movies\.score_plan-a/.*part-00000"):
        table.verify()
    Store(home).current(f"{PLAN}-b").verify()


def test_rows_of_another_cohort_are_refused(home: Path) -> None:
    with pytest.raises(ContractError, match="rows of another cohort"):
        Store(home).commit(f"{PLAN}-a", plan("b", 2), code_version="1")


def test_whole_tables_of_older_versions_are_split(home: Path) -> None:
    store = Store(home)
    rows = pl.concat([plan("a", 2), plan("b", 2)])
    config = {"cohort": "b", "cohorts": {"a": {"n": 1}, "b": {"n": 2}}}
    stats = {"newest": "b", "pairs": {"a": 2, "b": 2}}
    old = store.commit(PLAN, rows, code_version="1", config=config, stats=stats)
    assert (old.cohorts(), old.rows) == ({"a", "b"}, 4)
    assert old.of_cohort("b").collect().equals(plan("b", 2))
    release = publish(store, score_plan=old)
    table = write(home, "c", 1)
    assert table.read().equals(pl.concat([rows, plan("c", 1)]))
    assert table.manifest.stats == {"newest": "c", "pairs": {"a": 2, "b": 2, "c": 1}}
    assert table.manifest.config["cohorts"]["b"] == {"n": 2}
    assert release.snapshot("score_plan").read().equals(rows)
    assert store.verify(release, lineage=True).ok


# -- removal, copies -----------------------------------------------------------------------------


def test_versions_of_a_cohort_are_removed_alone(home: Path) -> None:
    store, first = Store(home), write(home, "a")
    write(home, "b")
    assert store.collect_garbage(grace=timedelta(0)).versions == ()
    second = write(home, "a", 1, identity=lambda *_: {"n": 2})
    gone = store.collect_garbage(grace=timedelta(0)).versions
    assert [(name, version) for name, version, _ in gone] == [
        (f"{PLAN}-a", first.snapshots[0].version)
    ]
    assert store.checks(PLAN, second.version)["contract"].passed
    store.current(PLAN).verify()


def test_pinned_cohorts_stay_and_are_in_a_backup(home: Path, tmp_path: Path) -> None:
    store = Store(home)
    first = write(home, "a")
    release = publish(store, score_plan=first)
    second = write(home, "a", 3, identity=lambda *_: {"n": 2})
    assert store.collect_garbage(grace=timedelta(0)).versions == ()
    store.backup(tmp_path / "home.tar")
    restore(tmp_path / "home.tar", tmp_path / "new")
    again = Store(tmp_path / "new")
    assert again.current(PLAN).version == second.version
    assert again.checks(PLAN, second.version)["contract"].passed
    assert again.release("movies").snapshot("score_plan").read().equals(first.read())
    assert again.verify(str(release), lineage=True).ok


# -- releases ------------------------------------------------------------------------------------


def test_a_release_pins_a_snapshot_per_cohort(home: Path) -> None:
    write(home, "a")
    table = write(home, "b")
    release = publish(Store(home), score_plan=table)
    lock = Store(home).release(str(release)).tables["score_plan"]
    assert (lock.version, lock.rows) == (table.version, 2 * ROWS)
    assert [part.dataset for part in lock.parts] == [f"{PLAN}-a", f"{PLAN}-b"]
    assert set(release.lineage) == {f"{PLAN}-a", f"{PLAN}-b"}
    write(home, "a", 1, identity=lambda *_: {"n": 2})
    assert release.snapshot("score_plan").read().equals(table.read())


def test_a_cohort_made_from_an_older_table_stays_with_a_warning(home: Path) -> None:
    store, reads = Store(home), {"inputs": {"items": ITEMS}}
    older = items(store, 1)
    write(home, "a", **reads)
    newer = items(store, 1, 2)
    with pytest.raises(ReleaseError, match=rf"{ITEMS} has 2 versions: .*used by {PLAN}-a"):
        publish(store, items=newer, score_plan=store.current(PLAN))
    table = write(home, "b", **reads)
    release = publish(store, items=newer, score_plan=table)
    check = release.checks[PLAN]["cohort_lineage"]
    assert (check.passed, check.severity) == (False, "warn")
    assert check.details["message"] == "made from other versions: a"
    assert older.version in check.details["cohorts"]["a"][0]
    assert release.lineage[ITEMS] == newer.version
    assert store.verify(release, lineage=True).ok
    store.collect_garbage(grace=timedelta(0))
    older.verify()
    agreed = publish(store, items=newer, score_plan=write(home, "a", **reads))
    assert "cohort_lineage" not in agreed.checks[PLAN]


def test_a_cohort_in_other_tables_alone_does_not_stand_for_outdated_scores(home: Path) -> None:
    store, scores = Store(home), "books.score_plan"
    older = {ITEMS: items(store, 1).version}
    store.commit(f"{scores}-a", plan("a", 2), code_version="1", inputs=older)
    store.commit(f"{PLAN}-b", plan("b", 2), code_version="1")
    newer = items(store, 1, 2)
    with pytest.raises(ReleaseError, match=rf"{ITEMS} has 2 versions: .*used by {scores}-a"):
        publish(store, items=newer, plan=store.current(PLAN), scores=store.current(scores))


def test_new_and_changed_cohorts_are_causes(home: Path) -> None:
    store = Store(home)
    first = publish(store, score_plan=write(home, "a", 5, identity=lambda *_: {"seed": 7}))
    write(home, "a", 6, identity=lambda *_: {"seed": 8})
    second = publish(store, score_plan=write(home, "b", 5))
    diff = store.diff(first, second).tables["score_plan"]
    assert (diff.rows_added, diff.rows_removed) == (6, 0)
    assert diff.causes == (f"{PLAN}-a: seed 7 → 8", f"{PLAN}: cohort b is new")


# -- processes -----------------------------------------------------------------------------------


#: Writes the cohorts that are named, or one after another until it is killed.
WRITER = """
import itertools, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from test_store_cohorts import write
print("ready", flush=True)
for name in sys.argv[4:] or (f"k{n % 7}" for n in itertools.count()):
    write(Path(sys.argv[3]), name, identity=lambda *_: {"time": __import__("time").time()})
"""


def writer(home: Path, *names: str) -> subprocess.Popen[str]:
    here = Path(__file__).resolve().parent
    command = [sys.executable, "-c", WRITER, str(here), str(here.parents[1]), str(home), *names]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as ready:
        assert ready.readline() == "ready\n"
    return process


@pytest.mark.pipeline
def test_cohorts_are_whole_after_kills(home: Path) -> None:
    store, dice = Store(home), random.Random(11)
    first = write(home, "a")
    for _ in range(5):
        process = writer(home)
        time.sleep(dice.uniform(0.2, 1.5))
        process.kill()
        process.wait()
        for folder in (home / "data").iterdir():
            # A folder under a version's name is a whole version.
            assert {path.name for path in folder.iterdir()} == set(store.versions(folder.name))
        store.current(PLAN).verify()
    last = write(home, "last")
    assert {"a", "k0", "last"} <= last.cohorts()
    assert last.snapshots[0] == first.snapshots[0]
    last.verify()
    store.sweep()
    assert list((home / "_staging").iterdir()) == []


@pytest.mark.pipeline
def test_two_writers_don_t_lose_each_others_cohorts(home: Path) -> None:
    write(home, "a")
    children = [writer(home, "b", "b2", "b3"), writer(home, "c", "c2", "c3")]
    assert [child.wait(timeout=120) for child in children] == [0, 0]
    last = Store(home).current(PLAN)
    assert last.cohorts() == {"a", "b", "b2", "b3", "c", "c2", "c3"}
    last.verify()
