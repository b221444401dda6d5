"""SIGKILL while a model writes a cohort: it goes on where it stopped, and nobody is there twice.

The file is also the program that is killed: ``python test_persona_kills.py HOME LOG``. It imports
everything once and forks a child per kill, because importing takes far longer than what is killed.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

# Imported before the fork, not after, in each child again.
import psutil  # noqa: F401
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
from support.killing import asked, forked, kill_once

import pipelines.contracts  # noqa: F401
from pipelines import personas as package
from pipelines.config import ServingSettings, Settings
from pipelines.llm.answers import AnswerStore
from pipelines.llm.engines import Request
from pipelines.llm.engines.scripted import ScriptedEngine, draw_reply
from pipelines.llm.grammars import TextLimits
from pipelines.personas import ModelWriter
from pipelines.stages import PipelineContext, build, stage_of
from pipelines.store import Store

pytestmark = pytest.mark.faults

COUNT, KILLS, EVERY, WINDOW = 90, 6, 5, 4


def settings(home: Path) -> Settings:
    return Settings(
        runtime={"home": home},
        personas={"writer": "model", "count": COUNT},
        serving={"commit_every": EVERY},
    )


def write(home: Path, log: Path | None, pause: float) -> None:
    """Write a cohort by the store's own interface; each call is logged as it is made."""
    chosen = settings(home)

    def rule(request: Request) -> Any:
        if log is not None:
            with log.open("a") as file:
                file.write(f"{request.tag[0]}\n")
        time.sleep(pause)
        return draw_reply(request)

    def open_writer(*_: Any, **__: Any) -> ModelWriter:
        return ModelWriter(
            ScriptedEngine(rule, name="slow", window=WINDOW),
            chosen.personas,
            serving=chosen.serving,
            store=AnswerStore(home, chosen.serving),
            limits=TextLimits((1, 1), (10, 40)),
        )

    with mock.patch.object(package, "load_writer", open_writer):
        build(
            stage_of("movies.personas"), PipelineContext.of(Store(home), chosen), cohort="movies-k"
        )


def kill_at_random(home: Path, log: Path) -> None:
    dice = random.Random(5)
    for _ in range(KILLS):
        kill_once(lambda: write(home, log, 0.002), log, dice, 14, least=2)
    assert os.waitpid(forked(lambda: write(home, log, 0.002)), 0)[1] == 0


@pytest.mark.night
def test_a_killed_cohort_goes_on_where_it_stopped_and_nobody_is_there_twice(
    tmp_path: Path,
) -> None:
    home, log = tmp_path / "home", tmp_path / "log"
    words = [sys.executable, __file__, str(home), str(log)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr

    personas = Store(home).current("movies.personas").read()
    assert personas["persona_id"].to_list() == [f"persona:movies-k:{n:07d}" for n in range(COUNT)]
    # The batches of a cohort begin at 0 again: a call is known by its place in the batch.
    calls = len(asked(log))
    assert COUNT <= calls <= COUNT + KILLS * (EVERY + WINDOW)
    with AnswerStore(home, ServingSettings()) as store:
        assert store.stats().answers == COUNT

    # No trace of the interruption remains.
    write(tmp_path / "calm", None, 0.0)
    assert personas.equals(Store(tmp_path / "calm").current("movies.personas").read())


if __name__ == "__main__":
    kill_at_random(Path(sys.argv[1]), Path(sys.argv[2]))
