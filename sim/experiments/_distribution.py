"""Experiment ``distribution``: ratings of agents beside those of people, by recommender."""

from __future__ import annotations

import numpy as np
import polars as pl

from pipelines.raters import to_answers
from pipelines.scales import scale_named
from pipelines.study import Claim, Figure, Plot, Study, mean_figure, pooled
from sim.agents import AgentWorld, Simulation
from sim.experiments._context import ExperimentContext
from sim.experiments._data import (
    Floats,
    finished,
    item_frame,
    rated_rows,
    training_means,
    watched_items,
)
from sim.experiments._experiment import experiment

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
    held_out = context.cell(study, {"rows": "people"}, lambda: _people(world))
    commonest = _STARS[int(world.histogram.argmax())]
    constant = held_out.with_columns(**{star: pl.lit(int(star == commonest)) for star in _STARS})
    study.counts["people"] = len(world)
    frames = [
        (("people (test ratings)", "none"), "people", held_out),
        (("always the commonest rating", "none"), "baseline", constant),
    ]
    for brain, mind, source in context.players():
        for name in context.recommenders:
            frame = context.of_visits(study, mind, name, lambda run: _ratings(run, world))
            frames.append(((brain, name), source, frame))
            agents = context.agents_of(mind)
            study.counts["agents"] = study.counts.get("agents", 0) + agents
            if agents > frame.height:
                study.counts[f"failed, {brain}, {name}"] = agents - frame.height
    person_means = pl.DataFrame(
        {"persona_id": world.people["persona_id"], "own": training_means(world)}
    )
    share = pl.sum_horizontal(_STARS[:low]) / pl.sum_horizontal(_STARS)
    for labels, rows_of, frame in frames:
        counts = frame.group_by("persona_id").agg(pl.col(*_STARS, *_EXPECTED).sum())
        counts = counts.filter(pl.sum_horizontal(_STARS) > 0).sort("persona_id")
        figures: dict[str, Figure | None] = dict.fromkeys(study.figures)
        if counts.height >= min_people:
            values = counts.select(_STARS).to_numpy().astype(np.float64)
            means = (values * np.arange(1, 6)).sum(axis=1) / values.sum(axis=1)
            of_person = counts.join(
                person_means, on="persona_id", how="left", maintain_order="left"
            )["own"]
            likeness, low_share = resampled_likeness(values, world.histogram, low)
            figures = {
                "likeness": likeness,
                "likeness_items": likeness_of(values, counts.select(_EXPECTED).to_numpy()),
                "low_share": low_share,
                "mean": mean_figure(means),
                "own_mean_r": correlation(means, of_person.to_numpy()),
            }
        study.add(
            labels, rows_of, frame.with_columns(low_share=share), figures, n=counts.height,
            least=("people with a rating", min_people, "more --agents or --pages"),
        )  # fmt: skip
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


def resampled_likeness(counts: Floats, target: Floats, low: int) -> tuple[Figure, Figure]:
    """1 less the total variation distance of pooled ratings, and the share of those up to ``low``.

    ``counts`` are ratings 1-5 per person, of shape (people, 5), ``target`` the shares of people's
    ratings, of shape (5,).

    >>> pair = np.array([[1.0, 1.0, 0.0, 0.0, 0.0]]), np.array([0.25, 0.5, 0.25, 0.0, 0.0])
    >>> [figure.value for figure in resampled_likeness(*pair, 1)]
    [0.75, 0.5]
    """
    people, columns = np.arange(len(counts)), list(counts.T)
    return (
        pooled(people, columns, lambda s: 1 - _apart(s / s.sum(axis=0), target[:, None])),
        pooled(people, columns, lambda s: s[:low].sum(axis=0) / s.sum(axis=0)),
    )


def likeness_of(counts: Floats, expected: Floats) -> Figure:
    """1 less the total variation distance of two pooled distributions of the same people.

    Both are counts of ratings 1-5 per person, of shape (people, 5).
    """
    return pooled(
        np.arange(len(counts)),
        [*counts.T, *expected.T],
        lambda s: 1 - _apart(s[:5] / s[:5].sum(axis=0), s[5:] / s[5:].sum(axis=0)),
    )


def _apart(left: Floats, right: Floats) -> Floats:
    """Total variation distance of distributions, of shape (answers, draws)."""
    return np.asarray(np.abs(left - right).sum(axis=0) / 2)


def correlation(left: Floats, right: Floats) -> Figure | None:
    """Pearson's correlation with a bootstrap interval over people; None where it has none."""
    present = ~np.isnan(right)
    x, y = left[present], right[present]
    if len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None

    def pearson(sums: Floats) -> Floats:
        mean = sums / len(x)
        both = mean[2] - mean[0] * mean[1]
        spread = (mean[3] - mean[0] ** 2) * (mean[4] - mean[1] ** 2)
        return np.asarray(both / np.sqrt(np.maximum(spread, 1e-12)))

    return pooled(np.arange(len(x)), [x, y, x * y, x**2, y**2], pearson)


def _ratings(run: Simulation, world: AgentWorld) -> pl.DataFrame:
    """Ratings of every agent that did not fail, and those of people of the same items."""
    counts = _counted(watched_items(run), "agent", world)
    joined = finished(run).join(counts, on="agent", how="left")
    return joined.with_columns(pl.col(_STARS + _EXPECTED).fill_null(0)).sort("agent")


def _people(world: AgentWorld) -> pl.DataFrame:
    """Test ratings of every person with one, and those of others of the same items."""
    rows = (
        rated_rows(world, "test")
        .join(world.people, on="user_id")
        .join(item_frame(world), on="item")
    )
    scale = scale_named("1-5")
    answers = to_answers(rows["truth"].to_numpy(), scale, scale)
    return _counted(rows.with_columns(rating=answers), "persona_id", world).sort("persona_id")


def _counted(rated: pl.DataFrame, owner: str, world: AgentWorld) -> pl.DataFrame:
    """Ratings by answer (counts), and the sums of their items' shares of training ratings.

    An item without a training rating counts with the shares of all ratings.
    """
    totals = world.item_histograms.sum(axis=1, keepdims=True)
    shares = np.where(totals > 0, world.item_histograms / np.maximum(totals, 1.0), world.histogram)
    items = item_frame(world, **dict(zip(_EXPECTED, shares.T, strict=True)))
    return (
        rated.join(items, on="item_id")
        .group_by(owner)
        .agg(
            **{f"r{star}": (pl.col("rating") == star).sum() for star in range(1, 6)},
            **{name: pl.col(name).sum() for name in _EXPECTED},
        )
    )
