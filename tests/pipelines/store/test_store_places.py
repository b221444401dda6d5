"""The store keeps its promises on a folder and on an object store: one class, two places."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from support.object_store import BUCKET, FaultProxy, objects_below

from pipelines.errors import IntegrityError, LockedError, ReleaseError, StoreError
from pipelines.paths import ObjectPath, home_path
from pipelines.stages import Inputs, PipelineContext, Report, Stage, build
from pipelines.store import CheckRecord, Release, Store
from pipelines.store.files import Files
from pipelines.store.locks import holder_record
from pipelines.store.objects import open_files
from understudy import open_release

SPLITS, PLAN = "movies.splits", "movies.score_plan"


def splits(*users: int) -> pl.DataFrame:
    rows = [(f"ml-user:{u}", "ml:1", "train") for u in users]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "split"], orient="row")


def publish(store: Store, *users: int) -> Release:
    snapshot = store.commit(SPLITS, splits(*users), code_version="1")
    store.record_checks(SPLITS, snapshot.version, [CheckRecord("rows", passed=True)])
    return store.publish(
        "movies",
        {"splits": snapshot},
        world="w",
        required={SPLITS: ["rows"]},
        card="# Films\n",
        settings={},
    )


class PlaceContract:
    """What the store needs of a place. Each call of ``files`` is what another process opens."""

    @pytest.fixture
    def home(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def files(self, home: str) -> Callable[[], Files]:
        return lambda: open_files(home_path(home))

    @pytest.fixture
    def store(self, home: str) -> Store:
        return Store(home)

    # -- files

    def test_a_file_is_what_was_put_last(self, files: Callable[[], Files]) -> None:
        place = files()
        path = place.root / "refs" / "a.json"
        assert place.read(path) is None
        assert place.digest(path) is None
        assert place.names(path.parent) == []
        place.put(path, b"1")
        place.put(path, b"22")
        assert files().read(path) == b"22"
        assert place.names(place.root) == (
            ["_staging", "refs"] if place.scratch == place.root else ["refs"]
        )
        assert place.sizes(path.parent) == {"a.json": 2}
        # echo -n 22 | sha256sum
        assert str(place.digest(path)).startswith("785f3ec7eb32f30b90cd0fcf3657d388")
        place.remove(path)
        place.remove(path)
        assert place.read(path) is None

    def test_a_copy_is_a_read_only_file_of_this_machine(
        self, files: Callable[[], Files], tmp_path: Path
    ) -> None:
        place = files()
        path, made = place.root / "refs" / "a.json", tmp_path / "copy"
        place.put(path, b"22")
        assert place.copy(path, made) == place.digest(path)
        assert made.read_bytes() == b"22"
        assert made.stat().st_mode & 0o222 == 0
        assert place.copy(path.with_name("absent.json"), tmp_path / "other") is None
        assert not (tmp_path / "other").exists()

    def test_a_copy_of_a_version_is_whole_or_not_there(self, store: Store, tmp_path: Path) -> None:
        snapshot = store.commit(SPLITS, splits(1, 2), code_version="1")
        snapshot.copy_to(tmp_path / "copy")
        assert pl.read_parquet(tmp_path / "copy" / "*.parquet").equals(snapshot.read())
        store.files.put(snapshot.files()[0], b"damage")
        with pytest.raises(IntegrityError, match="the content is not what was committed"):
            snapshot.copy_to(tmp_path / "damaged")
        assert [path.name for path in tmp_path.glob("*damaged*")] == []

    def test_first_of_many_creators_wins(self, files: Callable[[], Files]) -> None:
        path = files().root / "refs" / "a.json"
        created: list[int] = []

        def create(number: int) -> None:
            if files().put_new(path, b"%d" % number):
                created.append(number)

        in_threads(create, 4)
        assert len(created) == 1
        assert files().read(path) == b"%d" % created[0]

    def test_a_finished_file_is_placed_once(
        self, files: Callable[[], Files], tmp_path: Path
    ) -> None:
        place, path = files(), files().root / "pieces" / "a" / "1.parquet"
        assert not place.has(path)
        taken: list[int] = []

        def offer(number: int) -> None:
            made = tmp_path / f"{number}.making"
            made.write_bytes(b"%d" % number)
            if files().place_file(made, path):
                taken.append(number)
            assert not made.exists()

        in_threads(offer, 4)
        assert len(taken) == 1
        assert place.has(path)
        assert place.read(path) == b"%d" % taken[0]
        later = tmp_path / "later"
        later.write_bytes(b"later")
        assert place.place_file(later, path, replace=True)
        assert place.read(path) == b"later"

    def test_no_update_is_lost(self, files: Callable[[], Files]) -> None:
        place = files()
        path, lock = place.root / "checks" / "a.json", place.root / "_locks" / "a.lock"

        def add(number: int) -> None:
            for _ in range(5):
                files().update(path, lambda data: b"%d" % (int(data or b"0") + 1), lock=lock)

        in_threads(add, 4)
        assert place.read(path) == b"20"

    def test_a_folder_appears_once_and_whole(self, files: Callable[[], Files]) -> None:
        place, target = files(), files().root / "data" / "a" / "1"
        staging = place.stage(holder_record())
        for name in ("first", "second"):
            folder = staging.folder(name)
            place.write_staged(folder / "part-00000.parquet", name.encode())
            place.write_staged(folder / "_manifest.json", b"{}")
        assert place.place(staging.path / "first", target)
        assert not place.place(staging.path / "second", target)
        assert place.read(target / "part-00000.parquet") == b"first"
        place.set_aside(target, staging)
        assert place.names(target) == []
        assert place.place(staging.path / "second", target)
        assert place.sizes(target) == {"_manifest.json": 2, "part-00000.parquet": 6}
        staging.drop()

    def test_a_lock_is_held_by_one(self, files: Callable[[], Files]) -> None:
        path = files().root / "_locks" / "a.lock"
        with (
            files().lock(path),
            pytest.raises(LockedError, match=r"held this lock for 0.1 s.*a\.lock"),
        ):
            files().lock(path, timeout=0.1).__enter__()
        with files().lock(path, timeout=0):
            pass

    def test_the_run_that_holds_the_lock_is_named(self, store: Store, home: str) -> None:
        with store.run_lock() as lock:
            assert lock.held
            with pytest.raises(LockedError, match=rf"process {os.getpid()} on .* since ") as caught:
                Store(home).run_lock().__enter__()
        assert not lock.held
        assert caught.value.details["pid"] == os.getpid()

    # -- tables and releases

    def test_committed_rows_are_read_back_in_every_form(self, store: Store) -> None:
        snapshot = store.commit(SPLITS, splits(2, 1), code_version="1")
        assert snapshot.read(["user_id"])["user_id"].to_list() == ["ml-user:1", "ml-user:2"]
        assert snapshot.arrow(["split"]).num_rows == 2
        assert snapshot.scan().filter(pl.col("user_id") == "ml-user:2").collect().height == 1
        snapshot.verify()
        assert store.current(SPLITS) == snapshot == store.get(SPLITS, snapshot.version[:6])
        assert (store.datasets(), store.versions(SPLITS)) == ([SPLITS], [snapshot.version])

    def test_equal_rows_are_one_version_wherever_they_are(
        self, store: Store, tmp_path: Path
    ) -> None:
        first = store.commit(SPLITS, splits(1, 2), code_version="1")
        elsewhere = Store(tmp_path / "elsewhere").commit(SPLITS, splits(2, 1), code_version="1")
        assert store.commit(SPLITS, splits(2, 1), code_version="2") == first
        assert elsewhere.manifest.files == first.manifest.files

    def test_a_withdrawn_table_is_absent(self, store: Store) -> None:
        store.commit(SPLITS, splits(1), code_version="1")
        store.withdraw(SPLITS)
        assert not store.has(SPLITS)

    def test_damage_is_found_and_mended_by_the_next_commit(self, store: Store) -> None:
        snapshot = store.commit(SPLITS, splits(1), code_version="1")
        (part,) = snapshot.files()
        store.files.remove(part)
        store.files.put(part, bytes(snapshot.bytes))
        with pytest.raises(IntegrityError, match="the content is not what was committed"):
            snapshot.verify()
        store.files.remove(part)
        with pytest.raises(IntegrityError, match=r"a file is missing: .*part-00000\.parquet"):
            store.current(SPLITS)
        store.commit(SPLITS, splits(1), code_version="2").verify()

    def test_outcomes_of_checks_from_many_processes_are_all_kept(
        self, store: Store, home: str
    ) -> None:
        version = store.commit(SPLITS, splits(1), code_version="1").version
        in_threads(
            lambda n: Store(home).record_checks(SPLITS, version, [CheckRecord(f"c{n}", True)]), 4
        )
        assert set(store.checks(SPLITS, version)) == {"c0", "c1", "c2", "c3"}

    def test_a_published_release_is_opened_by_a_consumer(self, store: Store, home: str) -> None:
        first, second = publish(store, 1), publish(store, 1, 2)
        assert [r.version for r in store.releases("movies")] == [first.version, second.version]
        release = open_release("movies@latest", home=home)
        assert release.version == second.version
        table = release["splits"]
        assert table.polars(["user_id"])["user_id"].to_list() == ["ml-user:1", "ml-user:2"]
        assert table.duckdb().aggregate("count(*)").fetchone() == (2,)
        assert table.arrow(["split"]).column_names == ["split"]
        release.verify(lineage=True)
        assert store.release(f"movies@{first.version[:8]}") == first

    def test_a_failed_check_keeps_latest_where_it_is(self, store: Store) -> None:
        first = publish(store, 1)
        bad = store.commit(SPLITS, splits(9), code_version="1")
        store.record_checks(SPLITS, bad.version, [CheckRecord("rows", passed=False)])
        with pytest.raises(ReleaseError, match="rows failed on"):
            store.publish("movies", {"splits": bad}, world="w", required={}, card="", settings={})
        assert store.release("movies@latest") == first

    def test_stages_are_built_reused_and_built_by_cohort(self, home: str) -> None:
        context = PipelineContext({"runtime": {"home": home}})
        calls: list[str] = []

        def make(inputs: Inputs, settings: Any, report: Report) -> pl.DataFrame:
            calls.append("splits")
            return splits(1, 2)

        stage = Stage(datasets=(SPLITS,), code_version="1", make=make)
        assert not build(stage, context).reused
        assert build(stage, context).reused
        assert calls == ["splits"]
        for cohort in ("a", "b"):
            build(plan_stage(), context, cohort=cohort)
        rows = context.store.current(PLAN).read()
        assert rows["persona_id"].to_list() == ["persona:a:1", "persona:b:1"]

    def test_a_table_of_shared_parts_is_one_table(self, home: str) -> None:
        context = PipelineContext({"runtime": {"home": home}})
        for cohort in ("b", "a"):
            build(plan_stage(), context, cohort=cohort)
        table = context.store.current(PLAN)
        assert [f.cohort for f in table.manifest.files] == ["a", "b"]
        assert table.arrow(["persona_id"])["persona_id"].to_pylist() == [
            "persona:a:1",
            "persona:b:1",
        ]
        assert table.of_cohort("b").collect()["persona_id"].to_list() == ["persona:b:1"]
        table.verify()
        older = context.store.versions(PLAN)[0]
        context.store.get(PLAN, older).verify()
        shared = table.files()[1]
        context.store.files.remove(shared)
        with pytest.raises(IntegrityError, match=f"a file is missing: .*{shared.name}"):
            context.store.current(PLAN)

    def test_a_second_driver_of_a_cohort_is_refused(self, home: str) -> None:
        context = PipelineContext({"runtime": {"home": home}})

        def second() -> None:
            other = PipelineContext({"runtime": {"home": home}})
            with pytest.raises(LockedError, match=r"another process is writing .*score_plan of a"):
                build(plan_stage(), other, cohort="a")

        build(plan_stage(second), context, cohort="a")
        assert context.store.current(PLAN).rows == 1


def in_threads(work: Callable[[int], object], number: int) -> None:
    threads = [threading.Thread(target=work, args=(n,)) for n in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def plan_stage(meanwhile: Callable[[], object] = lambda: None) -> Stage:
    """The plan of one persona and one item; ``meanwhile`` happens while it is made."""

    def make(inputs: Inputs, settings: Any, report: Report) -> pl.DataFrame:
        meanwhile()
        row = (f"persona:{inputs.partition}:1", "ml:1", "all", 1.0, 0.5)
        columns = ["persona_id", "item_id", "stratum", "inclusion", "exposure"]
        return pl.DataFrame([row], schema=columns, orient="row")

    return Stage(datasets=(PLAN,), code_version="1", make=make, by_cohort=True)


class TestFolder(PlaceContract):
    @pytest.fixture
    def home(self, tmp_path: Path) -> str:
        return str(tmp_path / "home")


class TestObjectStore(PlaceContract):
    @pytest.fixture
    def home(self, s3_home: str) -> str:
        return s3_home

    def test_only_names_of_the_layout_are_on_the_object_store(
        self, home: str, s3_endpoint: str, tmp_path: Path
    ) -> None:
        store = Store(home)
        release = publish(store, 1)
        version, build = store.current(SPLITS).version, store.current(SPLITS).manifest.build_key
        assert objects_below(s3_endpoint, home.rpartition("/")[2]) == [
            "_format.json",
            "_locks/release-movies.lock",
            f"builds/movies.splits/{build}.json",
            f"checks/movies.splits/{version}.json",
            f"data/movies.splits/{version}/_manifest.json",
            f"data/movies.splits/{version}/part-00000.parquet",
            "refs/movies.splits.json",
            "refs/releases/movies.json",
            f"releases/{release}.json",
            f"releases/{release}.md",
        ]
        assert [p for p in tmp_path.rglob("*") if p.is_file()] == []

    def test_parts_of_other_cohorts_are_not_uploaded_again(
        self, home: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        context = PipelineContext({"runtime": {"home": home}})
        build(plan_stage(), context, cohort="a")
        with FaultProxy(s3_endpoint).running() as proxy:
            monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
            other = PipelineContext({"runtime": {"home": home}})
            build(plan_stage(), other, cohort="b")
        puts = [r.path for r in proxy.requests if r.method == "PUT" and r.path.endswith("parquet")]
        first, second = context.store.current(PLAN).files()
        assert [path.rpartition("/")[2] for path in puts] == [second.name]
        assert not any(r.method == "GET" and first.name in r.path for r in proxy.requests)

    def test_a_mended_version_leaves_shared_parts(self, home: str) -> None:
        context = PipelineContext({"runtime": {"home": home}})
        first = build(plan_stage(), context, cohort="a").snapshots[PLAN]
        second = build(plan_stage(), context, cohort="b").snapshots[PLAN]
        files, staging = context.store.files, context.store.files.stage(holder_record())
        files.set_aside(first.path, staging)
        staging.drop()
        second.verify()

    def test_a_release_is_opened_by_its_address(self, home: str) -> None:
        release = publish(Store(home), 1)
        opened = open_release(f"{home}/movies@latest")
        assert opened.version == release.version
        assert opened["splits"].files == [
            ObjectPath(f"{home}/data/{SPLITS}/{opened['splits'].version}/part-00000.parquet")
        ]
        assert open_release(f"{home}/releases/{release}.json").version == release.version
        with pytest.raises(ReleaseError, match=f"no releases match 'books@latest': {home}"):
            open_release(f"{home}/books@latest")

    def test_rows_are_read_from_the_endpoint_of_now(
        self, home: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        Store(home).commit(SPLITS, splits(1), code_version="1")
        for _ in range(2):
            with FaultProxy(s3_endpoint).running() as proxy:
                monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
                snapshot = Store(home).current(SPLITS)
                before = len(proxy.requests)
                assert snapshot.arrow(["split"]).num_rows == 1
                assert len(proxy.requests) > before
                before = len(proxy.requests)
                assert snapshot.scan().collect().height == 1
                assert len(proxy.requests) > before

    def test_a_missing_bucket_is_named(self, home: str) -> None:
        with pytest.raises(StoreError, match=r"NoSuchBucket\): s3://no-such-bucket-here/"):
            Store(home.replace(BUCKET, "no-such-bucket-here"))

    @pytest.mark.parametrize("step", ["collect_garbage", "backup"])
    def test_what_needs_a_folder_says_so(self, home: str, step: str, tmp_path: Path) -> None:
        store = Store(home)
        publish(store, 1)
        given = (tmp_path / "backup.tar",) if step == "backup" else ()
        with pytest.raises(StoreError, match=f"works on a home in a folder only: {home}"):
            getattr(store, step)(*given)
