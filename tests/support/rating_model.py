"""A rating model of the sample world: its settings, questions of it, and runs that it scores."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from support.ask_engine import REPOSITORY, plain_requests
from support.fork_server import ForkServer

__all__ = [
    "MODEL",
    "SCORED",
    "TRAINED",
    "answers_of",
    "asked_pairs",
    "asked_requests",
    "asks_elsewhere",
    "score",
    "vllm_environment",
]

MODEL = "movies.rating_model@latest"
#: Chosen on validation ratings (benchmarks/earlier/tuning.md).
TRAINED = ("tuning.steps=500", "tuning.batch=2", "tuning.every=100", "tuning.dropout=0")
#: Tables that the rater has a part in.
SCORED = tuple(f"movies/{t}" for t in ("score_plan", "preference_scores", "rater_report"))
_PUBLISHED = (*SCORED, "movies/population", "releases/movies")


def score(
    forked: ForkServer, home: Path, kind: str, select: tuple[str, ...] = _PUBLISHED, **more: str
) -> tuple[int, dict[str, Any]]:
    """Run scores, report and release with the stored rating model as the rater."""
    chosen = {
        "scoring.rater": "llm",
        "scoring.layout": "ledger",
        "scoring.calibration": "model",
        "scoring.max_pairs": "400",
        "scoring.judged": "20",
        "engine.kind": kind,
        "engine.model": MODEL,
        **more,
    }
    result = forked.run(
        *("run", "--job", "movies", "--home", str(home), "--json"),
        *(part for name in select for part in ("--select", name)),
        *(part for key, value in chosen.items() for part in ("--set", f"{key}={value}")),
    )
    return result.returncode, json.loads(result.stdout)


def answers_of(home: Path) -> int:
    """Stored answers (count)."""
    from pipelines.config import ServingSettings
    from pipelines.llm.answers import AnswerStore

    with AnswerStore(home, ServingSettings()) as store:
        return store.stats().answers


def asked_pairs(home: Path, history: int, count: int) -> tuple[Any, Any, Any]:
    """Test ratings of people with at least `history` training ratings.

    Returns
    -------
    The people as personas, their last ratings on 1-10, and the pairs, of shape (count, 2).
    """
    from pipelines.store import Store

    store = Store(home)
    splits = store.current("movies.splits").read()
    rated = store.current("movies.interactions").read()
    train = rated.join(splits.filter(split="train"), on=["user_id", "item_id"])
    train = train.sort("user_id", "rated_at", "item_id")
    known = train.group_by("user_id").len().filter(pl.col("len") >= history)["user_id"]
    test = splits.filter(pl.col("split") == "test", pl.col("user_id").is_in(known.implode()))
    test = test.sort("user_id", "item_id").head(count)
    people = test["user_id"].unique().sort()
    place = {item: n for n, item in enumerate(store.current("movies.items").read()["item_id"])}
    who = {user: n for n, user in enumerate(people)}
    pairs = np.array([[who[u], place[i]] for u, i in test.select("user_id", "item_id").rows()])
    past = train.filter(pl.col("user_id").is_in(people.implode()))
    past = past.group_by("user_id", maintain_order=True).tail(history)
    return (
        pl.DataFrame({"persona_id": people}),
        past.select(pl.col("user_id").alias("persona_id"), "item_id", pl.col("rating") * 2),
        pairs,
    )


def asked_requests(home: Path, count: int, history: int = 40) -> tuple[str, list[dict[str, Any]]]:
    """The model with its version, and its rater's questions about test ratings."""
    from pipelines.context import PipelineContext
    from pipelines.raters import open_rater
    from pipelines.store import Store

    store = Store(home)
    people, past, pairs = asked_pairs(home, history, count)
    settings = PipelineContext(
        {
            "runtime": {"home": str(home)},
            "scoring": {"layout": "ledger", "rater": "llm", "history": history},
            "engine": {"kind": "transformers", "model": MODEL},
            "serving": {"device": "cpu"},
        }
    ).settings
    items, stats = (store.current(f"movies.{name}").read() for name in ("items", "item_stats"))
    known = {name: store.current(f"movies.{name}").scan() for name in ("interactions", "splits")}
    rater: Any = open_rater(settings, items=items, item_stats=stats, **known)
    requests = plain_requests(rater.requests(people, items, past, pairs=pairs))
    rater.close()
    return str(settings.engine.model), requests


def vllm_environment() -> Path | None:
    """Python of the environment that has vLLM (`make vllm`), or ``TEST_VLLM_PYTHON``."""
    given = os.environ.get("TEST_VLLM_PYTHON")
    found = Path(given) if given else REPOSITORY / ".venv-vllm/bin/python"
    return found if found.is_file() else None


def asks_elsewhere(python: Path, task: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Answers of :func:`ask` in a process of another environment."""
    out = folder / "answers.json"
    (folder / "task.json").write_text(json.dumps({**task, "out": str(out)}), encoding="utf-8")
    subprocess.run(
        [python, REPOSITORY / "tests/support/ask_engine.py", folder / "task.json"],
        # vLLM's sampler would compile one function for half a minute at its first choice.
        env=os.environ | {"TORCHDYNAMO_DISABLE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    return found
