"""Promises of every experiment."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.study import TooFew
from sim.experiments import EXPERIMENTS, ExperimentContext
from sim.experiments.testing import check_experiment
from tests.sim.experiments.scripted import Prepared, comments

#: Options with which too little is there for a figure.
LACKING: dict[str, dict[str, Any]] = {
    # The small release has no user with two test interactions, and nobody a log of three entries.
    "believability": {"positives": (2,)},
    "judge": {"least": 3},
    "rating": {"min_people": 31},
    "distribution": {"min_people": 31},
    "strategies": {"min_recommenders": 3},
    "enhancement": {"min_people": 31},
    "bubble": {"rounds": 4, "min_items": 20},
    "causal": {"min_items": 50, "min_ratings": 3},
    "traits": {"min_people": 11},
    "exposure": {"pages": (5, 20, 50)},
    # Nine items have a negative comment, and thirteen posters can be read.
    "reviews": {"comments": comments(9)},
    "thumbnails": {"min_items": 14},
    "hallucination": {"min_people": 31},
    "offline": {"min_systems": 8},
    "feeling": {"min_people": 31},
    "cost": {"min_agents": 31},
}
#: Experiments that retrain recommenders.
SLOW = ("enhancement",)
NAMES = [
    pytest.param(name, marks=[pytest.mark.pipeline] if name in SLOW else []) for name in EXPERIMENTS
]


@pytest.mark.parametrize("name", NAMES)
def test_experiment_conforms(name: str, context: ExperimentContext, prepared: Prepared) -> None:
    check_experiment(prepared(name), context)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_too_little_is_reported_with_the_number_needed(
    name: str, context: ExperimentContext, prepared: Prepared
) -> None:
    with pytest.raises(TooFew, match=r"at least .* are needed") as raised:
        prepared(name, **LACKING[name]).run(context)
    assert raised.value.found < raised.value.needed
