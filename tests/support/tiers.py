"""The rule of the quick tier, as a pytest plug-in.

A test without the mark ``pipeline`` or ``night`` belongs to ``make test``: it starts no program,
loads no real model, syncs no disk and takes at most `MAX_CPU_S` seconds of processor time. A test
that breaks the rule fails. Its call and its fixtures count; imports, which the first to come pays,
and fixtures of a wider scope, which all share, do not. Processor time is measured, not wall time,
and compared with that of a fixed loop at the same moment: a slow or busy machine fails no test.

Nothing is synced to disk in an unmarked test: `os.fsync` and `os.fdatasync` only check their
descriptor there. The mark ``forks`` is for a test whose subject are killed processes: it starts
one program, which imports once and forks.

With ``TEST_TIER_LOG`` set to a file, the costs of each test are appended to it as JSON lines, and
no test fails for them.
"""

from __future__ import annotations

import json
import multiprocessing.resource_tracker
import multiprocessing.util
import os
import platform
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: Processor time of one unmarked test in seconds; `make test-lowest` allows old packages more.
MAX_CPU_S = float(os.environ.get("TEST_MAX_CPU_S", "2"))
#: Processor time of the loop of `slowness` on two idle virtual cores (AMD EPYC, Python 3.11).
LOOP_S = 0.04
#: Marks of the other tiers.
OTHER_TIERS = frozenset({"pipeline", "night"})
#: Files with weights of this size or more are a real model.
REAL_MODEL_BYTES = 10_000_000
WEIGHTS = (".safetensors", ".gguf", ".onnx", ".bin", ".pt")
#: Events of `sys.addaudithook` that start another program, and `os.fork`.
STARTS = frozenset({"subprocess.Popen", "os.posix_spawn", "os.exec", "os.system", "os.fork"})
#: How `ctypes` looks a shared library up; an old threadpoolctl asks at its first use.
LOOKS_UP = {("/sbin/ldconfig",)}

LOG = os.environ.get("TEST_TIER_LOG")


class Costs:
    """What the running test has cost so far."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.reset(quick=False)

    def reset(self, *, quick: bool) -> None:
        """Begin with a test, of the quick tier or not."""
        self.quick = quick
        self.programs: list[str] = []
        self.models: list[str] = []
        self.syncs = 0
        self.shared_cpu_s = 0.0

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Count an event of the interpreter; events of forked children are not this process's."""
        if os.getpid() != self.process or Imports.running:
            return
        if event in STARTS and arguments[:1] not in LOOKS_UP:
            self.programs.append(f"{event} {arguments[:2]!r}"[:200])
        elif event == "open" and str(arguments[0]).endswith(WEIGHTS):
            path = Path(str(arguments[0]))
            if path.is_file() and path.stat().st_size >= REAL_MODEL_BYTES:
                self.models.append(path.name)


class Imports:
    """Processor time of imports in the main thread so far (seconds)."""

    cpu_s = 0.0
    running = False


COSTS = Costs()


def cpu_s() -> float:
    """Processor time of this process without its imports (seconds)."""
    return time.process_time() - Imports.cpu_s


def _watch_programs() -> None:
    sys.addaudithook(COSTS.audit)
    spawn = multiprocessing.util.spawnv_passfds

    def counted(path: Any, arguments: Any, descriptors: Any) -> int:
        COSTS.audit("subprocess.Popen", ("multiprocessing", arguments))
        return spawn(path, arguments, descriptors)

    multiprocessing.util.spawnv_passfds = counted


def _watch_syncs() -> None:
    for name in ("fsync", "fdatasync"):
        sync = getattr(os, name)

        def counted(descriptor: Any, sync: Any = sync) -> None:
            COSTS.syncs += 1
            if COSTS.quick:
                os.fstat(descriptor if isinstance(descriptor, int) else descriptor.fileno())
            else:
                sync(descriptor)

        setattr(os, name, counted)


def _watch_imports() -> None:
    bootstrap = sys.modules["_frozen_importlib"]
    find_and_load = bootstrap._find_and_load

    def timed(name: str, import_: Any) -> Any:
        if Imports.running or threading.current_thread() is not threading.main_thread():
            return find_and_load(name, import_)
        Imports.running, start = True, time.process_time()
        try:
            return find_and_load(name, import_)
        finally:
            Imports.running = False
            Imports.cpu_s += time.process_time() - start

    bootstrap._find_and_load = timed


# Programs that the interpreter starts once, for the test that comes first: the tracker of the first
# lock (dbt's), and `uname -p` (the OpenAI client names the platform).
multiprocessing.resource_tracker.ensure_running()
platform.processor()
_watch_programs()
_watch_syncs()
_watch_imports()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
    """Leave what fixtures of a wider scope cost out of the test that comes first."""
    if fixturedef.scope == "function":
        return (yield)
    start, inner = cpu_s(), COSTS.shared_cpu_s
    programs, models = len(COSTS.programs), len(COSTS.models)
    result = yield
    spent = cpu_s() - start - (COSTS.shared_cpu_s - inner)
    COSTS.shared_cpu_s += spent
    del COSTS.programs[programs:], COSTS.models[models:]
    if spent > MAX_CPU_S:
        _log(fixture=fixturedef.argname, scope=fixturedef.scope, cpu_s=spent)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Begin to count."""
    marks = {mark.name for mark in item.iter_markers()}
    COSTS.reset(quick=not marks & OTHER_TIERS)
    start = (time.perf_counter(), cpu_s(), os.times())
    item.stash[START] = start[1]
    result = yield
    children = sum(os.times()[2:4]) - sum(start[2][2:4])
    _log(
        test=item.nodeid,
        wall_s=time.perf_counter() - start[0],
        cpu_s=cpu_s() - start[1] - COSTS.shared_cpu_s,
        shared_cpu_s=COSTS.shared_cpu_s,
        children_cpu_s=children,
        syncs=COSTS.syncs,
        programs=COSTS.programs[:3],
        models=COSTS.models[:3],
        marks=sorted(marks),
        fixtures=list(getattr(item, "fixturenames", ())),
    )
    return result


START = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test of the quick tier that broke its rule."""
    result = yield
    if COSTS.quick and not LOG:
        broken = _broken_rules(item)
        if broken:
            pytest.fail(
                f"{'; '.join(broken)}: make it smaller, or mark it `pipeline` (make test-pipeline)",
                pytrace=False,
            )
    return result


def slowness() -> float:
    """How many times longer a fixed loop takes now than on the idle machine of `LOOP_S`."""
    start = time.process_time()
    for _ in range(30):
        sum(range(100_000))
    return max((time.process_time() - start) / LOOP_S, 1.0)


def _broken_rules(item: pytest.Item) -> list[str]:
    spent = cpu_s() - item.stash[START] - COSTS.shared_cpu_s
    if spent > MAX_CPU_S:
        spent /= slowness()
    forks = item.get_closest_marker("forks") is not None
    return [
        *(
            [f"it took {spent:.1f} s of processor time ({MAX_CPU_S:g})"]
            if spent > MAX_CPU_S
            else []
        ),
        *([f"it started {COSTS.programs[0]}"] if COSTS.programs and not forks else []),
        *([f"it loaded the model {COSTS.models[0]}"] if COSTS.models else []),
    ]


def _log(**record: Any) -> None:
    if LOG:
        with Path(LOG).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
