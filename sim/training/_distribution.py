"""A categorical distribution over many items, some of which can't be chosen.

The one of sb3-contrib works at 10,000 items since its version 2.9 (before, it validated a stale
softmax against a tolerance that single precision misses; `tests/sim/training` shows both), but
it normalises twice, keeps four arrays of (users, items) and needs its mask handed in from
outside, which `A2C`, `PPO` and `TRPO` do not do. This one keeps the logits and one number per
user, and never a softmax that is not asked for.
"""

from __future__ import annotations

from typing import Any, Self

import torch as th
from stable_baselines3.common.distributions import Distribution
from torch.distributions import Distribution as TorchDistribution
from torch.distributions import register_kl

#: Logit of an item that can't be chosen. Its exponential is exactly 0 in single precision, and
#: unlike minus infinity it gives no NaN when multiplied by that 0.
MASKED = -1e30


class MaskedCategorical(TorchDistribution):
    """Softmax over the items that are not masked.

    `logits`, of shape (n, items), are `MASKED` where an item can't be chosen; every row has at
    least one item that can. Without an entropy bonus in the loss the entropy's gradient is
    multiplied by zero: not differentiating it saves two arrays of (n, items) in the graph.
    """

    arg_constraints = {}  # noqa: RUF012 - declared so by torch
    has_enumerate_support = False

    def __init__(self, logits: th.Tensor, *, entropy_gradient: bool = True) -> None:
        self.logits = logits
        self.entropy_gradient = entropy_gradient
        self.log_norm = logits.logsumexp(dim=-1)
        super().__init__(logits.shape[:-1], validate_args=False)

    @property
    def probs(self) -> th.Tensor:
        """Probabilities, of shape (n, items); exactly 0 for masked items."""
        return (self.logits - self.log_norm.unsqueeze(-1)).exp()

    def log_prob(self, value: th.Tensor) -> th.Tensor:
        """Log-probability of one item per row, of shape (n,)."""
        chosen = self.logits.gather(-1, value.long().unsqueeze(-1)).squeeze(-1)
        return chosen - self.log_norm

    def entropy(self) -> th.Tensor:
        """Entropy (nats) per row, of shape (n,)."""
        # The sum of p · log p, not the normaliser minus the mean logit: large logits would cancel.
        with th.set_grad_enabled(self.entropy_gradient and th.is_grad_enabled()):
            log_probs = self.logits - self.log_norm.unsqueeze(-1)
            return -(log_probs.exp() * log_probs).sum(dim=-1)

    @property
    def mode(self) -> th.Tensor:
        """The most probable item per row, of shape (n,)."""
        return self.logits.argmax(dim=-1)

    def sample(self, sample_shape: Any = ()) -> th.Tensor:
        """Draw an item per row, of shape (n,): the inverse of the cumulative distribution.

        One uniform number per row, where an exponential per item (as `torch.multinomial` draws)
        would cost most of a step. A masked item adds nothing to the cumulative sum and is
        therefore never the first to exceed the number.
        """
        if tuple(sample_shape):
            raise NotImplementedError("one draw at a time")
        with th.no_grad():
            cumulative = self.probs.cumsum(dim=-1)
            total = cumulative[:, -1:]
            drawn = th.rand_like(total) * total
            # A product that is rounded up to the total would lie beyond the last item.
            drawn = th.minimum(drawn, th.nextafter(total, th.zeros_like(total)))
            return th.searchsorted(cumulative, drawn, right=True).squeeze(-1)


@register_kl(MaskedCategorical, MaskedCategorical)  # type: ignore[no-untyped-call, untyped-decorator]
def _kl(p: MaskedCategorical, q: MaskedCategorical) -> th.Tensor:
    """KL(p || q) per row, for distributions with the same mask; differentiable twice (TRPO)."""
    difference = (p.logits - p.log_norm.unsqueeze(-1)) - (q.logits - q.log_norm.unsqueeze(-1))
    return (p.probs * difference).sum(dim=-1)


class MaskedCategoricalDistribution(Distribution):
    """`MaskedCategorical` as stable-baselines3 wraps distributions."""

    distribution: MaskedCategorical

    def __init__(self, *, entropy_gradient: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.entropy_gradient = entropy_gradient

    def proba_distribution_net(self, *args: Any, **kwargs: Any) -> Any:
        """No net of its own: the policy gives the logits."""
        raise NotImplementedError("the policy gives the logits")

    def proba_distribution(self, *args: Any, **kwargs: Any) -> Self:
        """Set the masked logits (n, items)."""
        (logits,) = (*args, *kwargs.values())
        self.distribution = MaskedCategorical(logits, entropy_gradient=self.entropy_gradient)
        return self

    def log_prob(self, x: th.Tensor) -> th.Tensor:
        """Log-probability of one item per row."""
        return self.distribution.log_prob(x)

    def entropy(self) -> th.Tensor:
        """Entropy per row (nats)."""
        return self.distribution.entropy()

    def sample(self) -> th.Tensor:
        """Draw an item per row."""
        return self.distribution.sample()

    def mode(self) -> th.Tensor:
        """The most probable item per row."""
        return self.distribution.mode

    def actions_from_params(self, *args: Any, **kwargs: Any) -> th.Tensor:
        """An item per row from masked logits; ``deterministic`` takes the most probable."""
        deterministic = bool(kwargs.pop("deterministic", False))
        self.proba_distribution(*args, **kwargs)
        return self.get_actions(deterministic=deterministic)

    def log_prob_from_params(self, *args: Any, **kwargs: Any) -> tuple[th.Tensor, th.Tensor]:
        """An item per row from masked logits, and its log-probability."""
        actions = self.actions_from_params(*args, **kwargs)
        return actions, self.log_prob(actions)
