"""State that all environments on a release share: items, personas, the rater, the retriever."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError, ContractError, ReleaseError
from pipelines.packaged import SAMPLE_HOME
from pipelines.paths import ObjectPath
from pipelines.renames import current_setting
from pipelines.retrieval import Retriever, open_retriever
from pipelines.seams import RATERS
from sim._release import Release, open_release
from sim.environment._catalogue import Cast, Catalogue, Exposures
from sim.environment._people import known_items, persona_traits

if TYPE_CHECKING:
    import polars as pl

    from pipelines.llm.engines import Engine
    from pipelines.raters import BoundRater, Rater

#: Columns of `preference_scores` that are replayed.
_REPLAYED = [
    *("persona_id", "item_id", "rater", "scale", "status", "probabilities", "prompt_version")
]


#: Raters that are made from a release alone, without the present settings.
_SETTINGLESS = ("statistical", "replay", "random", "mean")


@dataclass(frozen=True)
class World:
    """A release, opened for environments: items and personas by number, rater, retriever."""

    release: Release
    catalogue: Catalogue
    cast: Cast
    rater: BoundRater
    retriever: Retriever

    @cached_property
    def exposures(self) -> Exposures:
        """Exposure of the planned pairs; ReleaseError if none has one."""
        return Exposures.read(self.release, self.catalogue, self.cast)

    @cached_property
    def known(self) -> npt.NDArray[np.int64]:
        """Training items of matched personas, which are not recommended to them.

        Item numbers of shape (personas, h), padded with -1; h is 0 if no persona is matched.
        """
        return known_items(self.release)

    @cached_property
    def traits(self) -> pl.DataFrame | None:
        """:func:`persona_traits`; None if the release has no table ``training_traits``."""
        return persona_traits(self.release) if "training_traits" in self.release else None

    @classmethod
    def open(
        cls,
        release: Release | Path | str = "latest",
        *,
        home: Path | str | None = None,
        domain: str | None = None,
        rater: str | Rater | Engine | BoundRater = "statistical",
        retriever: str | Retriever = "recent",
    ) -> World:
        """Open a release.

        Parameters
        ----------
        release, home
            A release, or a reference and the store's folder, as of :func:`sim.open_release`.
        domain
            Required kind of items, such as ``movies``; default any.
        rater
            As of :func:`sim.environment.open_rater`.
        retriever
            A name of :data:`pipelines.seams.RETRIEVERS`, or a retriever over the same items.

        Raises
        ------
        ReleaseError
            If there is no such release, it lacks a table, or it is of another domain.
        """
        opened = release if isinstance(release, Release) else open_release(release, home=home)
        opened.require("items", "personas")
        if domain is not None and opened.domain != domain:
            raise ReleaseError(
                f"a release of {opened.domain}, not of {domain}",
                where=opened.ref,
                hint=f'such as release="{domain}@latest"',
            )
        if isinstance(rater, str) and rater in _SETTINGLESS and isinstance(retriever, str):
            return _shared(opened, opened.home, rater, retriever)
        return _opened_world(opened, rater, retriever)


@lru_cache(maxsize=1)
def _shared(release: Release, home: Path, rater: str, retriever: str) -> World:  # noqa: ARG001
    """The latest world that depends on nothing but its release.

    Environments that are made one after the other share it; a forked worker, in which Polars can't
    read tables, finds that of its parent.
    """
    return _opened_world(release, rater, retriever)


def _opened_world(
    release: Release, rater: str | Rater | Engine | BoundRater, retriever: str | Retriever
) -> World:
    catalogue, cast = Catalogue.read(release), Cast.read(release)
    if isinstance(retriever, str):
        retriever = _retriever(retriever, release, catalogue)
    world = World(release, catalogue, cast, open_rater(rater, release, cast), retriever)
    # Read now: a forked worker that gets this world can't read tables.
    _ = world.known, world.traits
    return world


def open_rater(
    rater: str | Rater | Engine | BoundRater, release: Release, cast: Cast
) -> BoundRater:
    """A rater on a release, over its items in the order of their ids.

    Parameters
    ----------
    rater
        A name of :data:`pipelines.seams.RATERS`: opened with the scale, seed
        and prompts that the release was scored with, so that a persona here is as lenient as in
        ``preference_scores``. ``llm`` asks the engine of the release's settings, or, if it was
        scored without a model, of the present ones. Or a rater, an engine, or the result of
        this function.
    release, cast
        The release, and its personas as the environment numbers them.

    Raises
    ------
    ConfigError
        If there is no such rater, or its engine can't be opened; if a surrogate is not shown to be
        better than a mean on some kind of pairs here, unless the present settings have
        ``surrogate.allow_below_floor``: then the rater carries a ``warning``.
    ReleaseError
        If the release lacks a table that the rater needs.
    """
    from pipelines.llm.engines import Engine
    from pipelines.raters import BoundRater, Rater, bind

    if isinstance(rater, BoundRater):
        return rater
    items = release["items"].polars().sort("item_id")
    if isinstance(rater, str | Engine):
        return _faithful(bind(_opened(rater, release, items), cast.frame, items))
    if isinstance(rater, Rater):
        return _faithful(bind(rater, cast.frame, items))
    raise ConfigError(
        "neither a rater nor an engine", where=type(rater).__name__, hint="see open_rater"
    )


def _faithful(bound: BoundRater) -> BoundRater:
    """The rater, unless it is a surrogate that is no better than a mean on pairs at hand."""
    from pipelines.config import load_settings
    from pipelines.raters import BoundSurrogate

    if not isinstance(bound, BoundSurrogate) or not bound.below_baseline:
        return bound
    kinds = "; ".join(bound.below_baseline)
    if not load_settings().surrogate.allow_below_floor:
        raise ConfigError(
            f"it is not shown to be better than a mean on pairs of {kinds}",
            where=bound.name,
            hint="surrogate.allow_below_floor=true opens it with a warning",
        )
    bound.warning = f"This surrogate is not shown to be better than a mean on pairs of {kinds}."
    bound.note = f"{bound.note} {bound.warning}"
    return bound


def _opened(rater: str | Engine, release: Release, items: pl.DataFrame) -> Rater:
    from pipelines import raters
    from pipelines.config import ScoringSettings, Settings, load_settings

    name = current_setting(rater, "rater") if isinstance(rater, str) else "llm"
    needs = raters.needs_of(name, optional=False)
    recorded = release.settings
    names = ScoringSettings.model_fields
    scoring = {k: v for k, v in recorded.get("scoring", {}).items() if k in names}
    scoring |= {"rater": name, "replay": None}
    if name != "ensemble":
        scoring["ensemble"] = ()
    # Answers are stored in a home; that of a pushed or packaged release is read only.
    read_only = isinstance(release.home, ObjectPath) or release.home == SAMPLE_HOME
    runtime = {"home": load_settings().runtime.home if read_only else release.home}
    settings = Settings(scoring=scoring, runtime=runtime)
    if name == "surrogate":
        settings = Settings(scoring=scoring, runtime=runtime, surrogate=load_settings().surrogate)
    if isinstance(rater, str) and name in ("llm", "ensemble"):
        named = recorded.get("engine", {}).get("kind", "none") != "none"
        engine = {"engine": recorded["engine"]} if named else {}
        settings = load_settings(overrides={"scoring": scoring, **engine})
    if name in RATERS:
        release.require(*needs)
    tables: dict[str, Any] = {}
    for table in raters.needs_of(name):
        if table in release and table != "items":
            read = release[table]
            tables[table] = (
                read.lazy()
                if table in ("interactions", "splits")
                else read.polars(_REPLAYED if table == "preference_scores" else None)
            )
    try:
        return raters.open_rater(
            settings,
            items=items,
            domain=release.domain,
            engine=None if isinstance(rater, str) else rater,
            **tables,
        )
    except (ConfigError, ContractError) as error:
        if name != "replay":
            raise
        raise ReleaseError(str(error), where=f"{release.ref} preference_scores") from error


def _retriever(name: str, release: Release, catalogue: Catalogue) -> Retriever:
    """The retriever of that name, with the tables it needs."""
    more: dict[str, Any] = {}
    if name == "features":
        items = release["items"].polars().sort("item_id")
        if "item_stats" in release and "interactions" in release:
            from pipelines.raters import source_scale

            more["item_stats"] = release["item_stats"].polars()
            more["scale"] = source_scale(release["interactions"].lazy())
    else:
        items = catalogue.frame
        if name == "embedding":
            release.require("item_embeddings")
            more["item_embeddings"] = release["item_embeddings"].polars(["item_id", "vector"])
        elif name == "graph":
            release.require("graph_triples")
            more["release"] = release
    return open_retriever(name, items=items, **more)
