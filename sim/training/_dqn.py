"""DQN that never explores what the persona has seen."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from stable_baselines3 import DQN

from sim.training._networks import seen_mask, unseen

__all__ = ["MaskedDQN"]


class MaskedDQN(DQN):
    """DQN whose random actions, like its greedy ones, are drawn from the unseen items.

    With several environments each of them decides for itself whether to explore; in
    stable-baselines3 one coin decides for all.
    """

    def predict(
        self,
        observation: Any,
        state: Any = None,
        episode_start: Any = None,
        deterministic: bool = False,
    ) -> tuple[np.ndarray, Any]:
        """Items for a batch of observations: greedy, or with some probability unseen ones."""
        action, state = self.policy.predict(observation, state, episode_start, deterministic=True)
        if deterministic:
            return action, state
        draws = np.random.random((2, len(action)))  # noqa: NPY002 - what SB3 seeds and we save
        explore = draws[0] < self.exploration_rate
        return np.where(explore, self._any(observation, draws[1]), action), state

    def _sample_action(
        self, learning_starts: int, action_noise: Any = None, n_envs: int = 1
    ) -> tuple[np.ndarray, np.ndarray]:
        del action_noise
        assert self._last_obs is not None
        if self.num_timesteps < learning_starts:
            action = self._any(self._last_obs, np.random.random(n_envs))  # noqa: NPY002
        else:
            action, _ = self.predict(self._last_obs)
        return action, action

    def _any(self, observation: Any, draws: np.ndarray) -> np.ndarray:
        items = th.as_tensor(observation["recent_items"])
        return unseen(seen_mask(items, int(self.action_space.n)).numpy(), draws)  # type: ignore[attr-defined]
