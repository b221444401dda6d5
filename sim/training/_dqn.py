"""Double DQN over dueling, factorised Q-values that never explores seen items.

A dense transition at 10,000 items holds two vectors of ratings and two masks of seen items: 100 kB.
Of the compact observation the replay buffer stores the episode's items and ratings once; the next
observation is the same with one item moved to the front, so that only this item and its rating are
stored. At a history of 200 and 250,000 transitions that is 0.4 GB instead of 25 GB.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch as th
from gymnasium import spaces
from stable_baselines3 import DQN
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.type_aliases import DictReplayBufferSamples

from sim.training._networks import unseen


class CompactReplayBuffer(DictReplayBuffer):
    """Transitions of compact observations; gives what `DictReplayBuffer` would.

    `buffer_size` counts transitions over all environments.
    """

    #: Its arrays by name, for checkpoints.
    ARRAYS = (
        "items", "ratings", "persona", "age", "gender", "next_item", "next_rating", "taken",
        "reward", "done", "timeout",
    )  # fmt: skip

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        device: th.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
    ) -> None:
        assert not optimize_memory_usage, "it is already"
        # The arrays of the parents would be what this class is there to avoid.
        super(ReplayBuffer, self).__init__(
            buffer_size, observation_space, action_space, device, n_envs=n_envs
        )
        self.buffer_size = size = max(buffer_size // n_envs, 1)
        (history,) = observation_space["recent_items"].shape  # type: ignore[misc]
        shape = (size, n_envs)
        self.items = np.full((*shape, history), -1, np.int32)
        self.ratings = np.zeros((*shape, history), np.float32)
        self.persona, self.taken = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        self.age, self.gender = np.zeros(shape, np.float32), np.zeros(shape, np.int8)
        self.next_item, self.next_rating = np.zeros(shape, np.int32), np.zeros(shape, np.float32)
        self.done, self.timeout = np.zeros(shape, bool), np.zeros(shape, bool)
        self.reward = np.zeros(shape, np.float32)

    @property
    def nbytes(self) -> int:
        """Memory of all arrays (bytes)."""
        return sum(getattr(self, name).nbytes for name in self.ARRAYS)

    def add(  # type: ignore[override]
        self,
        obs: dict[str, Any],
        next_obs: dict[str, Any],
        action: np.ndarray,
        reward: np.ndarray,
        done: np.ndarray,
        infos: list[dict[str, Any]],
    ) -> None:
        """Store a transition of every environment."""
        at, n = self.pos, self.n_envs
        self.items[at], self.ratings[at] = obs["recent_items"], obs["recent_ratings"]
        self.persona[at] = np.asarray(obs["persona"]).reshape(n)
        self.age[at] = np.asarray(obs["age"]).reshape(n)
        self.gender[at] = np.asarray(obs["gender"]).reshape(n)
        self.next_item[at] = next_obs["recent_items"][:, 0]
        self.next_rating[at] = next_obs["recent_ratings"][:, 0]
        self.taken[at] = np.asarray(action).reshape(n)
        self.reward[at], self.done[at] = reward, done
        self.timeout[at] = [info.get("TimeLimit.truncated", False) for info in infos]
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0

    def _get_samples(  # type: ignore[override]
        self, batch_inds: np.ndarray, env: Any = None
    ) -> DictReplayBufferSamples:
        del env
        # Drawn as `DictReplayBuffer` draws it, so that both give the same batches.
        at = batch_inds, np.random.randint(0, high=self.n_envs, size=(len(batch_inds),))  # noqa: NPY002
        items, ratings = self.items[at].astype(np.int64), self.ratings[at]
        fixed = {
            "persona": self.persona[at].astype(np.int64)[:, None],
            "age": self.age[at][:, None],
            "gender": self.gender[at].astype(np.int64)[:, None],
        }
        new = self.next_item[at].astype(np.int64)
        then = {
            "recent_items": _moved(new, items, items, new),
            "recent_ratings": _moved(self.next_rating[at], ratings, items, new),
        }
        now = {"recent_items": items, "recent_ratings": ratings}
        not_over = self.done[at] & ~self.timeout[at]
        return DictReplayBufferSamples(
            observations=self._tensors({**fixed, **now}),
            actions=self.to_torch(self.taken[at].astype(np.int64)[:, None]),
            next_observations=self._tensors({**fixed, **then}),
            dones=self.to_torch(not_over.astype(np.float32)[:, None]),
            rewards=self.to_torch(self.reward[at][:, None]),
        )

    def _tensors(self, observation: dict[str, Any]) -> dict[str, th.Tensor]:
        return {key: self.to_torch(value) for key, value in observation.items()}

    def stored(self) -> dict[str, np.ndarray]:
        """The used part of every array, and the index of the next transition."""
        size = self.size()
        arrays = {name: getattr(self, name)[:size] for name in self.ARRAYS}
        return {**arrays, "pos": np.array(self.pos), "full": np.array(self.full)}

    def restore(self, stored: dict[str, np.ndarray]) -> None:
        """Take back what `stored` gave."""
        for name in self.ARRAYS:
            getattr(self, name)[: len(stored[name])] = stored[name]
        self.pos, self.full = int(stored["pos"]), bool(stored["full"])


def _moved(value: np.ndarray, old: np.ndarray, items: np.ndarray, item: np.ndarray) -> np.ndarray:
    """`old` with `value` in front, and without what stood where `item` is among `items`.

    If the item is new, the oldest place is dropped; where no item was added to the episode (its
    rating failed), the newest is the one that it was, and nothing moves.

    >>> items = np.array([[5, 3, -1], [5, 3, 8], [5, 3, -1]])
    >>> new = np.array([8, 8, 5])
    >>> _moved(new, items, items, new)
    array([[ 8,  5,  3],
           [ 8,  5,  3],
           [ 5,  3, -1]])
    """
    same = items == item[:, None]
    length = items.shape[1]
    place = np.where(same.any(axis=1), same.argmax(axis=1), length)
    at = np.arange(length)[None, :]
    source = np.where(at <= place[:, None], at - 1, at)
    out = np.take_along_axis(old, np.maximum(source, 0), axis=1)
    out[:, 0] = value
    return out


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
            weights = online.scores.own[batch.observations["persona"].reshape(-1).long()]
            loss = loss + shrinkage * weights.square().sum(dim=1).mean()
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
