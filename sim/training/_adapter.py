"""The vector environment as stable-baselines3 steps it."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import numpy as np
from stable_baselines3.common.vec_env import VecEnv

if TYPE_CHECKING:
    from sim.environment import RecommendationVectorEnv

#: Ended episodes that the logged means are over (count), as in stable-baselines3.
_WINDOW = 100
_NOTHING: dict[str, Any] = {}


class SB3VecEnv(VecEnv):
    """Adapter from :class:`sim.environment.RecommendationVectorEnv` to SB3's `VecEnv`.

    A step is the environment's own batched step; only environments whose episode ends cost Python,
    as stable-baselines3 wants a dictionary from each of those. The environment has
    ``observation="compact"`` and same-step autoreset.

    With `scaled` the learner's rewards are (r - middle) / half the width of the scale, from -1 to
    1: the best policy is the same, and with raw ratings of 1-10 the critic's first errors fill the
    norm that A2C and PPO clip both networks' gradients to, so that the actor hardly moves.
    `rewards` (in units of the scale) and `steps` are summed since the last :meth:`tally`.
    """

    def __init__(self, env: RecommendationVectorEnv, *, scaled: bool = True) -> None:
        self.env = env
        scale = env.scale
        self._middle = (scale.low + scale.high) / 2 if scaled else 0.0
        self._half = (scale.high - scale.low) / 2 if scaled else 1.0
        super().__init__(env.num_envs, env.single_observation_space, env.single_action_space)
        self._returns = np.zeros(env.num_envs)
        self._lengths = np.zeros(env.num_envs, np.int64)
        self._ended: deque[tuple[float, int]] = deque(maxlen=_WINDOW)
        self._actions = np.zeros(env.num_envs, np.int64)
        self.rewards, self.steps = 0.0, 0

    def reset(self) -> dict[str, np.ndarray]:
        """First observations, with the seeds that were set by `seed`."""
        seeds = None if all(seed is None for seed in self._seeds) else list(self._seeds)
        observations, _ = self.env.reset(seed=seeds)
        self._reset_seeds()
        self._returns[:] = 0
        self._lengths[:] = 0
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Remember the actions for `step_wait`."""
        self._actions = np.asarray(actions, np.int64)

    def step_wait(self) -> Any:
        """Step all environments at once."""
        observations, rewards, terminated, truncated, infos = self.env.step(self._actions)
        over = terminated | truncated
        self._returns += rewards
        self._lengths += 1
        self.rewards += float(rewards.sum())
        self.steps += self.num_envs
        ended: list[dict[str, Any]] = [_NOTHING] * self.num_envs
        for n in np.flatnonzero(over).tolist():
            total, length = float(self._returns[n]), int(self._lengths[n])
            self._ended.append((total, length))
            ended[n] = {
                "episode": {"r": total, "l": length, "t": 0.0},
                "TimeLimit.truncated": bool(truncated[n] and not terminated[n]),
                "terminal_observation": {k: v[n] for k, v in infos["final_obs"].items()},
            }
        self._returns[over] = 0
        self._lengths[over] = 0
        learnt = ((rewards - self._middle) / self._half).astype(np.float32)
        return observations, learnt, over, ended

    def tally(self) -> dict[str, float]:
        """Mean reward per step since the last call, and means over the last episodes."""
        nan = float("nan")
        ended = np.array(self._ended, dtype=np.float64).reshape(-1, 2)
        means = ended.mean(axis=0) if len(ended) else (nan, nan)
        figures = {
            "training_reward": self.rewards / self.steps if self.steps else nan,
            "episode_return": float(means[0]),
            "episode_length": float(means[1]),
        }
        self.rewards, self.steps = 0.0, 0
        return figures

    def state(self) -> dict[str, Any]:
        """The state of the environment and of the tallies, as nested dicts of arrays and values."""
        return {
            "env": self.env.state(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "ended": [list(pair) for pair in self._ended],
            "rewards": self.rewards,
            "steps": self.steps,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        self.env.restore(state["env"])
        self._returns[:], self._lengths[:] = state["returns"], state["lengths"]
        self._ended = deque(((float(r), int(n)) for r, n in state["ended"]), maxlen=_WINDOW)
        self.rewards, self.steps = float(state["rewards"]), int(state["steps"])

    def close(self) -> None:
        """Close the environment."""
        self.env.close()

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """An attribute of the one environment, once per row."""
        return [getattr(self.env, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the one environment."""
        del indices
        setattr(self.env, attr_name, value)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Not supported: rows are not objects of their own."""
        raise NotImplementedError(f"{method_name}: the environment is stepped as a whole")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """No row is wrapped."""
        del wrapper_class
        return [False for _ in self._get_indices(indices)]
