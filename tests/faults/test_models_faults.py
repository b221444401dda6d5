"""Fetching a model while processes are killed, the disk is full, or two of them do it at once.

The file is also the program that is killed: ``python test_models_faults.py MODELS SOURCE LOG``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

from support.killing import forked

from pipelines.errors import StoreError
from pipelines.llm.engines.checkpoints import find_checkpoint
from pipelines.llm.models import ModelFolder, get_model

pytestmark = [pytest.mark.faults, pytest.mark.pipeline]

KILLS = 12


def kill_at_random(models: Path, source: Path) -> None:
    """Fetch, killed ever later, and let the last one end; after each, whole models or none."""
    get_model(models, "warm", origin=str(source))  # import its modules before the forks
    started = time.monotonic()
    assert os.waitpid(forked(lambda: get_model(models, "timed", origin=str(source))), 0)[1] == 0
    usual = time.monotonic() - started
    dice, killed = random.Random(5), 0
    for turn in range(KILLS):
        pid = forked(lambda: get_model(models, "mine", origin=str(source)))
        time.sleep(usual * (turn + dice.random()) / KILLS)
        os.kill(pid, signal.SIGKILL)
        killed += os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        for stored in ModelFolder(models).list():
            stored.verify()
        if "mine" in ModelFolder(models):
            # It ended before it was killed: once more, killed sooner.
            ModelFolder(models).remove("mine")
            usual /= 2
    assert killed >= 3, "the kills came too late to hit anything"
    assert os.waitpid(forked(lambda: get_model(models, "mine", origin=str(source))), 0)[1] == 0


def test_killed_fetches_leave_whole_models_or_none(tmp_path: Path, tiny_model: Path) -> None:
    models = tmp_path / "models"
    done = subprocess.run(
        [sys.executable, __file__, str(models), str(tiny_model)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    ModelFolder(models).get("mine").verify()
    found = find_checkpoint("mine", models=models)
    assert found.weights_digest() == find_checkpoint(str(tiny_model)).weights_digest()
    assert not any((models / "_staging").iterdir())


@pytest.mark.parametrize("kind", ["folder", "gguf"])
def test_full_disk_is_one_line_and_leaves_nothing(
    small_disk: Path, tmp_path: Path, tiny_model: Path, kind: str
) -> None:
    source = tiny_model
    if kind == "gguf":
        pytest.importorskip("gguf", reason="the extra `models` is not installed")
        from support.gguf_files import write_gguf

        source = write_gguf(tiny_model, tmp_path / "tiny.gguf")
    models = small_disk / "models"
    with pytest.raises(StoreError, match="no space left on the disk") as caught:
        get_model(models, "mine", origin=str(source))
    assert "\n" not in str(caught.value)
    assert ModelFolder(models).list() == []
    assert [p.name for p in (models / "_staging").iterdir()] == []


if __name__ == "__main__":
    kill_at_random(Path(sys.argv[1]), Path(sys.argv[2]))
