"""Release summary: counts, coverage, checks and quality figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.domains import DOMAINS
from pipelines.quality._stats import mean_interval

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

    from pipelines.store import Snapshot, Store

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
        "Error on the latest tenth of each person's ratings (RMSE, stars; 0 is best)",
    ),
)


#: Predictors of the rater report that the summary and the card show.
_SHOWN = (
    "statistical",
    "gradient boosting",
    "MF (Surprise SVD, tuned)",
    "user+item bias",
    "item mean",
)
#: Figures of the population report in the summary and the card, and their names there.
_POPULATION = {
    "item_person_share": "item x person share of variance",
    "split_half_covariance": "split-half genre covariance",
    "genre_gap": "liked minus disliked genres",
    "user_spread_spread": "spread of users' std. deviations",
    "headroom": "own top ten over the common one",
    "watched_any": "mean of watched, any personas",
    "watched": "mean of watched, by exposure",
}


def release_summary(
    store: Store, tables: Mapping[str, Snapshot], *, raters: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Counts, coverage, checks and quality figures of the tables of a release.

    Tables that are not there are left out of the summary. ``raters`` are the raters' figures
    (``pipelines.raters.quality_summary``: with intervals and baseline rows), taken as they are;
    default: those noted with the preference scores. Errors on held-out ratings are those of the
    table ``rater_report``.

    Returns
    -------
    dict
        JSON-ready: ``rows`` per table, ``bytes``; ``item`` (what
        one is called), ``items``, ``items_with`` (counts of the catalogue, which are exact),
        ``ratings``, ``users``, ``mean_rating``, ``personas``, ``pairs`` (by status),
        ``choice_sets`` (count, those in which asking pays, mean standard deviation in a set),
        ``scored_personas``, ``mean_score`` (per scale), ``triples`` (by relation),
        ``population`` (rows of that table that are shown), ``reading`` (personas rated by their
        fields, by what is read in their text, by neither; contradictions), ``text_readers``
        (models that read texts, by cohort), ``checks`` (passed, failed,
        warned, not applicable, per table, and the names of those that failed or do not apply)
        and ``raters``. Means come as
        ``{"value", "low", "high", "n"}`` with a 95 % interval over users or personas, which
        are the independent draws (ratings of one user are not).
    """
    out: dict[str, Any] = {
        "rows": {name: snapshot.rows for name, snapshot in tables.items()},
        "bytes": sum(snapshot.bytes for snapshot in tables.values()),
    }
    domain = next((s.dataset.rpartition(".")[0] for s in tables.values()), "")
    if domain in DOMAINS:
        out["item"] = DOMAINS[domain].item
    for name, part in _PARTS.items():
        if name in tables:
            out.update(part(tables[name].scan()))
    if "preference_scores" in tables:
        from pipelines.personas import noted_readings

        reading = noted_readings(tables["preference_scores"].manifest.stats)
        out |= {"reading": reading} if reading else {}
        if "choice_set_items" in tables:
            out |= _choice_sets(tables["preference_scores"], tables["choice_set_items"])
    if "personas" in tables:
        noted = tables["personas"].manifest.stats.get("reader", {})
        out |= {"text_readers": noted} if noted else {}
    out["checks"] = _checks(store, tables)
    if raters is None and "preference_scores" in tables:
        raters = tables["preference_scores"].manifest.stats.get("quality")
    held_out = _held_out(tables["rater_report"].read()) if "rater_report" in tables else []
    if raters or held_out:
        out["raters"] = {**(raters or {}), **({"held_out": held_out} if held_out else {})}
    return out


def _choice_sets(scores: Snapshot, sets: Snapshot) -> dict[str, Any]:
    """Figures of :func:`pipelines.raters.choice_set_figures` over all choice sets."""
    from pipelines.quality._views_scores import LEAST_WORTH
    from pipelines.raters import choice_set_figures

    figures = choice_set_figures(scores.scan(), sets.scan())
    if not figures.height:
        return {}
    return {
        "choice_sets": {
            "sets": figures.height,
            "asking_pays": int((figures["worth"] >= LEAST_WORTH).sum()),
            "median_worth": figures["worth"].median(),
            "mean_deviation": figures["deviation"].mean(),
        }
    }


def _held_out(report: pl.DataFrame) -> list[dict[str, Any]]:
    """Errors in the rater report of what is shown, best first.

    Models are shown, too, and on how many ratings they were asked if on fewer than the others.
    """
    name = pl.col("predictor")
    model = (pl.col("kind") == "rater") & ~name.str.starts_with("statistical")
    rows = report.filter(name.is_in(_SHOWN) | model, metric="rmse", split="user")
    few = pl.col("ratings") < pl.col("ratings").max()
    named = pl.when(few).then(pl.format("{} ({} ratings)", name, "ratings")).otherwise(name)
    shown = rows.with_columns(named.alias("predictor")).sort("value", "predictor")
    return shown.select("predictor", "low", "high", rmse="value").to_dicts()


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
    """True where a feature has a value: an empty list or text is none, and neither is `false`."""
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
        "scored_personas": by_persona["persona_id"].n_unique(),
        "mean_score": {
            str(scale): _cluster_mean(part)
            for (scale,), part in sorted(by_persona.partition_by("scale", as_dict=True).items())
        },
    }


def _triples(scan: pl.LazyFrame) -> dict[str, Any]:
    counts = scan.group_by("relation").agg(n=pl.len()).sort("relation").collect(engine="streaming")
    return {"triples": dict(counts.iter_rows())}


def _population(scan: pl.LazyFrame) -> dict[str, Any]:
    rows = {row["figure"]: row for row in scan.collect().iter_rows(named=True)}
    return {"population": [rows[name] for name in _POPULATION if name in rows]}


_PARTS = {
    "items": _items,
    "interactions": _interactions,
    "personas": _personas,
    "preference_scores": _scores,
    "graph_triples": _triples,
    "population": _population,
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
    from pipelines.store import count_outcomes

    by_table = {
        name: list(store.checks(snapshot.dataset, snapshot.version).values())
        for name, snapshot in sorted(tables.items())
    }
    every = [
        (f"{name}.{record.name}", record) for name, checks in by_table.items() for record in checks
    ]
    return {
        **count_outcomes(record for _, record in every),
        "failing": [name for name, record in every if record.passed is False],
        "unjudged": [name for name, record in every if record.passed is None],
        "tables": {name: count_outcomes(checks) for name, checks in by_table.items()},
    }


def shown_population(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """Rows of personas beside people, as text: ``figure``, ``personas``, ``people``."""

    def cell(row: Mapping[str, Any], side: str) -> str:
        value, low, high = (row[f"{side}_{end}"] for end in ("value", "low", "high"))
        if value is None:
            return "-"
        return f"{value:.3f}" + ("" if low is None else f"  {low:.3f} to {high:.3f}")

    return [
        {
            "figure": _POPULATION[row["figure"]],
            "personas": cell(row, "personas"),
            "people": cell(row, "people"),
        }
        for row in summary.get("population", [])
    ]


def means_of(summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Means of a summary with their intervals, by what they are of."""
    means = {"human ratings (scale of the source)": summary.get("mean_rating")}
    for scale, mean in summary.get("mean_score", {}).items():
        means[f"persona scores (scale {scale})"] = mean
    return {label: mean for label, mean in means.items() if mean}


def render_summary(summary: Mapping[str, Any]) -> Group:
    """Contents and quality of a release, as tables for a rich console."""
    from rich.console import Group
    from rich.text import Text

    parts = [("Contents", _contents(summary))]
    means = [{"mean of": k, **m} for k, m in means_of(summary).items()]
    if means:
        parts.append(("Means", _estimates("mean of", "value", means)))
    raters = summary.get("raters") or {}
    parts += [
        (text, _estimates(who, measure, raters[key]))
        for key, who, measure, text in RATER_TABLES
        if raters.get(key)
    ]
    compared = shown_population(summary)
    if compared:
        shown = _table(("figure", "personas", "people"))
        for row in compared:
            shown.add_row(*(Text(row[name]) for name in ("figure", "personas", "people")))
        parts.append(("Personas beside people (95 % intervals)", shown))
    # A table's own title would wrap at the table's width.
    return Group(
        *(line for title, table in parts for line in (Text(f"\n{title}", style="bold"), table))
    )


def _contents(summary: Mapping[str, Any]) -> Table:
    from rich.text import Text

    table = _table(("what", "count", "share"))
    items, item = summary.get("items"), summary.get("item", "item")
    lines: list[tuple[str, int, int | None]] = []
    if items is not None:
        lines.append((f"{item}s", items, None))
        features = summary.get("items_with", {})
        lines += [
            (f"  with {k.replace('_', ' ').replace('tmdb', 'TMDB')}", n, items)
            for k, n in features.items()
        ]
    lines += [
        (label, summary[key], None)
        for key, label in (("ratings", "human ratings"), ("users", "human users"))
        if summary.get(key) is not None
    ]
    if summary.get("personas") is not None:
        # The number without a score comes first.
        lines.append(("scored personas", summary.get("scored_personas", 0), summary["personas"]))
    pairs = summary.get("pairs")
    if pairs:
        lines.append(("scored pairs", pairs["scored"], pairs["planned"]))
    sets = summary.get("choice_sets")
    if sets:
        lines.append(("choice sets in which asking pays", sets["asking_pays"], sets["sets"]))
    if summary.get("triples"):
        lines.append(("graph triples", sum(summary["triples"].values()), None))
    for label, count, total in lines:
        share = "" if not total else f"{count / total:.1%}"
        # Text, not markup: a bracket in a name is a bracket.
        table.add_row(Text(label), f"{count:,}", share)
    return table


def _estimates(who: str, measure: str, rows: list[dict[str, Any]]) -> Table:
    from rich.text import Text

    table = _table((who, measure, "95 % interval"))
    for row in rows:
        interval = f"{row['low']:.3f} to {row['high']:.3f}"
        table.add_row(Text(str(row[who])), f"{row[measure]:.3f}", interval)
    return table


def _table(columns: tuple[str, str, str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(columns[0])
    for name in columns[1:]:
        table.add_column(name, justify="right")
    return table
