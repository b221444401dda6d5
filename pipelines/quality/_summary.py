"""Release summary: counts, coverage, checks and quality figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.domains import DOMAINS
from pipelines.quality._stats import mean_interval

if TYPE_CHECKING:
    from pipelines.store import Snapshot, Store

__all__ = ["RATER_TABLES", "release_summary"]

#: Tables in the raters' figures: key, column of names, column of the measure, what it is.
RATER_TABLES = (
    (
        "similarity",
        "rater",
        "similarity",
        "Similarity of score histograms to the human one (1 - total variation; 1 is best)",
    ),
    (
        "held_out",
        "predictor",
        "rmse",
        "Error on held-out human ratings (root mean square, stars; 0 is best)",
    ),
)


def release_summary(
    store: Store, tables: Mapping[str, Snapshot], *, raters: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Counts, coverage, checks and quality figures of the tables of a release.

    Parameters
    ----------
    store
        Where the checks are recorded.
    tables
        Snapshots by short name (``items``, ``interactions``, ``personas``, …); what is not
        there is left out of the summary.
    raters
        The raters' figures (``pipelines.raters.quality_summary``: with intervals and baseline
        rows), taken as they are; default: those noted with the preference scores.

    Returns
    -------
    dict
        JSON-ready: ``rows`` per table, ``bytes``; ``item`` (what
        one is called), ``items``, ``items_with`` (counts of the catalogue, which are exact),
        ``ratings``, ``users``, ``mean_rating``, ``personas``, ``pairs`` (by status),
        ``mean_score`` (per scale), ``triples`` (by relation), ``checks`` (passed, failed,
        warned, not applicable, per table and failing names) and ``raters``. Means come as
        ``{"value", "low", "high", "n"}`` with a 95 % interval over users or personas, which
        are the independent draws (ratings of one user are not).
    """
    out: dict[str, Any] = {
        "rows": {name: snapshot.rows for name, snapshot in tables.items()},
        "bytes": sum(snapshot.bytes for snapshot in tables.values()),
    }
    domain = next((s.dataset.rpartition(".")[0] for s in tables.values() if "." in s.dataset), "")
    if domain in DOMAINS:
        out["item"] = DOMAINS[domain].item
    for name, part in _PARTS.items():
        if name in tables:
            out.update(part(tables[name].scan()))
    out["checks"] = _checks(store, tables)
    if raters is None and "preference_scores" in tables:
        raters = tables["preference_scores"].manifest.stats.get("quality")
    if raters:
        out["raters"] = dict(raters)
    return out


#: Features of items that a reader asks for: column and what it is called.
_FEATURES = {
    "overview": "plot",
    "description": "description",
    "actors": "cast",
    "directors": "director",
    "authors": "author",
    "developer": "developer",
    "publisher": "publisher",
    "brand": "brand",
    "genres": "genre",
    "categories": "category",
    "tags": "tag",
    "year": "year",
    "price": "price",
    "has_tmdb": "tmdb_record",
}


def _items(scan: pl.LazyFrame) -> dict[str, Any]:
    schema = scan.collect_schema()
    counts = scan.select(
        items=pl.len(),
        **{
            name: _known(column, schema[column]).sum()
            for column, name in _FEATURES.items()
            if column in schema
        },
    ).collect(engine="streaming")
    row = counts.row(0, named=True)
    return {"items": row.pop("items"), "items_with": row}


def _known(column: str, dtype: pl.DataType) -> pl.Expr:
    """Whether a feature has a value: an empty list or text is none, and neither is `false`."""
    value = pl.col(column)
    if isinstance(dtype, pl.List):
        return value.list.len().fill_null(0) > 0
    if dtype == pl.String:
        return value.str.strip_chars().str.len_chars().fill_null(0) > 0
    return value.fill_null(False) if dtype == pl.Boolean else value.is_not_null()


def _interactions(scan: pl.LazyFrame) -> dict[str, Any]:
    users = (
        scan.group_by("user_id")
        .agg(n=pl.len(), total=pl.col("rating").sum())
        .collect(engine="streaming")
    )
    return {
        "ratings": int(users["n"].sum()),
        "users": users.height,
        "mean_rating": _cluster_mean(users),
    }


def _personas(scan: pl.LazyFrame) -> dict[str, Any]:
    counts = scan.group_by("writer").agg(n=pl.len()).sort("writer").collect(engine="streaming")
    return {"personas": int(counts["n"].sum()), "writers": dict(counts.iter_rows())}


def _scores(scan: pl.LazyFrame) -> dict[str, Any]:
    status, by_persona, raters = pl.collect_all(
        [
            scan.group_by("status").agg(n=pl.len()).sort("status"),
            scan.filter(pl.col("status") == "ok")
            .group_by("scale", "persona_id")
            .agg(n=pl.len(), total=pl.col("expected").sum()),
            scan.select(pl.col("rater").unique().sort()),
        ],
        engine="streaming",
    )
    pairs = dict(status.iter_rows())
    return {
        "pairs": {"planned": sum(pairs.values()), "scored": pairs.get("ok", 0), "status": pairs},
        "rater": raters["rater"].to_list(),
        "mean_score": {
            str(scale): _cluster_mean(part)
            for (scale,), part in sorted(by_persona.partition_by("scale", as_dict=True).items())
        },
    }


def _triples(scan: pl.LazyFrame) -> dict[str, Any]:
    counts = scan.group_by("relation").agg(n=pl.len()).sort("relation").collect(engine="streaming")
    return {"triples": dict(counts.iter_rows())}


_PARTS = {
    "items": _items,
    "interactions": _interactions,
    "personas": _personas,
    "preference_scores": _scores,
    "graph_triples": _triples,
}


def _cluster_mean(groups: pl.DataFrame) -> dict[str, Any] | None:
    """Mean over all rows with an interval from the spread between groups (ratio estimator)."""
    rows, k = int(groups["n"].sum()), groups.height
    if not rows:
        return None
    mean = float(groups["total"].sum()) / rows
    residual = (groups["total"] - mean * groups["n"]).to_numpy()
    # Linearised variance of a ratio of sums over k independent groups.
    deviation = float((residual @ residual / max(1, k - 1)) ** 0.5) * k / rows
    low, high = mean_interval(mean, deviation, k)
    # Sums of a streaming engine depend on the order of its batches in their last digits; the same
    # table must give the same summary.
    value, low, high = (round(figure, 9) for figure in (mean, low, high))
    return {"value": value, "low": low, "high": high, "n": rows, "groups": k}


def _checks(store: Store, tables: Mapping[str, Snapshot]) -> dict[str, Any]:
    out: dict[str, Any] = {
        "passed": 0,
        "failed": 0,
        "warned": 0,
        "not_applicable": 0,
        "failing": [],
        "tables": {},
    }
    for name, snapshot in sorted(tables.items()):
        counts = {"passed": 0, "failed": 0, "warned": 0, "not_applicable": 0}
        for record in store.checks(snapshot.dataset, snapshot.version).values():
            if record.passed is not False:
                counts["passed" if record.passed else "not_applicable"] += 1
                continue
            counts["failed" if record.severity == "error" else "warned"] += 1
            out["failing"].append(f"{name}.{record.name}")
        out["tables"][name] = counts
        for key, number in counts.items():
            out[key] += number
    return out
