"""Experiment ``traits``: habits of agents by tier, and their diversity beside people's."""

from __future__ import annotations

from functools import partial

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.special import gammaln

from pipelines.study import (
    RESAMPLES,
    Comparison,
    Figure,
    Study,
    mean_figure,
    user_weights,
)
from sim.agents import AgentWorld, Simulation
from sim.experiments._context import ExperimentContext
from sim.experiments._data import Floats, finished, item_frame, watched_items
from sim.experiments._distribution import correlation, likeness_of
from sim.experiments._experiment import experiment, page

#: Figure of each trait, and its tiers from low to high.
TRAITS = {"activity": "watched", "conformity": "deviation", "diversity": "genres"}
TIERS = ("low", "medium", "high")
#: Permutations of the test between two groups (count).
_PERMUTATIONS = 4_999


@experiment(
    question="Are agents with low and high activity, conformity and diversity apart in what they "
    "do, with traits and without, and are they as diverse as their people?",
    paper="Agent4Rec, Figs. 4-6; SimUSER, Fig. 6",
    conditions=("brain", "traits", "trait", "tier"),
    **page("traits", tiers=lambda row: row.labels["traits"] != "with less without"),
)
def traits(
    study: Study,
    context: ExperimentContext,
    *,
    recommender: str = "als",  # ``als`` stands for Agent4Rec's MF
    items: int = 3,  # watched items that genres are expected among (count)
    min_people: int = 10,  # that the figure of a tier needs
) -> None:
    """Play visits with and without traits, and compare tiers."""
    world = context.world()
    tiers = world.people.select("persona_id", *TRAITS)
    # One trait at least has enough people at both ends; others are left without figures.
    number = max(
        min(tiers.filter(pl.col(trait) == tier).height for tier in (TIERS[0], TIERS[-1]))
        for trait in TRAITS
    )
    study.require(
        f"people of low and of high {', '.join(TRAITS)}", number, min_people,
        "a release with more matched people",
    )  # fmt: skip
    add, names = partial(_add_tiers, study, tiers, min_people), list(TRAITS.values())
    people = context.cell(study, {"people": len(world)}, lambda: _of_people(world, items))
    add(("people", "own"), "people", people, gaps=False)
    for brain, mind, source in context.players():
        bare = context.world(traits=False, pages=context.world_of(mind).pages)
        frames = {}
        for name, played in (("with", mind), ("without", context.brain(brain, bare))):
            frames[name] = context.of_visits(
                study, played, recommender, partial(_of_agents, world, items)
            )
            add((brain, name), source, frames[name])
            study.counts[f"people, {brain}, {name} traits"] = frames[name].height
        both = frames["with"].join(frames["without"], on="persona_id", suffix="_right")
        changed = both.select("persona_id", *(pl.col(n) - pl.col(f"{n}_right") for n in names))
        add((brain, "with less without"), source, changed.sort("persona_id"))
        _add_likeness(study, brain, source, frames["with"], people)
    study.compared = (
        "Differences of groups of people (left minus right), people permuted between the groups"
    )


def _add_tiers(
    study: Study,
    tiers: pl.DataFrame,
    min_people: int,
    labels: tuple[str, str],
    source: str,
    frame: pl.DataFrame,
    *,
    gaps: bool = True,
) -> None:
    """A row per trait and tier; with ``gaps`` also comparisons of the high with the low tier."""
    joined = frame.join(tiers, on="persona_id", maintain_order="left")
    for trait, name in TRAITS.items():
        if name not in frame.columns:
            continue
        sides = {}
        for tier in TIERS:
            values = joined.filter(pl.col(trait) == tier)[name].drop_nulls().to_numpy()
            figure = mean_figure(values) if len(values) >= min_people else None
            row = study.add((*labels, trait, tier), source, figures={name: figure}, n=len(values))
            sides[tier] = row.title, values
        (lower, low), (upper, high) = sides[TIERS[0]], sides[TIERS[-1]]
        if gaps and min(len(low), len(high)) >= min_people:
            difference, p = group_difference(high, low, seed=study.seed)
            number = len(low) + len(high)
            study.comparisons.append(Comparison(upper, lower, name, difference, p, number))


def rarefied(counts: npt.ArrayLike, sizes: npt.ArrayLike, m: int) -> Floats:
    """Expected number of genres among m items drawn without replacement (Hurlbert 1971).

    Histories of different length are comparable: sum over genres of 1 - C(n - k, m) / C(n, m), k of
    the n items having the genre. ``counts`` are items with each genre, of shape (people, genres),
    ``sizes`` the items, of shape (people,), as is the result; NaN for fewer than m items.

    >>> rarefied([[1, 1, 2]], [4], 2).round(4)  # 1/2 + 1/2 + (1 - 1/6)
    array([1.8333])
    """
    k, n = np.asarray(counts, np.float64), np.asarray(sizes, np.float64)[:, None]
    possible = n - k >= m
    with np.errstate(invalid="ignore"):
        none = np.exp(_log_choose(np.where(possible, n - k, m), m) - _log_choose(n, m))
    expected = (1.0 - np.where(possible, none, 0.0)).sum(axis=1)
    return np.asarray(np.where(n[:, 0] >= m, expected, np.nan))


def _log_choose(n: Floats, m: int) -> Floats:
    return np.asarray(gammaln(n + 1) - gammaln(m + 1) - gammaln(n - m + 1))


def group_difference(left: Floats, right: Floats, *, seed: int = 0) -> tuple[Figure, float]:
    """Difference of the means of two groups of people: 95 % interval and p.

    The interval draws people of either group with replacement; p is that of a permutation test
    (two-sided).
    """
    draws = [
        user_weights(len(part), RESAMPLES, seed + n) @ part / len(part)
        for n, part in enumerate((left, right))
    ]
    low, high = np.quantile(draws[0] - draws[1], [0.025, 0.975])
    value = float(left.mean() - right.mean())
    both, size = np.concatenate([left, right]), len(left)
    rng = np.random.default_rng(seed)
    chosen = np.zeros((_PERMUTATIONS, len(both)))
    chosen[:, :size] = 1.0
    sums = rng.permuted(chosen, axis=1) @ both
    moved = sums / size - (both.sum() - sums) / (len(both) - size)
    beyond = int((np.abs(moved) >= abs(value) - 1e-12).sum())
    return Figure(value, float(low), float(high)), (beyond + 1) / (_PERMUTATIONS + 1)


def overlap(left: Floats, right: Floats, ends: npt.ArrayLike) -> Figure:
    """One less the total variation distance of two histograms of the same people, 0-1.

    >>> overlap(np.array([1.0, 1.0, 2.0, 2.0]), np.array([1.0, 2.0, 2.0, 2.0]), [1.5]).value
    0.75
    """
    answers = np.eye(len(np.asarray(ends)) + 1)
    return likeness_of(*(answers[np.digitize(side, np.asarray(ends))] for side in (left, right)))


def _add_likeness(
    study: Study, brain: str, source: str, agents: pl.DataFrame, people: pl.DataFrame
) -> None:
    """Agents' diversity against that of their people."""
    both = agents.join(people, on="persona_id", suffix="_people").sort("persona_id")
    both = both.drop_nulls(["genres", "genres_people"])
    figures: dict[str, Figure | float | None] = {"genres_overlap": None, "genres_r": None}
    if both.height:
        sides = both["genres"].to_numpy(), both["genres_people"].to_numpy()
        ends = np.arange(0.5, np.max(sides), 0.5)
        figures = {"genres_overlap": overlap(*sides, ends), "genres_r": correlation(*sides)}
    study.add((brain, "with", "diversity", "all"), source, figures=figures, n=both.height)


def _of_agents(world: AgentWorld, items: int, run: Simulation) -> pl.DataFrame:
    """Figures of `TRAITS` by person, means over its agents."""
    watched = watched_items(run).unique(["agent", "item_id"])
    behaviour = _figures(world, watched.rename({"agent": "who"}), items)
    joined = finished(run).join(behaviour, left_on="agent", right_on="who", how="left")
    joined = joined.with_columns(pl.col("watched").fill_null(0))
    means = [pl.col(n).cast(pl.Float64).mean() for n in TRAITS.values()]
    return joined.group_by("persona_id").agg(means).sort("persona_id")


def _of_people(world: AgentWorld, items: int) -> pl.DataFrame:
    """Deviation and genres of people's training interactions."""
    history = world.history
    rated = pl.DataFrame(
        {
            "who": np.repeat(world.people["persona_id"].to_numpy(), history.lengths),
            "item_id": pl.Series(world.catalogue.ids).gather(history.items),
            "rating": history.ratings,
        }
    )
    return _figures(world, rated, items).select("deviation", "genres", persona_id="who")


def _figures(world: AgentWorld, rated: pl.DataFrame, items: int) -> pl.DataFrame:
    """Figures of `TRAITS` of rows of ``who``, ``item_id`` and ``rating`` (1-5), by ``who``."""
    rows = rated.join(item_frame(world, mean=world.mean_ratings), on="item_id").sort("who", "item")
    off = (pl.col("rating") - pl.col("mean").fill_nan(None)) ** 2
    sums = rows.group_by("who", maintain_order=True).agg(watched=pl.len(), deviation=off.mean())
    genres = (
        np.add.reduceat(
            world.genres[rows["item"].to_numpy()], np.cumsum([0, *sums["watched"][:-1]]), axis=0
        )
        if rows.height
        else np.zeros((0, len(world.genre_names)))
    )
    expected = rarefied(genres, sums["watched"].to_numpy(), items)
    return sums.with_columns(genres=pl.Series(expected).fill_nan(None))
