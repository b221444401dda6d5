"""Retrieval by the knowledge graph: PathSim along the domain's meta-paths."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.graph import GraphIndex, PathSim, load_metapaths
from pipelines.retrieval._protocol import Floats, Ints, SimilarityRetriever

#: Similarities of query items that are kept (bytes): the newest ones.
_KEPT = 128 * 2**20


class GraphRetriever(SimilarityRetriever):
    """Selects the items nearest to the query in the graph, by PathSim; ties are broken by recency.

    PathSim counts paths between two items over all meta-paths of the domain (same genre, same
    director, rated by the same people, …; :mod:`pipelines.graph._pathsim`). Only training
    interactions are edges, so that no held-out rating is used. `codes`, of shape (items,), holds
    the graph's code of each item number, -1 where the graph doesn't know it. Not thread-safe:
    similarities of the last query items are cached.
    """

    name = "graph"

    def __init__(self, paths: PathSim, codes: Ints) -> None:
        self._paths, self._codes = paths, codes
        self._rows: OrderedDict[int, npt.NDArray[np.float32]] = OrderedDict()
        self._most = max(1, _KEPT // (4 * max(1, paths.items)))

    @classmethod
    def of(
        cls,
        items: pl.DataFrame,
        triples: pl.DataFrame | pl.LazyFrame,
        domain: str,
    ) -> GraphRetriever:
        """A retriever over a `graph_triples` table; item n is row n of `items`.

        Raises ConfigError if the domain has no meta-paths, ContractError if no triple fits the
        domain.
        """
        paths = load_metapaths(domain)
        kind = paths.items[0].start_type
        index = GraphIndex.from_triples(triples, domain, nodes={kind: items["item_id"].to_list()})
        numbers = index.codes(kind)
        codes = np.array([numbers.get(item, -1) for item in items["item_id"]], np.int64)
        return cls(PathSim(index, paths), codes)

    def similarity(self, items: Ints, others: Ints) -> Floats:
        """PathSim of each item and its row of others, of shape (n, h); NaN where unknown."""
        out = np.empty(others.shape)
        distinct = np.unique(items)
        for start in range(0, len(distinct), self._most):
            part = distinct[start : start + self._most]
            rows = self._of(part)
            here = np.flatnonzero((items >= part[0]) & (items <= part[-1]))
            at = np.searchsorted(part, items[here])
            out[here] = rows[at[:, None], np.maximum(self._codes[others[here]], 0)]
        unknown = (self._codes[others] < 0) | (self._codes[items] < 0)[:, None]
        return np.where(unknown, np.nan, out)

    def _of(self, items: Ints) -> npt.NDArray[np.float32]:
        """Similarities of some items to every code, of shape (n, codes)."""
        new = np.array([i for i in items.tolist() if i not in self._rows], np.int64)
        if len(new):
            scores = self._paths.similarity(np.maximum(self._codes[new], 0)).astype(np.float32)
            self._rows.update(zip(new.tolist(), scores, strict=True))
        for item in items.tolist():
            self._rows.move_to_end(item)
        rows = np.stack([self._rows[item] for item in items.tolist()])
        while len(self._rows) > self._most:
            self._rows.popitem(last=False)
        return rows
