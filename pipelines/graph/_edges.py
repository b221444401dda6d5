"""Edges of one domain as pairs of node ids or codes, from its canonical tables.

Interactions are read once, as whole numbers: 25 million ratings are some 300 MB here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import GraphSettings
from pipelines.errors import ContractError
from pipelines.graph._schema import DomainSchema, EdgeType
from pipelines.scales import SCALES, rescale, scale_named

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
    #: Whether the rating on 1-5 reaches the settings' thresholds.
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
    rating = _rescaled([str(name) for name in names])
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


def _rescaled(names: Sequence[str]) -> pl.Expr:
    """The rating on 1-5, from the scale of its row."""
    rating = pl.lit(None, pl.Float64)
    for name in names:
        here = rescale(pl.col("rating"), scale_named(name), _SCALE)
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
