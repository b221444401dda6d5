"""Releases on an object store: pushed to a real S3 server (moto) and opened from there."""

from __future__ import annotations

import json
import logging
import random
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest
from support import small_release
from support.object_store import (
    BUCKET,
    SECRET,
    TOKEN,
    FaultProxy,
    Request,
    error_answer,
    objects_below,
    use,
)
from typer.testing import CliRunner

from pipelines.cli.main import app
from pipelines.errors import IntegrityError, ReleaseError, StoreError
from pipelines.paths import ObjectPath
from pipelines.store import CheckRecord, Release, Store
from pipelines.store.remote import RemoteFiles
from understudy import open_release

pytestmark = pytest.mark.pipeline

SPLITS, PLAN = "movies.splits", "movies.score_plan"


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "home")


@pytest.fixture
def proxy(
    s3_address: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[FaultProxy]:
    """A proxy that the object store is reached through."""
    with FaultProxy(s3_endpoint).running() as made:
        use(made.endpoint, monkeypatch.setenv)
        yield made


def splits(*users: object) -> pl.DataFrame:
    rows = [(f"ml-user:{user}", f"ml:{user}", "train") for user in users]
    return pl.DataFrame(rows, schema=["user_id", "item_id", "split"], orient="row")


def plan(cohort: str) -> pl.DataFrame:
    rows = [(f"persona:{cohort}:1", "ml:1", "all", 1.0, 0.5)]
    columns = ["persona_id", "item_id", "stratum", "inclusion", "exposure"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def publish(store: Store, *users: object, cohorts: tuple[str, ...] = ("a",)) -> Release:
    for cohort in cohorts:
        store.commit(f"{PLAN}-{cohort}", plan(cohort), code_version="1")
    tables = {
        "splits": store.commit(SPLITS, splits(*users), code_version="1"),
        "plan": store.current(PLAN),
    }
    for table in tables.values():
        checks = [CheckRecord("rows", passed=True)]
        store.record_checks(table.dataset, table.version, checks)
    return store.publish("movies", tables, world="w", required={}, card="# Films\n", settings={})


def names(address: str, endpoint: str) -> list[str]:
    return objects_below(endpoint, address.removeprefix(f"s3://{BUCKET}/"))


def test_pushed_release_is_opened_by_its_address(store: Store, s3_address: str) -> None:
    older, newer = publish(store, 1), publish(store, 2, 1)
    for release in (older, newer):
        assert store.push(release, s3_address).address == f"{s3_address}/{release}"
    for reference in ("movies@latest", "movies", "latest", str(newer), str(newer)[:-8]):
        opened = open_release(f"{s3_address}/{reference}")
        assert opened.version == newer.version
    table = opened["splits"]
    assert table.polars(["user_id"])["user_id"].to_list() == ["ml-user:1", "ml-user:2"]
    assert table.lazy().filter(pl.col("user_id") == "ml-user:2").collect().height == 1
    assert table.duckdb().aggregate("count(*)").fetchone() == (2,)
    assert table.arrow(["split"]).column_names == ["split"]
    assert table.files == [
        ObjectPath(f"{s3_address}/data/{SPLITS}/{table.version}/part-00000.parquet")
    ]
    assert opened["plan"].polars().equals(store.current(PLAN).read())
    assert opened.card == "# Films\n"
    opened.verify()
    lock_file = f"{s3_address}/releases/{older}.json"
    assert open_release(lock_file, verify=True).version == older.version
    with pytest.raises(ReleaseError, match=f"no releases match 'books@latest': {s3_address}"):
        open_release(f"{s3_address}/books@latest")


def test_push_writes_tables_card_lock_file_and_pointer_only(
    store: Store, s3_address: str, s3_endpoint: str
) -> None:
    release = publish(store, 1)
    store.push(release, s3_address)
    (part,) = store.current(PLAN).snapshots
    assert names(s3_address, s3_endpoint) == [
        "_format.json",
        f"data/{PLAN}-a/{part.version}/_manifest.json",
        f"data/{PLAN}-a/{part.version}/part-00000.parquet",
        f"data/{SPLITS}/{release.tables['splits'].version}/_manifest.json",
        f"data/{SPLITS}/{release.tables['splits'].version}/part-00000.parquet",
        "refs/releases/movies.json",
        f"releases/{release}.json",
        f"releases/{release}.md",
    ]


def test_push_uploads_no_file_twice(store: Store, s3_address: str) -> None:
    first = store.push(publish(store, 1), s3_address)
    assert (
        (first.uploaded_files, first.uploaded_bytes)
        == (first.files, first.bytes)
        == (2, first.bytes)
    )
    assert store.push("movies@latest", s3_address).uploaded_files == 0
    second = store.push(publish(store, 1, cohorts=("a", "b")), s3_address)
    assert (second.files, second.uploaded_files) == (3, 1)


@pytest.mark.parametrize("lost", [False, True], ids=["refused", "answer lost"])
def test_push_that_ends_at_any_write_leaves_older_release_and_is_finished_by_the_next(
    store: Store, proxy: FaultProxy, s3_address: str, lost: bool
) -> None:
    older = publish(store, 1)
    store.push(older, s3_address)
    newer = publish(store, 2, cohorts=("a", "b"))
    left = ended = 0

    def end(request: Request) -> None:
        nonlocal left
        if request.method == "PUT":
            left -= 1
            # All later ones fail too, as if the process were dead.
            request.lose_answer = lost and left == -1
            if left < 0 and not request.lose_answer:
                request.answer = error_answer(400, "ExpiredToken")

    for writes in range(20):
        left, proxy.fault = writes, end
        try:
            store.push(newer, s3_address)
        except StoreError:
            ended += 1
            proxy.fault = lambda request: None
        else:
            break
        opened = open_release(f"{s3_address}/movies@latest", verify=True)
        # A pointer that was written without an answer names a whole release.
        assert opened.version in {older.version, *([newer.version] if lost else [])}
    proxy.fault = lambda request: None
    assert ended > 4
    assert open_release(f"{s3_address}/movies", verify=True).version == newer.version


def test_refused_push_shows_no_credential(
    store: Store, proxy: FaultProxy, s3_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    def expired(request: Request) -> None:
        request.answer = error_answer(400, "ExpiredToken")

    proxy.fault = expired
    with pytest.raises(
        StoreError, match=r"refuses access \(ExpiredToken\): s3://.*renew"
    ) as caught:
        store.push(publish(store, 1), s3_address)
    assert caught.value.exit_code == 5
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert not [word for word in (SECRET, TOKEN) if word in shown]


def busy(proxy: FaultProxy, code: str, times: int) -> Counter[tuple[str, str]]:
    """Let the server refuse each request so many times; the requests that are counted."""
    seen: Counter[tuple[str, str]] = Counter()

    def refuse(request: Request) -> None:
        seen[request.method, request.path] += 1
        if seen[request.method, request.path] <= times:
            request.answer = error_answer(503, code)

    proxy.fault = refuse
    return seen


@pytest.mark.parametrize("code", ["ServiceUnavailable", "SlowDown"])
def test_busy_server_is_asked_again(
    store: Store, proxy: FaultProxy, s3_address: str, code: str
) -> None:
    seen = busy(proxy, code, times=1)
    store.push(publish(store, 1), s3_address)
    assert min(seen.values()) > 1
    proxy.fault = lambda request: None
    table = open_release(f"{s3_address}/movies", verify=True)["splits"]
    seen = busy(proxy, code, times=4)
    assert table.polars().height == 1
    assert table.arrow().num_rows == 1
    assert min(seen.values()) > 4


def test_columns_are_read_in_ranges_and_refusals_hide_the_token(
    store: Store, proxy: FaultProxy, s3_address: str
) -> None:
    dice = random.Random(1)
    # Ten million bytes in two columns, more than one part of an upload; the third is constant.
    users = [dice.randbytes(16).hex() for _ in range(200_000)]
    pushed = store.push(publish(store, *users), s3_address)
    assert pushed.bytes > 5_000_000
    before = proxy.received
    table = open_release(f"{s3_address}/movies")["splits"]
    assert table.polars(["split"]).height == len(users)
    assert proxy.received - before < pushed.bytes / 5
    assert table.arrow(["split"]).num_rows == len(users)
    assert proxy.received - before < pushed.bytes / 2

    def expired(request: Request) -> None:
        request.answer = error_answer(400, "ExpiredToken")

    proxy.fault = expired
    for read in (table.polars, table.arrow):
        with pytest.raises(StoreError, match=r"refuses access \(ExpiredToken\): s3://") as caught:
            read(["split"])
        assert TOKEN not in "".join(traceback.format_exception(caught.value))


def test_damaged_release_is_not_pushed(store: Store, s3_address: str, s3_endpoint: str) -> None:
    release = publish(store, 1)
    (part,) = release.snapshot("splits").files()
    store.files.put(part, bytes(part.stat().st_size))
    with pytest.raises(IntegrityError, match=r"not as published: .*nothing was uploaded"):
        store.push(release, s3_address)
    assert names(s3_address, s3_endpoint) == []


def test_damage_on_the_object_store_is_found(store: Store, s3_address: str) -> None:
    store.push(publish(store, 1), s3_address)
    release = open_release(f"{s3_address}/movies")
    (part,) = release["splits"].files
    RemoteFiles(ObjectPath(s3_address)).put(part, bytes(release["splits"].bytes))
    with pytest.raises(IntegrityError, match="the content is not what was committed"):
        release.verify()


def test_missing_bucket_is_named(store: Store, s3_address: str) -> None:
    address = s3_address.replace(BUCKET, "no-such-bucket-here")
    publish(store, 1)
    with pytest.raises(StoreError, match=r"NoSuchBucket\): s3://no-such-bucket-here/"):
        store.push("movies", address)
    with pytest.raises(StoreError, match=r"NoSuchBucket\): s3://no-such-bucket-here/"):
        open_release(f"{address}/movies")


def test_commands_push_show_verify_and_export(s3_address: str, tmp_path: Path) -> None:
    def run(*words: str, code: int = 0) -> str:
        result = CliRunner().invoke(app, [*words, "--home", str(tmp_path / "home")])
        assert result.exit_code == code, result.output
        return result.stdout if code == 0 else result.stderr

    small_release.build(tmp_path / "home")
    pushed = json.loads(run("release", "push", s3_address, "movies", "--json"))
    address = pushed["address"]
    assert address == f"{s3_address}/{pushed['release']}"
    assert "0 uploaded" in run("release", "push", s3_address)
    shown = json.loads(run("release", "show", address, "--json"))
    assert shown["path"] == f"{s3_address}/releases/{pushed['release']}.json"
    assert json.loads(run("release", "verify", address, "--json"))["files"] == pushed["files"]
    for form, file in (("movielens", "ratings.csv"), ("huggingface", "data/items.parquet")):
        out = tmp_path / form
        run("release", "export", address, "--format", form, "--out", str(out))
        assert (out / file).is_file()
    played = run("episode", "--release", address, "--steps", "2", "--json")
    assert json.loads(played)["release"].startswith("movies@")
    refused = run("release", "verify", address, "--lineage", code=6)
    assert "verify the lineage in the home that it was pushed from" in refused
    refused = run("release", "diff", address, "movies", code=6)
    assert "compare them in the home that they were pushed from" in refused
    refused = run("release", "push", s3_address, address, code=6)
    assert "only a release of a home can be pushed" in refused
