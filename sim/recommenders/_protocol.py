"""The seam of recommenders, and what those that score every item share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError
from pipelines.hints import nearest

if TYPE_CHECKING:
    from sim._release import Release

__all__ = ["BASELINES", "Recommender", "ScoredRecommender", "open_recommender"]

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]

#: Baselines by name, in the order in which reports show them.
BASELINES = ("random", "popular", "mean-rating", "content")

#: Users that are scored at once: bounds the memory of (users, items) at any number of users.
_AT_ONCE = 256


class Recommender(Protocol):
    """Who recommends items to personas.

    Items and personas have the numbers of :class:`sim.environment.Catalogue` and
    :class:`sim.environment.Cast`: rows of the tables ordered by id.

    Attributes
    ----------
    name
        Short name, as in tables.
    note
        One sentence on what it is and what it has learnt from.
    """

    name: str
    note: str

    def fit(self, release: Release) -> Self:
        """Learn what there is to learn from a release; returns itself.

        Raises
        ------
        ReleaseError
            If the release lacks a table that is needed.
        """
        ...

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
            What they gave for them, on the environment's scale, of the same shape; for
            recommenders that learn from the episode, ignored by the others.

        Returns
        -------
        Item numbers of shape (n, k), distinct in each row; -1 where nothing is left.

        Raises
        ------
        ConfigError
            If it was not fitted, or a user or item does not exist.
        """
        ...


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
    def fit(self, release: Release) -> Self:
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
        who, past, rated = self._checked(users, k, seen, ratings)
        out = np.full((len(who), k), -1, np.int64)
        for start in range(0, len(who), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            scores = self._scores(who[part], past[part], rated[part])
            out[part] = top(scores, past[part], k)
        return out

    def _checked(
        self,
        users: npt.ArrayLike,
        k: int,
        seen: npt.ArrayLike | None,
        ratings: npt.ArrayLike | None,
    ) -> tuple[Ints, Ints, Floats]:
        if self.shape is None:
            raise ConfigError("fit() comes before recommend()", where=self.name)
        items, personas = self.shape
        who = np.asarray(users, np.int64).reshape(-1)
        past = np.zeros((len(who), 0), np.int64) if seen is None else np.asarray(seen, np.int64)
        rated = np.full(past.shape, np.nan) if ratings is None else np.asarray(ratings, np.float64)
        if k < 1:
            raise ConfigError(f"k is {k}", where=self.name, hint="at least 1")
        if past.shape[:1] != who.shape or past.ndim != 2 or rated.shape != past.shape:
            raise ConfigError(
                f"histories of shape {past.shape} and ratings of shape {rated.shape} "
                f"for {len(who)} users",
                where=self.name,
            )
        for what, values, least, count in (("user", who, 0, personas), ("item", past, -1, items)):
            wrong = (values < least) | (values >= count)
            if wrong.any():
                raise ConfigError(
                    f"there is no {what} {int(values[wrong][0])}",
                    where=self.name,
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


def open_recommender(name: str, **options: Any) -> Recommender:
    """A baseline by name; fit it before use.

    Parameters
    ----------
    name
        One of `BASELINES`.
    options
        Of its class, such as ``seed`` for ``random``.

    Raises
    ------
    ConfigError
        If there is none of that name, naming the nearest.
    """
    from sim.recommenders import _baselines, _content

    known: dict[str, Any] = {
        "random": _baselines.RandomRecommender,
        "popular": _baselines.PopularRecommender,
        "mean-rating": _baselines.MeanRatingRecommender,
        "content": _content.ContentRecommender,
    }
    if name not in known:
        hint = nearest(name, known)
        raise ConfigError("unknown recommender", where=repr(name), hint=hint)
    made: Recommender = known[name](**options)
    return made
