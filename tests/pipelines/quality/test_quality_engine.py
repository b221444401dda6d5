"""great-expectations as it is driven here: off line, without files, and never fooled by nulls."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

from pipelines.errors import ContractError
from pipelines.quality import Expectation
from pipelines.quality._check import run_expectations

# Audit hooks see every file opened for writing and every connection, whoever makes them.
_WATCHED = """
import sys, os
seen = []
def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto", "subprocess.Popen"):
        seen.append((event, repr(args[1:])))
    elif event in ("os.mkdir", "tempfile.mkdtemp", "tempfile.mkstemp"):
        seen.append((event, str(args[0])))
    elif event == "open":
        path, mode, flags = args
        writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        if writes and isinstance(path, (str, bytes)) and os.fsdecode(path) != os.devnull:
            seen.append((event, os.fsdecode(path)))
sys.addaudithook(watch)
import polars as pl
from pipelines.quality import Expectation
from pipelines.quality._check import run_expectations
spec = Expectation("n", "error", "v", "ExpectColumnValuesToBeBetween", {"column": "a"}, "b")
arguments = {"column": "a", "min_value": 1, "mostly": 0.5}
frame = pl.DataFrame({"a": [0, 1, 2]})
outcome = run_expectations(frame, [(spec, arguments)], where="t")["n"]
print(outcome.passed, outcome.failing, outcome.of)
print([e for e in seen if "__pycache__" not in str(e)])
"""


@pytest.mark.pipeline
def test_a_run_opens_no_connection_and_writes_no_file(tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("HOME", "TMPDIR", "work")}
    for folder in folders.values():
        folder.mkdir()
    environment = {
        **os.environ,
        "HOME": str(folders["HOME"]),
        "TMPDIR": str(folders["TMPDIR"]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", _WATCHED],
        cwd=folders["work"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.splitlines() == ["True 1 3", "[]"]
    assert "Calculating Metrics" not in done.stderr
    assert [p for folder in folders.values() for p in folder.rglob("*")] == []


def _between(**arguments: object) -> tuple[Expectation, dict[str, object]]:
    spec = Expectation("n", "error", "v", "ExpectColumnValuesToBeBetween", {"column": "a"}, "b")
    return spec, {"column": "a", **arguments}


@pytest.mark.parametrize("value", [None, float("nan")], ids=["null", "not a number"])
def test_a_missing_value_is_a_failure_not_left_out(value: float | None) -> None:
    frame = pl.DataFrame({"id": ["x", "y"], "a": [1.0, value]})
    outcome = run_expectations(frame, [_between(min_value=0, mostly=0.1)], where="t")["n"]
    assert not outcome.passed
    assert outcome.failing == 1
    assert outcome.rows[0]["id"] == "y"


def test_no_rows_are_a_failure() -> None:
    frame = pl.DataFrame({"a": []}, schema={"a": pl.Float64})
    outcome = run_expectations(frame, [_between(min_value=0)], where="t")["n"]
    assert (outcome.passed, outcome.problem) == (False, "there are no rows to check")


def test_a_check_that_cannot_run_is_an_error_and_not_a_pass() -> None:
    frame = pl.DataFrame({"a": ["text", "more"]})
    with pytest.raises(ContractError, match=r"t\.n"):
        run_expectations(frame, [_between(min_value=0)], where="t")


def test_ten_of_many_failing_rows_are_shown() -> None:
    frame = pl.DataFrame({"a": [0] * 5000, "text": ["x" * 1000] * 5000})
    outcome = run_expectations(frame, [_between(min_value=1)], where="t")["n"]
    assert outcome.failing == 5000
    assert len(outcome.rows) == 10
    assert len(outcome.rows[0]["text"] or "") == 200
