"""Views of the graph triples and of the similar items made from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from pipelines.quality._spec import Evidence, View, ViewFunction
from pipelines.scales import SCALES, rescale, scale_named

if TYPE_CHECKING:
    from pipelines.store import Snapshot

#: Share and number of the ratings from which a preference relation must be there.
LEAST_SHARE, LEAST_RATINGS = 0.01, 20
#: Triples read at once (count), and bad rows listed at most.
PIECE, MOST_LISTED = 2_000_000, 1_000
#: Tables whose columns become edges: as the schema names them, as the store does.
#: Numbers are stored with six decimals: what sums and copies of them may be off by.
_TOLERANCE = 2e-6
_TABLES = {"items": "items", "users": "human_users"}


def _relations(evidence: Evidence) -> View:
    """One row per relation; the fact ``relations`` lists those that must be there."""
    frame = (
        evidence.snapshot.scan()
        .group_by("relation")
        .agg(triples=pl.len(), heads=pl.col("head").n_unique())
        .sort("relation")
        .collect(engine="streaming")
    )
    return View(frame, facts={"relations": _expected_relations(evidence)})


def _expected_relations(evidence: Evidence) -> list[str]:
    """Relations, both ways, that the other tables have material for."""
    from pipelines.graph import load_schema

    edges = load_schema(evidence.domain).edges
    preferences = _preferences(evidence)
    material = {origin: _columns_with_values(evidence, table) for origin, table in _TABLES.items()}
    there = [
        edge
        for edge in edges
        # Columns of item ids may name only items outside the catalogue.
        if (edge.node and edge.column in material.get(edge.origin, ()))
        or edge.origin == "ratings"
        or (edge.origin == "interactions" and edge.where in {"all", *preferences})
    ]
    names = (name for edge in there for name in (edge.relation, edge.inverse))
    return sorted({name for name in names if name})


def _columns_with_values(evidence: Evidence, table: str) -> set[str]:
    """Columns that are not empty in every row."""
    snapshot = evidence.sibling(table)
    if snapshot is None:
        return set()
    scan = snapshot.scan()
    filled = scan.select(
        pl.col(name).list.len().max() > 0 if dtype.is_nested() else pl.col(name).is_not_null().any()
        for name, dtype in scan.collect_schema().items()
    )
    row = filled.collect(engine="streaming").row(0, named=True)
    return {name for name, found in row.items() if found}


def _preferences(evidence: Evidence) -> set[str]:
    """``liked`` and ``disliked``, if one rating in a hundred, and twenty, are that high or low.

    With fewer it may be chance that all of them are held out.
    """
    interactions = evidence.sibling("interactions")
    if interactions is None:
        return set()
    counts = (
        interactions.scan().group_by("scale", "rating").agg(n=pl.len()).collect(engine="streaming")
    )
    settings, total = evidence.settings.graph, max(1, int(counts["n"].sum()))
    high = low = 0
    for source, rating, n in counts.iter_rows():
        value = rescale(float(rating), scale_named(source), SCALES["1-5"])
        high += n * (value >= settings.liked_from)
        low += n * (value <= settings.disliked_to)
    found = (("liked", high), ("disliked", low))
    return {name for name, n in found if n >= max(LEAST_SHARE * total, LEAST_RATINGS)}


def _violations(evidence: Evidence) -> View:
    """One row per triple that the graph's schema does not allow (the first thousand)."""
    from pipelines.graph import schema_violations

    return View(schema_violations(evidence.snapshot.scan(), evidence.domain).head(MOST_LISTED))


def _leaks(evidence: Evidence) -> View:
    """One row per triple made from a held-out interaction (the first thousand)."""
    splits = evidence.needed(evidence.sibling_name("splits"))
    from pipelines.graph import leaked

    held_out = splits.scan().filter(pl.col("split") != "train").collect(engine="streaming")
    found: list[pl.DataFrame] = []
    # In pieces: the triples of millions of ratings don't fit in memory at once.
    for piece in _pieces(evidence.snapshot):
        found.append(leaked(piece, held_out, evidence.domain))
        if sum(frame.height for frame in found) >= MOST_LISTED:
            break
    return View(pl.concat(found).head(MOST_LISTED))


def _pieces(snapshot: Snapshot) -> Iterator[pl.DataFrame]:
    for start in range(0, max(1, snapshot.rows), PIECE):
        yield snapshot.scan().slice(start, PIECE).collect(engine="streaming")


def _graph_items(evidence: Evidence) -> View:
    """One row per item: whether it is in the graph."""
    items = evidence.needed(evidence.sibling_name("items"))
    scan = evidence.snapshot.scan()
    nodes = pl.concat(
        [
            scan.select(item_id="head", type="head_type"),
            scan.select(item_id="tail", type="tail_type"),
        ]
    )
    inside = nodes.select("item_id").unique().with_columns(triples=pl.lit(1))
    frame = (
        items.scan()
        .select("item_id", "title")
        .join(inside, on="item_id", how="left")
        .with_columns(pl.col("triples").fill_null(0))
        .collect(engine="streaming")
    )
    return View(frame, facts={"items": frame.height})


def _uncovered(evidence: Evidence) -> View:
    """One row per item without a similar item."""
    items = evidence.needed(evidence.sibling_name("items"))
    there = evidence.snapshot.scan().select("item_id").unique()
    uncovered = items.scan().select("item_id", "title").join(there, on="item_id", how="anti")
    # A single item has no other that it could be similar to.
    return replace(_first(uncovered), facts={"items": items.rows})


def _unknown(evidence: Evidence) -> View:
    """One row per id, in either column, that is no item."""
    items = evidence.needed(evidence.sibling_name("items"))
    scan = evidence.snapshot.scan()
    ids = pl.concat([scan.select("item_id"), scan.select(item_id="neighbour_id")]).unique()
    return _first(ids.join(items.scan().select("item_id"), on="item_id", how="anti"))


def _selves(evidence: Evidence) -> View:
    """One row per item that is its own neighbour."""
    same = pl.col("item_id") == pl.col("neighbour_id")
    return _first(evidence.snapshot.scan().filter(same).select("item_id", "rank", "score"))


def _ranks(evidence: Evidence) -> View:
    """One row per item whose ranks are not 1, 2, … up to the number that was asked for."""
    ranks = (
        evidence.snapshot.scan()
        .group_by("item_id")
        .agg(
            neighbours=pl.len(),
            ranks=pl.col("rank").n_unique(),
            first=pl.col("rank").min(),
            last=pl.col("rank").max(),
        )
    )
    complete = (
        (pl.col("first") == 1)
        & (pl.col("last") == pl.col("neighbours"))
        & (pl.col("ranks") == pl.col("neighbours"))
        & (pl.col("last") <= evidence.settings.graph.top_k)
    )
    return _first(ranks.filter(~complete))


def _rises(evidence: Evidence) -> View:
    """One row per neighbour that scores more than the one ranked before."""
    # In the snapshot's order an item's rows are together, by rank.
    before = pl.col("score").shift(1)
    same_item = pl.col("item_id") == pl.col("item_id").shift(1)
    rows = evidence.snapshot.scan().select("item_id", "neighbour_id", "rank", "score")
    return _first(rows.with_columns(before=before).filter(same_item & (pl.col("score") > before)))


def _sums(evidence: Evidence) -> View:
    """One row per neighbour whose score is not what its parts and the settings give."""
    graph = evidence.settings.graph
    expected = graph.alpha * pl.col("pathsim") + graph.embedding_weight * pl.col(
        "cosine"
    ).fill_null(0.0)
    rows = (
        evidence.snapshot.scan()
        .select("item_id", "neighbour_id", "score", "pathsim", "cosine")
        .with_columns(expected=expected)
    )
    return _first(rows.filter((pl.col("score") - pl.col("expected")).abs() > _TOLERANCE))


def _mutual(evidence: Evidence) -> View:
    """One row per pair with s(x, y) above 1, or other than s(y, x) where both are listed."""
    rows = evidence.snapshot.scan().select("item_id", "neighbour_id", "pathsim")
    back = rows.select(item_id="neighbour_id", neighbour_id="item_id", back="pathsim")
    both = rows.join(back, on=["item_id", "neighbour_id"], how="left")
    differs = (pl.col("pathsim") - pl.col("back")).abs() > _TOLERANCE
    return _first(both.filter(differs.fill_null(False) | (pl.col("pathsim") > 1)))


def _bases(evidence: Evidence) -> View:
    """One row per item: whether a path joins it to any of its neighbours."""
    by_paths = (pl.col("basis") != "embedding").any().cast(pl.Int64)
    frame = evidence.snapshot.scan().group_by("item_id").agg(by_paths=by_paths)
    items = frame.sort("item_id").collect(engine="streaming")
    return View(items, facts={"items": items.height})


def _first(rows: pl.LazyFrame) -> View:
    return View.of(rows.head(MOST_LISTED))


#: View functions by table, then by name.
GRAPH_VIEWS: Mapping[str, Mapping[str, ViewFunction]] = {
    "graph_triples": {
        "relations": _relations,
        "violations": _violations,
        "leaks": _leaks,
        "items": _graph_items,
    },
    "item_similarity": {
        "uncovered": _uncovered,
        "unknown": _unknown,
        "selves": _selves,
        "ranks": _ranks,
        "rises": _rises,
        "sums": _sums,
        "mutual": _mutual,
        "bases": _bases,
    },
}
