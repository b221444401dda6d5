"""Experiments on visits with a brain that asks a model, played by a scripted engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from sim.experiments import Experiment, ExperimentContext
from sim.experiments._bubble import bubble
from sim.experiments._causal import causal
from sim.experiments._exposure import exposure
from sim.experiments.testing import fresh
from tests.sim.experiments.scripted import asking_a_model

SCROLLED = exposure.configure(
    genres=("comedy", "horror"), pages=(1,), agents=20, films=24, model_films=4, min_agents=2
)


@pytest.mark.pipeline
@pytest.mark.parametrize(
    "experiment",
    [
        bubble.configure(recommender="ease", rounds=2, min_items=5),
        SCROLLED,
    ],
    ids=lambda experiment: experiment.name,
)
def test_models_rows_are_of_its_sample(
    experiment: Experiment, context: ExperimentContext, tmp_path: Path
) -> None:
    asked: list[str] = []
    mine = asking_a_model(fresh(context, home=tmp_path), asked, agents=2)
    found = experiment.run(mine)
    rows = [row for row in found.rows if row.source == "model"]
    assert rows
    assert all(row.n is not None and row.n <= 2 for row in rows)
    calls = len(asked)
    assert experiment.run(mine).as_json() == found.as_json()
    assert len(asked) == calls > 0


def test_sample_without_a_graph_is_said_beside_the_others(
    context: ExperimentContext, tmp_path: Path
) -> None:
    mine = asking_a_model(fresh(context, home=tmp_path), agents=2)
    found = causal.configure(recommender="random", min_ratings=1, min_items=20, resamples=5).run(
        mine
    )
    assert {row.source for row in found.rows} == {"baseline", "statistical"}
    assert any("No graph of `model`" in note and "at least 20" in note for note in found.notes)


def test_memory_of_the_visit_reaches_the_models_prompt(
    context: ExperimentContext, tmp_path: Path
) -> None:
    asked: list[str] = []
    mine = asking_a_model(
        fresh(context, home=tmp_path), asked, agents=12, feeling="it was such a wild ride."
    )
    SCROLLED.run(mine)
    probes = [text for text in asked if "rate this film" in text]
    assert any("such a wild ride." in text for text in probes)
