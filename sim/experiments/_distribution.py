"""Experiment ``distribution``: ratings of agents beside those of people, by recommender."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from sim.agents import AgentWorld, Simulation
from sim.experiments._context import ExperimentContext
from sim.experiments._figures import Floats, bars, mean_figure, paired
from sim.experiments._protocol import Comparison, Result, Row, TooFew
from sim.metrics import RESAMPLES, Figure, user_weights

#: Meanings of the figures by name.
_FIGURES = {
    "likeness": "1 less the total variation distance to people's training ratings, 0-1",
    "likeness_items": "the same to people's training ratings of the items that were rated, each "
    "rating's item counting once, 0-1",
    "low_share": "share of the ratings up to 2, 0-1",
    "mean": "mean rating, 1-5",
    "own_mean_r": "correlation, over people, of the agents' mean rating with their person's "
    "mean training rating, -1 to 1",
}


@dataclass(frozen=True)
class DistributionSettings:
    """Settings of ``distribution``."""

    #: People with a rating that figures need (count).
    min_people: int = 10
    #: A rating up to this is a low one.
    low: int = 2


class Distribution:
    """Rating distribution of agents against that of people, by recommender."""

    name = "distribution"
    question = (
        "Do the ratings that agents give spread over the scale as those of people do, whichever "
        "recommender they visit?"
    )
    anchor = "Agent4Rec, Fig. 3; SimUSER, Fig. 2"
    figures = _FIGURES

    def __init__(self, settings: DistributionSettings | None = None) -> None:
        self.settings = settings or DistributionSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Compare the ratings of visits with people's training ratings."""
        world = context.world()
        target = world.histogram
        own = _own_means(world)
        key = {"version": _VERSION, **asdict(self.settings)}
        held_out = context.cell(self.name, {"rows": "people", **key}, lambda: _people(world))
        tables: dict[tuple[str, str], pl.DataFrame] = {}
        labels = {"brain": "people (test ratings)", "recommender": "none"}
        rows = [self._row(labels, "people", held_out, target, own)]
        constant = held_out.with_columns(
            **{f"r{star}": pl.lit(0) for star in range(1, 6)} | {_mode(target): pl.lit(1)}
        )
        rows.append(
            self._row(
                {"brain": "always the commonest rating", "recommender": "none"},
                "baseline",
                constant,
                target,
                own,
            )
        )
        counts = {"people": len(world)}
        by_title: dict[str, Row] = {}
        for brain in context.brains:
            mind = context.brain(brain)
            for name in context.recommenders:
                run = context.visits(mind, name)
                frame = context.cell(
                    self.name, {"visits": run.identity, **key}, partial(_ratings, run, world)
                )
                labels = {"brain": brain, "recommender": name}
                row = self._row(labels, context.source(mind), frame, target, own)
                counts["agents"] = counts.get("agents", 0) + context.agents_of(mind)
                failed = context.agents_of(mind) - frame.height
                if failed:
                    counts[f"failed, {row.title}"] = failed
                rows.append(row)
                tables[brain, name], by_title[row.title] = frame, row
        comparisons = self._comparisons(context, tables, by_title)
        notes = [
            "The floor `random` draws its ratings from people's histogram, so that its likeness is "
            "near 1 without knowing anybody: likeness alone tells nothing of the person, "
            "`own_mean_r` does.",
            "Test ratings are people's latest: their likeness with the training ratings is what "
            "people have with themselves over time.",
            "People rated what they had chosen; agents rate what a recommender shows. "
            "`likeness_items` compares with people's ratings of the same items, so that a "
            "recommender that shows only liked items, or any, is no fault of the agents. The "
            "floor's rows are equal by construction: it looks at nothing that is shown.",
        ]
        return Result(rows, comparisons, notes, {"ratings": _picture(rows)}, counts)

    def _row(
        self, labels: dict[str, str], source: str, frame: pl.DataFrame, target: Floats, own: Any
    ) -> Row:
        """Figures of ratings per person (columns r1 to r5, counts)."""
        columns = pl.col(*_STARS, *_EXPECTED).sum()
        counts = frame.group_by("persona_id").agg(columns).sort("persona_id")
        counts = counts.filter(pl.sum_horizontal(_STARS) > 0)
        least = self.settings.min_people
        if counts.height < least:
            few = TooFew(
                "people with a rating",
                found=counts.height,
                needed=least,
                where=f"experiment {self.name}, {', '.join(v for v in labels.values() if v)}",
                hint="more --agents or --pages",
            )
            if source != "model":
                raise few
            # The sample of a model is small by choice: the other rows stand.
            return Row(labels, source, dict.fromkeys(_FIGURES), counts.height, few.what)
        values = counts.select(_STARS).to_numpy().astype(np.float64)
        likeness, low = resampled_likeness(values, target, self.settings.low)
        totals = values.sum(axis=1)
        means = (values * np.arange(1, 6)).sum(axis=1) / totals
        owned = np.array([own.get(p, np.nan) for p in counts["persona_id"]])
        figures: dict[str, Figure | float | None] = {
            "likeness": likeness,
            "likeness_items": likeness_of(values, counts.select(_EXPECTED).to_numpy()),
            "low_share": low,
            "mean": mean_figure(means),
            "own_mean_r": correlation(means, owned),
        }
        return Row(labels, source, figures, counts.height)

    def _comparisons(
        self,
        context: ExperimentContext,
        tables: dict[tuple[str, str], pl.DataFrame],
        rows: dict[str, Row],
    ) -> list[Comparison]:
        out = []
        low = pl.sum_horizontal(_STARS[: self.settings.low]) / pl.sum_horizontal(_STARS)
        for (brain, name), frame in tables.items():
            if brain == "random":
                continue
            sides = (
                (rows[f"{brain}, {name}"], frame.with_columns(low_share=low)),
                (rows[f"random, {name}"], tables["random", name].with_columns(low_share=low)),
            )
            found = paired(*sides, "low_share", seed=context.seed)
            out += [] if found is None else [found]
        return out


#: Raised whenever kept cells would have other rows.
_VERSION = "2"
_STARS = [f"r{star}" for star in range(1, 6)]
#: Ratings 1-5 that people gave to the rated items, each item's shares.
_EXPECTED = [f"e{star}" for star in range(1, 6)]


def total_variation(left: Floats, right: Floats) -> float:
    """Half the sum of the absolute differences of two distributions.

    >>> total_variation(np.array([0.5, 0.5, 0.0]), np.array([0.25, 0.5, 0.25]))
    0.25
    """
    return float(np.abs(left - right).sum() / 2)


def resampled_likeness(counts: Floats, target: Floats, low: int) -> tuple[Figure, Figure]:
    """1 less the total variation distance of pooled ratings, and the share of those up to ``low``.

    ``counts`` are ratings 1-5 per person, of shape (people, 5), ``target`` the shares of people's
    ratings, of shape (5,).
    """
    shares = counts.sum(axis=0) / counts.sum()
    drawn = user_weights(len(counts), RESAMPLES, 0) @ counts
    drawn /= drawn.sum(axis=1, keepdims=True)
    likeness = 1 - np.abs(drawn - target).sum(axis=1) / 2
    return (
        _interval(1 - total_variation(shares, target), likeness),
        _interval(float(shares[:low].sum()), drawn[:, :low].sum(axis=1)),
    )


def likeness_of(counts: Floats, expected: Floats) -> Figure:
    """1 less the total variation distance of two pooled distributions of the same people.

    Both are counts of ratings 1-5 per person, of shape (people, 5).
    """
    weights = user_weights(len(counts), RESAMPLES, 0)
    sides = [(c.sum(axis=0) / c.sum(), weights @ c) for c in (counts, expected)]
    drawn = [d / d.sum(axis=1, keepdims=True) for _, d in sides]
    value = 1 - total_variation(sides[0][0], sides[1][0])
    return _interval(value, 1 - np.abs(drawn[0] - drawn[1]).sum(axis=1) / 2)


def _interval(value: float, drawn: Floats) -> Figure:
    """Percentiles of the draws, widened to the value: a distance is biased upwards in draws."""
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Figure(value, min(float(low), value), max(float(high), value))


def correlation(left: Floats, right: Floats) -> Figure | None:
    """Pearson's correlation with a bootstrap interval over people; None where it has none."""
    known = ~np.isnan(right)
    x, y = left[known], right[known]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    weights = user_weights(len(x), RESAMPLES, 0) / len(x)
    mean_x, mean_y = weights @ x, weights @ y
    both = weights @ (x * y) - mean_x * mean_y
    spread = (weights @ x**2 - mean_x**2) * (weights @ y**2 - mean_y**2)
    drawn = both / np.sqrt(np.maximum(spread, 1e-12))
    return _interval(float(np.corrcoef(x, y)[0, 1]), drawn)


def _ratings(run: Simulation, world: AgentWorld) -> pl.DataFrame:
    """Ratings of every agent that did not fail, and those of people of the same items."""
    rated = run.table("views").filter(pl.col("watched")).select("agent", "item_id", "rating")
    agents = run.table("agents").filter(pl.col("exit_reason") != "failed")
    counts = _counted(rated.collect(), "agent", world)
    joined = agents.select("agent", "persona_id").collect().join(counts, on="agent", how="left")
    return joined.with_columns(pl.col(_STARS + _EXPECTED).fill_null(0)).sort("agent")


def _people(world: AgentWorld) -> pl.DataFrame:
    """Test ratings of every person with one, and those of others of the same items."""
    from pipelines.raters import source_scale, to_answers
    from pipelines.scales import scale_named
    from sim.environment import split_rows

    rows = split_rows(world.release, ("test",))
    scale = source_scale(world.release["interactions"].lazy())
    answers = to_answers(rows["rating"].to_numpy(), scale, scale_named("1-5")).astype(np.int64)
    people = world.people.select("persona_id", "user_id")
    found = rows.select("user_id", "item_id").with_columns(rating=pl.Series(answers))
    found = found.join(people, on="user_id")
    return _counted(found, "persona_id", world).sort("persona_id")


def _counted(rated: pl.DataFrame, owner: str, world: AgentWorld) -> pl.DataFrame:
    """Ratings by answer (counts), and the sums of their items' shares of training ratings.

    An item without a training rating counts with the shares of all ratings.
    """
    totals = world.item_histograms.sum(axis=1, keepdims=True)
    shares = np.where(totals > 0, world.item_histograms / np.maximum(totals, 1.0), world.histogram)
    items = pl.DataFrame(shares, schema=_EXPECTED).with_columns(
        item_id=pl.Series(world.catalogue.ids)
    )
    return (
        rated.join(items, on="item_id")
        .group_by(owner)
        .agg(
            **{f"r{star}": (pl.col("rating") == star).sum() for star in range(1, 6)},
            **{name: pl.col(name).sum() for name in _EXPECTED},
        )
    )


def _own_means(world: AgentWorld) -> dict[str, float]:
    """Mean training rating of each person on 1-5."""
    lengths = world.history.lengths
    owner = np.repeat(np.arange(len(lengths)), lengths)
    total = np.bincount(owner, world.history.ratings, minlength=len(lengths))
    ids = world.people["persona_id"].to_list()
    return {person: float(t / n) for person, t, n in zip(ids, total, lengths, strict=True) if n > 0}


def _mode(target: Floats) -> str:
    return f"r{int(target.argmax()) + 1}"


def _picture(rows: list[Row]) -> bytes:
    brains = list(dict.fromkeys(row.labels["brain"] for row in rows if row.source != "people"))
    names = list(dict.fromkeys(row.labels["recommender"] for row in rows))
    names = [n for n in names if n != "none"]
    found = {(row.labels["brain"], row.labels["recommender"]): row for row in rows}
    people = rows[0].figures["low_share"]
    series: dict[str, Any] = {"people": [people] * len(names)}
    for brain in brains:
        if (brain, names[0]) in found:
            series[brain] = [found[brain, name].figures["low_share"] for name in names]
    return bars("Share of ratings up to 2", names, series, "share of ratings (0-1)")
