"""Policies of stable-baselines3 over the feature networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch as th
from gymnasium import spaces
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.dqn.policies import DQNPolicy

from sim.training._distribution import MaskedCategoricalDistribution
from sim.training._networks import ItemScores, Sizes, ValueNetwork

if TYPE_CHECKING:
    from sim.training._features import Features


class LowRankPolicy(BasePolicy):
    """Actor and critic for A2C, PPO and TRPO; observations must be compact.

    `entropy_gradient`: whether the loss differentiates the entropy. The other arguments are
    stable-baselines3's, and the networks' sizes and feature tables.
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
        features: Features,
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
        self.actor = ItemScores(sizes, features.items, features.personas, features.known)
        self.value = ValueNetwork(sizes, features.personas)
        make: Any = optimizer_class
        self.optimizer = make(self.parameters(), lr=lr_schedule(1), **self.optimizer_kwargs)

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
    """Dueling Q-values of all items, masked: a value of the state plus the items' scores.

    Item features have mean 0, so that the scores are advantages over a random item (equation 9
    of Wang et al., "Dueling network architectures for deep reinforcement learning", 2016).
    """

    def __init__(
        self,
        observation_space: spaces.Dict,
        action_space: spaces.Discrete,
        sizes: Sizes,
        features: Features,
    ) -> None:
        super().__init__(observation_space, action_space)
        self.scores = ItemScores(sizes, features.items, features.personas, features.known)
        self.value = ValueNetwork(sizes, features.personas)

    def forward(self, obs: dict[str, th.Tensor]) -> th.Tensor:
        """Q-values of shape (n, items); a seen item's is lower than any other."""
        values: th.Tensor = self.scores(obs) + self.value(obs)
        return values

    def of(self, obs: dict[str, th.Tensor], items: th.Tensor) -> th.Tensor:
        """Q-values of one item per row, of shape (n, 1), without those of the others."""
        scores = self.scores
        chosen = (scores.weights(obs) * scores.items[items.reshape(-1).long()]).sum(dim=1)
        value: th.Tensor = chosen[:, None] + self.value(obs)
        return value

    def _predict(self, observation: Any, deterministic: bool = True) -> th.Tensor:
        del deterministic
        best: th.Tensor = self.scores(observation).argmax(dim=1)
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
        features: Features,
        **kwargs: Any,
    ) -> None:
        self._made_of = sizes, features
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def make_q_net(self) -> Any:
        """A fresh network."""
        observations: Any = self.observation_space
        actions: Any = self.action_space
        return LowRankQNetwork(observations, actions, *self._made_of).to(self.device)
