"""Visits by recommender."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from sim.environment import split_rows
from sim.experiments import ExperimentContext
from sim.experiments._strategies import _of_people, strategies
from sim.experiments.testing import fresh


def test_people_like_what_is_in_their_test_split(context: ExperimentContext) -> None:
    world = context.world()

    class Shown:
        """The same six films for everybody."""

        name = note = "shown"

        def recommend(self, users: np.ndarray, k: int, **_: object) -> np.ndarray:
            return np.tile(np.arange(k), (len(users), 1))

    found = _of_people(world, Shown())  # type: ignore[arg-type]
    films = set(world.catalogue.ids[:6])
    test = split_rows(world.release, ("test",)).filter(pl.col("item_id").is_in(films))
    rated = set(test["user_id"]) & set(world.people["user_id"])
    liked = set(test.filter(pl.col("rating") > 3)["user_id"]) & rated
    assert found.height == len(world)
    assert found["p_view"].sum() == pytest.approx(len(rated) / 6)
    assert found["p_like"].sum() == pytest.approx(len(liked) / 6)
    assert found["like_of_watched"].count() == len(rated)


def test_other_recommenders_are_compared_with_the_reference(context: ExperimentContext) -> None:
    found = strategies.configure(reference="random").run(fresh(context))
    titles = {(c.left, c.right) for c in found.comparisons}
    assert ("statistical, popular", "statistical, random") in titles
    assert len(titles) == 3
