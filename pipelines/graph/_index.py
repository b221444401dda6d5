"""The graph as sparse matrices: node codes per type, one adjacency matrix per edge type.

>>> import polars as pl
>>> edges = [("u:1", "User", "rated", m, "Movie") for m in ("m:1", "m:2")]
>>> names = ["head", "head_type", "relation", "tail", "tail_type"]
>>> index = GraphIndex.from_triples(pl.DataFrame(edges, schema=names, orient="row"), "movies")
>>> index.ids("Movie").to_list(), index.adjacency("Movie", "rated-by").toarray().tolist()
(['m:1', 'm:2'], [[1.0], [1.0]])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import sparse

from pipelines.errors import ContractError
from pipelines.graph._schema import DomainSchema, EdgeType, MetaPath, Step, load_schema
from pipelines.seeding import hash_ids

Csr: TypeAlias = sparse.csr_array
_EMPTY = pl.Series("id", [], dtype=pl.String)
#: Origins of edges between users, or nodes of one user each, and items.
_FROM_USERS = frozenset({"interactions", "ratings", "sentiments"})


@dataclass(frozen=True)
class GraphIndex:
    """Nodes as integers and edges as matrices, read-only and shared by all who use it.

    Codes number the ids of a type in ascending order from 0, so they depend only on the set of
    nodes. Only edges in a relation's own direction are read: its inverse is their transpose.
    """

    #: The domain's schema.
    schema: DomainSchema
    #: Ids per node type, ascending.
    nodes: Mapping[str, pl.Series]
    _forward: Mapping[EdgeType, Csr]
    #: Items of which only some raters' edges are here.
    sampled: frozenset[str] = frozenset()
    _cache: dict[Step | tuple[Step, ...], Csr] = field(default_factory=dict, repr=False)
    _codes: dict[str, dict[str, int]] = field(default_factory=dict, repr=False)

    @classmethod
    def from_triples(
        cls,
        triples: pl.DataFrame | pl.LazyFrame,
        domain: str,
        *,
        nodes: Mapping[str, Iterable[str]] | None = None,
        raters: int | None = None,
    ) -> GraphIndex:
        """An index of a `graph_triples` table.

        Edges are read one edge type at a time, so a scan of a snapshot is never in memory as
        a whole.

        ``nodes`` are further ids per type, for nodes that may have no edge. Of an item with more
        than ``raters`` users (None: no limit) the edges of those whose ids have the lowest hashes
        are kept: the same users of every such item, so that what two of them share is kept, too.

        Raises ContractError if there are triples but none of them fits the domain's schema.
        """
        schema = load_schema(domain)
        # Only codes are kept of each edge type: texts of millions of edges don't fit at once.
        edges = {edge: _read(triples.lazy(), edge) for edge in schema.edges}
        if not any(len(part.head) for part in edges.values()):
            raise ContractError(
                f"no triple fits the schema of {domain}", where=f"{domain}.graph_triples"
            )
        ids = {kind: _ids(kind, edges, (nodes or {}).get(kind, ())) for kind in schema.node_types}
        sampled = _sample_raters(edges, schema, raters) if raters else frozenset()
        forward = {
            edge: _adjacency(edges.pop(edge), ids[edge.head_type], ids[edge.tail_type])
            for edge in schema.edges
        }
        return cls(schema, ids, forward, sampled)

    @property
    def domain(self) -> str:
        """Such as ``movies``."""
        return self.schema.domain

    @property
    def item_type(self) -> str:
        """Node type of the domain's items."""
        return self.schema.item_type

    def ids(self, kind: str) -> pl.Series:
        """Ids of a node type; the position is the code."""
        return self.nodes.get(kind, _EMPTY)

    def count(self, kind: str) -> int:
        """Number of nodes of a type."""
        return len(self.ids(kind))

    def codes(self, kind: str) -> Mapping[str, int]:
        """Codes by id of a node type (made on first use, then kept)."""
        if kind not in self._codes:
            self._codes[kind] = {name: code for code, name in enumerate(self.ids(kind))}
        return self._codes[kind]

    def code(self, kind: str, name: str) -> int:
        """Code of a node.

        Raises ContractError if the graph has no such node, naming it.
        """
        code = self.codes(kind).get(name)
        if code is None:
            raise ContractError(
                f"the {self.domain} graph has no {kind} of this id",
                where=name,
                hint="ids are those of the tables the graph was built from",
            )
        return code

    def adjacency(self, head_type: str, relation: str) -> Csr:
        """The 0/1 matrix of a relation from a node type, of shape (heads, tails), float64.

        Raises ConfigError if no such relation leads from the type.
        """
        return self.step_matrix(self.schema.step(head_type, relation))

    def step_matrix(self, step: Step) -> Csr:
        """The 0/1 matrix of one step of a path, of shape (heads, tails), float64."""
        matrix = self._forward[step.edge]
        if not step.backward:
            return matrix
        if step not in self._cache:
            self._cache[step] = _csr(matrix.T)
        return self._cache[step]

    def neighbours(self, step: Step, node: int) -> npt.NDArray[np.int64]:
        """Codes that a step leads to from a node, ascending; none from one that is new."""
        matrix = self.step_matrix(step)
        starts = matrix.indptr[node : node + 2]
        return np.asarray(matrix.indices[slice(*starts)] if len(starts) == 2 else [], np.int64)

    def walk_matrix(self, steps: tuple[Step, ...]) -> Csr:
        """Counts of walks along some steps, of shape (starts, ends), float64 whole numbers.

        Kept, as paths share their halves.
        """
        if len(steps) == 1:
            return self.step_matrix(steps[0])
        if steps not in self._cache:
            self._cache[steps] = _csr(self.walk_matrix(steps[:-1]) @ self.step_matrix(steps[-1]))
        return self._cache[steps]


def half_matrix(index: GraphIndex, path: MetaPath, side: str = "left") -> Csr:
    """Counts of walks from each start (`left`) or final item (`right`) to the middle of a path.

    With L and R the two sides, path instances number L·Rᵀ; for a symmetric path both are W. The
    matrix is of shape (starts or items, middle nodes), float64 whole numbers (exact to 2**53).
    """
    return index.walk_matrix(path.left if side == "left" else path.right)


def round_trips(index: GraphIndex, path: MetaPath, side: str = "left") -> npt.NDArray[np.float64]:
    """Numbers of path instances from each node back to itself, the ratio's denominator.

    For a path between items, the diagonal of L·Rᵀ, without forming the product. For one from users
    to items, the squared lengths of the rows of `side`: the walks to the middle and back. Of shape
    (starts or items,), float64 whole numbers.
    """
    first = half_matrix(index, path, side)
    users = path.start_type != path.right[0].head_type
    other = first if users or path.symmetric else half_matrix(index, path, "right")
    if other is first:
        squares = Csr((first.data**2, first.indices, first.indptr), shape=first.shape)
        return np.asarray(squares.sum(axis=1), dtype=np.float64).ravel()
    return np.asarray(first.multiply(other).sum(axis=1), dtype=np.float64).ravel()


@dataclass(frozen=True)
class _Edges:
    """Edges of one type: codes, and the ids of its own heads and tails that they number."""

    heads: pl.Series
    tails: pl.Series
    head: npt.NDArray[np.uint32]
    tail: npt.NDArray[np.uint32]


def _read(triples: pl.LazyFrame, edge: EdgeType) -> _Edges:
    frame = (
        triples.filter(head_type=edge.head_type, relation=edge.relation, tail_type=edge.tail_type)
        .select("head", "tail")
        .collect(engine="streaming")
    )
    heads, tails = (frame[name].unique().sort().alias("id") for name in ("head", "tail"))
    return _Edges(heads, tails, _numbered(frame["head"], heads), _numbered(frame["tail"], tails))


def _sample_raters(
    edges: dict[EdgeType, _Edges], schema: DomainSchema, limit: int
) -> frozenset[str]:
    """Drop edges between items and users beyond the limit; the items that lost some."""
    rated = [e for e in edges if e.origin in _FROM_USERS and e.tail_type == schema.item_type]
    # Of every edge type the bound is its limit-th hash. That of all interactions is the lowest: it
    # has the edges of the others (`liked`, a rating's node) among its own.
    bounds: dict[str, int] = {}
    hashes: dict[EdgeType, npt.NDArray[np.uint64]] = {}
    for edge in rated:
        part = edges[edge]
        counts = np.bincount(part.tail, minlength=len(part.tails))
        many = np.flatnonzero(counts > limit)
        if not len(many):
            continue
        hashes[edge] = _user_hashes(edge, part)
        among = (counts > limit)[part.tail]
        keys, tails = hashes[edge][part.head[among]], part.tail[among]
        order = np.lexsort((keys, tails))
        ends = np.cumsum(counts[many])
        cutoffs = keys[order][ends - counts[many] + limit - 1]
        for name, bound in zip(part.tails.gather(many), cutoffs.tolist(), strict=True):
            bounds[name] = min(bound, bounds.get(name, bound))
    for edge in rated if bounds else ():
        part = edges[edge]
        highest = np.iinfo(np.uint64).max
        bound = np.array([bounds.get(name, highest) for name in part.tails], dtype=np.uint64)
        users = hashes[edge] if edge in hashes else _user_hashes(edge, part)
        within = users[part.head] <= bound[part.tail]
        edges[edge] = replace(part, head=part.head[within], tail=part.tail[within])
    return frozenset(bounds)


def _user_hashes(edge: EdgeType, part: _Edges) -> npt.NDArray[np.uint64]:
    """Hashes of the heads' users, of shape (heads,); a rating's node is `<node>:<user>:<label>`."""
    users = part.heads if edge.origin == "interactions" else part.heads.str.extract(r"^[^:]*:(.*):")
    return hash_ids(users)


def _numbered(values: pl.Series, ids: pl.Series) -> npt.NDArray[np.uint32]:
    codes = values.cast(pl.Enum(ids)).to_physical().cast(pl.UInt32)
    return np.asarray(codes.to_numpy())


def _ids(kind: str, edges: Mapping[EdgeType, _Edges], more: Iterable[str]) -> pl.Series:
    parts = [pl.Series("id", list(more), dtype=pl.String)]
    for edge, part in edges.items():
        parts += [part.heads] if edge.head_type == kind else []
        parts += [part.tails] if edge.tail_type == kind else []
    return pl.concat(parts).unique().sort()


def _adjacency(edges: _Edges, heads: pl.Series, tails: pl.Series) -> Csr:
    shape = (len(heads), len(tails))
    if not len(edges.head):
        return Csr(shape, dtype=np.float64)
    rows = _numbered(edges.heads, heads).astype(np.int32)[edges.head]
    columns = _numbered(edges.tails, tails).astype(np.int32)[edges.tail]
    matrix = sparse.coo_array((np.ones(len(rows), dtype=np.float64), (rows, columns)), shape)
    out = _csr(matrix)
    # A doubled triple is still one edge.
    out.data.fill(1.0)
    return out


def _csr(matrix: object) -> Csr:
    out = Csr(matrix)
    out.sum_duplicates()
    out.sort_indices()
    return out
