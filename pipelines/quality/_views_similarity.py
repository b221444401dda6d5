"""Views of the table of similar items: coverage, ranks, and scores against their parts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from pipelines.quality._spec import Evidence, View, ViewFunction

__all__ = ["SIMILARITY_VIEWS"]

#: Rows listed at most.
MOST = 1_000
#: Numbers are stored with six decimals: what sums and copies of them may be off by.
_TOLERANCE = 2e-6


def _uncovered(evidence: Evidence) -> View:
    """One row per item without a similar item."""
    items = evidence.sibling("items")
    if items is None:
        return View.missing(
            f"there is no snapshot of {evidence.sibling_name('items')} to compare with"
        )
    there = evidence.snapshot.scan().select("item_id").unique()
    uncovered = items.scan().select("item_id", "title").join(there, on="item_id", how="anti")
    # A single item has no other that it could be similar to.
    return replace(_first(uncovered), facts={"items": items.rows})


def _unknown(evidence: Evidence) -> View:
    """One row per id, in either column, that is no item."""
    items = evidence.sibling("items")
    if items is None:
        return View.missing(
            f"there is no snapshot of {evidence.sibling_name('items')} to compare with"
        )
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
    by_paths = (pl.col("basis") == "paths").any().cast(pl.Int64)
    frame = evidence.snapshot.scan().group_by("item_id").agg(by_paths=by_paths)
    items = frame.sort("item_id").collect(engine="streaming")
    return View(items, facts={"items": items.height})


def _first(rows: pl.LazyFrame) -> View:
    return View(rows.head(MOST).collect(engine="streaming"))


#: View functions by dataset, then by name.
SIMILARITY_VIEWS: Mapping[str, Mapping[str, ViewFunction]] = {
    "item_similarity": {
        "uncovered": _uncovered,
        "unknown": _unknown,
        "selves": _selves,
        "ranks": _ranks,
        "rises": _rises,
        "sums": _sums,
        "mutual": _mutual,
        "bases": _bases,
    }
}
