"""Items and personas of a release, indexed as the environment numbers them."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import ReleaseError

if TYPE_CHECKING:
    import polars as pl

    from sim._release import Release


@dataclass(frozen=True)
class Catalogue:
    """The items that can be recommended; action ``n`` is row ``n``."""

    #: ``item_id``, ``title``, ``year``, ``genres`` and ``popularity_rank`` (1 is the most rated;
    #: null if the release has no ``item_stats``), ordered by ``item_id``.
    frame: pl.DataFrame

    @classmethod
    def read(cls, release: Release) -> Catalogue:
        """Read the items of a release; ReleaseError if it has none."""
        import polars as pl

        release.require("items")
        items = release["items"].polars(["item_id", "title", "year", "genres"])
        if "item_stats" in release:
            ranks = release["item_stats"].polars(["item_id", "popularity_rank"])
            items = items.join(ranks, on="item_id", how="left", validate="1:1")
        else:
            items = items.with_columns(popularity_rank=pl.lit(None, pl.Int64))
        if items.is_empty():
            raise ReleaseError("the release has no items", where=release.ref)
        return cls(items.sort("item_id"))

    def __len__(self) -> int:
        return self.frame.height

    @cached_property
    def ids(self) -> list[str]:
        """Item ids by action."""
        return self.frame["item_id"].to_list()

    @cached_property
    def popularity(self) -> npt.NDArray[np.int64]:
        """Actions, the most rated first; items without a rank come last, by id."""
        import polars as pl

        order = self.frame.select(
            pl.arg_sort_by("popularity_rank", "item_id", nulls_last=True)
        ).to_series()
        return order.cast(pl.Int64).to_numpy()

    @cached_property
    def _row(self) -> dict[str, int]:
        return {item: n for n, item in enumerate(self.ids)}

    def row(self, item_id: str) -> int:
        """The action that recommends an item; ReleaseError if there is no such item."""
        if item_id not in self._row:
            raise ReleaseError(f"no item {item_id!r}", where="items")
        return self._row[item_id]

    def describe(self, item: int) -> dict[str, Any]:
        """Id, title, year and genres of an item, for people to read."""
        row = self.frame.row(item, named=True)
        return {key: row[key] for key in ("item_id", "title", "year", "genres")}


@dataclass(frozen=True)
class Cast:
    """The personas of a release's domain; persona ``n`` is row ``n``.

    ``frame`` holds their rows of the table ``personas``, ordered by ``persona_id``.
    """

    frame: pl.DataFrame

    #: Genders by their code in observations; 0 stands for any other.
    GENDERS = ("", "female", "male")

    @classmethod
    def read(cls, release: Release) -> Cast:
        """Read the personas of a release's domain; ReleaseError if there are none.

        Those of other domains are left out: what they like are not the genres of these items.
        """
        import polars as pl

        release.require("personas")
        frame = release["personas"].polars()
        if "domain" in frame.columns:
            frame = frame.filter(pl.col("domain") == release.domain)
        if frame.is_empty():
            raise ReleaseError(
                f"the release has no personas for {release.domain}", where=release.ref
            )
        return cls(frame.sort("persona_id"))

    def __len__(self) -> int:
        return self.frame.height

    @cached_property
    def ids(self) -> list[str]:
        """Persona ids by index."""
        return self.frame["persona_id"].to_list()

    @cached_property
    def ages(self) -> npt.NDArray[np.float32]:
        """Ages (years), of shape (personas,); 0 stands for an unknown one."""
        # Polars' own expressions can't run in a forked worker.
        return np.array([age or 0 for age in self.frame["age"].to_list()], np.float32)

    @cached_property
    def genders(self) -> npt.NDArray[np.int64]:
        """Gender codes, of shape (personas,); see ``GENDERS``."""
        codes = {name: code for code, name in enumerate(self.GENDERS) if name}
        return np.array([codes.get(name, 0) for name in self.frame["gender"].to_list()], np.int64)

    @cached_property
    def _index(self) -> dict[str, int]:
        return {persona: n for n, persona in enumerate(self.ids)}

    def index(self, persona_id: str) -> int:
        """Index of a persona; ReleaseError, naming the nearest, if there is no such persona."""
        number = self._index.get(persona_id)
        if number is None:
            near = difflib.get_close_matches(persona_id, self.ids, n=3)
            shown = ", ".join(near or self.ids[:3])
            raise ReleaseError(
                f"no persona {persona_id!r}", where="personas", hint=f"such as {shown}"
            )
        return number

    @cached_property
    def _tastes(self) -> npt.NDArray[np.float64]:
        """Liked genres as 1 and disliked ones as -1, of length 1, of shape (personas, genres)."""
        likes, dislikes = self.frame["likes"].to_list(), self.frame["dislikes"].to_list()
        genres = {g: n for n, g in enumerate(sorted({*chain(*likes), *chain(*dislikes)}))}
        out = np.zeros((len(self), len(genres)))
        for sign, lists in ((1.0, likes), (-1.0, dislikes)):
            for n, names in enumerate(lists):
                out[n, [genres[g] for g in names]] = sign
        return np.asarray(out / np.maximum(np.linalg.norm(out, axis=1, keepdims=True), 1.0))

    def nearest(self, persona_id: str, count: int) -> npt.NDArray[np.int64]:
        """Personas with the most similar tastes, the persona itself first.

        Similarity is the cosine of liked (1) and disliked (-1) genres. Ties are broken by the
        difference in age, then by id.

        Returns
        -------
        array
            Indices of shape (count,), or of all personas if there are fewer.
        """
        number = self.index(persona_id)
        similarity = (self._tastes @ self._tastes[number]).round(9)
        order = np.lexsort((np.abs(self.ages - self.ages[number]), -similarity))
        return np.concatenate([[number], order[order != number]])[:count].astype(np.int64)

    def describe(self, persona: int) -> dict[str, Any]:
        """A persona's row, for people to read."""
        return self.frame.row(persona, named=True)


@dataclass(frozen=True)
class Exposures:
    """Items that personas may have watched, by the exposure of their planned pairs.

    Pairs of persona n begin at ``starts[n]``, of shape (personas + 1,); ``items`` are their item
    numbers and ``weights`` what they count in a draw: exposure over the probability that the pair
    was planned, each of shape (pairs,).
    """

    starts: npt.NDArray[np.int64]
    items: npt.NDArray[np.int64]
    weights: npt.NDArray[np.float64]

    @classmethod
    def read(cls, release: Release, catalogue: Catalogue, cast: Cast) -> Exposures:
        """Read `score_plan` of a release; ReleaseError if no planned pair has an exposure."""
        import polars as pl

        release.require("score_plan")
        plan = release["score_plan"].lazy()
        columns = plan.collect_schema().names()
        if "exposure" not in columns:
            raise ReleaseError("its score_plan has no exposure", where=release.ref)
        numbers = (
            pl.DataFrame({"persona_id": cast.ids}).with_row_index("persona").lazy(),
            pl.DataFrame({"item_id": catalogue.ids}).with_row_index("item").lazy(),
        )
        pairs = (
            plan.drop_nulls(["exposure", "inclusion"])
            .join(numbers[0], on="persona_id")
            .join(numbers[1], on="item_id")
            .select("persona", "item", weight=pl.col("exposure") / pl.col("inclusion"))
            .sort("persona", "item")
            .collect()
        )
        if pairs.is_empty():
            raise ReleaseError("no planned pair has an exposure", where=release.ref)
        persona = pairs["persona"].to_numpy()
        starts = np.searchsorted(persona, np.arange(len(cast) + 1))
        item = pairs["item"].cast(pl.Int64).to_numpy()
        return cls(starts.astype(np.int64), item, pairs["weight"].to_numpy())

    def draw(self, persona: int, uniform: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Distinct items of a persona, one after the other in proportion to their weights.

        `uniform` holds numbers in [0, 1), one per item, of shape (count,). Returns item numbers of
        the same shape, -1 at the end if there are fewer.
        """
        part = slice(self.starts[persona], self.starts[persona + 1])
        items, left = self.items[part], self.weights[part].copy()
        out = np.full(len(uniform), -1, np.int64)
        for n, share in enumerate(uniform[: len(items)]):
            below = np.cumsum(left)
            place = int(np.searchsorted(below, share * below[-1], side="right"))
            # A product that is rounded up to the sum leads beyond the last item that is left.
            place = min(place, int(np.flatnonzero(left)[-1]))
            out[n], left[place] = items[place], 0.0
        return out
