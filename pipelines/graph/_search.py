"""Search in a graph memory: the neighbours of many queries at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.graph._pathsim import Codes, Floats
from pipelines.graph._schema import Step
from pipelines.graph._similarity import ItemScores, candidates, rounded

#: Evidence for a neighbour: `paths` join it to the query; none does, but to the `user`;
#: or there is only its `embedding` (always so if the query has no edge that a path begins with).
Basis = Literal["paths", "user", "embedding"]
#: Bytes of the users' similarities that are held at once, and of the arrays of a block of items.
_CHUNK_BYTES, _BLOCK_BYTES = 256 * 2**20, 64 * 2**20
#: Queries whose scores are computed together.
_BLOCK_QUERIES = 256


@dataclass(frozen=True, slots=True)
class Parts:
    """Components of the score of a neighbour y of the query x for the user u.

    ``score = alpha * pathsim + (1 - alpha) * user_similarity + embedding_weight * cosine``
    (SimUSER, formula 5 and appendix D); a part that is None counts as 0.
    """

    #: s(x, y), 0-1: paths between the two items over the mean of their paths to themselves.
    pathsim: float
    #: s(u, y), 0-1, by the same counts; None if there is no user or the search is by embedding
    #: alone.
    user_similarity: float | None
    #: Cosine of the two node embeddings, -1 to 1; None if either item has none.
    cosine: float | None


@dataclass(slots=True)
class UserActs:
    """Acts of one user beyond the release."""

    #: Codes of the nodes that were acted on, by step from the user.
    ends: dict[Step, list[int]] = field(default_factory=dict)
    #: Latest rating by item code, on the memory's scale.
    ratings: dict[int, float] = field(default_factory=dict)

    def copy(self) -> UserActs:
        """The same acts; what is added to one does not reach the other."""
        ends = {step: list(nodes) for step, nodes in self.ends.items()}
        return UserActs(ends, dict(self.ratings))


@dataclass(frozen=True, slots=True)
class Reader:
    """Code of a user, or None for the community alone, and the user's acts."""

    user: int | None
    acts: UserActs | None


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Neighbours of many queries, best first, as arrays of shape (queries, k)."""

    #: Codes in `ids`, -1 where a query has fewer than k neighbours.
    items: Codes
    #: See :class:`Parts`; NaN where there is no neighbour, as in all the other arrays.
    score: Floats
    #: On the memory's scale; NaN for an unrated item.
    rating: Floats
    #: True if the rating is the user's own, not the mean of everybody else's.
    own: npt.NDArray[np.bool_]
    #: Components of the score; NaN where :class:`Parts` has None.
    pathsim: Floats
    user_similarity: Floats
    cosine: Floats
    #: Item ids by code, ascending.
    ids: pl.Series

    def __len__(self) -> int:
        return len(self.items)

    def item_ids(self) -> list[list[str]]:
        """Ids of each query's neighbours, best first; as many as there are."""
        names = self.ids.gather(np.maximum(self.items, 0).ravel()).to_list()
        width = self.items.shape[1]
        counts = (self.items >= 0).sum(axis=1).tolist()
        return [names[n * width : n * width + count] for n, count in enumerate(counts)]


def path_shares(scores: ItemScores, item: int, others: Sequence[int]) -> list[dict[str, float]]:
    """Share of each path in s(item, other), by name, largest first, for each of the others."""
    sim, declared = scores.sim, [path.name for path in scores.sim.declared]
    by_group = sim.group_counts(np.array([item]))[:, 0]
    out = []
    for other in others:
        scale = 2.0 / float(sim.round_trips[item] + sim.round_trips[other] or 1.0)
        shares = {
            path.name: float(counts[other]) * scale
            for group, counts in zip(sim.groups, by_group, strict=True)
            for path in group.paths
            if counts[other] > 0
        }
        # Paths with equal shares stay in the order they are declared in.
        order = sorted(shares, key=lambda name: (-shares[name], declared.index(name)))
        out.append({name: shares[name] for name in order})
    return out


def search_many(
    scores: ItemScores, readers: Sequence[Reader], reader_of: Codes, items: Codes, k: int
) -> tuple[Codes, Floats]:
    """The best k neighbours of every query.

    ``readers`` are distinct; ``reader_of`` and ``items`` are, per query, the number of the reader
    and the code of the query item. Returns codes of neighbours, of shape (queries, k), -1 where
    there are fewer; and score, path similarity, user similarity and cosine, of shape (4, queries,
    k), NaN where there is none.
    """
    nearest, values = np.full((len(items), k), -1), np.full((4, len(items), k), np.nan)
    size = max(1, _CHUNK_BYTES // (8 * max(1, scores.sim.items)))
    for low in range(0, len(readers), size):
        users = np.zeros((len(readers[low : low + size]), scores.sim.items))
        for row, reader in zip(users, readers[low : low + size], strict=True):
            if reader.user is not None:
                acts = reader.acts.ends if reader.acts else None
                row[:] = scores.sim.user_similarity(reader.user, acts=acts)
        alone = np.array([reader.user is None for reader in readers[low : low + size]])
        queries = np.flatnonzero((reader_of >= low) & (reader_of < low + size))
        queries = queries[np.argsort(items[queries], kind="stable")]
        distinct, rows = np.unique(items[queries], return_inverse=True)
        fitting = scores.rows_that_fit(_BLOCK_BYTES)
        for first in range(0, len(distinct), fitting):
            block = scores.of(distinct[first : first + fitting])
            start, end = np.searchsorted(rows, [first, first + fitting])
            for at in range(int(start), int(end), _BLOCK_QUERIES):
                some = slice(at, min(at + _BLOCK_QUERIES, int(end)))
                who = reader_of[queries[some]] - low
                query, other, found = _nearest(
                    scores,
                    block,
                    rows[some] - first,
                    items[queries[some]],
                    users[who],
                    alone[who],
                    k,
                )
                order = np.lexsort((other, -found[0], query))
                query = query[order]
                rank = np.arange(len(order)) - np.searchsorted(query, query)
                best = order[rank < k]
                places = queries[some][query[rank < k]], rank[rank < k]
                nearest[places] = other[best]
                values[:, places[0], places[1]] = found[:, best]
    return nearest, values


def _nearest(
    scores: ItemScores,
    block: tuple[Floats, Floats, Floats, npt.NDArray[np.bool_]],
    rows: Codes,
    items: Codes,
    similar: Floats,
    alone: npt.NDArray[np.bool_],
    k: int,
) -> tuple[Codes, Codes, Floats]:
    """Queries and items that may be among the first k, and the four values of each pair."""
    _, counts, by_items, joined = block
    alpha, weight = scores.settings.alpha, scores.settings.embedding_weight
    # Items from which no path leads anywhere: their embedding alone answers for them.
    alone = alone | (scores.sim.round_trips[items] == 0)
    similar = np.where(alone[:, None], 0.0, similar)
    totals = by_items[rows] + (1.0 - alpha) * similar
    totals[~(joined[rows] | (similar > 0))] = -np.inf
    totals[np.arange(len(items)), items] = -np.inf
    query, other = candidates(totals, k)
    pathsim, cosine = scores.exact(items[query], other, counts[rows[query], other])
    by_user = np.where(alone[query], np.nan, similar[query, other])
    total = alpha * pathsim + (1.0 - alpha) * np.nan_to_num(by_user)
    if not weight:
        cosine[:] = np.nan
    total += weight * np.nan_to_num(cosine)
    return query, other, np.stack([rounded(total), pathsim, by_user, cosine])


def user_similarities(
    scores: ItemScores, readers: Sequence[Reader], reader_of: Codes, items: Codes
) -> Floats:
    """s(u, x) of pairs of a reader and an item, of shape (pairs,), 0 without a user."""
    out = np.zeros(len(items))
    order = np.argsort(reader_of, kind="stable")
    bounds = np.searchsorted(reader_of[order], np.arange(len(readers) + 1))
    for number, reader in enumerate(readers):
        at = order[bounds[number] : bounds[number + 1]]
        if reader.user is not None and len(at):
            acts = reader.acts.ends if reader.acts else None
            out[at] = scores.sim.user_similarity(reader.user, items[at], acts)
    return out
