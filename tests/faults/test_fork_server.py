"""The tests' server of forked commands keeps its answers in step."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fork_server import ForkServer

pytestmark = [pytest.mark.faults, pytest.mark.night]


def test_a_broken_off_question_leaves_the_next_commands_unharmed(
    forked: ForkServer, tmp_path: Path
) -> None:
    process = forked.start(["--version"], tmp_path / "log")
    assert process.wait(600) == 0
    for _ in range(2):
        forked._send(poll=process.pid)  # as a time limit does: asked, and its answer never read
    process.returncode = None
    assert process.poll() == 0
    assert "Usage: understudy" in forked.run("--help").stdout
