"""TRPO with the exact Fisher matrix of a log-linear policy, on a part of the states."""

from __future__ import annotations

from typing import Any

import torch as th
from sb3_contrib import TRPO
from torch import nn

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
