"""A process ends soon after SIGINT or SIGTERM, whatever it waits for."""

from __future__ import annotations

import signal
import subprocess
import sys

import psutil
import pytest

pytestmark = pytest.mark.pipeline

HELD_BACK = """
import os, subprocess, sys, time
from dagster._utils.interrupts import capture_interrupts
from orchestration._interrupts import bounded_end
with bounded_end(1.0, "error: interrupted"), capture_interrupts():
    child = subprocess.Popen(["sleep", "60"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(child.pid, flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # as Dagster does while a step runs
    for _ in range(600):
        time.sleep(0.1)
"""
SLOW_TO_CLOSE = """
import time
from orchestration._interrupts import bounded_end
try:
    with bounded_end(1.0):
        print(0, flush=True)
        time.sleep(60)
finally:
    time.sleep(60)
"""
ORDERLY = """
import time
from orchestration._interrupts import bounded_end
try:
    with bounded_end(30.0):
        print(0, flush=True)
        time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.1)
    print("closed")
"""
INTERRUPTED_STEP = """
import pathlib
import dagster as dg
from orchestration.headless import PlannedRun, _run

@dg.asset(retry_policy=POLICY)
def step():
    print("attempt", flush=True)
    raise KeyboardInterrupt

defs = dg.Definitions([step], jobs=[dg.define_asset_job("one")])
run = PlannedRun("one", "base", (step.key,))
try:
    with dg.DagsterInstance.ephemeral() as instance:
        _run(defs, run, instance, pathlib.Path("."), "CRITICAL", lambda *_: None)
except KeyboardInterrupt:
    print("interrupted")
"""


def start(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_process_that_holds_signals_back_is_ended_with_its_children(number: signal.Signals) -> None:
    with start(HELD_BACK) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        process.send_signal(number)
        _, printed = process.communicate(timeout=30)
    assert process.returncode == 130
    assert printed.strip() == "error: interrupted"
    _, alive = psutil.wait_procs([child], timeout=30)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]


def test_process_that_is_slow_to_close_is_ended() -> None:
    with start(SLOW_TO_CLOSE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, printed = process.communicate(timeout=30)
    assert (process.returncode, printed) == (130, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_orderly_end_is_not_cut_short(number: signal.Signals) -> None:
    with start(ORDERLY) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        out, printed = process.communicate(timeout=30)
    assert (process.returncode, out, printed) == (0, "closed\n", "")


@pytest.mark.parametrize("policy", ["None", "dg.RetryPolicy(max_retries=2, delay=60)"])
def test_interrupted_step_is_not_tried_again(policy: str) -> None:
    with start(INTERRUPTED_STEP.replace("POLICY", policy)) as process:
        out, printed = process.communicate(timeout=60)
    assert out.split() == ["attempt", "interrupted"], printed
