"""The seam of recommenders, and the base of those that score every item."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError

if TYPE_CHECKING:
    import polars as pl

    from sim._release import Release

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

#: Users that are scored at once: bounds the memory of (users, items) at any number of users.
_AT_ONCE = 256


class Recommender(Protocol):
    """Recommends items to personas.

    Items and personas have the numbers of :class:`sim.environment.Catalogue` and
    :class:`sim.environment.PersonaTable`: rows of the tables ordered by id. A persona that the
    release matches to a real user (table ``matched_personas``) has that user's interactions.
    """

    #: Short name, as in tables.
    name: str
    #: A sentence on the recommender and the data that it was fitted on.
    note: str

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Fit on a release; returns itself.

        Parameters
        ----------
        release
            Items, personas, and other tables that the recommender reads.
        interactions
            Rows of ``user_id``, ``item_id``, ``rating`` to fit on; default the training split.
            A ``user_id`` may be a persona's id, for ratings that personas gave.

        Raises
        ------
        ConfigError
            If `interactions` lack a column or name an unknown item.
        ReleaseError
            If the release lacks a table that is needed.
        """

    def recommend(
        self,
        users: npt.ArrayLike,
        k: int,
        *,
        seen: npt.ArrayLike | None = None,
        ratings: npt.ArrayLike | None = None,
    ) -> Ints:
        """The best k items for each user, best first, none of which the user has seen.

        Parameters
        ----------
        users
            Persona numbers, of shape (n,).
        k
            Length of each list.
        seen
            Items that each user has seen, of shape (n, h), oldest first, padded with -1 at the
            end.
        ratings
            Their ratings on the environment's scale, of the same shape, NaN where there is
            none. A recommender may fold a persona in from `seen` and `ratings`, or ignore both.

        Returns
        -------
        Item numbers of shape (n, k), distinct in each row; -1 where nothing is left.

        Raises
        ------
        ConfigError
            If it was not fitted, or a user or item does not exist.
        """


class ScoredRecommender(ABC):
    """A recommender that gives every item a score; the highest unseen ones are recommended.

    Of equal scores the lower item number comes first, so that a list never depends on the
    other users it is asked for with.
    """

    name: str
    note: str
    #: Numbers of items and personas, set by `fit`.
    shape: tuple[int, int] | None = None

    @abstractmethod
    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """See :class:`Recommender`; sets `shape`."""

    @abstractmethod
    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        """Scores of every item, of shape (users, items)."""

    def recommend(
        self,
        users: npt.ArrayLike,
        k: int,
        *,
        seen: npt.ArrayLike | None = None,
        ratings: npt.ArrayLike | None = None,
    ) -> Ints:
        """See :class:`Recommender`."""
        who, past, rated = checked_request(self.name, self.shape, users, k, seen, ratings)
        out = np.full((len(who), k), -1, np.int64)
        for start in range(0, len(who), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            scores = self._scores(who[part], past[part], rated[part])
            out[part] = top(scores, past[part], k)
        return out


def checked_request(
    name: str,
    shape: tuple[int, int] | None,
    users: npt.ArrayLike,
    k: int,
    seen: npt.ArrayLike | None,
    ratings: npt.ArrayLike | None,
) -> tuple[Ints, Ints, Floats]:
    """Arguments of :meth:`Recommender.recommend` as arrays: users, seen items, ratings.

    Raises :class:`ConfigError` if it was not fitted, if k is below 1, if shapes differ, or if a
    user or item is unknown.
    """
    if shape is None:
        raise ConfigError("call fit() before recommend()", where=name)
    items, personas = shape
    who = np.asarray(users, np.int64).reshape(-1)
    past = np.zeros((len(who), 0), np.int64) if seen is None else np.asarray(seen, np.int64)
    rated = np.full(past.shape, np.nan) if ratings is None else np.asarray(ratings, np.float64)
    if k < 1:
        raise ConfigError(f"k is {k}", where=name, hint="at least 1")
    if past.shape[:1] != who.shape or past.ndim != 2 or rated.shape != past.shape:
        raise ConfigError(
            f"histories of shape {past.shape} and ratings of shape {rated.shape} "
            f"for {len(who)} users",
            where=name,
        )
    for what, values, low, count in (("user", who, 0, personas), ("item", past, -1, items)):
        wrong = (values < low) | (values >= count)
        if wrong.any():
            raise ConfigError(
                f"there is no {what} {int(values[wrong][0])}",
                where=name,
                hint=f"numbers from 0 to {count - 1}",
            )
    return who, past, rated


def top(scores: Floats, seen: Ints, k: int) -> Ints:
    """Numbers of the k highest unseen scores per row, best first; -1 where nothing is left.

    >>> top(np.array([[1.0, 3.0, 2.0, 3.0]]), np.array([[3]]), 4)
    array([[ 1,  2,  0, -1]])
    """
    n, items = scores.shape
    values = np.array(scores, np.float64)
    row, place = np.nonzero(seen >= 0)
    values[row, seen[row, place]] = -np.inf
    length = min(k, items)
    # The k-th highest value bounds what has to be ordered; ties at the bound are all kept, so
    # that the lower number can win.
    bound = -np.partition(-values, length - 1, axis=1)[:, length - 1]
    out = np.full((n, k), -1, np.int64)
    for user in range(n):
        best = np.flatnonzero(values[user] >= bound[user])
        best = best[np.argsort(-values[user, best], kind="stable")][:length]
        best = best[np.isfinite(values[user, best])]
        out[user, : len(best)] = best
    return out
