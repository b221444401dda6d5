"""Low-rank networks of SUBER's appendix F, on compact observations.

A compact observation has the persona's number and the items and ratings of the episode, never
a vector over all items. What appendix F writes with dense vectors is computed from it exactly:
a layer on the vector of ratings is a sum of the rows of the items that were rated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch as th
from torch import nn

from sim.training._distribution import MASKED

__all__ = ["ItemScores", "Sizes", "ValueNetwork", "seen_mask", "unseen"]

#: Standard deviation of the first item vectors; users begin at zero. So the first scores of all
#: items are equal, the first greedy lists show what was learnt and not the chance of
#: initialisation, and the gradient of a user's vector, a sum of item vectors, is not small. (Chosen
#: on the sample world: vectors of 0.1 to 0.5 for both learn the same more slowly.)
_SPREAD = 0.2


@dataclass(frozen=True)
class Sizes:
    """What the networks are made for.

    Attributes
    ----------
    items, personas
        Numbers of rows of the embeddings.
    low, high
        Ends of the rating scale; ratings enter as (r - low + 1) / (high - low + 1), above 0 so
        that the lowest rating still differs from no rating.
    dim
        Length of user and item vectors (SUBER: 32).
    hidden
        Width of the critic's hidden layer.
    """

    items: int
    personas: int
    low: float
    high: float
    dim: int = 32
    hidden: int = 64


def seen_mask(recent_items: th.Tensor, items: int) -> th.Tensor:
    """What can't be recommended, of shape (n, items): the items of each row's episode.

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
    """One item per row, each unseen one equally likely; any item where all have been seen.

    Parameters
    ----------
    seen
        Of shape (n, items), true for what can't be chosen.
    draws
        Uniform numbers in [0, 1), of shape (n,).

    >>> unseen(np.array([[True, False, True, False]] * 2), np.array([0.1, 0.9]))
    array([1, 3])
    """
    free = ~seen | seen.all(axis=1, keepdims=True)
    rank = (draws * free.sum(axis=1)).astype(np.int64)
    return np.asarray((np.cumsum(free, axis=1) > rank[:, None]).argmax(axis=1))


class ItemScores(nn.Module):
    """Scores of all items: E · (e_u + h) + b, masked (equation 5 of appendix F).

    Parameters
    ----------
    sizes
        See :class:`Sizes`.
    history
        Whether h, the sum over past ratings of rating x a vector of the item, is added to the
        user's vector (appendix F: TRPO and DQN); else h is 0 (A2C and PPO).
    """

    def __init__(self, sizes: Sizes, *, history: bool) -> None:
        super().__init__()
        self.sizes = sizes
        self.users = nn.Parameter(th.zeros(sizes.personas, sizes.dim))
        self.items = nn.Parameter(th.randn(sizes.items, sizes.dim) * _SPREAD)
        self.bias = nn.Parameter(th.zeros(sizes.items))
        self.past = nn.Parameter(th.randn(sizes.items, sizes.dim) * 0.01) if history else None

    def forward(self, observation: dict[str, th.Tensor]) -> th.Tensor:
        """Masked scores of shape (n, items)."""
        persona, items = observation["persona"].reshape(-1).long(), observation["recent_items"]
        user = self.users[persona]
        if self.past is not None:
            weights = _ratings(observation, self.sizes)
            # Rows and a sum instead of `embedding_bag`: TRPO differentiates this twice.
            rows = self.past[items.long().clamp(min=0)]
            user = user + th.einsum("nh,nhd->nd", weights, rows)
        scores = th.addmm(self.bias, user, self.items.T)
        return scores.masked_fill_(seen_mask(items, self.sizes.items), MASKED)


class ValueNetwork(nn.Module):
    """Two layers on the user (one-hot) and its past ratings (a vector over items).

    The first layer's products with those sparse vectors are a row of a table and a sum of rows.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        # As torch initialises a dense layer on both vectors.
        bound = (sizes.items + sizes.personas) ** -0.5
        self.users = nn.Parameter(th.empty(sizes.personas, sizes.hidden).uniform_(-bound, bound))
        self.items = nn.Parameter(th.empty(sizes.items, sizes.hidden).uniform_(-bound, bound))
        self.bias = nn.Parameter(th.zeros(sizes.hidden))
        self.out = nn.Linear(sizes.hidden, 1)

    def forward(self, observation: dict[str, th.Tensor]) -> th.Tensor:
        """Values of shape (n, 1)."""
        persona, items = observation["persona"].reshape(-1).long(), observation["recent_items"]
        weights = _ratings(observation, self.sizes)
        past = nn.functional.embedding_bag(
            items.long().clamp(min=0), self.items, mode="sum", per_sample_weights=weights
        )
        value: th.Tensor = self.out(th.relu(self.users[persona] + past + self.bias))
        return value


def _ratings(observation: dict[str, th.Tensor], sizes: Sizes) -> th.Tensor:
    """Past ratings in (0, 1], 0 where there is none, of shape (n, history)."""
    ratings = observation["recent_ratings"].float()
    known = (observation["recent_items"] >= 0) & (ratings >= sizes.low)
    scaled = (ratings - sizes.low + 1.0) / (sizes.high - sizes.low + 1.0)
    return th.where(known, scaled, 0.0)
