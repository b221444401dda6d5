"""Views of the graph triples."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import polars as pl

from pipelines.quality._spec import Evidence, View, view
from pipelines.scales import SCALES, rescale, scale_named

if TYPE_CHECKING:
    from pipelines.store import Snapshot

#: Share and number of the ratings from which a preference relation must be there.
LEAST_SHARE, LEAST_RATINGS = 0.01, 20
#: Triples read at once (count), and bad rows listed at most.
PIECE, MOST_LISTED = 2_000_000, 1_000
#: Tables whose columns become edges: as the schema names them, as the store does.
_TABLES = {"items": "items", "users": "human_users"}


@view("graph_triples", "relations")
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
    expected = [
        edge
        for edge in edges
        # Columns of item ids may name only items outside the catalogue.
        if (edge.node and edge.column in material.get(edge.origin, ()))
        or edge.origin == "ratings"
        or (edge.origin == "interactions" and edge.where in {"all", *preferences})
    ]
    names = (name for edge in expected for name in (edge.relation, edge.inverse))
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
    return {name for name, present in row.items() if present}


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
    tallies = (("liked", high), ("disliked", low))
    return {name for name, n in tallies if n >= max(LEAST_SHARE * total, LEAST_RATINGS)}


@view("graph_triples", "violations")
def _violations(evidence: Evidence) -> View:
    """One row per triple that the graph's schema does not allow (the first thousand)."""
    from pipelines.graph import schema_violations

    return View(schema_violations(evidence.snapshot.scan(), evidence.domain).head(MOST_LISTED))


@view("graph_triples", "leaks")
def _leaks(evidence: Evidence) -> View:
    """One row per triple made from a held-out interaction (the first thousand)."""
    splits = evidence.needed(evidence.sibling_name("splits"))
    from pipelines.graph import leaked

    held_out = splits.scan().filter(pl.col("split") != "train").collect(engine="streaming")
    leaks: list[pl.DataFrame] = []
    # In pieces: the triples of millions of ratings don't fit in memory at once.
    for piece in _pieces(evidence.snapshot):
        leaks.append(leaked(piece, held_out, evidence.domain))
        if sum(frame.height for frame in leaks) >= MOST_LISTED:
            break
    return View(pl.concat(leaks).head(MOST_LISTED))


def _pieces(snapshot: Snapshot) -> Iterator[pl.DataFrame]:
    for start in range(0, max(1, snapshot.rows), PIECE):
        yield snapshot.scan().slice(start, PIECE).collect(engine="streaming")
