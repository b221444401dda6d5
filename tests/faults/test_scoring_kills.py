"""SIGKILL in the middle of a cohort's scoring: no pair lost, none twice, the same bytes.

The file is also the program that is killed: ``python test_scoring_kills.py HOME LOG``. It
imports everything once and forks a child per kill, because importing takes far longer than what
is killed; the parent itself only reads the log, so that no thread pool exists when it forks.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1])]

# Imported before the fork, not after, in each child again.
import polars as pl
import psutil  # noqa: F401
import pyarrow.compute
import pyarrow.parquet  # noqa: F401
from support.killing import asked, kill_at_random

import pipelines.contracts  # noqa: F401
from pipelines.config import ServingSettings
from pipelines.llm.answers import AnswerStore
from pipelines.llm.engines import Request
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.raters import SCALES, CohortScores, LLMRater, Part, ScorePart
from pipelines.seeding import hash_text
from pipelines.store import Store

pytestmark = pytest.mark.faults

DATASET = "movies.preference_scores"
PERSONS, FILMS, KILLS, EVERY, WINDOW = 12, 30, 8, 4, 4
PAIRS = PERSONS * FILMS


def world() -> dict[str, pl.DataFrame]:
    people = [f"persona:a:{n:07d}" for n in range(PERSONS)]
    films = sorted(f"ml:{n}" for n in range(FILMS))
    personas = pl.DataFrame(
        {"persona_id": people, "description": [f"Person {p} likes trains." for p in people]}
    )
    items = pl.DataFrame({"item_id": films, "title": [f"Film {f}" for f in films]})
    plan = personas.select("persona_id").join(items.select("item_id"), how="cross")
    return {"plan": plan, "personas": personas, "items": items}


def rater_of(home: Path, log: int, delay: float) -> LLMRater:
    """Asks a model that writes down what it is asked before it answers, as a bill would."""

    def rule(request: Request) -> dict[str, float]:
        place = request.tag
        os.write(log, f"{place.row} {request.group} {place.item}\n".encode())
        time.sleep(delay)
        prompt = "".join(message.content for message in request.messages)
        high = (hash_text(prompt) % 1000) / 1000
        return {"5": high, "2": 1 - high}

    serving = ServingSettings(commit_every=EVERY)
    engine = ScriptedEngine(rule, name="billed", window=WINDOW)
    return LLMRater(engine, SCALES["1-5"], store=AnswerStore(home, serving), serving=serving)


def score(home: Path, log: Path, delay: float = 0.001) -> None:
    """Killed process: score the cohort, then commit the table."""
    written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    tables, rater = world(), rater_of(home, written, delay)
    parts = [
        Part(tables["plan"].join(people, on="persona_id", how="semi"), people, pl.DataFrame())
        for people in tables["personas"].iter_slices(5)
    ]
    scores = CohortScores("a", PAIRS)
    with Store(home).write(DATASET, code_version="1") as writer:
        for frame in scores.rows(ScorePart(rater, tables["items"], batch=50), parts):
            writer.append(frame)
        rater.close()


def files_of(home: Path) -> dict[str, bytes]:
    snapshot = Store(home).current(DATASET)
    return {p.name: p.read_bytes() for p in sorted(snapshot.path.glob("*.parquet"))}


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("killed")
    home, log = folder / "home", folder / "log"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, __file__, str(home), str(log)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    ends = [int(line) for line in (folder / "ends").read_text().split()]
    return {"home": home, "asked": asked(log), "ends": ends}


def test_no_pair_is_lost_and_none_is_there_twice(killed: dict[str, Any]) -> None:
    table = Store(killed["home"]).current(DATASET).read()
    planned = world()["plan"].select("persona_id", "item_id").sort("persona_id", "item_id")
    assert table.select("persona_id", "item_id").equals(planned)
    assert table["status"].unique().to_list() == ["ok"]


def test_the_result_is_that_of_a_run_that_was_not_killed(
    killed: dict[str, Any], tmp_path: Path
) -> None:
    score(tmp_path / "home", tmp_path / "log", delay=0.0)
    assert len(asked(tmp_path / "log")) == PAIRS
    assert files_of(tmp_path / "home") == files_of(killed["home"])
    current = [Store(home).current(DATASET).version for home in (tmp_path / "home", killed["home"])]
    assert current[0] == current[1]


def test_a_kill_costs_only_the_calls_that_were_not_committed(killed: dict[str, Any]) -> None:
    counts = Counter(line.split(" ", 1)[1] for line in killed["asked"])
    assert len(counts) == PAIRS
    assert killed["ends"][0] - PAIRS <= KILLS * (EVERY + WINDOW)


def test_a_rerun_of_what_is_scored_calls_no_model(killed: dict[str, Any]) -> None:
    assert killed["ends"][1] == killed["ends"][0]


def test_nothing_is_left_beside_the_table(killed: dict[str, Any]) -> None:
    assert list((killed["home"] / "_staging").iterdir()) == []


if __name__ == "__main__":
    HOME, LOG = Path(sys.argv[1]), Path(sys.argv[2])
    kill_at_random(lambda: score(HOME, LOG), LOG, seed=5, kills=KILLS, most=PAIRS // KILLS)
