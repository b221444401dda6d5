"""Experiment ``distribution``: ratings of agents beside those of people, by recommender."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.study import (
    RESAMPLES,
    Claim,
    Figure,
    Plot,
    Study,
    interval,
    mean_figure,
    user_weights,
)
from sim.agents import AgentWorld, Simulation
from sim.experiments._context import ExperimentContext
from sim.experiments._experiment import experiment

Floats = npt.NDArray[np.float64]
_STARS = [f"r{star}" for star in range(1, 6)]
#: Ratings 1-5 that people gave to the rated items, each item's shares.
_EXPECTED = [f"e{star}" for star in range(1, 6)]


@experiment(
    question="Do the ratings that agents give spread over the scale as those of people do, "
    "whichever recommender they visit?",
    paper="Agent4Rec, Fig. 3; SimUSER, Fig. 2",
    conditions=("brain", "recommender"),
    figures={
        "likeness": "1 less the total variation distance to people's training ratings, 0-1",
        "likeness_items": "the same to people's training ratings of the items that were rated, "
        "each rating's item counting once, 0-1",
        "low_share": "share of the ratings up to 2, 0-1",
        "mean": "mean rating, 1-5",
        "own_mean_r": "correlation, over people, of the agents' mean rating with their person's "
        "mean training rating, -1 to 1",
    },
    claim=Claim(
        "Ratings of agents spread over the scale as people's do, though with fewer ratings of 1 "
        "and 2.",
        figure="own_mean_r",
        row={},
        control={"brain": "random"},
        above="Supported, and more: beyond the spread, agents rate high whose people rate high, "
        "which draws from people's histogram do not.",
        below="Contradicted: agents follow their own person less than draws from people's "
        "histogram.",
        equal="Not supported beyond a baseline: draws from people's histogram are as near to the "
        "single person.",
    ),
    plots={
        "ratings": Plot(
            "Share of ratings up to 2", "share of ratings (0-1)", ("low_share",), ("recommender",),
            ("brain",),
        )
    },
    version="2",
)  # fmt: skip
def distribution(
    study: Study,
    context: ExperimentContext,
    *,
    min_people: int = 10,  # with a rating
    low: int = 2,  # a rating up to this is a low one
) -> None:
    """Compare the ratings of visits with people's training ratings."""
    world = context.world()
    add = partial(_add, study, world, min_people, low)
    held_out = context.cell(study, {"rows": "people"}, lambda: _people(world))
    add(("people (test ratings)", "none"), "people", held_out)
    commonest = _STARS[int(world.histogram.argmax())]
    constant = held_out.with_columns(**{star: pl.lit(int(star == commonest)) for star in _STARS})
    add(("always the commonest rating", "none"), "baseline", constant)
    study.counts["people"] = len(world)
    for brain, mind, source in context.players():
        for name in context.recommenders:
            run = context.visits(mind, name)
            frame = context.cell(study, {"visits": run.identity}, partial(_ratings, run, world))
            title = add((brain, name), source, frame)
            agents = context.agents_of(mind)
            study.counts["agents"] = study.counts.get("agents", 0) + agents
            if agents > frame.height:
                study.counts[f"failed, {title}"] = agents - frame.height
    study.against("low_share", brain="random")
    study.notes += [
        "The floor `random` draws its ratings from people's histogram, so that its likeness is "
        "near 1 without knowing anybody: likeness alone tells nothing of the person, `own_mean_r` "
        "does.",
        "Test ratings are people's latest: their likeness with the training ratings is what people "
        "have with themselves over time.",
        "People rated what they had chosen; agents rate what a recommender shows. "
        "`likeness_items` compares with people's ratings of the same items, so that a recommender "
        "that shows only liked items, or any, is no fault of the agents. The floor's rows are "
        "equal by construction: it looks at nothing that is shown.",
    ]


def _add(
    study: Study,
    world: AgentWorld,
    min_people: int,
    low: int,
    labels: tuple[str, str],
    source: str,
    frame: pl.DataFrame,
) -> str:
    """Add a row of ratings per person (columns r1 to r5, counts) and return its title."""
    columns = pl.col(*_STARS, *_EXPECTED).sum()
    counts = frame.group_by("persona_id").agg(columns).sort("persona_id")
    counts = counts.filter(pl.sum_horizontal(_STARS) > 0)
    figures: dict[str, Figure | None] = dict.fromkeys(study.figures)
    if counts.height >= min_people:
        values = counts.select(_STARS).to_numpy().astype(np.float64)
        means = (values * np.arange(1, 6)).sum(axis=1) / values.sum(axis=1)
        own = _own_means(world)
        owned = np.array([own.get(p, np.nan) for p in counts["persona_id"]])
        likeness, low_share = resampled_likeness(values, world.histogram, low)
        figures = {
            "likeness": likeness,
            "likeness_items": likeness_of(values, counts.select(_EXPECTED).to_numpy()),
            "low_share": low_share,
            "mean": mean_figure(means),
            "own_mean_r": correlation(means, owned),
        }
    share = pl.sum_horizontal(_STARS[:low]) / pl.sum_horizontal(_STARS)
    row = study.add(
        labels, source, frame.with_columns(low_share=share), figures, n=counts.height,
        least=("people with a rating", min_people, "more --agents or --pages"),
    )  # fmt: skip
    return row.title


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
        interval(1 - total_variation(shares, target), likeness),
        interval(float(shares[:low].sum()), drawn[:, :low].sum(axis=1)),
    )


def likeness_of(counts: Floats, expected: Floats) -> Figure:
    """1 less the total variation distance of two pooled distributions of the same people.

    Both are counts of ratings 1-5 per person, of shape (people, 5).
    """
    weights = user_weights(len(counts), RESAMPLES, 0)
    sides = [(c.sum(axis=0) / c.sum(), weights @ c) for c in (counts, expected)]
    drawn = [d / d.sum(axis=1, keepdims=True) for _, d in sides]
    value = 1 - total_variation(sides[0][0], sides[1][0])
    return interval(value, 1 - np.abs(drawn[0] - drawn[1]).sum(axis=1) / 2)


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
    return interval(float(np.corrcoef(x, y)[0, 1]), drawn)


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
