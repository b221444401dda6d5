"""What a graph memory reads from a release or from frames, as arrays by code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import GraphSettings
from pipelines.errors import ContractError, ReleaseError
from pipelines.graph._index import GraphIndex
from pipelines.graph._schema import DomainSchema
from pipelines.scales import RatingScale, rescale, scale_named
from pipelines.store import Release, Store

__all__ = ["Catalogue", "Ratings", "ReleaseTables", "unit_vectors"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Catalogue:
    """Titles and years of items, by code."""

    titles: list[str]
    years: list[int | None]

    @classmethod
    def of(cls, items: pl.DataFrame, ids: pl.Series) -> Catalogue:
        """Titles in the order of `ids`; an item that the table lacks is called by its id."""
        year = pl.col("year").cast(pl.Int64) if "year" in items.columns else pl.lit(None, pl.Int64)
        known = items.select(pl.col("item_id").alias("id"), "title", year.alias("year"))
        frame = ids.to_frame("id").join(known, on="id", how="left", maintain_order="left")
        titles = frame.select(pl.col("title").fill_null(pl.col("id")))["title"].to_list()
        return cls(titles, frame["year"].to_list())


class Ratings:
    """Who rated what, for pairs that are joined in the graph; by code, on one scale.

    Parameters
    ----------
    index
        The graph. Ratings of pairs that it does not join (held-out ones) are left out.
    interactions
        Columns ``user_id, item_id, rating, scale``, a frame or a scan; None if ratings are unknown.
    scale
        Name of the scale to hold them on; default that of the interactions, or 1-5 if they
        are on several.

    Raises
    ------
    ConfigError
        If a scale is unknown.
    """

    def __init__(
        self, index: GraphIndex, interactions: pl.DataFrame | pl.LazyFrame | None, scale: str | None
    ) -> None:
        names: list[str] = []
        if interactions is not None:
            scales = interactions.lazy().select(pl.col("scale").unique().sort())
            names = scales.collect(engine="streaming")["scale"].to_list()
        single = names[0] if len(names) == 1 else "1-5"
        self.scale: RatingScale = scale_named(scale or single)
        matrix = index.adjacency("User", _first_interaction(index.schema))
        users, items = matrix.shape
        values = np.full(matrix.nnz, np.nan)
        if interactions is not None and matrix.nnz:
            heads = np.repeat(np.arange(users, dtype=np.int64), np.diff(matrix.indptr))
            joined = heads * items + matrix.indices
            pairs, given = self._pairs(index, interactions.lazy(), names)
            at = np.minimum(joined.searchsorted(pairs), len(joined) - 1)
            there = joined[at] == pairs
            values[at[there]] = given[there]
        self._starts, self._items, self._values = matrix.indptr, matrix.indices, values
        known = ~np.isnan(values)
        rated = matrix.indices[known]
        self.sums: Floats = np.asarray(
            np.bincount(rated, values[known], minlength=items), dtype=np.float64
        )
        self.counts: npt.NDArray[np.intp] = np.bincount(rated, minlength=items)

    def own(self, user: int, item: int) -> float | None:
        """A user's rating of an item, if there is one."""
        if user + 1 >= len(self._starts):
            return None
        start, end = self._starts[user], self._starts[user + 1]
        at = start + self._items[start:end].searchsorted(item)
        if at >= end or self._items[at] != item or np.isnan(self._values[at]):
            return None
        return float(self._values[at])

    def _pairs(
        self, index: GraphIndex, interactions: pl.LazyFrame, names: list[str]
    ) -> tuple[npt.NDArray[np.int64], Floats]:
        """Pairs as ``user * items + item`` and their ratings on the scale."""
        rating = pl.lit(None, pl.Float64)
        for name in names:
            here = rescale(pl.col("rating"), scale_named(name), self.scale)
            rating = pl.when(pl.col("scale") == name).then(here).otherwise(rating)
        user = _code("user_id", index.ids("User"))
        item = _code("item_id", index.ids(index.item_type))
        frame = (
            interactions.select(
                pair=user * index.count(index.item_type) + item, rating=rating.cast(pl.Float64)
            )
            .drop_nulls()
            .collect(engine="streaming")
        )
        return frame["pair"].to_numpy(), frame["rating"].to_numpy()


class ReleaseTables:
    """Tables of a release by short name, whatever holds them.

    Parameters
    ----------
    source
        A release of the store, a mapping of names to frames or to tables that have
        ``lazy()``, or a reference such as ``movies@latest`` or the path of a lock file.
    home
        The store's folder, for a reference.

    Raises
    ------
    ReleaseError
        If there is no such release.
    """

    def __init__(self, source: object, home: Path | str | None = None) -> None:
        if isinstance(source, str | Path):
            source = _find(source, home)
        if not isinstance(source, Release | Mapping):
            raise ReleaseError("neither a release nor tables", where=type(source).__name__)
        self._source: Release | Mapping[str, Any] = source
        self._label = str(source) if isinstance(source, Release) else type(source).__name__

    def __contains__(self, name: str) -> bool:
        return name in (self._source.tables if isinstance(self._source, Release) else self._source)

    def scan(self, name: str) -> pl.LazyFrame:
        """A table, unread.

        Raises
        ------
        ReleaseError
            If it is not there.
        """
        if name not in self:
            raise ReleaseError(
                f"a graph memory needs the table {name}",
                where=getattr(self._source, "ref", self._label),
            )
        if isinstance(self._source, Release):
            return self._source.snapshot(name).scan()
        table: pl.DataFrame | pl.LazyFrame | Any = self._source[name]
        frame = table.lazy()
        assert isinstance(frame, pl.LazyFrame)
        return frame

    def optional(self, name: str) -> pl.LazyFrame | None:
        """A table, unread, or None if the release has none of that name."""
        return self.scan(name) if name in self else None

    @property
    def domain(self) -> str:
        """Domain of the triples, such as ``movies`` (also for bare frames)."""
        dataset = ""
        if "graph_triples" in self:
            tables = self._source.tables if isinstance(self._source, Release) else self._source
            dataset = getattr(tables["graph_triples"], "dataset", "")
        return str(dataset).rpartition(".")[0] or "movies"

    @property
    def settings(self) -> GraphSettings:
        """The graph settings that the release was made with; the default ones for frames."""
        made: Any = getattr(self._source, "settings", {})
        section = made.get("graph", {}) if isinstance(made, Mapping) else {}
        known = {key: section[key] for key in GraphSettings.model_fields if key in section}
        return GraphSettings.model_validate(known)


def unit_vectors(embeddings: pl.DataFrame | None, ids: pl.Series) -> npt.NDArray[np.float32] | None:
    """Unit vectors in the order of `ids`, zero where there is none; None without a table.

    Parameters
    ----------
    embeddings
        Columns ``item_id`` and ``vector``.
    ids
        Ids of the items, in the order wanted.

    Returns
    -------
    Of shape (items, dimension).

    Raises
    ------
    ContractError
        If vectors have different lengths.
    """
    if embeddings is None or not embeddings.height:
        return None
    lengths = embeddings["vector"].list.len().unique().to_list()
    if len(lengths) != 1:
        raise ContractError(
            f"vectors have different lengths ({', '.join(map(str, sorted(lengths)))})",
            where="item_embeddings",
        )
    known = embeddings.select(_code("item_id", ids).alias("at"), "vector").drop_nulls("at")
    out = np.zeros((len(ids), int(lengths[0])), dtype=np.float32)
    rows = known["vector"].list.to_array(int(lengths[0])).to_numpy().astype(np.float32)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    out[known["at"].to_numpy()] = rows / np.where(norms > 0, norms, 1.0)[:, None]
    return out


def _find(reference: str | Path, home: Path | str | None) -> Release:
    from pipelines.config import load_settings

    settings = load_settings(overrides={"runtime": {"home": str(home)}} if home else None)
    text = str(reference)
    return Store(settings.runtime.home).release(
        f"{settings.release.name}@latest" if text == "latest" else reference
    )


def _first_interaction(schema: DomainSchema) -> str:
    """The relation that every interaction has, such as `rated`."""
    return next(e.relation for e in schema.edges if e.origin == "interactions" and e.where == "all")


def _code(column: str, ids: pl.Series) -> pl.Expr:
    """Codes of a column's ids (Int64), null for ids that are not there."""
    return pl.col(column).cast(pl.Enum(ids), strict=False).to_physical().cast(pl.Int64)
