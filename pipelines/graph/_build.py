"""Triples of any domain, in the contract's order and bounded memory, and their leak check.

Relations are there in both directions, as the paper names them: rated / rated-by, viewed /
viewed-by, liked / liked-by, disliked / disliked-by, belongs-to / contains, released-in /
contains, directed-by / directed, features / acts-in, has-occupation / has-users, has-age /
has-users. gives-rating leads from a user to a rating node and given-to from there to films.

A rating node belongs to one user and one whole rating on 1-5 (``rating:ml-user:7:4``): its
films are those to which that user gave that rating. So Movie-User-Rating-Movie counts people
who rated both films, each by the node of the rating given to the second, and two films share
a rating node only if somebody rated them alike. (With a node per rating alone, shared by all,
that path would join nearly every film to every other and count nothing but popularity; and the
graph would not say who gave what.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import sparse

from pipelines.config import GraphSettings
from pipelines.graph._edges import (
    Table,
    Training,
    attribute_edges,
    edge_mask,
    node_labels,
    training,
)
from pipelines.graph._schema import EdgeType, load_schema

_COLUMNS = ("head", "head_type", "relation", "tail", "tail_type")
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Side:
    """Edges of one type in one direction: a pattern of shape (heads, tails)."""

    head_type: str
    relation: str
    tail_type: str
    pattern: sparse.csr_array


def triple_batches(
    domain: str, tables: Mapping[str, Table], settings: GraphSettings, *, rows: int = 1_000_000
) -> Iterator[pl.DataFrame]:
    """Triples of a domain, as its lines of ``data/schema.yaml`` declare them.

    Edges are kept as integers; only the batch in hand is text. Ratings are first taken to 1-5
    (ends to ends, so half a star is 1 and four stars are 4.1); `liked` and `disliked` compare
    that number with the settings' thresholds. What a source does not know leaves no edge.

    ``tables`` are the domain's canonical tables, frames or scans: ``items``, ``interactions``,
    ``splits``, ``users`` and, where the domain has it, ``user_tags`` (user_id, tag). A batch has
    about ``rows`` triples (a node's edges are not divided).

    Yields
    ------
    The `graph_triples` contract; the batches one after the other are in its order.

    Raises
    ------
    ContractError
        If an interaction has no split or an unknown scale or item, if a pair is both in the
        training split and held out, if there is no training interaction, or if a column that
        is not optional is missing.
    """
    schema = load_schema(domain)
    train = training(schema, tables, settings)
    columns = {
        edge: attribute_edges(schema, edge, tables)
        for edge in schema.edges
        if edge.origin in {"items", "users", "user_tags"}
    }
    rated = {
        edge: _rating_nodes(edge, train)
        for edge in schema.edges
        if edge.origin in {"ratings", "sentiments"}
    }
    nodes = _nodes(schema.item_type, train, columns, rated)
    sides: list[_Side] = []
    for edge in schema.edges:
        pattern = _pattern(edge, train, columns, rated, nodes)
        if pattern is None:
            continue
        sides.append(_Side(edge.head_type, edge.relation, edge.tail_type, pattern))
        if edge.inverse:
            back = sparse.csr_array(pattern.T)
            sides.append(_Side(edge.tail_type, edge.inverse, edge.head_type, back))
    del train, columns, rated
    yield from _written(sides, nodes, rows)


def _rating_nodes(edge: EdgeType, train: Training) -> tuple[pl.Series, Codes]:
    """Ids of a domain's rating (or sentiment) nodes, ascending, and each interaction's code."""
    value, labels = node_labels(edge, train)
    key = train.user.astype(np.int64) * len(labels) + value
    distinct, place = np.unique(key, return_inverse=True)
    ids = pl.DataFrame(
        {
            "user": train.users.gather(distinct // len(labels)),
            "label": pl.Series(labels, dtype=pl.String).gather(distinct % len(labels)),
        }
    ).select(id=pl.format(f"{edge.node}:{{}}:{{}}", "user", "label"))["id"]
    order = ids.arg_sort()
    code = np.empty(len(ids), dtype=np.int64)
    code[order.to_numpy()] = np.arange(len(ids))
    return ids.gather(order), code[place]


def _nodes(
    item_type: str,
    train: Training,
    columns: Mapping[EdgeType, pl.DataFrame],
    rated: Mapping[EdgeType, tuple[pl.Series, Codes]],
) -> dict[str, pl.Series]:
    """Ids per node type, ascending."""
    by_type: dict[str, list[pl.Series]] = {"User": [train.users], item_type: [train.items]}
    for edge, frame in columns.items():
        by_type.setdefault(edge.head_type, []).append(frame["head"])
        by_type.setdefault(edge.tail_type, []).append(frame["tail"])
    for edge, (ids, _) in rated.items():
        kind = edge.tail_type if edge.head_type == "User" else edge.head_type
        by_type.setdefault(kind, []).append(ids)
    return {
        kind: pl.concat([part.alias("id") for part in parts]).unique().sort()
        for kind, parts in by_type.items()
    }


def _pattern(
    edge: EdgeType,
    train: Training,
    columns: Mapping[EdgeType, pl.DataFrame],
    rated: Mapping[EdgeType, tuple[pl.Series, Codes]],
    nodes: Mapping[str, pl.Series],
) -> sparse.csr_array | None:
    """The edges of a type as a sparse pattern; None if there are none."""
    heads, tails = nodes[edge.head_type], nodes[edge.tail_type]
    if edge in columns:
        frame = columns[edge]
        head, tail = _coded(frame["head"], heads), _coded(frame["tail"], tails)
    elif edge in rated and edge.head_type == "User":
        ids, codes = rated[edge]
        head, tail = _coded(train.users, heads)[train.user], _coded(ids, tails)[codes]
    elif edge in rated:
        ids, codes = rated[edge]
        head, tail = _coded(ids, heads)[codes], _coded(train.items, tails)[train.item]
    else:
        mask = edge_mask(edge, train)
        if mask is None:
            return None
        head = _coded(train.users, heads)[train.user[mask]]
        tail = _coded(train.items, tails)[train.item[mask]]
    if not len(head):
        return None
    ones = np.ones(len(head), dtype=np.bool_)
    coo = sparse.coo_array((ones, (head, tail)), shape=(len(heads), len(tails)))
    return sparse.csr_array(coo)


def _coded(values: pl.Series, ids: pl.Series) -> npt.NDArray[np.int32]:
    codes = values.cast(pl.Enum(ids)).to_physical().cast(pl.Int32)
    return np.asarray(codes.to_numpy())


def _written(
    sides: list[_Side], nodes: Mapping[str, pl.Series], rows: int
) -> Iterator[pl.DataFrame]:
    """The triples of all sides, ordered by head, relation and tail."""
    # A head's type is part of the order only if two types share an id; then by name.
    kinds = sorted({side.head_type for side in sides})
    every = pl.concat(
        [
            pl.DataFrame({"id": nodes[kind]}).with_columns(
                kind=pl.lit(kind), degree=pl.Series(_degrees(kind, sides))
            )
            for kind in kinds
        ]
    ).sort("id", "kind", maintain_order=True)
    batch = every["degree"].cum_sum() // max(1, rows)
    # Within a type, codes ascend with ids: a stretch of all ids is a stretch of each type.
    done = dict.fromkeys(kinds, 0)
    parts = every.with_columns(batch=batch).group_by("batch", "kind").len().sort("batch")
    for _, part in parts.group_by("batch", maintain_order=True):
        ranges = {}
        for _, kind, count in part.iter_rows():
            ranges[kind] = (done[kind], done[kind] + count)
            done[kind] += count
        frames = [
            _text(side, *ranges[side.head_type], nodes)
            for side in sides
            if side.head_type in ranges
        ]
        batch_frame = pl.concat(frames)
        if batch_frame.height:
            yield batch_frame.sort("head", "relation", "tail").select(_COLUMNS)


def _degrees(kind: str, sides: list[_Side]) -> Codes:
    out = sum(np.diff(side.pattern.indptr) for side in sides if side.head_type == kind)
    return np.asarray(out, dtype=np.int64)


def _text(side: _Side, start: int, end: int, nodes: Mapping[str, pl.Series]) -> pl.DataFrame:
    pointers = side.pattern.indptr[start : end + 1]
    head = np.repeat(np.arange(start, end), np.diff(pointers))
    tail = side.pattern.indices[pointers[0] : pointers[-1]]
    return pl.DataFrame(
        {"head": nodes[side.head_type].gather(head), "tail": nodes[side.tail_type].gather(tail)}
    ).with_columns(
        head_type=pl.lit(side.head_type),
        relation=pl.lit(side.relation),
        tail_type=pl.lit(side.tail_type),
    )


def leaked(triples: pl.DataFrame, splits: pl.DataFrame, domain: str = "movies") -> pl.DataFrame:
    """Triples that reveal what only the validation or test split has about a user and an item.

    These join a held-out pair in either direction, or join the item with a rating (or sentiment)
    node of that user. Returns the triples' columns and ``split``; no rows if nothing leaked.
    """
    schema = load_schema(domain)
    item = schema.item_type
    held_out = splits.filter(pl.col("split") != "train")
    columns = triples.columns
    # `rating:<user>:<rating>` names its user.
    nodes = {
        edge.head_type: f"^{edge.node}:(.*):[^:]*$"
        for edge in schema.edges
        if edge.origin in {"ratings", "sentiments"} and edge.tail_type == item
    }
    sides = [
        (triples.filter(head_type="User", tail_type=item), pl.col("head"), "tail"),
        (triples.filter(head_type=item, tail_type="User"), pl.col("tail"), "head"),
        *(
            (
                triples.filter(head_type=kind, tail_type=item),
                pl.col("head").str.extract(form),
                "tail",
            )
            for kind, form in nodes.items()
        ),
    ]
    return pl.concat(
        [
            frame.with_columns(user_id=user, item_id=pl.col(other))
            .join(held_out, on=["user_id", "item_id"], how="inner")
            .select(*columns, "split")
            for frame, user, other in sides
        ]
    ).sort("head", "relation", "tail")
