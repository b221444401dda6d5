"""Recommenders by name, from entry points and from ``module:Class``; plug-ins are checked."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError, ContractError, UnderstudyError
from pipelines.hints import nearest
from sim.environment import Cast, Catalogue
from sim.recommenders._protocol import Ints, Recommender, checked_request

if TYPE_CHECKING:
    import polars as pl

    from sim._release import Release

__all__ = [
    "BASELINES",
    "GROUP",
    "RECOMMENDERS",
    "CheckedRecommender",
    "open_recommender",
    "plugin_names",
    "recommender_class",
]

#: Entry-point group of recommenders in other distributions: name = ``module:Class``.
GROUP = "understudy.recommenders"

#: Modules of the project's own recommenders by name; imported on first use.
RECOMMENDERS: dict[str, str] = {
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
}

#: Baselines by name, in the order in which reports show them.
BASELINES = ("random", "popular", "mean-rating", "content")


def open_recommender(name: str, **options: Any) -> Recommender:
    """A recommender by name; fit it before use.

    Parameters
    ----------
    name
        One of `RECOMMENDERS`, the name of an entry point of the group
        ``understudy.recommenders``, ``module:Class``, or ``path/to/file.py:Class``.
    options
        Arguments of its class, such as ``seed`` for ``random``.

    Returns
    -------
    The recommender; one that is not the project's own is wrapped in :class:`CheckedRecommender`.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), if it is no class with ``fit`` and
        ``recommend``, if an option is unknown, or if a library that it needs is not installed.
    """
    made: Recommender = _construct(recommender_class(name), name, options)
    return made if name in RECOMMENDERS else CheckedRecommender(made, name)


def recommender_class(name: str) -> type[Any]:
    """The class behind a name; parameters and errors as of :func:`open_recommender`."""
    found = {entry.name: entry.value for entry in entry_points(group=GROUP)} | RECOMMENDERS
    place = found.get(name, name)
    if ":" not in place:
        hint = nearest(name, found)
        raise ConfigError(
            "unknown recommender", where=repr(name), hint=f"{hint}; or module:Class of your own"
        )
    where = f"recommender {name}" if name == place else f"recommender {name} ({place})"
    module, _, attribute = place.rpartition(":")
    try:
        holder = _file(Path(module)) if module.endswith(".py") else importlib.import_module(module)
    except Exception as error:
        raise ConfigError(
            f"the module can't be imported ({type(error).__name__}: {error})", where=where
        ) from error
    target = getattr(holder, attribute, None)
    if target is None:
        names = [n for n, value in vars(holder).items() if inspect.isclass(value)]
        hint = nearest(attribute, names) if names else "the module has no classes"
        raise ConfigError(f"the module has no {attribute}", where=where, hint=hint)
    if not inspect.isclass(target):
        raise ConfigError(
            f"{attribute} is no class but a {type(target).__name__}",
            where=where,
            hint="give module:Class; see docs/recommenders.md",
        )
    missing = [n for n in ("fit", "recommend") if not callable(getattr(target, n, None))]
    if missing:
        raise ConfigError(
            f"the class has no {' and no '.join(missing)}",
            where=where,
            hint="implement sim.recommenders.Recommender",
        )
    cls: type[Any] = target
    return cls


def _file(path: Path) -> ModuleType:
    if not path.is_file():
        raise FileNotFoundError(f"no file {path}")
    name = f"understudy_plugin_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    spec.loader.exec_module(module)
    return module


def _construct(target: Any, name: str, options: dict[str, Any]) -> Any:
    where = f"recommender {name}"
    try:
        inspect.signature(target).bind(**options)
    except TypeError as error:
        known = ", ".join(inspect.signature(target).parameters) or "none"
        raise ConfigError(str(error), where=where, hint=f"options: {known}") from None
    try:
        return target(**options)
    except UnderstudyError:
        raise
    except Exception as error:
        raise ConfigError(
            f"the class can't be opened ({type(error).__name__}: {error})", where=where
        ) from error


def plugin_names() -> list[str]:
    """Names of the entry points in the group ``understudy.recommenders``."""
    return sorted(entry.name for entry in entry_points(group=GROUP))


class CheckedRecommender:
    """Checks what another recommender returns, and names it in every error.

    Parameters
    ----------
    inner
        The recommender.
    where
        Its name in errors, such as ``module:Class``.

    Attributes
    ----------
    name, note
        Of the recommender; its class's name and first docstring line where it has none.
    fallbacks
        Its own count (0 without one); see :class:`CollaborativeRecommender`.
    """

    def __init__(self, inner: Any, where: str) -> None:
        self._inner, self._where = inner, f"recommender {where}"
        self.name = str(getattr(inner, "name", type(inner).__name__))
        doc = (inspect.getdoc(type(inner)) or f"{self.name}, a plug-in.").splitlines()[0]
        self.note = str(getattr(inner, "note", doc))
        self._personas: list[str] | None = None

    @property
    def fallbacks(self) -> int:
        """Users that it could not tell apart (count)."""
        return int(getattr(self._inner, "fallbacks", 0))

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """See :class:`Recommender`.

        Raises
        ------
        ContractError
            If it raises.
        """
        self._personas = Cast.read(release).ids
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
            raise ConfigError("fit() comes before recommend()", where=self.name)
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
