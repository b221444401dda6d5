"""What all environments on a release share: items, personas, the rater, the retriever."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import ReleaseError
from pipelines.retrieval import Retriever, open_retriever
from sim._release import Release, open_release
from sim.environment._catalogue import Cast, Catalogue, Exposures
from sim.environment._raters import StepRater, open_rater

if TYPE_CHECKING:
    from pipelines.llm.engines import Engine
    from pipelines.raters import Rater

__all__ = ["World"]


@dataclass(frozen=True)
class World:
    """A release, opened for environments.

    Attributes
    ----------
    release
        The release.
    catalogue, cast
        Its items and personas by number.
    rater
        Who rates.
    retriever
        Which past items the rater is told of.
    """

    release: Release
    catalogue: Catalogue
    cast: Cast
    rater: StepRater
    retriever: Retriever

    @cached_property
    def exposures(self) -> Exposures:
        """Exposure of the planned pairs.

        Raises
        ------
        ReleaseError
            If the release has no planned pair with an exposure.
        """
        return Exposures.read(self.release, self.catalogue, self.cast)

    @classmethod
    def open(
        cls,
        release: Release | Path | str,
        *,
        home: Path | str | None = None,
        domain: str | None = None,
        rater: str | Rater | Engine | StepRater = "statistical",
        retriever: str | Retriever = "recent",
    ) -> World:
        """Open a release.

        Parameters
        ----------
        release, home
            A release, or a reference and the store's folder.
        domain
            What its items must be, such as ``movies``; default anything.
        rater
            As of :func:`sim.environment.open_rater`.
        retriever
            A name of :data:`pipelines.retrieval.RETRIEVERS`, or a retriever over the same items.

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
        catalogue, cast = Catalogue.read(opened), Cast.read(opened)
        found = (
            _retriever(retriever, opened, catalogue) if isinstance(retriever, str) else retriever
        )
        return cls(opened, catalogue, cast, open_rater(rater, opened, catalogue, cast), found)


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
