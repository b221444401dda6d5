"""The vector form lives the trajectories of single environments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sim import Release
from sim.environment import RecommendationEnv, RecommendationVectorEnv, World

ITEMS = 24


@pytest.fixture(scope="module")
def world(release: Release) -> World:
    return World.open(release)


def singly(env: RecommendationEnv, seed: int, actions: np.ndarray) -> list[dict[str, Any]]:
    """What happens to one environment that is reset whenever its episode ends."""
    observation, _ = env.reset(seed=seed)
    steps = []
    for action in actions.tolist():
        after, reward, terminated, truncated, info = env.step(action)
        over = terminated or truncated
        steps.append(
            {
                "before": observation,
                "after": after,
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "info": info,
            }
        )
        observation = env.reset()[0] if over else after
    return steps


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"observation": "ratings", "memory": "persistent", "retriever": "embedding"},
        {"observation": "compact", "history_length": 40, "length_limit": 12, "retrieved": 30},
        {"perturbation": "gaussian", "perturbation_strength": 2.0, "reward_shaping": 0.5},
        {"perturbation": "greedy", "perturbation_strength": 0.8, "retriever": "none"},
        {"memory": "persistent", "reward_shaping": 0.9, "retrieved": 3},
    ],
    ids=str,
)
def test_slot_i_of_a_seeded_vector_environment_is_the_environment_seeded_so(
    arguments: dict[str, Any], release: Release, world: World
) -> None:
    world = World.open(release, rater=world.rater, retriever=arguments.get("retriever", "recent"))
    envs = RecommendationVectorEnv(5, world=world, **arguments)
    actions = np.random.default_rng(3).integers(ITEMS, size=(120, 5))
    alone = [
        singly(RecommendationEnv(world=world, **arguments), 40 + n, actions[:, n]) for n in range(5)
    ]
    observations, _ = envs.reset(seed=40)
    ended = 0
    for at, action in enumerate(actions):
        before = observations
        observations, rewards, terminated, truncated, infos = envs.step(action)
        for n, steps in enumerate(alone):
            step = steps[at]
            over = step["terminated"] or step["truncated"]
            last = infos["final_obs"] if over else observations
            for key, value in step["before"].items():
                assert np.array_equal(before[key][n], value), key
                assert np.array_equal(last[key][n], step["after"][key]), key
            assert (rewards[n], terminated[n], truncated[n]) == (
                step["reward"],
                step["terminated"],
                step["truncated"],
            )
            for key in ("item_id", "rating", "rating_status", "expected", "repeated", "step"):
                assert infos[key][n] == step["info"][key], key
                assert infos[f"_{key}"][n]
            ended += over
    assert ended >= 5


def test_a_batch_of_one_and_of_many_round_alike(world: World) -> None:
    one = RecommendationVectorEnv(1, world=world, leave_probability=0.0)
    many = RecommendationVectorEnv(33, world=world, leave_probability=0.0)
    one.reset(seed=32)
    many.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(60):
        actions = rng.integers(ITEMS, size=33)
        expected = many.step(actions)[4]["expected"][32]
        assert one.step(actions[32:])[4]["expected"][0] == expected
