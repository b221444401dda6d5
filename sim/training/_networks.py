"""Networks over item and persona features, on compact observations.

A compact observation has the persona's number and the items and ratings of the episode, never a
vector over all items. The scores of all items are the product of a weight vector of the persona
with the items' vectors (equation 5 of SUBER's appendix F); what is learnt is the map from the
observation to that weight vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import torch as th
from stable_baselines3.common.distributions import CategoricalDistribution
from torch import nn
from torch.distributions import Distribution, register_kl

if TYPE_CHECKING:
    from pipelines.scales import RatingScale
    from sim.training._features import Features

#: Logit of an item that can't be chosen. Its exponential is exactly 0 in single precision, and
#: unlike minus infinity it gives no NaN when multiplied by that 0.
MASKED = -1e30


class MaskedCategorical(Distribution):
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


class MaskedCategoricalDistribution(CategoricalDistribution):
    """`MaskedCategorical` as stable-baselines3 wraps distributions; the policy gives the logits."""

    distribution: MaskedCategorical  # type: ignore[assignment]

    def __init__(self, *, entropy_gradient: bool = True) -> None:
        super().__init__(0)  # the number of actions is that of the logits
        self.entropy_gradient = entropy_gradient

    def proba_distribution(self, action_logits: th.Tensor) -> Self:
        """Set the masked logits (n, items)."""
        self.distribution = MaskedCategorical(action_logits, entropy_gradient=self.entropy_gradient)
        return self

    def mode(self) -> th.Tensor:
        """The most probable item per row."""
        return self.distribution.mode


#: Ratings that count for as much as knowing nothing of the episode (count).
_DAMPING = 5.0
#: Width of the critic's hidden layer.
_HIDDEN = 64


@dataclass(frozen=True)
class Sizes:
    """Sizes of the networks: rows and columns of both feature tables, ends of the rating scale."""

    items: int
    item_features: int
    personas: int
    persona_features: int
    low: float
    high: float

    @classmethod
    def of(cls, features: Features, scale: RatingScale) -> Self:
        """Sizes for these feature tables and this rating scale."""
        (items, item_features), (personas, more) = features.items.shape, features.personas.shape
        return cls(items, item_features, personas, more, scale.low, scale.high)


def seen_mask(recent_items: th.Tensor, items: int) -> th.Tensor:
    """Items that can't be recommended, of shape (n, items): those of each row's episode.

    The mask is computed from the observation, so that it is the same when an action is chosen
    and when it is learnt from. Where every item has been seen, nothing is masked.

    >>> seen_mask(th.tensor([[2, 0, -1], [0, 1, 2]]), 3)
    tensor([[ True, False,  True],
            [False, False, False]])
    """
    padded = recent_items.new_zeros((len(recent_items), items + 1), dtype=th.bool)
    # Places without an item mark a column that is cut off.
    padded.scatter_(1, recent_items.long().remainder(items + 1), True)
    mask = padded[:, :items]
    if recent_items.shape[1] >= items:
        mask = mask & ~mask.all(dim=1, keepdim=True)
    return mask


def unseen(seen: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Draw an item per row from the unseen ones, uniformly; any item where all have been seen.

    `seen`, of shape (n, items), is true for what can't be chosen; `draws` are uniform numbers in
    [0, 1), of shape (n,).

    >>> unseen(np.array([[True, False, True, False]] * 2), np.array([0.1, 0.9]))
    array([1, 3])
    """
    free = ~seen | seen.all(axis=1, keepdims=True)
    rank = (draws * free.sum(axis=1)).astype(np.int64)
    return np.asarray((np.cumsum(free, axis=1) > rank[:, None]).argmax(axis=1))


class ItemScores(nn.Module):
    """Scores of all items, masked: V · w, with w = c + A·x + e + H·h.

    V are the items' features, c is common to all personas, x the persona's features, e its own
    vector, and h the sum of the features of the episode's items weighted by their ratings
    (:func:`history`). c, A, e and H are learned and begin at 0, so that the first scores are equal.

    The feature tables have shapes (items, item_features) and (personas, persona_features); None
    leaves zeros, to be loaded with the weights. `known`, of shape (personas, h) and padded with -1,
    are items that are masked for each persona besides those of the episode.
    """

    items: th.Tensor
    personas: th.Tensor
    known: th.Tensor

    def __init__(
        self,
        sizes: Sizes,
        items: np.ndarray | None = None,
        personas: np.ndarray | None = None,
        known: np.ndarray | None = None,
    ) -> None:
        super().__init__()
        self.sizes = sizes
        width = sizes.item_features
        masked = np.zeros((sizes.personas, 0)) if known is None else known
        # Of the training alone: no part of a saved policy.
        self.register_buffer("known", th.as_tensor(masked, dtype=th.int64), persistent=False)
        self.register_buffer("items", _table(items, sizes.items, width))
        self.register_buffer("personas", _table(personas, sizes.personas, sizes.persona_features))
        self.common = nn.Parameter(th.zeros(width))
        self.by_feature = nn.Parameter(th.zeros(sizes.persona_features, width))
        self.own = nn.Parameter(th.zeros(sizes.personas, width))
        self.by_history = nn.Parameter(th.zeros(width, width))

    def weights(
        self, observation: dict[str, th.Tensor], at: dict[str, th.Tensor] | None = None
    ) -> th.Tensor:
        """Weight vectors of n observations, of shape (n, item_features); linear in the parameters.

        `at` holds values of all parameters by name; None takes the present ones.
        """
        given = dict(self.named_parameters()) if at is None else at
        persona = observation["persona"].reshape(-1).long()
        past, _ = history(observation, self.items, self.sizes)
        out: th.Tensor = (
            given["common"]
            + self.personas[persona] @ given["by_feature"]
            + given["own"][persona]
            + past @ given["by_history"]
        )
        return out

    def forward(self, observation: dict[str, th.Tensor]) -> th.Tensor:
        """Masked scores of shape (n, items)."""
        scores = self.weights(observation) @ self.items.T
        return scores.masked_fill_(self.mask(observation), MASKED)

    def mask(self, observation: dict[str, th.Tensor]) -> th.Tensor:
        """Items that can't be recommended, of shape (n, items); see :func:`seen_mask`."""
        items = observation["recent_items"]
        if self.known.shape[1]:
            persona = observation["persona"].reshape(-1).long()
            items = th.cat([items.long(), self.known[persona]], dim=1)
        return seen_mask(items, self.sizes.items)


class ValueNetwork(nn.Module):
    """Two layers on the persona's features and the mean past rating, and a number per persona."""

    personas: th.Tensor

    def __init__(self, sizes: Sizes, personas: np.ndarray | None = None) -> None:
        super().__init__()
        self.sizes = sizes
        table = _table(personas, sizes.personas, sizes.persona_features)
        self.register_buffer("personas", table, persistent=False)
        self.own = nn.Parameter(th.zeros(sizes.personas))
        self.hidden = nn.Linear(sizes.persona_features + 2, _HIDDEN)
        self.out = nn.Linear(_HIDDEN, 1)

    def forward(self, observation: dict[str, th.Tensor]) -> th.Tensor:
        """Values of shape (n, 1)."""
        persona = observation["persona"].reshape(-1).long()
        _, level = history(observation, None, self.sizes)
        given = th.cat([self.personas[persona], level], dim=1)
        value: th.Tensor = self.out(th.relu(self.hidden(given))) + self.own[persona, None]
        return value


def _table(values: np.ndarray | None, rows: int, columns: int) -> th.Tensor:
    return th.zeros(rows, columns) if values is None else th.as_tensor(values, dtype=th.float32)


@th.no_grad()
def history(
    observation: dict[str, th.Tensor], features: Any, sizes: Sizes
) -> tuple[th.Tensor, th.Tensor]:
    """Summary of the episode's ratings, which are on the scale from -1 to 1.

    Returns Σ (r - mean of the episode) · features / (count + 5), of shape (n, features), None
    without features; and shrunken mean rating and share of knowledge, count / (count + 5), of shape
    (n, 2).
    """
    items, ratings = observation["recent_items"].long(), observation["recent_ratings"].float()
    rated = (items >= 0) & (ratings >= sizes.low)
    middle, half = (sizes.low + sizes.high) / 2, (sizes.high - sizes.low) / 2
    scaled = th.where(rated, (ratings - middle) / half, 0.0)
    count = rated.sum(dim=1, keepdim=True)
    total = scaled.sum(dim=1, keepdim=True)
    level = th.cat([total, count.float()], dim=1) / (count + _DAMPING)
    if features is None:
        return total, level
    surplus = th.where(rated, scaled - total / count.clamp(min=1), 0.0) / (count + _DAMPING)
    if not items.shape[1]:
        return features.new_zeros(len(items), features.shape[1]), level
    past = nn.functional.embedding_bag(
        items.clamp(min=0), features, mode="sum", per_sample_weights=surplus
    )
    return past, level
