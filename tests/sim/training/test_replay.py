"""The compact buffer gives what stable-baselines3's dense one gives, in a sixtieth of the room."""

from __future__ import annotations

import numpy as np
import pytest
import torch as th
from gymnasium import spaces
from stable_baselines3.common.buffers import DictReplayBuffer

from sim.environment import RecommendationVectorEnv, World
from sim.training._adapter import SB3VecEnv
from sim.training._dqn import CompactReplayBuffer

GIB = 1024**3


def space(items: int, history: int) -> spaces.Dict:
    return spaces.Dict(
        {
            "persona": spaces.Discrete(600),
            "age": spaces.Box(0, 120, (1,), np.float32),
            "gender": spaces.Discrete(3),
            "recent_items": spaces.Box(-1, items - 1, (history,), np.int64),
            "recent_ratings": spaces.Box(-1, 10, (history,), np.float32),
        }
    )


def test_250_000_transitions_at_10_000_items_fit_in_4_gb() -> None:
    small = CompactReplayBuffer(1_000, space(10_000, 200), spaces.Discrete(10_000), n_envs=4)
    # Items and ratings of four bytes each, then: persona, age, next item, next rating, item taken
    # and reward 4 each, gender, done and timeout 1 each.
    each = 200 * 8 + 6 * 4 + 3
    assert small.nbytes == 1_000 * each
    assert small.nbytes == sum(a.nbytes for a in vars(small).values() if isinstance(a, np.ndarray))
    assert 250_000 * each < 4 * GIB / 10
    # Ratings of four bytes and a seen mask of one, before and after: 23 times as much as 1 GiB.
    assert 23 * GIB < 250_000 * 10_000 * (4 + 1) * 2


@pytest.mark.parametrize("envs", [1, 3])
@pytest.mark.parametrize("items_left", ["many", "few"])
def test_it_gives_the_batches_of_the_dense_buffer(world: World, envs: int, items_left: str) -> None:
    # With few items episodes outlast the catalogue, so that items are met again.
    length = 40 if items_left == "few" else 12
    env = SB3VecEnv(
        RecommendationVectorEnv(
            envs,
            world=world,
            observation="compact",
            length_limit=length,
            history_length=length,
            leave_probability=0.03,
        )
    )
    size = 60 * envs
    dense = DictReplayBuffer(size, env.observation_space, env.action_space, n_envs=envs)  # type: ignore[arg-type]
    ours = CompactReplayBuffer(size, env.observation_space, env.action_space, n_envs=envs)  # type: ignore[arg-type]
    env.seed(3)
    rng = np.random.default_rng(0)
    seen = env.reset()
    for _ in range(100):  # more than fit: the oldest fall out
        action = rng.integers(0, 24, envs)
        then, reward, done, infos = env.step(action)
        following = {k: v.copy() for k, v in then.items()}  # type: ignore[union-attr]
        for n in np.flatnonzero(done):
            for key in following:
                following[key][n] = infos[n]["terminal_observation"][key]
        for buffer in (dense, ours):
            buffer.add(dict(seen), dict(following), action, reward, done, infos)
        seen = then  # type: ignore[assignment]
    for seed in range(5):
        batches = []
        for buffer in (dense, ours):
            np.random.seed(seed)  # noqa: NPY002 - what both draw from
            batches.append(buffer.sample(32))
        for field in ("actions", "rewards", "dones"):
            assert th.equal(getattr(batches[0], field), getattr(batches[1], field)), field
        for field in ("observations", "next_observations"):
            for key, value in getattr(batches[0], field).items():
                assert th.equal(value, getattr(batches[1], field)[key]), (field, key)


def test_what_is_stored_can_be_taken_back(world: World) -> None:
    args = (space(24, 5), spaces.Discrete(24))
    one, two = (CompactReplayBuffer(6, *args, n_envs=2) for _ in range(2))
    rng = np.random.default_rng(0)
    for _ in range(2):
        obs = {k: np.stack([s.sample()] * 2) for k, s in args[0].spaces.items()}
        one.add(obs, obs, rng.integers(0, 24, 2), np.ones(2), np.zeros(2, bool), [{}, {}])
    two.restore(one.stored())
    assert (two.pos, two.full) == (2, False)
    for name in CompactReplayBuffer.ARRAYS:
        assert np.array_equal(getattr(one, name), getattr(two, name)), name
