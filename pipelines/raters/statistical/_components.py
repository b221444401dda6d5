"""Variance components of ratings by the method of moments.

The product of two surpluses of one rater has the expectation sum of s_k x_ik . x_jk over groups
k of item features, whatever the distribution (Haseman and Elston, Behavior Genetics 2, 1972). No
prior enters, and without tastes the expectation is 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pipelines.raters.protocol import Floats, Ints

#: Other ratings that an item needs before a rating is compared with their mean (count).
_MIN_OTHERS = 4
#: Ratings of one rater above which its pairs of ratings count for less: about as many as tell
#: its taste (set by hand; decides the spread of an estimate, not its expectation).
_MANY = 50.0


def other_means(item: Ints, rating: Floats) -> Floats:
    """Mean of the item's other ratings, of shape (ratings,); NaN with fewer than four."""
    count = np.bincount(item)[item]
    total = np.bincount(item, rating)[item]
    others = np.where(count > _MIN_OTHERS, count - 1, np.nan)
    return np.asarray((total - rating) / others)


def component_sums(
    user: Ints, item: Ints, surplus: Floats, features: Floats, groups: Sequence[Ints], users: int
) -> Floats:
    """Sums per user that :func:`components` solves, of shape (users, k * k + 2 * k + 1); additive.

    ``user``, ``item`` and ``surplus`` have shape (ratings,), rows with a surplus of NaN are left
    out; ``features`` are of all items, of shape (items, columns); ``groups`` are k lists of columns
    that share a variance each.
    """
    size = len(groups)
    sums = np.zeros((users, size * size + 2 * size + 1))
    finite = np.flatnonzero(np.isfinite(surplus))
    order = finite[np.argsort(user[finite], kind="stable")]
    ends = np.searchsorted(user[order], np.arange(users + 1))
    for n in range(users):
        rows = order[ends[n] : ends[n + 1]]
        if len(rows) < 2:
            continue
        r = surplus[rows]
        parts = [features[np.ix_(item[rows], columns)] for columns in groups]
        norms = np.stack([(x**2).sum(axis=1) for x in parts], axis=1)
        gram = np.array([[((x.T @ y) ** 2).sum() for y in parts] for x in parts])
        moment = np.array([((x.T @ r) ** 2).sum() for x in parts])
        # A rating's product with itself is noise.
        weight = 1.0 / (len(rows) + _MANY) ** 2
        sums[n, : size * size] = weight * (gram - norms.T @ norms).ravel()
        sums[n, size * size : -size - 1] = weight * (moment - norms.T @ r**2)
        sums[n, -size - 1 : -1] = norms.sum(axis=0)
        sums[n, -1] = len(rows)
    return sums


def components(sums: Floats) -> Floats:
    """Variance that each group adds to a typical rating, of shape (rows, groups).

    `sums` are of :func:`component_sums`, added over users, of shape (rows, columns). A variance
    may be negative by chance. A group that does not vary among the items gets nothing.
    """
    size = int(np.sqrt(sums.shape[1])) - 1
    system = sums[:, : size * size].reshape(-1, size, size)
    flat = np.trace(system, axis1=1, axis2=2)[:, None, None] * 1e-9 + 1e-300
    right = sums[:, size * size : -size - 1, None]
    variances = np.linalg.solve(system + flat * np.eye(size), right)[:, :, 0]
    return np.asarray(variances * sums[:, -size - 1 : -1] / np.maximum(sums[:, -1:], 1.0))
