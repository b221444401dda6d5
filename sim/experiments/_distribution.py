"""Experiment ``distribution``: ratings of agents beside those of people, by recommender."""

from __future__ import annotations

import numpy as np
import polars as pl

from pipelines.raters import to_answers
from pipelines.scales import scale_named
from pipelines.study import Figure, Study, mean_figure, pooled
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
from sim.experiments._experiment import experiment, page

_STARS = [f"r{star}" for star in range(1, 6)]
#: Ratings 1-5 that people gave to the rated items, each item's shares.
_EXPECTED = [f"e{star}" for star in range(1, 6)]


@experiment(
    question="Do the ratings that agents give spread over the scale as those of people do, "
    "whichever recommender they visit?",
    paper="Agent4Rec, Fig. 3; SimUSER, Fig. 2",
    conditions=("brain", "recommender"),
    version="2",
    **page("distribution"),
)
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
            everywhere = np.broadcast_to(world.histogram, values.shape)
            figures = {
                "likeness": likeness_of(values, everywhere),
                "likeness_items": likeness_of(values, counts.select(_EXPECTED).to_numpy()),
                "low_share": low_share_of(values, low),
                "mean": mean_figure(means),
                "own_mean_r": correlation(means, of_person.to_numpy()),
            }
        study.add(
            labels, rows_of, frame.with_columns(low_share=share), figures, n=counts.height,
            least=("people with a rating", min_people, "more --agents or --pages"),
        )  # fmt: skip
    study.against("low_share", brain="random")


def low_share_of(counts: Floats, low: int) -> Figure:
    """Share of pooled ratings up to ``low``; ``counts`` are ratings 1-5, of shape (people, 5)."""
    return pooled(
        np.arange(len(counts)), list(counts.T), lambda s: s[:low].sum(axis=0) / s.sum(axis=0)
    )


def likeness_of(counts: Floats, expected: Floats) -> Figure:
    """1 less the total variation distance of two pooled distributions of the same people, 0-1.

    Both are counts (or shares) of answers per person, of shape (people, answers). The interval is
    widened to the value: a distance is biased upwards in resamples.

    >>> likeness_of(np.array([[1.0, 1.0, 0.0]]), np.array([[0.25, 0.5, 0.25]])).value
    0.75
    """
    answers = counts.shape[1]

    def likeness(sums: Floats) -> Floats:
        left, right = (s / s.sum(axis=0) for s in (sums[:answers], sums[answers:]))
        return np.asarray(1 - np.abs(left - right).sum(axis=0) / 2)

    return pooled(np.arange(len(counts)), [*counts.T, *expected.T], likeness)


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
