"""Double DQN over dueling, factorised Q-values that never explores seen items."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from stable_baselines3 import DQN

from sim.training._networks import unseen

#: Ratings at an average taste that each persona's own weights begin with (count): a ridge penalty
#: that fades as ratings come in. About the ratio of the variances of a rating and of a weight.
_PRIOR_RATINGS = 32.0


class MaskedDQN(DQN):
    """DQN whose random actions, like its greedy ones, are drawn from the unseen items.

    With several environments each of them decides for itself whether to explore; in
    stable-baselines3 one coin decides for all. The next action is chosen by the online network
    and valued by the target network (van Hasselt et al., "Deep reinforcement learning with
    double Q-learning", 2016); the other items' Q-values are not computed where not needed. The
    personas' own weights are shrunk: a few ratings each would otherwise be overfitted, and the
    best of 10,000 estimates is mostly the most wrong one.
    """

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Take gradient steps on batches of the replay buffer."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        online: Any = self.q_net
        target: Any = self.q_net_target
        buffer: Any = self.replay_buffer
        ratings = buffer.size() * buffer.n_envs / len(online.scores.own)
        shrinkage = _PRIOR_RATINGS / ratings
        losses = []
        for _ in range(gradient_steps):
            batch = buffer.sample(batch_size)
            goal = batch.rewards
            if self.gamma:
                with th.no_grad():
                    then = online.scores(batch.next_observations).argmax(dim=1)
                    later = target.of(batch.next_observations, then)
                    goal = goal + (1 - batch.dones) * self.gamma * later
            loss = th.nn.functional.mse_loss(online.of(batch.observations, batch.actions), goal)
            own = online.scores.own[batch.observations["persona"].reshape(-1).long()]
            loss = loss + shrinkage * own.square().sum(dim=1).mean()
            losses.append(loss.item())
            self.policy.optimizer.zero_grad()
            loss.backward()
            th.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))

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
        scores: Any = self.q_net.scores
        seen = {key: th.as_tensor(observation[key]) for key in ("persona", "recent_items")}
        return unseen(scores.mask(seen).numpy(), draws)
