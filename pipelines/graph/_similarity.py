"""The most similar items of every item, in bulk and in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import GraphSettings
from pipelines.errors import ContractError
from pipelines.graph._index import GraphIndex
from pipelines.graph._pathsim import Codes, Floats, PathSim, combine
from pipelines.graph._schema import MetaPath, MetaPaths, load_metapaths, load_schema
from pipelines.progress import advance

_COLUMNS = (
    "item_id",
    "neighbour_id",
    "rank",
    "score",
    "pathsim",
    "cosine",
    "instances",
    "paths",
    "path_counts",
    "basis",
)
#: Decimals of published scores: fewer than what the order of summation may change.
_DECIMALS = 6
#: Distance below the k-th score of the fast pass (float32 products) within which a neighbour may
#: still belong among the first k: its error and the rounding, with a margin.
_MARGIN = 1e-5
#: Pairs whose vectors are multiplied at once: few enough for the processor's cache.
_PAIRS = 2048
#: Memory of one block (bytes), and the most rows of one.
_BLOCK_BYTES, _BLOCK_ROWS = 128 * 2**20, 256


#: Neighbours of an item in the table, and raters of an item that are counted at most.
TOP_K = 50
RATERS_PER_ITEM = 5_000


@dataclass(frozen=True)
class Vectors:
    """Unit vectors by item; zero rows for items without one."""

    ids: pl.Series
    rows: npt.NDArray[np.float32]
    embedded: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, embeddings: pl.DataFrame | None) -> Vectors:
        """Vectors of a table ``item_id, vector``; none without one."""
        if embeddings is None or not embeddings.height:
            none = np.zeros((0, 1), dtype=np.float32)
            return cls(pl.Series("id", [], dtype=pl.String), none, np.zeros(0, dtype=np.bool_))
        lengths = embeddings["vector"].list.len().unique().sort()
        if len(lengths) != 1:
            raise ContractError(
                f"vectors have different lengths ({', '.join(map(str, lengths))})",
                where="item_embeddings",
            )
        rows = np.asarray(
            embeddings["vector"].list.to_array(int(lengths[0])).to_numpy(), dtype=np.float32
        )
        norms = np.linalg.norm(rows.astype(np.float64), axis=1)
        # Vectors are unit vectors by contract; dividing costs nothing and makes it a cosine.
        lengths_or_one = np.where(norms > 0, norms, 1.0).astype(np.float32)
        unit: npt.NDArray[np.float32] = np.divide(rows, lengths_or_one[:, None], dtype=np.float32)
        return cls(embeddings["item_id"].alias("id"), unit, norms > 0)

    def aligned(self, ids: pl.Series) -> Vectors:
        """The vectors in the order of `ids`."""
        place = ids.to_frame("id").join(
            self.ids.to_frame("id").with_row_index("at"), on="id", how="left", maintain_order="left"
        )["at"]
        present = place.is_not_null().to_numpy()
        rows = np.zeros((len(ids), self.rows.shape[1]), dtype=np.float32)
        embedded = np.zeros(len(ids), dtype=np.bool_)
        at = place.drop_nulls().to_numpy()
        rows[present], embedded[present] = self.rows[at], self.embedded[at]
        return Vectors(ids, rows, embedded)

    def exact(self, left: Codes, right: Codes) -> Floats:
        """Cosines of pairs; each depends on its two vectors only, unlike a matrix product."""
        out = np.empty(len(left))
        for start in range(0, len(left), _PAIRS):
            pairs = slice(start, start + _PAIRS)
            np.einsum(
                "ij,ij->i",
                self.rows[left[pairs]],
                self.rows[right[pairs]],
                dtype=np.float64,
                out=out[pairs],
            )
        return out


@dataclass(frozen=True)
class ItemScores:
    """Scores between items, without a user: paths and vectors."""

    sim: PathSim
    vectors: Vectors
    settings: GraphSettings

    def rows_that_fit(self, budget: int) -> int:
        """Rows whose arrays fit so many bytes (count)."""
        per_row = max(1, self.sim.items) * (8 * (len(self.sim.groups) + 2) + 4 + 2)
        return int(np.clip(budget // per_row, 1, _BLOCK_ROWS))

    def of(self, rows: Codes) -> tuple[Floats, Floats, Floats, npt.NDArray[np.bool_]]:
        """Path instances by group and together, scores, and which items may be neighbours.

        Of shape (groups, rows, items) and (rows, items). Scores have cosines in single precision:
        they select :func:`candidates`, whose exact scores decide.
        """
        by_group = self.sim.group_counts(rows)
        trips, counts = self.sim.round_trips, self.sim.total(by_group)
        scores = combine(counts, trips[rows][:, None], trips[None, :])
        scores *= self.settings.alpha
        joined = counts > 0
        embedded, weight = self.vectors.embedded, np.float32(self.settings.embedding_weight)
        if weight and embedded.any():
            scores += (self.vectors.rows[rows] * weight) @ self.vectors.rows.T
            joined |= embedded[rows, None] & embedded[None, :]
        joined[np.arange(len(rows)), rows] = False
        return by_group, counts, scores, joined

    def exact(self, query: Codes, other: Codes, counts: Floats) -> tuple[Floats, Floats]:
        """s(x, y) of pairs with these path instances, and cosines, NaN where there is none."""
        trips, embedded = self.sim.round_trips, self.vectors.embedded
        cosine = np.clip(self.vectors.exact(query, other), -1.0, 1.0)
        cosine[~(embedded[query] & embedded[other])] = np.nan
        return combine(counts, trips[query], trips[other]), cosine


class SimilarItems:
    """The ``top_k`` most similar items of each item, by ranges of items.

    As there is no user, the score is ``alpha·s(x, y) + embedding_weight·cos(e_x, e_y)``. Items
    are those of the graph and of the embeddings. An item without an edge has neighbours by
    its embedding alone, and rows say so (`basis`); one that has neither, or no other item with
    a path to it where there are no embeddings, has no rows.

    Of an item with more than ``raters_per_item`` raters, those whose ids have the lowest
    hashes count, and rows say so: memory grows with the ratings counted.

    Counts are exact whole numbers and ties are broken by id, so that neither the size of
    blocks nor the order of rows or threads changes the result.

    ``triples`` are of the `graph_triples` contract, frames or scans; without ``embeddings``
    (``item_id, vector``) paths alone count. Paths are all of the domain's unless
    given.

    Raises ContractError if no triple fits the domain's schema or the vectors' lengths differ.
    """

    def __init__(
        self,
        triples: pl.DataFrame | pl.LazyFrame,
        embeddings: pl.DataFrame | None,
        settings: GraphSettings,
        *,
        domain: str = "movies",
        paths: MetaPaths | None = None,
        top_k: int = TOP_K,
        raters_per_item: int = RATERS_PER_ITEM,
    ) -> None:
        vectors = Vectors.of(embeddings)
        item_type = load_schema(domain).item_type
        index = GraphIndex.from_triples(
            triples, domain, nodes={item_type: vectors.ids}, raters=raters_per_item
        )
        sim = PathSim(index, paths or load_metapaths(domain))
        self._scores = ItemScores(sim, vectors.aligned(index.ids(item_type)), settings)
        self._top_k = top_k

    def __len__(self) -> int:
        """Items (count)."""
        return self._scores.sim.items

    def rows(
        self,
        first: int = 0,
        end: int | None = None,
        *,
        block: int | None = None,
        threads: int = 1,
    ) -> Iterator[pl.DataFrame]:
        """Rows of the items from one up to another (None: the last), in ascending order of ids.

        ``block`` items are worked on at once (default: as many as fit 128 MiB per thread),
        ``threads`` blocks at the same time. Frames of the `item_similarity` contract, in its order,
        one per block; there may be empty ones.
        """
        last = len(self) if end is None else min(end, len(self))
        size = block or self._scores.rows_that_fit(_BLOCK_BYTES)
        self._scores.sim.warm()
        starts = iter(range(first, last, size))
        with ThreadPoolExecutor(max(1, threads)) as pool:
            while some := list(islice(starts, max(1, threads))):
                ends = [min(start + size, last) for start in some]
                for stop, frame in zip(ends, pool.map(self._block, some, ends), strict=True):
                    advance("similar items", stop, last)
                    yield frame

    def _block(self, start: int, end: int) -> pl.DataFrame:
        """Rows of the items with codes from `start` to `end`."""
        scores, sim, settings = self._scores, self._scores.sim, self._scores.settings
        rows = np.arange(start, end, dtype=np.int64)
        by_group, counts, totals, joined = scores.of(rows)
        totals[~joined] = -np.inf
        at, neighbour = candidates(totals, self._top_k)
        instances = counts[at, neighbour]
        pathsim, cosine = scores.exact(rows[at], neighbour, instances)
        score = settings.alpha * pathsim
        score += settings.embedding_weight * np.nan_to_num(cosine)
        ids = sim.index.ids(sim.index.item_type)
        names, numbers = self._named(by_group[:, at, neighbour])
        # Ids ascend with codes, so ordering by code is ordering by id.
        frame = pl.DataFrame(
            {
                "query": rows[at],
                "other": neighbour,
                "score": rounded(score),
                "pathsim": rounded(pathsim),
                "cosine": pl.Series(rounded(cosine), dtype=pl.Float64).fill_nan(None),
                "instances": instances.astype(np.int64),
                "paths": names,
                "path_counts": numbers,
            }
        ).sort("query", "score", "other", descending=[False, True, False])
        frame = frame.with_columns(
            rank=pl.int_range(1, pl.len() + 1, dtype=pl.Int64).over("query")
        ).filter(pl.col("rank") <= self._top_k)
        sampled = pl.col("item_id", "neighbour_id").is_in(list(sim.index.sampled))
        basis = (
            pl.when(pl.col("instances") == 0)
            .then(pl.lit("embedding"))
            .when(pl.any_horizontal(sampled))
            .then(pl.lit("sampled paths"))
            .otherwise(pl.lit("paths"))
        )
        return (
            frame.with_columns(
                item_id=ids.gather(frame["query"]), neighbour_id=ids.gather(frame["other"])
            )
            .with_columns(basis=basis)
            .select(_COLUMNS)
        )

    def _named(self, by_group: Floats) -> tuple[pl.Series, pl.Series]:
        """The paths that join each pair, the most instances first, and their instances."""
        pairs = by_group.shape[1]
        paths: list[MetaPath] = []
        columns: list[Floats] = []
        for group, counts in zip(self._scores.sim.groups, by_group, strict=True):
            paths += group.paths
            columns += [counts] * len(group.paths)
        if not (pairs and paths):
            return (
                pl.Series([[]] * pairs, dtype=pl.List(pl.String)),
                pl.Series([[]] * pairs, dtype=pl.List(pl.Int64)),
            )
        # Stable, so that equal counts keep the order of the groups.
        table = np.stack(columns, axis=1)
        first = np.argsort(-table, axis=1, kind="stable")
        taken = np.take_along_axis(table, first, axis=1).astype(np.int64)
        positive = (taken > 0).ravel()
        pair = np.repeat(np.arange(pairs), first.shape[1])[positive]
        labels = pl.Series([path.name for path in paths], dtype=pl.String)
        long = pl.DataFrame(
            {
                "pair": pair,
                "paths": labels.gather(first.ravel()[positive]),
                "path_counts": taken.ravel()[positive],
            }
        )
        lists = (
            pl.DataFrame({"pair": np.arange(pairs)})
            .join(
                long.group_by("pair", maintain_order=True).agg("paths", "path_counts"),
                on="pair",
                how="left",
                maintain_order="left",
            )
            .select(pl.col("paths", "path_counts").fill_null([]))
        )
        return lists["paths"], lists["path_counts"]


def item_similarity(
    triples: pl.DataFrame | pl.LazyFrame,
    embeddings: pl.DataFrame | None,
    settings: GraphSettings,
    *,
    block: int | None = None,
    threads: int = 1,
    **options: Any,
) -> Iterator[pl.DataFrame]:
    """The most similar items of all items; ``options`` are those of :class:`SimilarItems`."""
    similar = SimilarItems(triples, embeddings, settings, **options)
    yield from similar.rows(block=block, threads=threads)


def candidates(scores: Floats, k: int) -> tuple[Codes, Codes]:
    """Row numbers and codes of all that may be among the first `k` of their rows."""
    if scores.shape[1] > k:
        kth = np.partition(scores, scores.shape[1] - k, axis=1)[:, scores.shape[1] - k]
    else:
        kth = np.full(scores.shape[0], -np.inf)
    at, neighbour = np.nonzero((scores >= (kth - _MARGIN)[:, None]) & (scores > -np.inf))
    return at, neighbour


def rounded(values: Floats) -> Floats:
    """Values as they are published."""
    # Adding zero turns -0.0 into 0.0, which sorts and prints the same everywhere.
    return np.round(values, _DECIMALS) + 0.0
