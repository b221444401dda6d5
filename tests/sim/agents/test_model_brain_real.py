"""An agent played by a real small model for two pages; several at once: `test_model_brain.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.config import load_settings
from pipelines.memory import TextVectors
from sim.agents import AgentWorld, visit
from sim.agents._model import ModelBrain
from sim.recommenders import open_recommender
from tests.sim.agents.test_model_brain import Encoder

pytestmark = [pytest.mark.night, pytest.mark.timeout(3_600)]

AGENTS, PAGES = 1, 2


@pytest.fixture(scope="module")
def played(matched, small_model: Path, tmp_path_factory: pytest.TempPathFactory):
    """The brain and the tables of a visit of two pages, and of the same visit once more."""
    world = AgentWorld.open(matched, pages=PAGES)
    settings = load_settings(
        overrides={
            "runtime": {"home": tmp_path_factory.mktemp("played")},
            "engine": {"kind": "transformers", "model": "smollm2-135m"},
            "serving": {"models": small_model, "batch_tokens": 65_536},
        }
    )
    fitted = open_recommender("random").fit(matched)
    found = []
    for _ in range(2):
        with ModelBrain(settings, vectors=TextVectors(Encoder(world))) as brain:
            tables = visit(world, brain.open(world), fitted, np.arange(AGENTS))
            found.append((brain.tally.to_dict(), tables))
    return found


def test_a_small_model_plays_visits_without_a_broken_reply(played) -> None:
    _, tables = played[0]
    agents = tables["agents"]
    assert agents.height == AGENTS
    assert set(agents["exit_reason"]) <= {"chosen", "limit"}
    assert agents["interview"].is_between(1, 10).all()
    assert (agents["tokens"] > 0).all()


def test_ratings_stand_only_where_an_item_was_watched(played) -> None:
    _, tables = played[0]
    views = tables["views"]
    assert views.filter(~pl.col("watched"))["rating"].null_count() == (~views["watched"]).sum()
    assert views.filter("watched")["rating"].is_between(1, 5).all()
    # A sentence that contradicts its decision is left out.
    assert views["feeling"].drop_nulls().str.contains(r"[.!?]$").all()


def test_a_rerun_asks_nothing_and_plays_the_same(played) -> None:
    (_, first), (calls, again) = played
    assert calls["calls"] == 0
    for name, table in first.items():
        assert table.equals(again[name]), name
