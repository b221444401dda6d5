"""Policies of stable-baselines3 over the feature networks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch as th
from gymnasium import spaces
from sb3_contrib import TRPO
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.dqn.policies import DQNPolicy
from torch import nn

from sim.training._networks import ItemScores, MaskedCategoricalDistribution, Sizes, ValueNetwork

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


#: Sampling interval of the states in the Fisher matrix (Schulman et al., "Trust region policy
#: optimization", 2015, appendix C, take one of ten).
_EVERY = 4


class FactorisedTRPO(TRPO):
    """TRPO whose Fisher-vector products go through the items' vectors.

    The logits are V · w(s) with weights w(s) that are linear in the parameters, so that the
    Fisher matrix is Jᵀ·C·J, where J is the Jacobian of w(s) and C the covariance of the items'
    vectors under the policy. A product costs two matrix products per state, where
    sb3-contrib differentiates the divergence twice.
    """

    def _compute_actor_grad(
        self, kl_div: th.Tensor, policy_objective: th.Tensor
    ) -> tuple[list[nn.Parameter], th.Tensor, Any, list[tuple[int, ...]]]:
        """Parameters, gradient of the objective, states of the Fisher matrix, shapes."""
        del kl_div
        actor: Any = self.policy.actor
        params = list(actor.parameters())
        gradients = th.autograd.grad(policy_objective, params)
        batch: Any = next(iter(self.rollout_buffer.get(batch_size=None)))
        states = {key: value[::_EVERY] for key, value in batch.observations.items()}
        with th.no_grad():
            chances = actor(states).softmax(dim=1)
        fisher = actor, states, chances
        return params, _flat(gradients), fisher, [p.shape for p in params]

    def hessian_vector_product(
        self, params: list[nn.Parameter], grad_kl: Any, vector: th.Tensor, retain_graph: bool = True
    ) -> th.Tensor:
        """Product of the Fisher matrix (with damping) and a vector of all parameters."""
        del retain_graph
        actor, states, chances = grad_kl
        names = [name for name, _ in actor.named_parameters()]
        parts: Any = th.split(vector, [p.numel() for p in params])
        at = {n: v.view_as(p) for n, v, p in zip(names, parts, params, strict=True)}
        # Linear in the parameters: the Jacobian times a vector is the value at that vector.
        logits = actor.weights(states, at) @ actor.items.T
        centred = chances * (logits - (chances * logits).sum(dim=1, keepdim=True))
        back = th.autograd.grad(
            actor.weights(states), params, grad_outputs=centred @ actor.items / len(chances)
        )
        return _flat(back) + self.cg_damping * vector


def _flat(tensors: Any) -> th.Tensor:
    return th.cat([t.reshape(-1) for t in tensors])
