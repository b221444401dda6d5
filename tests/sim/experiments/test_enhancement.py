"""Retraining on feedback."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Self

import numpy as np
import polars as pl
import pytest

from pipelines.config import load_settings
from sim import open_release
from sim.agents import AgentWorld, Judgement, Opinion, Question
from sim.agents._baselines import AlwaysBrain
from sim.experiments import ExperimentContext
from sim.experiments._data import retrained
from sim.experiments._enhancement import (
    _retrained_arms,
    feedback_arms,
    half_of,
    one_fold,
)


def test_controls_are_of_the_same_size_and_disjoint() -> None:
    rng = np.random.default_rng(0)
    rated = rng.uniform(size=(20, 60)) < 0.2
    shown = (rng.uniform(size=(20, 60)) < 0.3) & ~rated
    watched = shown & (rng.uniform(size=(20, 60)) < 0.4)
    ids = [f"persona:{n}" for n in range(20)]
    arms = feedback_arms(shown, watched, ~rated, ids, seed=0)
    assert not arms["origin"].any()
    assert (arms["random"].sum(axis=1) == watched.sum(axis=1)).all()
    assert (arms["unviewed"].sum(axis=1) <= watched.sum(axis=1)).all()
    assert not (arms["unviewed"] & ~(shown & ~watched)).any()
    assert not (arms["random"] & (shown | rated)).any()
    assert not (arms["shuffled"] & rated).any()
    assert arms["shuffled"].any()


def test_no_feedback_is_on_items_that_are_evaluated(context: ExperimentContext) -> None:
    world, brain = context.world(), context.brain("random")
    half = half_of(world.catalogue.ids) == 0
    origin = retrained(world, "ease")
    frame = one_fold(world, brain, "ease", origin, half, 30, 24, 0)
    assert frame.filter(arm="viewed")["added"].sum() > 0
    # A list of the whole other half has every test item of it.
    assert set(frame["recall"].drop_nans()) == {1.0}
    assert 0 < frame["recall"].is_nan().sum() < frame.height


def test_without_feedback_nothing_changes(context: ExperimentContext) -> None:
    world = context.world()
    nothing = np.zeros((len(world), len(world.catalogue)), np.bool_)
    lists = [
        retrained(world, "ease", feedback).recommend([0, 7], 5).tolist()
        for feedback in (None, nothing)
    ]
    assert lists[0] == lists[1]


class Partisan(AlwaysBrain):
    """Watches films of its person's party: odd users watch odd films, even ones even films."""

    name = "partisan"
    note = "Watches films of one party."

    def open(self, world: AgentWorld) -> Self:
        numbers = world.people["user_id"].str.slice(8).cast(pl.Int64).to_numpy()
        films = np.array([int(item[3:]) for item in world.catalogue.ids])
        self._own = numbers[:, None] % 2 == films[None, :] % 2
        return super().open(world)

    def judge(self, questions: Sequence[Question]) -> list[Judgement]:
        return [
            Judgement(opinions=tuple(
                Opinion(True, self._rating) if self._own[q.visit.person, item] else Opinion(False)
                for item in q.items
            ))
            for q in questions
        ]  # fmt: skip


@pytest.fixture(scope="module")
def parties(small: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> ExperimentContext:
    """Forty users with two training films each, all of their party, and one held out twice."""
    users = [f"ml-user:{n}" for n in range(1, 41)]
    rng = np.random.default_rng(4)
    rows = []
    for user in range(1, 41):
        own = rng.permutation(np.arange(2 - user % 2, 25, 2))
        for place, film in enumerate(own[:5].tolist()):
            split = ("train", "train", "validation", "test", "test")[place]
            rows.append((f"ml-user:{user}", f"ml:{film}", split))
    splits = pl.DataFrame(rows, schema=["user_id", "item_id", "split"], orient="row")
    tables = small.matched_frames(users)
    example = tables["movies.interactions"].row(0, named=True)
    interactions = splits.select(
        "user_id", "item_id", rating=pl.lit(4.0), scale=pl.lit("0.5-5"),
        rated_at=pl.lit(example["rated_at"]),
    )  # fmt: skip
    home = tmp_path_factory.mktemp("parties") / "home"
    replaced = {"movies.interactions": interactions, "movies.splits": splits}
    small.build(home, replace={**tables, **replaced})
    kept = Path(tmp_path_factory.mktemp("kept"))
    settings = load_settings(overrides={"runtime": {"home": str(kept)}})
    release = open_release("movies", home=home)
    return ExperimentContext(release, settings, kept, agents=40, pages=3, per_page=4)


def test_gain_of_feedback_vanishes_when_it_is_shuffled(parties: ExperimentContext) -> None:
    brain = parties.brain(f"{__name__}:Partisan")
    frame = _retrained_arms(parties.world(), brain, "ease", 40, 4, 0)
    recall = dict(frame.group_by("arm").agg(pl.col("recall").mean()).iter_rows())
    gain = {arm: value - recall["origin"] for arm, value in recall.items()}
    assert gain["viewed"] > 0.15
    assert gain["shuffled"] <= 0
    assert gain["viewed"] > gain["unviewed"]
