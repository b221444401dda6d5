"""Shared inputs of experiments: opened and fitted once, kept under all that decides them."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest

from pipelines.errors import ConfigError
from pipelines.progress import listening
from sim.experiments import ExperimentContext
from sim.experiments.testing import fresh


def test_floor_and_statistical_brain_are_always_among_the_brains(
    context: ExperimentContext,
) -> None:
    assert fresh(context, brains=()).brains == ("random", "statistical")
    assert fresh(context, brains=("always", "random")).brains == ("random", "statistical", "always")


def test_brains_are_opened_once_per_world_and_options(context: ExperimentContext) -> None:
    made = fresh(context)
    assert made.brain("random") is made.brain("random")
    other = made.brain("random", made.world(traits=False))
    assert other is not made.brain("random")
    assert made.world_of(other).traits is False
    assert made.identity(other) != made.identity(made.brain("random"))


def test_recommenders_are_fitted_at_their_first_list(context: ExperimentContext) -> None:
    said: list[str] = []
    made = fresh(context)
    with listening(lambda text, *_: said.append(text)):
        popular = made.recommender("popular")
        assert said == []
        assert popular.recommend([0], 3).shape == (1, 3)
        popular.recommend([1], 3)
    assert said == ["fitting popular"]
    assert made.recommender("popular") is popular


def test_kept_visits_fit_nothing(context: ExperimentContext) -> None:
    first = fresh(context, agents=5).visits("random", "popular")
    said: list[str] = []
    made = fresh(context, agents=5)
    with listening(lambda text, *_: said.append(text)):
        again = made.visits("random", "popular")
    assert again.folder == first.folder
    assert "fitting popular" not in said


def test_cells_are_computed_once_per_key(context: ExperimentContext) -> None:
    asked = []

    def compute() -> pl.DataFrame:
        asked.append(1)
        return pl.DataFrame({"a": [len(asked)]})

    made = fresh(context)
    first = made.cell("any", {"seed": 1, "b": 2.0}, compute)
    assert fresh(context).cell("any", {"b": 2.0, "seed": 1}, compute).equals(first)
    other = made.cell("any", {"seed": 2, "b": 2.0}, compute)
    assert (first.item(), other.item(), len(asked)) == (1, 2, 2)
    assert (made.made, made.reused) == (2, 0)


def test_sources_tell_brains_with_a_model(scripted: Callable[..., ExperimentContext]) -> None:
    made = scripted()
    found = {name: made.source(made.brain(name)) for name in (*made.brains, "always")}
    assert found == {
        "random": "baseline",
        "statistical": "statistical",
        "model": "model",
        "always": "baseline",
    }
    assert made.agents_of(made.brain("model")) == 6
    assert made.agents_of(made.brain("random")) == 30
    assert made.world_of(made.brain("model")).pages == 1


def test_counts_below_one_are_refused(context: ExperimentContext) -> None:
    with pytest.raises(ConfigError, match="pages is 0"):
        fresh(context, pages=0)
