"""Lanes: tasks side by side in processes of their own."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from support.lane_work import SECONDS, await_file, stages

from orchestration._lanes import Lanes, Task, open_lanes
from pipelines.errors import SourceError, UnderstudyError

pytestmark = pytest.mark.slow


@pytest.fixture
def lanes(tmp_path: Path) -> Iterator[Lanes]:
    with open_lanes(functools.partial(stages, tmp_path), 2) as lanes:
        yield lanes


def test_results_come_in_the_order_of_the_tasks_and_messages_as_they_are_told(
    lanes: Lanes,
) -> None:
    heard: list[tuple[str, ...]] = []
    tasks = [Task(name, ("note", name)) for name in "abc"]
    assert lanes.run(tasks, on_event=lambda *event: heard.append(event)) == ["a", "b", "c"]
    assert sorted(heard) == [("noted", "a"), ("noted", "b"), ("noted", "c")]


def test_two_tasks_run_at_the_same_time(lanes: Lanes) -> None:
    # Each ends only when the other has begun.
    tasks = [Task("left", ("meet", ("l", "r"))), Task("right", ("meet", ("r", "l")))]
    assert lanes.run(tasks) == ["l", "r"]


def test_a_task_waits_for_those_it_comes_after_and_a_later_one_overtakes_it(
    lanes: Lanes,
) -> None:
    # The first ends when the third has begun, which therefore can't stand behind the second.
    tasks = [
        Task("first", ("meet", ("first", "third"))),
        Task("second", ("seen", None), after=(0,)),
        Task("third", ("note", "third")),
    ]
    seen = lanes.run(tasks)[1]
    assert {"first", "third"} <= set(seen)


def test_a_fault_is_raised_as_what_it_was_after_the_task_beside_it_and_nothing_else_starts(
    lanes: Lanes, tmp_path: Path
) -> None:
    tasks = [
        Task("breaks", ("fail", "games.json.gz")),
        Task("beside", ("note", "beside")),
        Task("next", ("note", "next"), after=(0,)),
    ]
    with pytest.raises(SourceError, match=r"it broke: games.json.gz \(mend it\)"):
        lanes.run(tasks)
    assert (tmp_path / "beside").exists()
    assert not (tmp_path / "next").exists()


def test_a_lane_that_dies_is_an_error_that_names_its_task(lanes: Lanes) -> None:
    with pytest.raises(UnderstudyError, match=r"died \(exit code -9\): movies"):
        lanes.run([Task("movies", ("die", None)), Task("books", ("note", "books"))])


def test_an_interrupt_reaches_what_the_lanes_do_and_waits_for_its_end(tmp_path: Path) -> None:
    def stop(*_: object) -> None:
        await_file(tmp_path / "waiting")
        raise KeyboardInterrupt

    tasks = [Task("waits", ("wait", "waiting")), Task("tells", ("note", "told"))]
    with (
        pytest.raises(KeyboardInterrupt),
        open_lanes(functools.partial(stages, tmp_path), 2) as lanes,
    ):
        lanes.run(tasks, on_event=stop)
    assert (tmp_path / "waiting-interrupted").exists()
    assert len(list(tmp_path.glob("closed-*"))) == 2, "both lanes closed what they had opened"


@pytest.fixture
def coordinator(tmp_path: Path, repository: Path) -> Callable[[str], subprocess.Popen[bytes]]:
    """Start a coordinator in a process of its own, and wait until its lane works."""
    paths = os.pathsep.join([str(repository), str(repository / "tests")])

    def start(verb: str) -> subprocess.Popen[bytes]:
        code = (
            "import pathlib, support.lane_work as w; "
            f"w.coordinate(pathlib.Path({str(tmp_path)!r}), {verb!r})"
        )
        with (tmp_path / "stderr").open("wb") as printed:
            process = subprocess.Popen(
                [sys.executable, "-c", code],
                env={**os.environ, "PYTHONPATH": paths},
                stderr=printed,
            )
        await_file(tmp_path / "waiting")
        return process

    return start


Coordinator = Callable[[str], "subprocess.Popen[bytes]"]


def test_lanes_end_when_their_coordinator_is_killed(
    tmp_path: Path, coordinator: Coordinator
) -> None:
    process = coordinator("wait")
    lane = psutil.Process(int((tmp_path / "waiting").read_text()))
    process.send_signal(signal.SIGKILL)
    process.wait(SECONDS)
    lane.wait(SECONDS)
    assert (tmp_path / "waiting-interrupted").exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_lane_that_holds_interrupts_back_ends_silently_with_its_children(
    tmp_path: Path, coordinator: Coordinator, number: signal.Signals
) -> None:
    process = coordinator("hold")
    started = [psutil.Process(int(pid)) for pid in (tmp_path / "waiting").read_text().split()]
    process.send_signal(number)
    process.wait(SECONDS / 2)
    _, alive = psutil.wait_procs(started, timeout=SECONDS / 2)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    printed = (tmp_path / "stderr").read_text()
    assert printed.count("Traceback") == (0 if number == signal.SIGKILL else 1), printed
