"""Faults of an object store, injected between its client and the server."""

from __future__ import annotations

import logging
import random
import traceback
from collections import Counter
from collections.abc import Iterator

import polars as pl
import pytest
from support.object_store import (
    SECRET,
    TOKEN,
    FaultProxy,
    Request,
    error_answer,
    objects_below,
    use,
)

from pipelines.errors import StoreError
from pipelines.paths import home_path
from pipelines.store import CheckRecord, Release, Store, objects
from pipelines.store.objects import open_files

pytestmark = pytest.mark.faults


@pytest.fixture
def proxy(s3_home: str, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy, which the home of this test is reached through."""
    with FaultProxy(s3_endpoint).running() as made:
        use(made.endpoint, monkeypatch.setenv)
        yield made


def publish(home: str, user: int) -> Release:
    store = Store(home)
    rows = {"user_id": [f"ml-user:{user}"], "item_id": ["ml:1"], "split": ["train"]}
    with store.run_lock():
        made = store.commit("movies.splits", pl.DataFrame(rows), code_version="1")
        store.record_checks("movies.splits", made.version, [CheckRecord("rows", passed=True)])
        return store.publish(
            "movies",
            {"splits": made},
            world="w",
            required={"movies.splits": ["rows"]},
            card="# Films\n",
            settings={},
        )


def kinds(names: list[str]) -> Counter[str]:
    return Counter(name.partition("/")[0] for name in names)


#: Objects of one release of one table.
WHOLE = {
    "_format.json": 1,
    "_locks": 2,
    "builds": 1,
    "checks": 1,
    "data": 2,
    "refs": 2,
    "releases": 2,
}


@pytest.mark.parametrize("code", ["ServiceUnavailable", "SlowDown"])
def test_busy_server_is_asked_again(
    proxy: FaultProxy, s3_home: str, s3_endpoint: str, code: str
) -> None:
    seen: set[tuple[str, str]] = set()

    def busy_at_first(request: Request) -> None:
        if (request.method, request.path) not in seen:
            seen.add((request.method, request.path))
            request.answer = error_answer(503, code)

    proxy.fault = busy_at_first
    release = publish(s3_home, 1)
    proxy.fault = lambda request: None
    assert Store(s3_home).verify(release).ok
    assert kinds(objects_below(s3_endpoint, s3_home.rpartition("/")[2])) == WHOLE


def test_rows_are_read_from_a_server_that_is_busy_for_a_while(
    proxy: FaultProxy, s3_home: str
) -> None:
    publish(s3_home, 1)
    table = Store(s3_home).current("movies.splits")
    refused: Counter[tuple[str, str]] = Counter()

    def busy_four_times(request: Request) -> None:
        refused[request.method, request.path] += 1
        if refused[request.method, request.path] <= 4:
            request.answer = error_answer(503, "SlowDown")

    proxy.fault = busy_four_times
    assert table.read().height == 1
    assert table.arrow().num_rows == 1
    assert min(refused.values()) > 4


def test_lost_answer_of_a_write_that_succeeded_is_found_again(
    proxy: FaultProxy, s3_home: str, s3_endpoint: str
) -> None:
    lost: set[str] = set()

    def lose_first_answer(request: Request) -> None:
        if request.method == "PUT" and request.path not in lost:
            lost.add(request.path)
            request.lose_answer = True

    proxy.fault = lose_first_answer
    files = open_files(home_path(s3_home))
    path = files.root / "refs" / "a.json"
    assert files.put_new(path, b"1")
    assert not files.put_new(path, b"1")
    files.remove(path)
    release = publish(s3_home, 1)
    assert len(lost) > 10
    proxy.fault = lambda request: None
    assert Store(s3_home).verify(release).ok
    assert Store(s3_home).release("movies@latest") == release
    assert kinds(objects_below(s3_endpoint, s3_home.rpartition("/")[2])) == WHOLE


@pytest.mark.parametrize("requests", [12, 30])
def test_credentials_that_expire_midway_leave_whole_things_and_are_not_shown(
    proxy: FaultProxy,
    s3_home: str,
    s3_endpoint: str,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    requests: int,
) -> None:
    monkeypatch.setattr(objects, "LEASE", 6.0)
    monkeypatch.setattr(objects, "SKEW", 0.0)
    caplog.set_level(logging.DEBUG)
    first = publish(s3_home, 1)
    until = len(proxy.requests) + requests

    def expired(request: Request) -> None:
        if len(proxy.requests) > until:
            request.answer = error_answer(400, "ExpiredToken")

    proxy.fault = expired
    with pytest.raises(
        StoreError, match=r"refuses access \(ExpiredToken\): s3://.*renew"
    ) as caught:
        publish(s3_home, 2)
    assert caught.value.exit_code == 5
    shown = "".join(traceback.format_exception(caught.value)) + caplog.text
    assert not [word for word in (SECRET, TOKEN) if word in shown]
    proxy.fault = lambda request: None
    store = Store(s3_home)
    # The lock could not be given back: it ends by itself.
    with store.lock("run", timeout=60):
        pass
    assert store.release("movies@latest") == first
    assert store.verify(first).ok
    second = publish(s3_home, 2)
    assert store.verify("movies@latest").release == str(second)
    for name in objects_below(s3_endpoint, s3_home.rpartition("/")[2]):
        content = store.files.read(store.home / name) or b""
        assert not [word for word in (SECRET, TOKEN, "AKIDTESTS") if word.encode() in content], name


def test_columns_are_read_in_ranges_and_refusals_hide_the_token(
    proxy: FaultProxy, s3_home: str
) -> None:
    dice = random.Random(1)
    # Ten million bytes in two columns, more than one part of an upload; the third is constant.
    ids = [f"ml-user:{dice.randbytes(16).hex()}" for _ in range(200_000)]
    rows = {"user_id": ids, "item_id": [f"ml:{i[8:]}" for i in ids], "split": ["train"] * len(ids)}
    made = Store(s3_home).commit("movies.splits", pl.DataFrame(rows), code_version="1")
    assert made.bytes > 5_000_000
    before = proxy.received
    table = Store(s3_home).current("movies.splits")
    assert table.read(["split"]).height == len(ids)
    assert proxy.received - before < made.bytes / 5
    assert table.arrow(["split"]).num_rows == len(ids)
    assert proxy.received - before < made.bytes / 2

    def expired(request: Request) -> None:
        request.answer = error_answer(400, "ExpiredToken")

    proxy.fault = expired
    for read in (table.read, table.arrow):
        with pytest.raises(StoreError, match=r"refuses access \(ExpiredToken\): s3://") as caught:
            read(["split"])
        assert TOKEN not in "".join(traceback.format_exception(caught.value))


def test_server_without_conditional_writes_is_refused_before_anything_is_written(
    proxy: FaultProxy, s3_home: str, s3_endpoint: str
) -> None:
    def forget_conditions(request: Request) -> None:
        for name in list(request.headers):
            if name.lower() in {"if-none-match", "if-match"}:
                del request.headers[name]

    proxy.fault = forget_conditions
    with pytest.raises(StoreError, match=f"has no conditional writes: {s3_home}"):
        publish(s3_home, 1)
    assert objects_below(s3_endpoint, s3_home.rpartition("/")[2]) == []


def test_server_that_refuses_conditional_writes_is_refused(proxy: FaultProxy, s3_home: str) -> None:
    def refuse_conditions(request: Request) -> None:
        if {name.lower() for name in request.headers} & {"if-none-match", "if-match"}:
            request.answer = error_answer(501, "NotImplemented")

    proxy.fault = refuse_conditions
    with pytest.raises(StoreError, match=f"has no conditional writes: {s3_home}"):
        publish(s3_home, 1)
