"""Plots of the published tables, for the pages that show them.

Each function takes snapshots' lazy frames, aggregates them in bounded memory and returns PNG
bytes (under 60 kB).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import polars as pl

from pipelines.figures import BLUE, bars, canvas, empty, grouped_bars, png, share
from pipelines.quality._spec import Evidence
from pipelines.quality._views_scores import rating_histograms, score_histogram

if TYPE_CHECKING:
    from pipelines.config import Settings
    from pipelines.quality._spec import PersonaTargets
    from pipelines.store import Snapshot, Store

Figures = dict[str, float | None]


def _rater_report(snapshot: Snapshot, _: Settings) -> Figures:
    rows = snapshot.read().filter(pl.col("metric").is_in(["rmse", "pairwise"]))
    # Raters of known people first: the baselines follow.
    rows = rows.sort(
        pl.col("kind") != "rater", pl.col("split") != "user", pl.col("metric") != "rmse",
        maintain_order=True,
    )  # fmt: skip
    return {
        f"{row['metric']}, {row['predictor']} ({row['split']})": row["value"]
        for row in rows.iter_rows(named=True)
    }


def _population(snapshot: Snapshot, _: Settings) -> Figures:
    return {
        f"{row['figure']}, {who}": row[f"{who}_value"]
        for row in snapshot.read().iter_rows(named=True)
        for who in ("personas", "people")
    }


def _preference_scores(snapshot: Snapshot, settings: Settings) -> Figures:
    means = snapshot.scan().select(
        entropy=pl.col("entropy").mean(),
        expected_rating=pl.col("expected").mean(),
        failed_share=(pl.col("status") != "ok").mean(),
    )
    figures: Figures = dict(means.collect().row(0, named=True))
    serving = settings.serving
    for cohort, facts in snapshot.manifest.stats.get("scoring", {}).items():
        pairs = facts.get("scored_now") or 0
        figures[f"seconds per pair, {cohort}"] = facts["seconds"] / pairs if pairs else None
        for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "calls"):
            figures[f"{name}, {cohort}"] = facts.get(name)
        if "prompt_tokens" in facts:
            figures[f"cost, {cohort}"] = (
                facts["prompt_tokens"] * serving.input_price
                + facts["completion_tokens"] * serving.output_price
            ) / 1e6
    return figures


def _item_similarity(snapshot: Snapshot, _: Settings) -> Figures:
    columns = {"similarity": "score", "path_similarity": "path_score", "text_similarity": "cosine"}
    present = {k: v for k, v in columns.items() if v in snapshot.scan().collect_schema()}
    means = snapshot.scan().select(pl.col(column).mean().alias(n) for n, column in present.items())
    return {f"mean {name}": value for name, value in means.collect().row(0, named=True).items()}


_FIGURES: dict[str, Callable[[Snapshot, Settings], Figures]] = {
    "rater_report": _rater_report,
    "population": _population,
    "preference_scores": _preference_scores,
    "item_similarity": _item_similarity,
}


def figures_for(dataset: str, snapshot: Snapshot, settings: Settings) -> Figures:
    """Headline figures of a dataset by name (four digits); those that are unknown are left out."""
    figures = _FIGURES.get(dataset.rpartition(".")[2])
    values = figures(snapshot, settings) if figures and snapshot.rows else {}
    return {
        name: float(f"{value:.4g}") if isinstance(value, float) else value
        for name, value in values.items()
        if value is not None
    }


#: Genres or relations drawn at most.
MOST = 24


def _counts(rows: pl.LazyFrame, column: str) -> pl.DataFrame:
    """Rows ``n`` by value of a column, without nulls, by value."""
    counts = rows.drop_nulls(column).group_by(column).agg(n=pl.len())
    return counts.collect(engine="streaming").sort(column)


def _most(rows: pl.LazyFrame, column: str) -> pl.DataFrame:
    """The most frequent values of a column, ties by value."""
    return _counts(rows, column).sort("n", descending=True, maintain_order=True).head(MOST)


def rating_histogram(interactions: pl.LazyFrame) -> bytes:
    """Share of each human rating."""
    counts = _counts(interactions, "rating")
    if counts.is_empty():
        return empty("Human ratings")
    figure, axes = canvas("Human ratings", "rating (stars)", "share of ratings")
    axes.bar(counts["rating"].to_list(), share(counts["n"]), width=0.4, color=BLUE)
    axes.set_xticks(counts["rating"].to_list())
    return png(figure)


def item_popularity(interactions: pl.LazyFrame) -> bytes:
    """Ratings per item by rank, both axes logarithmic: the long tail."""
    counts = _counts(interactions, "item_id")["n"].sort(descending=True)
    if counts.is_empty():
        return empty("Ratings per film")
    # Ranks are drawn at a few hundred places that are even on the logarithmic axis.
    places = sorted({round(counts.len() ** (k / 400)) for k in range(401)})
    figure, axes = canvas("Ratings per film", "rank of the film", "ratings (count)")
    axes.plot(places, counts.gather([p - 1 for p in places]).to_list(), color=BLUE, linewidth=2)
    axes.set_xscale("log")
    axes.set_yscale("log")
    return png(figure)


def ratings_per_user(interactions: pl.LazyFrame) -> bytes:
    """Histogram of ratings per user (bins that double)."""
    counts = (
        interactions.group_by("user_id")
        .agg(n=pl.len())
        .group_by(bin=pl.col("n").log(2).floor().cast(pl.Int64))
        .agg(users=pl.len())
        .collect(engine="streaming")
        .sort("bin")
    )
    if counts.is_empty():
        return empty("Ratings per user")
    labels = [str(2**b) if b == 0 else f"{2**b}-{2 ** (b + 1) - 1}" for b in counts["bin"]]
    return bars(
        "Ratings per user", "users (count)", "ratings given", labels, counts["users"].to_list()
    )


def films_per_year(items: pl.LazyFrame) -> bytes:
    """Films by year of release."""
    counts = _counts(items, "year")
    if counts.is_empty():
        return empty("Films per year")
    figure, axes = canvas("Films per year", "year of release", "films (count)")
    axes.bar(counts["year"].to_list(), counts["n"].to_list(), width=0.9, color=BLUE)
    return png(figure)


def genre_counts(items: pl.LazyFrame) -> bytes:
    """Films per genre, most frequent first."""
    counts = _most(items.select(genre="genres").explode("genre"), "genre")
    return bars(
        "Films per genre",
        "films (count)",
        "genre",
        counts["genre"].to_list(),
        counts["n"].to_list(),
    )


def feature_coverage(items: pl.LazyFrame) -> bytes:
    """Share of films that have each feature."""
    columns = items.collect_schema()
    has_value = {
        name: pl.col(name).list.len().fill_null(0) > 0
        if isinstance(dtype, pl.List)
        else pl.col(name).is_not_null()
        for name, dtype in columns.items()
        if name not in {"item_id", "title", "has_tmdb"}
    }
    shares = items.select(**{k: v.mean() for k, v in has_value.items()}).collect(engine="streaming")
    filled: dict[str, float] = {k: v or 0.0 for k, v in shares.row(0, named=True).items()}
    ordered = sorted(filled.items(), key=lambda pair: -pair[1])
    return bars(
        "Films with each feature",
        "share of films",
        "column",
        [k for k, _ in ordered],
        [v for _, v in ordered],
        share=True,
    )


def persona_ages(personas: pl.LazyFrame, targets: PersonaTargets) -> bytes:
    """Personas' ages beside the census; imported personas are left out, as in the check."""
    drawn = personas.filter(pl.col("origin") != "imported")
    ages = drawn.select("age").collect(engine="streaming")["age"]
    total = max(1, ages.len())
    return grouped_bars(
        "Ages of personas",
        "age (years)",
        "share",
        [f"{low}-{high}" for low, high, _ in targets.ages],
        [
            (
                "personas",
                [int(ages.is_between(lo, hi).sum()) / total for lo, hi, _ in targets.ages],
            ),
            ("census", [s for *_, s in targets.ages]),
        ],
        rotate=True,
    )


def persona_names(personas: pl.LazyFrame) -> bytes:
    """The most frequent first names of sampled personas."""
    drawn = personas.filter(pl.col("origin") != "imported").drop_nulls("name")
    counts = _counts(drawn.select(pl.col("name").str.split(" ").list.first()), "name")
    counts = counts.with_columns(share=pl.col("n") / pl.col("n").sum())
    counts = counts.sort("n", descending=True, maintain_order=True).head(MOST)
    names, shares = counts["name"].to_list(), counts["share"].to_list()
    return bars("Most frequent first names", "share of personas", "name", names, shares)


def persona_genres(personas: pl.LazyFrame, targets: PersonaTargets) -> bytes:
    """Favourable share of the opinions of each genre beside the target."""
    domains = personas.select("domain").head(1).collect()["domain"]
    shares = targets.favourable.get(domains[0], {}) if len(domains) else {}
    counts = {
        side: dict(_counts(personas.select(genre=side).explode("genre"), "genre").iter_rows())
        for side in ("likes", "dislikes")
    }
    genres = sorted(shares, key=lambda g: -shares[g])[:MOST]
    liked = [counts["likes"].get(g, 0) for g in genres]
    opinions = [n + counts["dislikes"].get(g, 0) for g, n in zip(genres, liked, strict=True)]
    return grouped_bars(
        "Genres liked by personas with an opinion",
        "genre",
        "share who like it",
        genres,
        [
            ("personas", [a / b if b else 0.0 for a, b in zip(liked, opinions, strict=True)]),
            ("target", [shares[g] for g in genres]),
        ],
        rotate=True,
    )


def score_vs_human(scores: pl.LazyFrame, interactions: pl.LazyFrame | None) -> bytes:
    """Sampled persona ratings beside human ratings, on the coarser of their scales."""
    if interactions is None:
        shown = score_histogram(scores).rename({"share": "scores"})
        title = "Ratings of personas"
    else:
        shown = rating_histograms(scores, interactions)
        title = "Ratings of personas and of people"
    if shown.is_empty():
        return empty("Ratings of personas and of people")
    groups = [
        (label, shown[column].to_list())
        for column, label in (("scores", "personas"), ("human", "people"))
        if column in shown.columns
    ]
    labels = [f"{r:g}" for r in shown["rating"]]
    return grouped_bars(title, f"rating (scale {shown['scale'][0]})", "share", labels, groups)


def triples_per_relation(triples: pl.LazyFrame) -> bytes:
    """Graph triples by relation."""
    counts = _most(triples, "relation")
    return bars(
        "Triples per relation",
        "triples (count)",
        "relation",
        counts["relation"].to_list(),
        counts["n"].to_list(),
    )


def _human(evidence: Evidence) -> pl.LazyFrame | None:
    snapshot = evidence.sibling("interactions")
    return None if snapshot is None else snapshot.scan()


Plot = Callable[[Evidence], bytes]

#: Plots by table, then by title.
PLOTS: Mapping[str, Mapping[str, Plot]] = {
    "items": {
        "films per year": lambda e: films_per_year(e.snapshot.scan()),
        "genres": lambda e: genre_counts(e.snapshot.scan()),
        "feature coverage": lambda e: feature_coverage(e.snapshot.scan()),
    },
    "interactions": {
        "ratings": lambda e: rating_histogram(e.snapshot.scan()),
        "item popularity": lambda e: item_popularity(e.snapshot.scan()),
        "ratings per user": lambda e: ratings_per_user(e.snapshot.scan()),
    },
    "personas": {
        "ages": lambda e: persona_ages(e.snapshot.scan(), e.targets),
        "genres": lambda e: persona_genres(e.snapshot.scan(), e.targets),
        "names": lambda e: persona_names(e.snapshot.scan()),
    },
    "preference_scores": {
        "scores and human ratings": lambda e: score_vs_human(e.snapshot.scan(), _human(e))
    },
    "graph_triples": {"triples per relation": lambda e: triples_per_relation(e.snapshot.scan())},
}


def plots_for(
    dataset: str,
    snapshot: Snapshot,
    *,
    store: Store,
    settings: Settings,
    context: Mapping[str, Snapshot] | None = None,
) -> dict[str, bytes]:
    """Every plot of a dataset, as PNG bytes by title; none for a dataset without plots."""
    evidence = Evidence(dataset, snapshot, store, settings, None, dict(context or {}))
    return {
        title: plot(evidence) for title, plot in PLOTS.get(dataset.rpartition(".")[2], {}).items()
    }
