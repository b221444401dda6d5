"""SIGKILL in the middle of a suite: no cell lost, no question asked twice, the same result.

The file is also the program that is killed: ``python test_ablation_kills.py HOME LOG``. It
imports everything once and forks a child per kill.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[3]), str(Path(__file__).parents[2])]

# Imported before the fork, not in each child again.
import matplotlib  # noqa: F401
import polars as pl
import pyarrow.parquet  # noqa: F401
import scipy.stats  # noqa: F401
from support.ablation_release import RULE, build_with_series, settings_of
from support.killing import asked, kill_at_random

import pipelines.contracts
import pipelines.retrieval  # noqa: F401
from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.answers import AnswerStore
from pipelines.llm.engines import Request
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.seeding import hash_text
from pipelines.store import Store
from sim.ablations import Options, RaterSpec, SuiteContext

pytestmark = [pytest.mark.faults, pytest.mark.night]

LLM = RaterSpec("llm", EngineSettings(kind="scripted", model="billed"))
CELLS = [
    (Options("1-10", "0", "custom"), 0),
    (Options("1-10", "0", "custom", perturbation="gaussian"), 0),
    (Options("1-10", "0", "custom", "recent"), 1),
]
KILLS, EVERY, WINDOW = 6, 4, 4


def suite(home: Path, log: Path, delay: float = 0.001) -> None:
    """Killed process: the cells, one after the other."""
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def rule(request: Request) -> dict[str, float]:
        prompt = "\n".join(message.content for message in request.messages)
        os.write(written, f"{hash_text(prompt)}\n".encode())
        time.sleep(delay)
        high = (hash_text(prompt) % 1000) / 1000
        return {"9": high, "2": 1 - high}

    serving = ServingSettings(commit_every=EVERY)
    store = Store(home)
    shop = SuiteContext.open(
        store,
        store.release("movies@latest"),
        "movies",
        settings_of(home, serving=serving.model_dump(include={"commit_every"})),
        rule=RULE,
        answer_store=AnswerStore(home, serving),
        engines=lambda _: ScriptedEngine(rule, name="billed", window=WINDOW),
    )
    for options, seed in CELLS:
        shop.cell(LLM, options, seed)
    shop.raters.close()


def cells_of(home: Path) -> dict[str, Any]:
    return {
        file.name: pl.read_parquet(file).to_dict(as_series=False)
        for file in sorted(home.glob("ablations/cells/*/*.parquet"))
    }


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("killed")
    for name in ("calm", "home"):
        build_with_series(folder / name)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}

    def run(*arguments: str) -> None:
        done = subprocess.run(
            [sys.executable, __file__, *arguments],
            env=environment, capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]

    run("calm", str(folder / "calm"), str(folder / "calm.log"))
    whole = len(asked(folder / "calm.log"))
    run("kill", str(folder / "home"), str(folder / "log"), str(whole))
    ends = [int(n) for n in (folder / "ends").read_text().split()]
    return {"folder": folder, "whole": whole, "ends": ends}


def test_every_cell_is_there_and_as_if_nothing_had_happened(killed: dict[str, Any]) -> None:
    calm, after = (cells_of(killed["folder"] / name) for name in ("calm", "home"))
    assert len(calm) == len(CELLS)
    assert json.dumps(after, sort_keys=True) == json.dumps(calm, sort_keys=True)


def test_what_was_answered_and_stored_is_not_asked_again(killed: dict[str, Any]) -> None:
    log = asked(killed["folder"] / "log")
    # Each kill costs what was in flight and what was not committed yet, and nothing else.
    lost = len(log) - killed["whole"]
    assert 0 <= lost <= KILLS * (EVERY + WINDOW)
    assert set(log) == set(asked(killed["folder"] / "calm.log"))


def test_the_run_after_the_last_asks_nothing(killed: dict[str, Any]) -> None:
    last, again = killed["ends"]
    assert last == again


def test_no_half_written_file_is_left(killed: dict[str, Any]) -> None:
    home = killed["folder"] / "home"
    assert not list(home.rglob("ablations/**/*.tmp"))


if __name__ == "__main__":
    HOME, LOG = Path(sys.argv[2]), Path(sys.argv[3])
    if sys.argv[1] == "calm":
        suite(HOME, LOG, 0.0)
    else:
        most = int(sys.argv[4]) // KILLS
        kill_at_random(lambda: suite(HOME, LOG), LOG, seed=3, kills=KILLS, most=most)
