"""Parts of tables by cohort: cut by the rows alone, shared by versions, written once."""

from __future__ import annotations

import errno
import itertools
import os
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
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines import cohorts
from pipelines.contracts import CONTRACTS
from pipelines.errors import IntegrityError
from pipelines.stages import STAGES, Inputs, PipelineContext, Report, Stage, build
from pipelines.store import Snapshot, Store, restore

PLAN = "movies.score_plan"
#: Rows of a cohort.
ROWS = 200


def plan(cohort: str, personas: int, items: int = 1) -> pl.DataFrame:
    rows = [
        (f"persona:{cohort}:{p:07}", f"ml:{i}", "all", 1.0, 0.5)
        for p in range(personas)
        for i in range(items)
    ]
    return pl.DataFrame(rows, schema=CONTRACTS[PLAN].polars_schema(), orient="row")


def write(home: Path, cohort: str, personas: int = ROWS, **changes: Any) -> Snapshot:
    """Build one cohort beside the others."""

    def make(inputs: Inputs, settings: Any, report: Report) -> Iterator[pl.DataFrame]:
        report.cohort_stats["pairs"] = personas
        return plan(cohort, personas).iter_slices(70)

    given = {"datasets": (PLAN,), "code_version": "1", "make": make, "by_cohort": True}
    stage = Stage(**{**given, **changes})
    context = PipelineContext({"runtime": {"home": str(home)}})
    return build(stage, context, cohort=cohort).snapshots[PLAN]


def inodes(snapshot: Snapshot) -> dict[str | None, int]:
    files = zip(snapshot.manifest.files, snapshot.files(), strict=True)
    return {entry.cohort: file.stat().st_ino for entry, file in files}


def new_bytes(before: Snapshot, after: Snapshot) -> int:
    old = {f.stat().st_ino for f in before.files()}
    return sum(f.stat().st_size for f in after.files() if f.stat().st_ino not in old)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


# -- the cut -------------------------------------------------------------------------------------


def test_stages_by_cohort_write_tables_by_cohort() -> None:
    built = {d for stage in STAGES if stage.by_cohort for d in stage.datasets}
    assert built == {name for name, contract in CONTRACTS.items() if contract.by_cohort}


def test_cohorts_and_blocks_of_personas_begin_files(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cohorts, "BLOCK", 3)
    rows = pl.concat([plan("a-1", 1, 2), plan("a", 7, 2), plan("a1", 3, 2)]).sort("persona_id")
    snapshot = Store(home).commit(PLAN, rows, code_version="1")
    assert [(f.name, f.rows) for f in snapshot.manifest.files] == [
        ("part-a-1_00000.parquet", 2),
        ("part-a1_00000.parquet", 6),
        ("part-a_00000.parquet", 6),
        ("part-a_00001.parquet", 6),
        ("part-a_00002.parquet", 2),
    ]
    assert snapshot.read().equals(rows)
    assert snapshot.of_cohort("a").collect().equals(plan("a", 7, 2))
    assert snapshot.of_cohort("b").collect().is_empty()
    assert snapshot.cohorts() == {"a", "a-1", "a1"}
    assert sorted(f.name for f in snapshot.files()) == [f.name for f in snapshot.files()]


@pytest.mark.pipeline
@given(
    sizes=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    items=st.integers(1, 3),
    batch=st.integers(1, 40),
)
@settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_batches_decide_no_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], items: int, batch: int
) -> None:
    monkeypatch.setattr(cohorts, "BLOCK", 4)
    rows = pl.concat([plan(c, n, items) for c, n in zip(("a-1", "a1", "a"), sizes, strict=True)])
    store = Store(tmp_path / "home")
    whole = store.commit(PLAN, rows, code_version="1", allow_empty=True)
    with store.write(PLAN, code_version="2", allow_empty=True) as writer:
        for frame in rows.iter_slices(batch):
            writer.append(frame)
    assert writer.snapshot == whole
    assert whole.read().equals(rows)
    parts = sum(-(-n // 4) for n in sizes)
    assert len(whole.files()) == max(parts, 1)


# -- sharing -------------------------------------------------------------------------------------


def test_other_cohorts_keep_their_files(home: Path) -> None:
    first = write(home, "a")
    second = write(home, "b")
    assert inodes(second)["a"] == inodes(first)["a"]
    third = write(home, "a", 5, code_version="1", identity=lambda *_: {"n": 2})
    assert inodes(third)["b"] == inodes(second)["b"]
    assert third.read()["persona_id"].to_list() == [
        *plan("a", 5)["persona_id"],
        *plan("b", ROWS)["persona_id"],
    ]
    for snapshot in (first, second, third):
        snapshot.verify()
    assert third.manifest.stats["pairs"] == {"a": 5, "b": ROWS}


@pytest.mark.parametrize("order", list(itertools.permutations(["a-1", "a", "a1"])))
def test_order_of_writing_decides_no_byte(home: Path, order: tuple[str, ...]) -> None:
    for cohort in order:
        written = write(home, cohort, len(cohort))
    rows = pl.concat([plan("a-1", 3), plan("a1", 2), plan("a", 1)])
    assert written.version == Store(home.parent / "other").commit(
        PLAN, rows, code_version="1"
    ).version  # fmt: skip


def test_bytes_written_do_not_grow_with_other_cohorts(home: Path) -> None:
    written, before = [], write(home, "c0")
    for number in range(1, 12):
        after = write(home, f"c{number}")
        written.append(new_bytes(before, after))
        before = after
    assert max(written) <= 1.05 * min(written)
    changed = write(home, "c3", ROWS - 1, identity=lambda *_: {"n": 2})
    assert new_bytes(before, changed) <= max(written)


def test_shared_files_are_not_read_again(home: Path) -> None:
    first = write(home, "a")
    (file,) = first.files()
    file.chmod(0o644)
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 0xFF
    file.write_bytes(data)
    second = write(home, "b")
    assert second.manifest.files[0] == first.manifest.files[0]
    with pytest.raises(IntegrityError, match="part-a_00000"):
        second.verify()


@pytest.mark.parametrize("code", [errno.EMLINK, errno.EPERM])
def test_files_that_can_not_be_linked_are_copied(
    home: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    first, link = write(home, "a"), os.link

    def refused(source: Path, target: Path) -> None:
        if str(source).endswith(".parquet"):
            raise OSError(code, os.strerror(code))
        link(source, target)

    monkeypatch.setattr(os, "link", refused)
    second = write(home, "b")
    monkeypatch.undo()
    assert inodes(second)["a"] != inodes(first)["a"]
    assert [f.stat().st_mode & 0o777 for f in second.files()] == [0o444, 0o444]
    second.verify()


def test_other_code_checks_and_writes_all_rows_again(home: Path) -> None:
    first = write(home, "a")
    second = write(home, "b", code_version="2")
    assert inodes(second)["a"] != inodes(first)["a"]
    assert second.manifest.files[0] == first.manifest.files[0]


def test_tables_from_before_parts_by_cohort_are_taken_over(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pl.concat([plan("a", 2), plan("b", 2)])
    with monkeypatch.context() as patch:
        patch.setattr("pipelines.store._writer._Cuts.of", lambda *_: ())
        old = Store(home).commit(PLAN, rows, code_version="1")
    assert [f.name for f in old.manifest.files] == ["part-00000.parquet"]
    assert old.cohorts() == {"a", "b"}
    assert old.of_cohort("b").collect().equals(plan("b", 2))
    new = write(home, "c", 1)
    assert [f.cohort for f in new.manifest.files] == ["a", "b", "c"]
    assert new.read().equals(pl.concat([rows, plan("c", 1)]))


# -- removal, copies -----------------------------------------------------------------------------


def test_files_stay_while_a_version_needs_them(home: Path) -> None:
    store, first = Store(home), write(home, "a")
    second = write(home, "b")
    listed = store.collect_garbage(grace=timedelta(0), dry_run=True)
    assert listed.versions == ((PLAN, first.version, len(first.manifest.to_json())),)
    assert listed.kept_bytes >= second.bytes
    store.collect_garbage(grace=timedelta(0))
    assert store.versions(PLAN) == [second.version]
    second.verify()
    write(home, "a", 1, identity=lambda *_: {"n": 2})
    gone = store.collect_garbage(grace=timedelta(0))
    manifest = len(second.manifest.to_json())
    assert gone.versions == ((PLAN, second.version, first.bytes + manifest),)
    store.current(PLAN).verify()


def test_a_backup_holds_shared_files_once(home: Path, tmp_path: Path) -> None:
    store, first = Store(home), write(home, "a")
    store.record_checks(PLAN, first.version, [])
    store.publish(
        "movies", {"score_plan": first}, world="w", required={}, card="# x\n", settings={}
    )
    second = write(home, "b")
    store.backup(tmp_path / "home.tar")
    restore(tmp_path / "home.tar", tmp_path / "new")
    again = Store(tmp_path / "new")
    old, new = again.get(PLAN, first.version), again.current(PLAN)
    assert new.version == second.version
    assert inodes(old)["a"] == inodes(new)["a"]
    assert again.verify("movies").ok
    assert new.read().equals(second.read())


#: Writes cohorts beside others: those named, or one after another until it is killed.
WRITER = """
import itertools, sys
from pathlib import Path
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from pipelines import cohorts
from test_store_parts import write
cohorts.BLOCK = 10
print("ready", flush=True)
for name in sys.argv[4:] or (f"k{n % 7}" for n in itertools.count()):
    write(Path(sys.argv[3]), name, identity=lambda *_: {"time": __import__("time").time()})
"""


def writer(home: Path, *names: str) -> subprocess.Popen[str]:
    here = Path(__file__).resolve().parent
    command = [sys.executable, "-c", WRITER, str(here), str(here.parents[1]), str(home), *names]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.pipeline
def test_versions_are_whole_after_kills_between_parts(home: Path) -> None:
    store, dice = Store(home), random.Random(11)
    first = write(home, "a")
    for _ in range(5):
        process = writer(home)
        time.sleep(dice.uniform(0.2, 1.5))
        process.kill()
        process.wait()
        # A folder under a version's name is a whole version.
        folders = {path.name for path in (home / "data" / PLAN).iterdir()}
        assert folders == set(store.versions(PLAN))
        store.current(PLAN).verify()
    last = write(home, "last")
    assert {"a", "k0", "last"} <= last.cohorts()
    assert inodes(last)["a"] == inodes(first)["a"]
    last.verify()
    store.sweep()
    assert list((home / "_staging").iterdir()) == []


@pytest.mark.pipeline
def test_two_writers_keep_each_others_cohorts(home: Path) -> None:
    first = write(home, "a")
    children = [writer(home, "b", "b2", "b3"), writer(home, "c", "c2", "c3")]
    assert [child.wait(timeout=120) for child in children] == [0, 0]
    last = Store(home).current(PLAN)
    assert last.cohorts() == {"a", "b", "b2", "b3", "c", "c2", "c3"}
    assert inodes(last)["a"] == inodes(first)["a"]
    last.verify()
