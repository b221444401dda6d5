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

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import sparse

from pipelines.config import GraphSettings
from pipelines.errors import ContractError
from pipelines.graph._schema import DomainSchema, EdgeType, load_schema
from pipelines.scales import SCALES, RatingScale, rescale, scale_named

Table = pl.DataFrame | pl.LazyFrame
#: The scale that thresholds and rating nodes are on.
_SCALE = SCALES["1-5"]
#: Labels of a sentiment node, by the code that :class:`Training` keeps.
_SENTIMENTS = ("negative", "neutral", "positive")


@dataclass(frozen=True)
class Training:
    """Training interactions, ascending by user and item."""

    #: Ids by code, ascending; every item of the catalogue is in `items`.
    users: pl.Series
    items: pl.Series
    #: Codes, of shape (interactions,).
    user: npt.NDArray[np.uint32]
    item: npt.NDArray[np.uint32]
    #: The rating as the nearest whole one on 1-5 (a tie goes up).
    whole: npt.NDArray[np.uint8]
    #: True if the rating on 1-5 reaches the settings' thresholds.
    liked: npt.NDArray[np.bool_]
    disliked: npt.NDArray[np.bool_]
    #: Boolean columns of the table that relations ask for.
    flags: Mapping[str, npt.NDArray[np.bool_]]


def training(
    schema: DomainSchema, tables: Mapping[str, Table], settings: GraphSettings
) -> Training:
    """The training interactions of a domain.

    Raises :class:`ContractError` if an interaction has no split or an unknown scale or item, if a
    pair is both in the training split and held out, or if there is no training interaction.
    """
    interactions, splits = tables["interactions"].lazy(), tables["splits"].lazy()
    users = _distinct(splits, "user_id")
    items = _distinct(tables["items"].lazy(), "item_id")
    flags = _flags(schema, interactions)
    names = interactions.select(pl.col("scale").unique()).collect(engine="streaming")["scale"]
    rating = rescaled(names, _SCALE)
    coded = interactions.select(
        *_codes(users, items),
        # The small term keeps a tie a tie, as in `to_answers`.
        whole=(rating + 0.5 + 1e-9).floor().cast(pl.UInt8),
        liked=rating >= settings.liked_from,
        disliked=rating <= settings.disliked_to,
        **{f"flag {name}": pl.col(name).fill_null(False) for name in flags},
    ).collect(engine="streaming")
    _refuse(schema, interactions, coded["user"].is_null(), "have no split")
    _refuse(schema, interactions, coded["item"].is_null(), "are of items that are not in `items`")
    parts = splits.select(*_codes(users, items), train=pl.col("split") == "train").collect(
        engine="streaming"
    )
    train = _training_rows(schema, interactions, coded, parts, len(items))
    rows = coded.filter(pl.Series(train))
    if not rows.height:
        raise ContractError("there is no training interaction", where=f"{schema.domain}.splits")
    order = np.argsort(_key(rows, len(items)), kind="stable")
    column = {name: rows[name].to_numpy()[order] for name in rows.columns}
    return Training(
        users=users,
        items=items,
        user=column["user"],
        item=column["item"],
        whole=column["whole"],
        liked=column["liked"],
        disliked=column["disliked"],
        flags={name: column[f"flag {name}"] for name in flags},
    )


def edge_mask(edge: EdgeType, train: Training) -> npt.NDArray[np.bool_] | None:
    """Select the training interactions of an edge type; None for none (an absent column)."""
    if edge.where == "all":
        return np.ones(len(train.user), dtype=np.bool_)
    if edge.where == "liked":
        return train.liked
    if edge.where == "disliked":
        return train.disliked
    return train.flags.get(edge.where)


def node_labels(edge: EdgeType, train: Training) -> tuple[npt.NDArray[np.uint8], tuple[str, ...]]:
    """For ratings and sentiments: a number per interaction, and the label of each number."""
    if edge.origin == "ratings":
        return train.whole, tuple(str(n) for n in range(int(_SCALE.high) + 1))
    mood = (1 + train.liked.astype(np.int8) - train.disliked.astype(np.int8)).astype(np.uint8)
    return mood, _SENTIMENTS


def attribute_edges(
    schema: DomainSchema, edge: EdgeType, tables: Mapping[str, Table]
) -> pl.DataFrame:
    """Edges from a column, as distinct ``head, tail``; nulls and blanks have none.

    Raises :class:`ContractError` if a table or column is missing that is not optional, or if a
    price is negative.
    """
    name, key, column = _place(schema, edge)
    where = f"{schema.domain}.{name}"
    table = tables.get(name)
    if table is None or column not in table.lazy().collect_schema():
        if edge.optional:
            return pl.DataFrame(schema={"head": pl.String, "tail": pl.String})
        raise ContractError(
            f"no column {column} for {edge.head_type} {edge.relation}",
            where=where,
            hint="name the column in pipelines/graph/data/schema.yaml, or make it optional there",
        )
    values = (
        table.lazy()
        .select(head=pl.col(key).cast(pl.String), value=pl.col(column))
        .collect(engine="streaming")
    )
    if isinstance(values.schema["value"], pl.List):
        values = values.explode("value")
    values = values.filter(pl.col("value").is_not_null())
    text = _label(edge, values, schema.price_bounds, f"{where}.{column}").str.strip_chars()
    edges = values.select("head", tail=text).filter(pl.col("tail") != "")
    if edge.node:
        edges = edges.with_columns(tail=pl.format(f"{edge.node}:{{}}", "tail"))
    else:
        item_ids = _distinct(tables["items"].lazy(), "item_id").to_frame("tail")
        edges = edges.join(item_ids, on="tail", how="semi").filter(pl.col("head") != pl.col("tail"))
    return edges.unique()


def _place(schema: DomainSchema, edge: EdgeType) -> tuple[str, str, str]:
    """Table, key column and value column of an edge type."""
    if edge.origin == "user_tags":
        return "user_tags", "user_id", "tag"
    key = "item_id" if edge.origin == "items" else "user_id"
    if edge.column is None:
        raise ContractError("an edge type names no column", where=f"{schema.domain}: {edge}")
    return edge.origin, key, edge.column


def _label(edge: EdgeType, values: pl.DataFrame, bounds: Sequence[float], where: str) -> pl.Series:
    value = values["value"]
    if edge.form in {"year", "month"} and value.dtype.is_temporal():
        return value.dt.strftime("%Y" if edge.form == "year" else "%Y-%m")
    if edge.form == "price":
        below = values.filter(pl.col("value") < 0)
        if below.height:
            raise ContractError(
                f"{below.height} prices are below 0",
                where=where,
                details={"rows": below.head(10).to_dicts()},
            )
        marks = [f"{bound:g}" for bound in bounds]
        names = [f"{a}-{b}" for a, b in zip(["0", *marks], marks, strict=False)] + [
            f"{marks[-1] if marks else 0}+"
        ]
        band = np.searchsorted(np.asarray(bounds), value.cast(pl.Float64).to_numpy(), side="right")
        named = pl.Series("value", names, dtype=pl.String).gather(band)
        return named.set(value == 0, "free")
    # A date under `text` and a whole number are spelled as they are.
    return value.cast(pl.String)


def _distinct(table: pl.LazyFrame, column: str) -> pl.Series:
    frame = table.select(pl.col(column).unique()).collect(engine="streaming")
    return frame[column].drop_nulls().sort()


def _codes(users: pl.Series, items: pl.Series) -> tuple[pl.Expr, pl.Expr]:
    """Columns ``user`` and ``item``: codes of the ids, null for those that are unknown."""
    return (
        pl.col("user_id").cast(pl.Enum(users), strict=False).to_physical().cast(pl.UInt32)
        .alias("user"),
        pl.col("item_id").cast(pl.Enum(items), strict=False).to_physical().cast(pl.UInt32)
        .alias("item"),
    )  # fmt: skip


def rescaled(names: Iterable[str], target: RatingScale) -> pl.Expr:
    """The column ``rating`` on ``target``, from the scale of its row, one of ``names``."""
    rating = pl.lit(None, pl.Float64)
    for name in names:
        here = rescale(pl.col("rating"), scale_named(name), target)
        rating = pl.when(pl.col("scale") == name).then(here).otherwise(rating)
    return rating


def _flags(schema: DomainSchema, interactions: pl.LazyFrame) -> tuple[str, ...]:
    columns = interactions.collect_schema().names()
    flags: list[str] = []
    for edge in schema.edges:
        if edge.origin != "interactions" or edge.where in {"all", "liked", "disliked"}:
            continue
        if edge.where in columns:
            flags.append(edge.where)
        elif not edge.optional:
            raise ContractError(
                f"no column {edge.where} for {edge.head_type} {edge.relation}",
                where=f"{schema.domain}.interactions",
            )
    return tuple(dict.fromkeys(flags))


def _key(frame: pl.DataFrame, items: int) -> npt.NDArray[np.int64]:
    user, item = (frame[name].to_numpy().astype(np.int64) for name in ("user", "item"))
    return np.asarray(user * max(1, items) + item)


def _training_rows(
    schema: DomainSchema,
    interactions: pl.LazyFrame,
    coded: pl.DataFrame,
    parts: pl.DataFrame,
    items: int,
) -> npt.NDArray[np.bool_]:
    """Select the interactions in the training split."""
    # A split of an item that is not in the catalogue can only be of no interaction.
    parts = parts.drop_nulls()
    mine, theirs = _key(coded, items), _key(parts, items)
    train = parts["train"].to_numpy()
    order = np.argsort(theirs, kind="stable")
    theirs, train = theirs[order], train[order]
    if len(theirs) == 0:
        _refuse(schema, interactions, pl.repeat(True, len(mine), eager=True), "have no split")
        return np.zeros(0, dtype=np.bool_)
    first = np.minimum(np.searchsorted(theirs, mine), len(theirs) - 1)
    _refuse(schema, interactions, pl.Series(theirs[first] != mine), "have no split")
    # Rows of one pair are neighbours in the sorted splits: all of them must say the same.
    end = np.searchsorted(theirs, mine, side="right")
    so_far = np.concatenate([[0], np.cumsum(train)])
    trained = so_far[end] - so_far[first]
    mixed = (trained > 0) & (trained < end - first)
    if mixed.any():
        raise ContractError(
            f"{int(mixed.sum())} held-out interactions are in the graph",
            where=f"{schema.domain}.graph_triples",
            hint="a pair is in two splits",
            details={"rows": _rows(interactions, pl.Series(mixed))},
        )
    return np.asarray(train[first])


def _refuse(schema: DomainSchema, table: pl.LazyFrame, bad: pl.Series, fault: str) -> None:
    if bad.any():
        raise ContractError(
            f"{bad.sum()} interactions {fault}",
            where=f"{schema.domain}.interactions",
            details={"rows": _rows(table, bad)},
        )


def _rows(table: pl.LazyFrame, bad: pl.Series) -> list[dict[str, str]]:
    """The first ten of the rows that a mask points at."""
    ids = table.select("user_id", "item_id").collect(engine="streaming")
    return ids.filter(bad).head(10).to_dicts()


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
