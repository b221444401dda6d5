"""The vector form lives the trajectories of single environments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from pipelines.errors import ConfigError, ReleaseError
from sim import Release
from sim.environment import RecommendationEnv, RecommendationVectorEnv, World

ITEMS = 24


@pytest.fixture(scope="module")
def world(release: Release) -> World:
    return World.open(release)


def singly(env: RecommendationEnv, seed: int, actions: np.ndarray) -> list[dict[str, Any]]:
    """Results of a single environment that is reset whenever its episode ends."""
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


def test_information_is_in_arrays_with_masks(world: World) -> None:
    envs = RecommendationVectorEnv(6, world=world, leave_probability=0.3)
    observations, infos = envs.reset(seed=0)
    assert infos["persona_id"].tolist() == [
        envs.cast.ids[persona] for persona in observations["persona"]
    ]
    for _ in range(20):
        before = observations
        observations, rewards, terminated, truncated, infos = envs.step(np.arange(6))
        assert infos["_rating"].all()
        assert np.array_equal(infos["rating"], rewards)
        over = terminated | truncated
        assert np.array_equal(infos.get("_final_obs", np.zeros(6, bool)), over)
        if over.any():
            last = infos["final_obs"]
            assert np.array_equal(last["persona"], before["persona"])
            assert np.array_equal(infos["final_info"]["item_id"], infos["item_id"])
            assert (infos["persona_id"][~over] == None).all()  # noqa: E711 - elementwise
            assert (observations["seen"][over].sum(axis=1) == 0).all()
            assert np.array_equal(observations["seen"][~over], last["seen"][~over])


def test_masks_are_those_of_the_next_step(world: World) -> None:
    envs = RecommendationVectorEnv(6, world=world, leave_probability=0.3)
    envs.reset(seed=0)
    ended = 0
    for _ in range(10):
        observations, _, terminated, _, infos = envs.step(np.arange(6))
        assert np.array_equal(infos["action_mask"], observations["seen"] == 0)
        if terminated.any():
            ended += 1
            last = infos["final_info"]["action_mask"]
            assert not last[np.flatnonzero(terminated), np.flatnonzero(terminated)].any()
    assert ended


def test_personas_can_be_chosen_by_number_and_by_id(world: World) -> None:
    envs = RecommendationVectorEnv(3, world=world, leave_probability=0.0)
    wanted = np.array([4, 4, 1])
    observations, infos = envs.reset(seed=0, options={"personas": wanted})
    assert observations["persona"].tolist() == [4, 4, 1]
    assert infos["persona_id"][2] == "persona:default:1"
    ids = ["persona:default:2", "persona:default:0", "persona:default:5"]
    assert envs.reset(options={"persona_id": ids})[0]["persona"].tolist() == [2, 0, 5]
    mask = np.array([False, True, False])
    envs.step(np.array([1, 2, 3]))
    observations, infos = envs.reset(options={"reset_mask": mask})
    assert observations["seen"].sum(axis=1).tolist() == [1, 0, 1]
    assert infos["_persona_id"].tolist() == mask.tolist()


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"personas": [0, 1]}, "personas are numbers"),
        ({"personas": [0, 1, 6]}, "from 0 to 5"),
        ({"persona_id": ["persona:default:1"]}, "1 persona ids for 3"),
        ({"persona_id": "persona:default:77"}, "no persona 'persona:default:77'"),
        ({"reset_mask": np.zeros(3, bool)}, "reset_mask"),
        ({"mask": np.ones(3, bool)}, "did you mean reset_mask"),
    ],
    ids=str,
)
def test_a_bad_option_is_named(options: dict[str, Any], what: str, world: World) -> None:
    envs = RecommendationVectorEnv(3, world=world)
    envs.reset(seed=0)
    with pytest.raises((ConfigError, ReleaseError), match=what):
        envs.reset(options=options)


@pytest.mark.parametrize(
    ("actions", "what"),
    [
        ([0, 24, 1], r"the action 24 of environment 1 is not an item.*0 to 23"),
        ([0, 1, -1], "the action -1 of environment 2"),
        ([0, 1], r"shape \(2,\)"),
        ([0.0, 1.0, 2.0], "float64 are not items"),
        ([[0], [1], [2]], r"shape \(3, 1\)"),
    ],
    ids=str,
)
def test_an_action_out_of_range_is_named_and_changes_nothing(
    actions: Any, what: str, world: World
) -> None:
    envs, twin = (RecommendationVectorEnv(3, world=world) for _ in range(2))
    envs.reset(seed=0)
    twin.reset(seed=0)
    with pytest.raises(ConfigError, match=what):
        envs.step(actions)
    one, other = envs.step(np.arange(3)), twin.step(np.arange(3))
    assert np.array_equal(one[1], other[1])


def test_seeds_may_be_given_one_by_one_and_must_be_as_many(world: World) -> None:
    envs = RecommendationVectorEnv(3, world=world)
    first = envs.reset(seed=[7, 8, 9])[0]["persona"]
    assert np.array_equal(envs.reset(seed=7)[0]["persona"], first)
    with pytest.raises(ConfigError, match="2 seeds for 3"):
        envs.reset(seed=[1, 2])
    with pytest.raises(ConfigError, match="num_envs is 0"):
        RecommendationVectorEnv(0, world=world)
    fresh = RecommendationVectorEnv(3, world=world)
    with pytest.raises(ConfigError, match="reset"):
        fresh.step([0, 1, 2])


def test_a_step_is_one_call_of_the_rater_for_all_users(world: World) -> None:
    calls: list[int] = []

    class Counted:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def rate(self, personas: np.ndarray, *rest: Any) -> Any:
            calls.append(len(personas))
            return self._inner.rate(personas, *rest)

    counted = World(
        world.release, world.catalogue, world.cast, Counted(world.rater), world.retriever
    )
    envs = RecommendationVectorEnv(50, world=counted)
    envs.reset(seed=0)
    for _ in range(10):
        envs.step(np.zeros(50, np.int64))
    assert calls == [50] * 10


def test_it_is_made_by_gymnasium(home: Path) -> None:
    envs = gymnasium.make_vec(
        "Understudy/Movies-v0", num_envs=2, release="movies@latest", home=home, rater="replay"
    )
    assert isinstance(envs, RecommendationVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.close()
