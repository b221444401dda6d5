"""Policies of stable-baselines3 over the low-rank networks."""

from __future__ import annotations

from typing import Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.dqn.policies import DQNPolicy

from sim.training._distribution import MaskedCategoricalDistribution
from sim.training._networks import ItemScores, Sizes, ValueNetwork

__all__ = ["LowRankPolicy", "LowRankQNetwork", "LowRankQPolicy"]


class LowRankPolicy(BasePolicy):
    """Actor and critic for A2C, PPO and TRPO; observations must be compact.

    Parameters
    ----------
    observation_space, action_space, lr_schedule, use_sde
        As stable-baselines3 gives them.
    sizes
        See :class:`sim.training._networks.Sizes`.
    history
        Whether the actor sees past ratings too.
    entropy_gradient
        Whether the loss differentiates the entropy.
    optimizer_class, optimizer_kwargs
        As stable-baselines3 gives them.
    """

    #: Networks of this name are no part of TRPO's actor: it skips what has `value` in its name.
    value: ValueNetwork

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Any,
        use_sde: bool = False,
        *,
        sizes: Sizes,
        history: bool,
        entropy_gradient: bool,
        optimizer_class: type[th.optim.Optimizer] = th.optim.Adam,
        optimizer_kwargs: dict[str, Any] | None = None,
    ) -> None:
        del use_sde
        super().__init__(
            observation_space,
            action_space,
            optimizer_class=optimizer_class,
            optimizer_kwargs=optimizer_kwargs,
        )
        self.entropy_gradient = entropy_gradient
        self.actor = ItemScores(sizes, history=history)
        self.value = ValueNetwork(sizes)
        made: Any = optimizer_class
        self.optimizer = made(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

    def forward(
        self, obs: dict[str, th.Tensor], deterministic: bool = False
    ) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """Actions, values and log-probabilities for a batch of observations."""
        distribution = self.get_distribution(obs)
        actions = distribution.get_actions(deterministic=deterministic)
        return actions, self.value(obs), distribution.log_prob(actions)

    def get_distribution(self, obs: dict[str, th.Tensor]) -> MaskedCategoricalDistribution:
        """The distribution over items, with the mask of the observation."""
        distribution = MaskedCategoricalDistribution(entropy_gradient=self.entropy_gradient)
        return distribution.proba_distribution(self.actor(obs))

    def evaluate_actions(
        self, obs: dict[str, th.Tensor], actions: th.Tensor
    ) -> tuple[th.Tensor, th.Tensor, th.Tensor]:
        """Values, log-probabilities of these actions, entropies."""
        distribution = self.get_distribution(obs)
        return self.value(obs), distribution.log_prob(actions), distribution.entropy()

    def predict_values(self, obs: dict[str, th.Tensor]) -> th.Tensor:
        """Values of shape (n, 1)."""
        out: th.Tensor = self.value(obs)
        return out

    def _predict(self, observation: Any, deterministic: bool = False) -> th.Tensor:
        return self.get_distribution(observation).get_actions(deterministic=deterministic)


class LowRankQNetwork(BasePolicy):
    """Q-values of all items, masked; for DQN."""

    def __init__(
        self, observation_space: spaces.Dict, action_space: spaces.Discrete, sizes: Sizes
    ) -> None:
        super().__init__(observation_space, action_space)
        self.scores = ItemScores(sizes, history=True)

    def forward(self, obs: dict[str, th.Tensor]) -> th.Tensor:
        """Q-values of shape (n, items); a seen item's is lower than any other."""
        values: th.Tensor = self.scores(obs)
        return values

    def _predict(self, observation: Any, deterministic: bool = True) -> th.Tensor:
        del deterministic
        best: th.Tensor = self(observation).argmax(dim=1)
        return best


class LowRankQPolicy(DQNPolicy):
    """DQN's policy over `LowRankQNetwork`; parameters as for `LowRankPolicy`."""

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        lr_schedule: Any,
        *,
        sizes: Sizes,
        **kwargs: Any,
    ) -> None:
        self._sizes = sizes
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def make_q_net(self) -> Any:
        """A fresh network."""
        observations: Any = self.observation_space
        actions: Any = self.action_space
        return LowRankQNetwork(observations, actions, self._sizes).to(self.device)
