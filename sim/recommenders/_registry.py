"""Recommenders by name, from entry points and from ``module:Class``; plug-ins are checked."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError, ContractError, UnderstudyError
from pipelines.plugins import Registry
from sim.environment import Catalogue, PersonaTable
from sim.recommenders._protocol import Ints, Recommender, checked_request

if TYPE_CHECKING:
    import polars as pl

    from sim._release import Release

RECOMMENDERS = Registry(
    "recommender",
    {
        "random": "sim.recommenders._baselines:RandomRecommender",
        "popular": "sim.recommenders._baselines:PopularRecommender",
        "mean-rating": "sim.recommenders._baselines:MeanRatingRecommender",
        "content": "sim.recommenders._baselines:ContentRecommender",
        "item-knn": "sim.recommenders._libraries:ItemKNNRecommender",
        "ease": "sim.recommenders._libraries:EASERecommender",
        "als": "sim.recommenders._libraries:ALSRecommender",
        "bpr": "sim.recommenders._libraries:BPRRecommender",
        "multvae": "sim.recommenders._libraries:MultVAERecommender",
        "lightgcn": "sim.recommenders._libraries:LightGCNRecommender",
    },
    group="understudy.recommenders",
    methods=("fit", "recommend"),
    implement="sim.recommenders.Recommender (docs/recommenders.md)",
)
#: Decorator that registers a recommender in this process: ``@recommender("mine")``.
recommender = RECOMMENDERS.register

#: Baselines by name, in the order in which reports show them.
BASELINES = ("random", "popular", "mean-rating", "content")


def open_recommender(name: str | type[Any], /, **options: Any) -> Recommender:
    """A recommender by name; fit it before use.

    A name is one of `RECOMMENDERS`, or your own (:class:`pipelines.plugins.Registry`) or its
    class, which is wrapped in :class:`CheckedRecommender`. Options are arguments of its class.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), if it is no class with ``fit`` and
        ``recommend``, if an option is unknown, or if a library that it needs is not installed.
    """
    opened: Recommender = RECOMMENDERS.open(name, **options)
    where = getattr(name, "__name__", str(name))
    return opened if name in RECOMMENDERS else CheckedRecommender(opened, where)


class CheckedRecommender:
    """Checks what another recommender returns, and names it in every error.

    ``where`` names it in errors, such as ``module:Class``. ``name``, ``note`` and ``fallbacks`` are
    its own; without them its class's name, the first line of its docstring, and 0.
    """

    def __init__(self, inner: Any, where: str) -> None:
        self._inner, self._where = inner, f"recommender {where}"
        self.name = str(getattr(inner, "name", type(inner).__name__))
        doc = (inspect.getdoc(type(inner)) or f"{self.name}, a plug-in.").splitlines()[0]
        self.note = str(getattr(inner, "note", doc))
        self._personas: list[str] | None = None

    @property
    def fallbacks(self) -> int:
        """Users without a personal list (count)."""
        return int(getattr(self._inner, "fallbacks", 0))

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """See :class:`Recommender`.

        Raises ContractError if it raises.
        """
        self._personas = PersonaTable.read(release).ids
        self._items = Catalogue.read(release).ids
        try:
            fitted = self._inner.fit(release, interactions=interactions)
        except UnderstudyError:
            raise
        except Exception as error:
            raise self._fault(f"fit raised {type(error).__name__}: {error}", "") from error
        if not callable(getattr(fitted, "recommend", None)):
            raise self._fault(f"fit returned {type(fitted).__name__}", "", "return self")
        self._inner = fitted
        return self

    def recommend(
        self,
        users: npt.ArrayLike,
        k: int,
        *,
        seen: npt.ArrayLike | None = None,
        ratings: npt.ArrayLike | None = None,
    ) -> Ints:
        """See :class:`Recommender`.

        Raises
        ------
        ConfigError
            If it was not fitted, or a user or item does not exist.
        ContractError
            If it raises, or a list is not k distinct unseen items of the release.
        """
        if self._personas is None:
            raise ConfigError("call fit() before recommend()", where=self.name)
        shape = len(self._items), len(self._personas)
        who, past, _ = checked_request(self.name, shape, users, k, seen, ratings)
        try:
            returned = self._inner.recommend(users, k, seen=seen, ratings=ratings)
        except UnderstudyError:
            raise
        except Exception as error:
            raise self._fault(f"recommend raised {type(error).__name__}: {error}", "") from error
        lists = np.asarray(returned)
        if lists.shape != (len(who), k) or not np.issubdtype(lists.dtype, np.integer):
            raise self._fault(
                f"recommend returned {lists.dtype} of shape {lists.shape}",
                "",
                f"item numbers of shape {(len(who), k)}",
            )
        lists = lists.astype(np.int64)
        for row, user in enumerate(who):
            self._check(lists[row], past[row], self._personas[user])
        return lists

    def _check(self, row: Ints, past: Ints, persona: str) -> None:
        places = np.flatnonzero(row >= 0)
        unknown = row[(row < -1) | (row >= len(self._items))]
        if len(unknown):
            raise self._fault(
                f"recommended the unknown item {unknown[0]}",
                persona,
                f"numbers from 0 to {len(self._items) - 1}, or -1 where nothing is left",
            )
        shown, counts = np.unique(row[places], return_counts=True)
        if (counts > 1).any():
            raise self._fault(f"recommended {self._items[shown[counts > 1][0]]} twice", persona)
        again = np.intersect1d(shown, past)
        if len(again):
            raise self._fault(f"recommended {self._items[again[0]]}, which was seen", persona)
        left = len(self._items) - len(np.unique(past[past >= 0]))
        if len(places) < min(len(row), left) or (len(places) and places[-1] != len(places) - 1):
            raise self._fault(
                f"recommended {len(places)} items, then none",
                persona,
                f"{min(len(row), left)} unseen ones are there, -1 only pads the end",
            )

    def _fault(self, what: str, persona: str, hint: str | None = None) -> ContractError:
        where = f"{self._where}, persona {persona}" if persona else self._where
        return ContractError(what, where=where, hint=hint)
