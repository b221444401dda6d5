"""Ingest: nothing lost, nothing half-published, nothing read twice."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import filelock
import polars as pl
import pytest

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.errors import LockedError, SourceError, StoreError
from pipelines.sources import (
    RawTable,
    RejectLog,
    Workspace,
    ingest,
    inventory_build,
    rejected_line,
    rejected_rows,
)
from pipelines.sources.movielens import MovielensSource
from pipelines.store import Snapshot, Store
from pipelines.worlds import prepare_world

N = 400


def write_files(folder: Path, **extra: list[str]) -> Path:
    """A world of N ratings; ``extra`` lines are put after a file's rows."""
    films = range(1, 21)
    lines = {
        "movies": ["movieId,title,genres", *(f"{f},Film {f} (1999),Drama" for f in films)],
        "ratings": [
            "userId,movieId,rating,timestamp",
            *(f"{1 + n // 20},{1 + n % 20},{1 + n % 5}.0,{10**9 + n}" for n in range(N)),
        ],
        "links": ["movieId,imdbId,tmdbId", *(f"{f},{f:07d},{f}" for f in films)],
        "tags": ["userId,movieId,tag,timestamp", "1,1,fine,1000000005"],
    }
    target = folder / "movielens/ml-25m"
    target.mkdir(parents=True, exist_ok=True)
    for name, rows in lines.items():
        (target / f"{name}.csv").write_text("\n".join(rows + extra.get(name, [])) + "\n")
    return folder


class Setup:
    """A data folder, a store, and how to ingest one into the other."""

    def __init__(self, root: Path) -> None:
        self.data = root / "data"
        self.store = Store(root / "home")

    def ingest(self, **settings: object) -> dict[str, Snapshot]:
        tree = Settings(
            world={"folder": self.data},  # type: ignore[arg-type]
            runtime={"home": self.store.home},  # type: ignore[arg-type]
            **settings,  # type: ignore[arg-type]
        )
        return ingest("movielens", prepare_world(tree), self.store, tree, run_id="run-1")

    def litter(self) -> list[Path]:
        scratch = self.store.home / "scratch"
        return [p for p in scratch.rglob("*") if p.suffix != ".lock"] if scratch.exists() else []


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


# -- what is committed ---------------------------------------------------------------------


def test_all_tables_are_committed_with_their_facts(setup: Setup) -> None:
    write_files(setup.data, ratings=["1,77,4.0,1000000005"])
    found = setup.ingest()
    assert tuple(found) == MovielensSource.datasets
    ratings = found["raw.movielens_ratings"]
    assert ratings.rows == N
    stats = ratings.manifest.stats
    assert stats["file"] == "movielens/ml-25m/ratings.csv"
    assert (stats["rows_read"], stats["rejected"]) == (N + 1, 1)
    assert stats["reasons"] == {"unknown_film": 1}
    assert "GroupLens" in stats["licence"]
    assert ratings.manifest.run_id == "run-1"
    content = (setup.data / "movielens/ml-25m/ratings.csv").read_bytes()
    assert (
        ratings.manifest.inputs["file:movielens/ml-25m/ratings.csv"]
        == hashlib.sha256(content).hexdigest()
    )
    rejected = found["raw.movielens_rejected"].read()
    assert rejected.rows() == [
        (
            "movielens/ml-25m/ratings.csv",
            N + 2,
            "unknown_film",
            "1,77,4.0,1000000005",
            "movieId",
            "77",
        )
    ]
    for name, snapshot in found.items():
        assert setup.store.current(name).version == snapshot.version
    assert setup.litter() == []


def test_the_order_of_rows_in_the_file_does_not_change_the_version(
    setup: Setup, tmp_path: Path
) -> None:
    write_files(setup.data)
    first = setup.ingest()["raw.movielens_ratings"].version
    path = setup.data / "movielens/ml-25m/ratings.csv"
    header, *rows = path.read_text().splitlines()
    path.write_text("\n".join([header, *reversed(rows)]))
    assert setup.ingest()["raw.movielens_ratings"].version == first


def test_known_files_are_not_read_again_and_become_current_again(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(setup.data)
    old = setup.ingest()
    path = setup.data / "movielens/ml-25m/ratings.csv"
    content = path.read_text()
    path.write_text(content + "1,20,1.0,1100000000\n")  # a later rating of a film rated before
    new = setup.ingest()
    assert new["raw.movielens_ratings"].version != old["raw.movielens_ratings"].version

    def unread(self: MovielensSource, folder: Path, work: Workspace) -> Iterator[RawTable]:
        raise AssertionError("read again")

    path.write_text(content)
    monkeypatch.setattr(MovielensSource, "read", unread)
    assert {k: v.version for k, v in setup.ingest().items()} == {
        k: v.version for k, v in old.items()
    }
    current = setup.store.current("raw.movielens_ratings").version
    assert current == old["raw.movielens_ratings"].version


def test_another_code_version_reads_again(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(setup.data)
    setup.ingest()
    monkeypatch.setattr(MovielensSource, "code_version", "another")
    assert setup.ingest()["raw.movielens_links"].manifest.version  # read: no error
    monkeypatch.setattr(MovielensSource, "code_version", "third")
    monkeypatch.setattr(MovielensSource, "read", lambda *_: iter(()))
    with pytest.raises(SourceError, match="rows lost"):
        setup.ingest()


def test_rejected_rows_are_listed_by_file_with_share_and_first_reasons(setup: Setup) -> None:
    bad = [f"1,{film},{stars},1000000005" for film, stars in ((77, 4), (1, 9), (78, 4), (79, 4))]
    write_files(setup.data, ratings=bad, tags=["1,77,lost,1000000005"])
    setup.ingest(ingest={"max_rejected_share": 0.5})
    assert rejected_rows(setup.store, ["movielens"]) == []  # nothing is known of the present world
    tree = Settings(world={"folder": setup.data})  # type: ignore[arg-type]
    setup.store.build(inventory_build(prepare_world(tree), tree))
    ratings, tags = rejected_rows(setup.store, ["movielens", "steam"])
    assert ratings["file"] == "movielens/ml-25m/ratings.csv"
    assert (ratings["rejected"], ratings["rows"]) == (4, N + 4)
    assert ratings["share"] == pytest.approx(4 / (N + 4))
    assert ratings["reasons"] == {"off_scale": 1, "unknown_film": 3}
    assert [(r["line"], r["reason"]) for r in ratings["first"]] == [
        (N + 2, "unknown_film"),
        (N + 3, "off_scale"),
        (N + 4, "unknown_film"),
    ]
    assert tags["rejected"] == 1
    line = rejected_line(ratings)
    assert line.startswith("movielens/ml-25m/ratings.csv: 4 of 404 rows rejected (0.99%): line 402")
    assert "line 403 off_scale: rating is '9.0'" in line
    assert line.endswith("; …")


def test_rejected_rows_of_an_earlier_world_are_not_listed(setup: Setup) -> None:
    write_files(setup.data, ratings=["1,77,4.0,1000000005"])
    setup.ingest()
    tree = Settings(world={"folder": setup.data})  # type: ignore[arg-type]
    setup.store.build(inventory_build(prepare_world(tree), tree))
    assert rejected_rows(setup.store, ["movielens"])
    (setup.data / "movielens/ml-25m").rename(setup.data / "movielens/ml-32m")
    setup.store.build(inventory_build(prepare_world(tree), tree))
    assert rejected_rows(setup.store, ["movielens"]) == []


# -- what is refused -----------------------------------------------------------------------


def test_too_many_rejected_rows_stop_the_run_with_counts_and_first_rows(setup: Setup) -> None:
    bad = [
        "1,77,4.0,1000000005",
        "x,1,4.0,5",
        "1,1,9.0,1000000005",
        "y,1,4.0,5",
        "z,1,4.0,5",
        "1,1,4.0,-5",
    ]
    write_files(setup.data, ratings=bad)  # 6 of 406 are over 1 %
    with pytest.raises(SourceError) as caught:
        setup.ingest()
    message = str(caught.value)
    assert "6 of 406 rows rejected" in message
    assert "bad_id 3, bad_timestamp 1, off_scale 1, unknown_film 1" in message
    assert f"line {N + 2} unknown_film: movieId is '77'" in message
    assert f"line {N + 3} bad_id: userId is 'x'" in message
    assert f"line {N + 4} off_scale: rating is '9.0'" in message
    assert "max_rejected_share" in message
    assert "\n" not in message
    assert caught.value.details["reasons"] == {
        "bad_id": 3,
        "bad_timestamp": 1,
        "off_scale": 1,
        "unknown_film": 1,
    }
    assert [r["line"] for r in caught.value.details["rows"]] == [N + 2, N + 3, N + 4]
    assert setup.store.datasets() == []
    assert setup.litter() == []
    # The limit is a setting.
    found = setup.ingest(ingest={"max_rejected_share": 0.05})
    assert found["raw.movielens_rejected"].rows == 6


def test_exactly_the_allowed_share_passes(setup: Setup) -> None:
    write_files(setup.data, ratings=["1,77,4.0,1000000005", "1,78,4.0,1000000005"])
    limit = 2 / (N + 2)
    assert setup.ingest(ingest={"max_rejected_share": limit})["raw.movielens_rejected"].rows == 2


def test_one_wrong_time_does_not_stop_a_small_file(setup: Setup) -> None:
    write_files(setup.data, tags=["1,1,of 1969,-5"])
    stats = setup.ingest()["raw.movielens_tags"].manifest.stats
    assert (stats["rows_read"], stats["rejected"]) == (2, 1)
    write_files(setup.data, tags=["1,1,of 1969,-5", "1,1,of 1968,-6"])
    with pytest.raises(SourceError, match=r"2 of 3 rows rejected.*timestamp is '-5'"):
        setup.ingest()


@pytest.mark.faults
def test_a_fault_in_the_last_file_publishes_nothing_of_the_first(setup: Setup) -> None:
    write_files(setup.data)
    old = {name: s.version for name, s in setup.ingest().items()}
    write_files(setup.data, movies=["21,Another,Drama"])
    (setup.data / "movielens/ml-25m/tags.csv").write_text("tagId,tag\n")
    with pytest.raises(SourceError, match=r"expected userId.*tags\.csv:1"):
        setup.ingest()
    assert {name: setup.store.current(name).version for name in old} == old


def test_a_file_with_a_header_only_is_an_error(setup: Setup) -> None:
    write_files(setup.data)
    (setup.data / "movielens/ml-25m/links.csv").write_text("movieId,imdbId,tmdbId\n")
    with pytest.raises(SourceError, match=r"no usable rows: movielens/ml-25m/links\.csv"):
        setup.ingest()


@pytest.mark.faults
def test_a_loader_that_loses_a_row_is_found_out(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(setup.data)
    whole = MovielensSource.read

    def lossy(self: MovielensSource, folder: Path, work: Workspace) -> Iterator[RawTable]:
        for table in whole(self, folder, work):
            if table.dataset == "raw.movielens_ratings":
                table.batches = (b.head(-1) for b in table.batches)
            yield table

    monkeypatch.setattr(MovielensSource, "read", lossy)
    with pytest.raises(SourceError, match=rf"rows lost: {N} read, {N - 1} out, 0 rejected"):
        setup.ingest()
    assert setup.store.datasets() == []


@pytest.mark.faults
def test_a_file_that_changes_while_it_is_read_is_refused(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_files(setup.data)
    whole = MovielensSource.read

    def touched(self: MovielensSource, folder: Path, work: Workspace) -> Iterator[RawTable]:
        yield from whole(self, folder, work)
        with (folder / "movielens/ml-25m/tags.csv").open("a") as file:
            file.write("1,2,late,5\n")

    monkeypatch.setattr(MovielensSource, "read", touched)
    with pytest.raises(SourceError, match="changed while it was read"):
        setup.ingest()
    assert setup.store.datasets() == []


@pytest.mark.faults
def test_two_ingests_of_a_source_at_once_are_refused(setup: Setup) -> None:
    write_files(setup.data)
    (setup.store.home / "scratch").mkdir(parents=True)
    with (
        filelock.FileLock(setup.store.home / "scratch/ingest-movielens.lock"),
        pytest.raises(LockedError, match="another process"),
    ):
        setup.ingest()


@pytest.mark.pipeline
@pytest.mark.faults
def test_a_killed_ingest_leaves_nothing_that_the_next_one_minds(setup: Setup) -> None:
    write_files(setup.data)
    code = f"""
        import os, signal
        from pipelines.config import Settings
        from pipelines.progress import listening
        from pipelines.sources import ingest
        from pipelines.worlds import prepare_world
        from pipelines.store import Store
        tree = Settings(world={{"folder": {str(setup.data)!r}}})
        def die(stage, done, total):
            if stage.startswith("ordering") and "tags" in stage:
                os.kill(os.getpid(), signal.SIGKILL)
        world = prepare_world(tree)
        with listening(die):
            ingest("movielens", world, Store({str(setup.store.home)!r}), tree)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert setup.litter()
    assert setup.store.datasets() == []
    assert setup.ingest()["raw.movielens_ratings"].rows == N
    assert setup.litter() == []


@pytest.mark.pipeline
@pytest.mark.faults
@pytest.mark.skipif(sys.platform != "linux", reason="mounts a small tmpfs")
def test_a_full_disk_is_a_store_error_and_publishes_nothing(setup: Setup, tmp_path: Path) -> None:
    many = [f"{u},{1 + n % 20},3.0,{10**9 + (u * 7919 + n) % 99991}" for u in range(30, 9000)
            for n in range(20)]  # fmt: skip
    write_files(setup.data, ratings=many)
    home = tmp_path / "small"
    home.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(home)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not allowed here")
    try:
        setup.store = Store(home / "store")
        with pytest.raises(StoreError) as caught:
            setup.ingest()
        assert "\n" not in str(caught.value)
        assert setup.store.datasets() == []
        assert setup.litter() == []
    finally:
        subprocess.run(["umount", str(home)], check=True)


# -- the rejection log ---------------------------------------------------------------------


def test_many_rejections_are_counted_ordered_and_not_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.sources._rejects._SPILL_ROWS", 100)
    log = RejectLog(tmp_path)
    for n in range(1000, 0, -1):
        log.add("b.csv", n, "bad_id" if n % 3 else "off_scale", f"row {n}")
    log.add("a.csv", 9, "x", "")
    log.add("a.csv", 2, "y", "")
    assert log.count() == 1002
    assert log.count("b.csv") == 1000
    assert log.count("none.csv") == 0
    assert log.reasons("b.csv") == {"bad_id": 667, "off_scale": 333}
    assert [row[:3] for row in log.first("b.csv")] == [
        (1, "bad_id", "row 1"), (2, "bad_id", "row 2"), (3, "off_scale", "row 3"),
    ]  # fmt: skip
    assert [row.line for row in log.first("a.csv")] == [2, 9]
    frames = list(log.batches(rows=64))
    assert max(f.height for f in frames) <= 64
    whole = CONTRACTS["raw.movielens_rejected"].validate(pl.concat(frames))
    assert whole["line"].to_list() == [2, 9, *range(1, 1001)]
    assert list(RejectLog(tmp_path / "none").batches()) == []


# -- the world's files ---------------------------------------------------------------------


def test_the_inventory_lists_every_file_with_its_checksum_and_terms(setup: Setup) -> None:
    write_files(setup.data)
    tree = Settings(world={"folder": setup.data}, runtime={"home": setup.store.home})
    (listed,) = setup.store.build(inventory_build(prepare_world(tree), tree)).values()
    rows = listed.read().to_dicts()
    assert [r["file"] for r in rows] == [
        f"movielens/ml-25m/{n}.csv" for n in ("links", "movies", "ratings", "tags")
    ]
    for row in rows:
        content = (setup.data / row["file"]).read_bytes()
        assert row["sha256"] == hashlib.sha256(content).hexdigest()
        assert row["bytes"] == len(content)
        assert (row["source"], row["origin"]) == ("movielens", "given")
        assert "https://grouplens.org" in row["licence"]


def test_an_empty_file_has_no_place_in_the_inventory(setup: Setup) -> None:
    write_files(setup.data)
    (setup.data / "movielens/ml-25m/tags.csv").write_bytes(b"")
    tree = Settings(world={"folder": setup.data}, runtime={"home": setup.store.home})
    with pytest.raises(SourceError, match=r"the file is empty.*tags\.csv"):
        inventory_build(prepare_world(tree), tree)


# -- whole worlds --------------------------------------------------------------------------


@pytest.mark.shared_data
@pytest.mark.pipeline
def test_the_real_files_come_out_of_the_store_with_their_published_counts(
    shared_data: Path, tmp_path: Path
) -> None:
    store = Store(tmp_path / "home")
    tree = Settings(world={"folder": shared_data}, runtime={"home": store.home})
    world = prepare_world(tree)
    assert world.name == "ml-latest-small"
    assert world.has("tmdb")
    found = ingest("movielens", world, store, tree)
    assert {k.removeprefix("raw.movielens_"): v.rows for k, v in found.items()} == {
        "movies": 9_742, "ratings": 100_836, "links": 9_742, "tags": 3_683, "users": 0,
        "rejected": 0,
    }  # fmt: skip
    ratings = store.current("raw.movielens_ratings").read()
    assert ratings["user_id"].n_unique() == 610
    films = ingest("tmdb", world, store, tree)
    assert films["raw.tmdb_movies"].manifest.inputs["raw.movielens_links"] == (
        found["raw.movielens_links"].version
    )
    assert films["raw.tmdb_movies"].rows > 9_700


def test_the_sample_world_comes_out_as_its_answer_key_says(tmp_path: Path) -> None:
    from pipelines.sample_world import SampleWorld

    store = Store(tmp_path / "home")
    tree = Settings(runtime={"home": store.home})
    world = prepare_world(tree)
    found = ingest("movielens", world, store, tree)
    films = ingest("tmdb", world, store, tree)
    key = SampleWorld.read(world.folder)
    assert key is not None
    rejected = pl.concat(
        [found["raw.movielens_rejected"].read(), films["raw.tmdb_rejected"].read()]
    )
    # The loaders' own text of a broken record may be cut elsewhere; file, line and reason not.
    listed = [b for b in key.rejected if b.file.startswith(("movielens/", "tmdb/"))]
    # An older rating of a film is counted, and not rejected.
    repeated = [b for b in listed if b.reason == "duplicate_key"]
    listed = [b for b in listed if b not in repeated]
    assert rejected.select("file", "line", "reason").rows() == [
        (b.file, b.line, b.reason) for b in listed
    ]
    texts = {(b.file, b.line): b.text for b in listed if b.file.endswith(".csv")}
    assert texts == {
        (file, line): text
        for file, line, text in rejected.select("file", "line", "text").iter_rows()
        if file.endswith(".csv")
    }
    assert len(texts) >= 5
    filtered = found["raw.movielens_ratings"].manifest.stats["filtered"]
    assert filtered == {"repeated_rating": len(repeated)}
    assert found["raw.movielens_movies"].rows == 300
    ratings = found["raw.movielens_ratings"].read()
    assert (ratings.height, ratings["user_id"].n_unique()) == (20_000, 200)
    assert films["raw.tmdb_movies"].rows == 284


def test_a_damaged_sample_world_is_generated_again(tmp_path: Path) -> None:
    sample = {"films": 30, "users": 20, "ratings": 400}
    tree = Settings(
        world={"sample": sample},  # type: ignore[arg-type]
        runtime={"home": tmp_path},  # type: ignore[arg-type]
    )
    world = prepare_world(tree)
    tags = world.folder / "movielens/sample/tags.csv"
    before = tags.read_bytes()
    tags.unlink()
    assert prepare_world(tree) == world
    assert tags.read_bytes() == before
