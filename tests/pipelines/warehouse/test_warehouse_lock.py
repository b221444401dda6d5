from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.errors import LockedError
from pipelines.warehouse import warehouse_lock

HOLD = """
import sys
from pipelines.warehouse import warehouse_lock
with warehouse_lock(sys.argv[1]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.mark.pipeline
@pytest.mark.faults
def test_another_process_waits_and_is_told_who_holds_it_until_that_one_dies(home: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(home)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        waited_for: list[str] = []
        with (
            pytest.raises(LockedError, match=f"process {holder.pid} since"),
            warehouse_lock(home, timeout=0.1, on_wait=waited_for.append),
        ):
            pytest.fail("two hold it")
        assert [words.split(" since")[0] for words in waited_for] == [f"process {holder.pid}"]
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with warehouse_lock(home, timeout=5):
        pass


def test_it_is_free_again_after_an_error_inside(home: Path) -> None:
    with pytest.raises(ZeroDivisionError), warehouse_lock(home, timeout=0):
        raise ZeroDivisionError
    with warehouse_lock(home, timeout=0):
        pass
