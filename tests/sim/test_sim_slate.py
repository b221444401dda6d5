"""The form that shows several items at a step."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pipelines.errors import ConfigError
from pipelines.raters import BoundRater, RatingBatch
from pipelines.scales import SCALES
from sim import Release
from sim.environment import SlateEnv, SlateVectorEnv, World


class ByItem(BoundRater):
    """Item n is rated 1 + n % 5 by everybody; item 20 is not rated."""

    name, language_model, note, scale = "by item", False, "A test.", SCALES["1-5"]

    def __init__(self) -> None:
        """Bound to no tables."""

    def rate(self, personas: np.ndarray, items: np.ndarray, *rest: Any) -> RatingBatch:
        probabilities = np.eye(5)[items % 5]
        failed = items == 20
        probabilities[failed] = np.nan
        return RatingBatch(self.scale, probabilities, np.where(failed, "refused", "ok").tolist())

    def sweep(self, persona: int, past: np.ndarray, ratings: np.ndarray) -> np.ndarray:
        return np.arange(24) % 5 + 1.0


@pytest.fixture(scope="module")
def world(release: Release) -> World:
    return World.open(release, rater=ByItem())


def test_the_persona_takes_by_softmax_of_its_expected_ratings(world: World) -> None:
    envs = SlateVectorEnv(
        4000, world=world, slate_size=3, choice_temperature=2.0, leave_probability=0.0,
        observation="compact",
    )  # fmt: skip
    envs.reset(seed=0)
    # Expected ratings 1, 3 and 5.
    infos = envs.step(np.tile([0, 2, 4], (4000, 1)))[4]
    weight = np.exp(np.array([1.0, 3.0, 5.0]) / 2.0)
    share = weight / weight.sum()
    taken = np.bincount(infos["place"], minlength=3) / 4000
    # Four standard errors of each share.
    assert (np.abs(taken - share) < 4 * np.sqrt(share * (1 - share) / 4000)).all()
    assert (infos["rating"] == 1.0 + 2 * infos["place"]).all()


def test_a_small_temperature_takes_the_best_and_a_double_counts_once(world: World) -> None:
    env = SlateEnv(world=world, slate_size=4, choice_temperature=0.01, leave_probability=0.0)
    env.reset(seed=0)
    for slate in ([0, 1, 3, 2], [3, 0, 0, 0], [3, 3, 3, 3]):
        _, reward, _, _, info = env.step(np.array(slate))
        assert (reward, info["rating"]) == (4.0, 4.0)
        assert info["item_id"] == env.catalogue.ids[3]
        assert info["place"] == slate.index(3)
    warm = SlateVectorEnv(
        3000, world=world, slate_size=3, choice_temperature=1e6, observation="compact",
        leave_probability=0.0,
    )  # fmt: skip
    warm.reset(seed=5)
    places = warm.step(np.tile([7, 7, 9], (3000, 1)))[4]["place"]
    assert set(places.tolist()) == {0, 2}
    assert abs((places == 0).mean() - 0.5) < 4 * np.sqrt(0.25 / 3000)


def test_only_what_was_taken_is_remembered(world: World) -> None:
    env = SlateEnv(world=world, slate_size=2, leave_probability=0.0)
    env.reset(seed=1)
    observation, _, _, _, info = env.step(np.array([1, 8]))
    taken = env.catalogue.row(info["item_id"])
    assert np.flatnonzero(observation["seen"]).tolist() == [taken]
    assert observation["recent_items"][0] == taken


def test_mask_has_a_part_for_each_place(world: World) -> None:
    env = SlateEnv(world=world, slate_size=2, leave_probability=0.0)
    env.reset(seed=1)
    _, _, _, _, info = env.step(np.array([1, 8]))
    taken = env.catalogue.row(info["item_id"])
    assert np.flatnonzero(~info["action_mask"]).tolist() == [taken, 24 + taken]


def test_a_slate_with_an_unrated_item_is_unrated(world: World) -> None:
    env = SlateEnv(world=world, slate_size=2, on_unrated="truncate")
    env.reset(seed=1)
    observation, reward, _, truncated, info = env.step(np.array([4, 20]))
    assert (reward, truncated, info["rating_status"]) == (0.0, True, "refused")
    assert info["rating"] is None
    assert observation["seen"].sum() == 0


def test_slates_are_the_same_alone_and_in_the_vector_form(release: Release) -> None:
    world = World.open(release)
    envs = SlateVectorEnv(3, world=world, slate_size=3)
    slates = np.random.default_rng(0).integers(24, size=(60, 3, 3))
    envs.reset(seed=10)
    alone = [SlateEnv(world=world, slate_size=3) for _ in range(3)]
    for n, env in enumerate(alone):
        env.reset(seed=10 + n)
    for slate in slates:
        _, rewards, terminated, truncated, infos = envs.step(slate)
        for n, env in enumerate(alone):
            _, reward, left, cut, info = env.step(slate[n])
            assert (rewards[n], terminated[n], truncated[n]) == (reward, left, cut)
            for key in ("item_id", "rating", "expected", "place"):
                assert infos[key][n] == info[key]
            if left or cut:
                env.reset()


@pytest.mark.parametrize(
    "slate", [[0, 24], [-1, 3], [0], [0, 1, 2], [0.5, 1.0], 3, None, "ml:1"], ids=str
)
def test_what_is_no_slate_is_a_named_error_and_changes_nothing(slate: Any, world: World) -> None:
    env, twin = (SlateEnv(world=world, slate_size=2, leave_probability=0.0) for _ in range(2))
    env.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(ConfigError, match=r"not a slate of items.*0 to 23"):
        env.step(slate)
    np.testing.assert_equal(env.step(np.array([1, 2]))[4], twin.step(np.array([1, 2]))[4])


@pytest.mark.parametrize(
    ("argument", "value"),
    [("slate_size", 1), ("choice_temperature", 0.0), ("choice_temperature", float("nan"))],
)
def test_a_bad_slate_argument_is_named(argument: str, value: Any, world: World) -> None:
    for form in (SlateEnv, SlateVectorEnv):
        with pytest.raises(ConfigError, match=argument):
            form(world=world, **{argument: value})
