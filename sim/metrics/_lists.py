"""Metrics of recommended lists, one value per user.

Shapes: ``users`` rows, one per user; ``k`` columns, the recommended items from first to last.
The source is SUBER (Corecco et al., 2024), appendix F.1, unless another one is named.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import ContractError
from pipelines.scales import RatingScale, rescale, scale_named

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]

#: An item is relevant from this rating on, on the scale 1-10 (SUBER F.1, after Ramos et al. 2015).
RELEVANT_FROM = 7.0


def relevant(ratings: npt.ArrayLike, scale: RatingScale) -> Bools:
    """Whether each rating makes its item relevant: at least 7 of 10.

    On another scale the bound stands where 7 stands on 1-10 (linear between the ends): 3.67 on
    1-5, so that 4 is relevant and 3 is not; 6 on 0-9; 3.5 stars on 0.5-5.

    ``ratings`` have any shape; NaN, where there is none, is never relevant.

    >>> from pipelines.scales import SCALES
    >>> relevant([6, 7], SCALES["1-10"]), relevant([3, 4], SCALES["1-5"])
    (array([False,  True]), array([False,  True]))
    """
    bound = rescale(RELEVANT_FROM, scale_named("1-10"), scale)
    # A bound such as 3.5 must not be missed by a rounding error of the conversion.
    return np.asarray(np.asarray(ratings, np.float64) >= bound - 1e-9)


def average_reward(ratings: npt.ArrayLike) -> Floats:
    r"""Mean rating of each user's list: :math:`\frac{1}{k}\sum_{j=1}^{k} r_j`.

    ``ratings`` are of shape (users, k), in units of their scale, NaN where an item got none or the
    list is shorter: such places are left out, as no rating is not a low one. Of shape (users,); NaN
    for a user without any rating.

    >>> average_reward([[8.0, 6.0], [4.0, float("nan")]])
    array([7., 4.])
    """
    values = np.asarray(ratings, np.float64)
    present = ~np.isnan(values)
    count = present.sum(axis=1)
    total = np.where(present, values, 0.0).sum(axis=1)
    return np.asarray(np.where(count > 0, total / np.maximum(count, 1), np.nan))


def average_precision(relevance: npt.ArrayLike, k: int = 10) -> Floats:
    r"""AP@k of each user, as SUBER writes it; the mean over users is MAP@k.

    .. math:: AP@k = \frac{1}{k}\sum_{j=1}^{k} Precision@j \cdot R(j)

    with R(j) = 1 if the item at place j is relevant, else 0, and Precision@j the share of
    relevant items among the first j. The divisor is k even if a user has fewer relevant items
    than that (others divide by the number of relevant items, so that figures can't be compared
    with theirs). A list shorter than k has nothing relevant at its missing places.

    ``relevance`` is of shape (users, at least the list's length), the result (users,), from 0 to 1;
    1 if all k are relevant.

    >>> average_precision([[True] * 10, [False] * 10])
    array([1., 0.])
    """
    hits = _first(relevance, k).astype(np.float64)
    precision = np.cumsum(hits, axis=1) / np.arange(1, hits.shape[1] + 1)
    return np.asarray((precision * hits).sum(axis=1) / k)


def reciprocal_rank(relevance: npt.ArrayLike, k: int = 10) -> Floats:
    """RR@k of each user: 1 / place of the first relevant item, 0 if none of k is relevant.

    The mean over users is MRR@k (Voorhees 1999; SUBER F.1).

    ``relevance`` is of shape (users, at least the list's length), the result (users,), from 0 to 1.

    >>> reciprocal_rank([[False, True, True], [False, False, False]])
    array([0.5, 0. ])
    """
    hits = _first(relevance, k)
    if not hits.shape[1]:
        return np.zeros(len(hits))
    first = hits.argmax(axis=1)
    return np.asarray(np.where(hits.any(axis=1), 1.0 / (first + 1.0), 0.0))


def recall(hits: npt.ArrayLike, held_out: npt.ArrayLike, k: int = 20) -> Floats:
    """Recall@k of each user: share of the held-out items among the first k.

    ``hits`` is true where a recommended item is held out, of shape (users, at least the list's
    length); ``held_out`` counts held-out items, of shape (users,), as is the result, from 0 to 1;
    NaN for a user without held-out items.

    >>> recall([[True, False, True]], [4], k=2)
    array([0.25])
    """
    count = np.asarray(held_out, np.float64)
    hit_counts = _first(hits, k).sum(axis=1)
    return np.asarray(np.where(count > 0, hit_counts / np.maximum(count, 1.0), np.nan))


def ndcg(hits: npt.ArrayLike, held_out: npt.ArrayLike, k: int = 20) -> Floats:
    r"""NDCG@k of each user with relevance 0 or 1.

    .. math:: NDCG@k = \frac{\sum_{j \le k} R(j) / \log_2(j + 1)}
                            {\sum_{j \le \min(k, n)} 1 / \log_2(j + 1)}

    with n held-out items: the ideal list begins with as many hits as it can hold. Arguments are as
    of :func:`recall`; the result is of shape (users,), from 0 to 1, NaN for a user without held-out
    items.

    >>> ndcg([[False, True, False]], [1], k=3).round(4)  # 1 / log2(3)
    array([0.6309])
    """
    flags = _first(hits, k)
    gain = 1.0 / np.log2(np.arange(2, k + 2))
    ideal = np.concatenate([[0.0], np.cumsum(gain)])
    count = np.minimum(np.asarray(held_out, np.int64), k)
    gains = flags @ gain[: flags.shape[1]]
    return np.asarray(np.where(count > 0, gains / np.where(count > 0, ideal[count], 1.0), np.nan))


def personalization(
    lists: npt.ArrayLike, k: int = 10, weights: npt.ArrayLike | None = None
) -> float:
    r"""One minus the mean cosine similarity of the lists of all pairs of users.

    .. math:: Pers@k = 1 - \frac{1}{|P|}\sum_{(u,v)\in P} \cos(M_u, M_v)

    where P are the pairs of different users and M_u is 1 for each of u's first k items. With
    unit vectors :math:`x_u = M_u / \lVert M_u \rVert` the sum over pairs is
    :math:`(\lVert\sum_u x_u\rVert^2 - \sum_u\lVert x_u\rVert^2)/2`, so that no pair is ever
    formed: the cost grows with users x k, not with the square of the users.

    ``lists`` are item numbers of shape (users, at least the list's length), -1 where a list ends
    early; the order within a list plays no part. ``weights`` say how often each user counts, of
    shape (users,), default once; a user who counts twice (in a bootstrap) is never paired with
    himself. From 0 (everybody is shown the same) to 1 (no two users share an item); NaN for fewer
    than two users.

    >>> personalization([[1, 2], [2, 3]], k=2)  # one of two items in common
    0.5
    """
    vectors = incidence(lists, k)
    w = np.ones(vectors.shape[0]) if weights is None else np.asarray(weights, np.float64)
    return float(unlike(vectors, w[None, :])[0])


def incidence(lists: npt.ArrayLike, k: int = 10) -> Any:
    """Unit vectors of the lists' first k items, sparse, of shape (users, distinct items).

    A user with an empty list has the zero vector.

    Raises :class:`ContractError` if a list holds an item twice: it is then no list of
    recommendations.
    """
    from scipy import sparse

    items = np.asarray(lists, np.int64)[:, :k]
    ordered = np.sort(items, axis=1)
    if bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any()):
        raise ContractError("a list recommends an item twice", where="personalization")
    user, place = np.nonzero(items >= 0)
    distinct, column = np.unique(items[user, place], return_inverse=True)
    length = np.bincount(user, minlength=len(items))
    value = 1.0 / np.sqrt(length[user])
    return sparse.csr_array((value, (user, column)), shape=(len(items), max(len(distinct), 1)))


def unlike(vectors: Any, weights: Floats) -> Floats:
    """Personalization for each row of weights (draws, users): see :func:`personalization`."""
    norms = np.asarray(vectors.multiply(vectors).sum(axis=1)).ravel()
    total = np.asarray((vectors.T @ weights.T).T)
    alike = (total**2).sum(axis=1) - (weights**2) @ norms
    pairs = weights.sum(axis=1) ** 2 - (weights**2).sum(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        # Clipped, as equal lists give 1 - 1 up to rounding.
        return np.clip(1.0 - np.where(pairs > 0, alike / pairs, np.nan), 0.0, 1.0)


def liked_and_disliked(
    lists: npt.ArrayLike, item_genres: npt.ArrayLike, likes: npt.ArrayLike, dislikes: npt.ArrayLike
) -> tuple[Bools, Bools]:
    """Recommended items that count as liked and as disliked by their user.

    Liked: at least one liked genre and no disliked one. Disliked: at least one disliked genre
    and no liked one. All others are neutral (SUBER, section 4.4 and F.1).

    ``lists`` are item numbers of shape (users, k), -1 for none, which is neither; ``item_genres``
    (items, genres), ``likes`` and ``dislikes`` (users, genres) are 1 where it is so. Two arrays of
    shape (users, k).
    """
    items = np.asarray(lists, np.int64)
    genres = np.asarray(item_genres, bool)[np.maximum(items, 0)]
    shown = items >= 0
    has_liked = (genres & np.asarray(likes, bool)[:, None, :]).any(axis=2) & shown
    has_disliked = (genres & np.asarray(dislikes, bool)[:, None, :]).any(axis=2) & shown
    return has_liked & ~has_disliked, has_disliked & ~has_liked


def genre_share(flags: npt.ArrayLike, lists: npt.ArrayLike, k: int) -> Floats:
    """Share of each user's first k recommended items that are flagged, such as as liked.

    SUBER's text speaks of the top 5, the caption of its table 4 of the top 10: give both.

    ``flags`` of :func:`liked_and_disliked` and the items of ``lists`` are of shape (users, at least
    k), -1 for none, which is left out of the share. Of shape (users,), from 0 to 1; NaN for a user
    without recommendations.

    >>> genre_share([[True, False, True]], [[7, 8, 9]], k=2)
    array([0.5])
    """
    shown = np.asarray(lists, np.int64)[:, :k] >= 0
    hits = np.asarray(flags, bool)[:, :k] & shown
    count = shown.sum(axis=1)
    return np.asarray(np.where(count > 0, hits.sum(axis=1) / np.maximum(count, 1), np.nan))


def _first(relevance: npt.ArrayLike, k: int) -> Bools:
    flags = np.asarray(relevance, bool)
    if flags.ndim != 2:
        raise ContractError("relevance has one row per user", where=f"shape {flags.shape}")
    return flags[:, :k]
