"""Experiment ``exposure``: ratings of genres after pages of nothing else."""

from __future__ import annotations

from functools import partial
from typing import Any, cast

import numpy as np
import polars as pl

from pipelines.seeding import combine, hash_ids
from pipelines.study import Study
from sim.agents import AgentWorld, Brain, judge_pairs, page_lists, visits_of
from sim.experiments._context import ExperimentContext
from sim.experiments._data import Bools, Ints, rated
from sim.experiments._experiment import experiment, page
from sim.recommenders import MaskedRecommender, Recommender


@experiment(
    question="Do agents rate genres higher after pages that show nothing else than after pages of "
    "all genres?",
    paper="SimUSER, appendix F.7 and Fig. 10",
    conditions=("brain", "pages"),
    **page("exposure"),
)
def exposure(
    study: Study,
    context: ExperimentContext,
    *,
    genres: tuple[str, ...] = ("action", "horror"),  # that alone are shown, in small letters
    recommender: str = "random",  # that both arms see; other items are masked in the biased one
    pages: tuple[int, ...] = (5, 20, 50),  # after which films are rated, ascending (counts)
    agents: int = 50,  # (SimUSER, appendix F.7)
    films: int = 500,  # that each agent is asked for
    model_films: int = 20,  # that a model is asked for
    min_agents: int = 10,  # with enough films to see
) -> None:
    """Scroll both arms, then rate the same films."""
    variants: list[tuple[str, str, dict[str, Any]]] = [(n, n, {}) for n in context.brains]
    variants.append(("statistical, learning", "statistical", {"learns": True}))
    for label, name, options in variants:
        brain = context.brain(name, **options)
        source, scrolled, to_rate = context.source(brain), list(pages), films
        if source == "model":
            limit = context.sample["model_pages"]
            scrolled = [p for p in pages if p <= limit] or [limit]
            to_rate = min(films, model_films)
        number = min(agents, context.agents_of(brain))
        frame = context.cell(
            study,
            {**context.identity(brain), "agents": number, "scrolled": scrolled, "films": to_rate},
            partial(
                _effects, study, context, brain, scrolled, to_rate, genres, recommender,
                (number, min_agents),
            ),
        )  # fmt: skip
        study.counts[f"agents, {label}"] = frame["persona_id"].n_unique()
        left_out = int(frame["left_out"].max())  # type: ignore[arg-type]
        study.counts[f"agents left out for lack of films, {label}"] = left_out
        study.counts[f"films without a usable rating, {label}"] = int(frame["failed"].sum())
        if not options and not brain.reads and (frame["difference"].drop_nulls() == 0).all():
            study.notes.append(
                f"`{label}` keeps nothing of a visit that a rating depends on: its row is a "
                "placebo and exactly 0. It says that both arms are asked alike, and nothing about "
                "exposure."
            )
        for after in scrolled:
            part = frame.filter(pl.col("pages") == after)
            mean = part.select("exposed_films", "other_films").mean().row(0)
            study.add(
                (label, str(after)), source, part, n=part["difference"].count(),
                note=f"Films rated per agent: {mean[0]:.1f} of the exposed genres, {mean[1]:.1f} "
                "others.",
            )  # fmt: skip
    # The placebo is 0 for every person: the test is one against no effect.
    study.against("difference", brain="random")


def _effects(
    study: Study,
    context: ExperimentContext,
    brain: Brain,
    pages: list[int],
    films: int,
    genres: tuple[str, ...],
    recommender: str,
    agents: tuple[int, int],
) -> pl.DataFrame:
    """Effects by person and number of pages.

    ``agents`` are those that are chosen at most, and at least (counts).
    """
    world = context.world(pages=max(pages), traits=context.world_of(brain).traits)
    named = [n for n, name in enumerate(world.genre_names) if name.lower() in genres]
    exposed = np.asarray(world.genres[:, named].any(axis=1), np.bool_)
    rated_items = rated(world, "train")
    needed = max(pages) * world.per_page
    text = " and ".join(genres)
    study.require(
        f"items of the genres {text}", int(exposed.sum()), 1,
        "name other genres in the options of the experiment",
    )  # fmt: skip
    chosen = np.flatnonzero((exposed & ~rated_items).sum(axis=1) >= needed)[: agents[0]]
    study.require(
        f"people with {needed:,} unseen items of the genres {text}", len(chosen), min(agents),
        "fewer pages in the options of the experiment",
    )  # fmt: skip
    people = np.arange(int(chosen[-1]) + 1)
    inner = context.recommender(recommender)
    arms: tuple[Recommender, ...] = (MaskedRecommender(inner, ~exposed), inner)
    lists = [page_lists(world, arm, people) for arm in arms]
    person, item = _films(world, rated_items, lists, chosen, films)
    ids = world.people["persona_id"]
    frames = []
    for after in pages:
        played = context.world(pages=after, traits=world.traits)
        ratings = []
        for listed in lists:
            visits = visits_of(
                played, scrolling(context, brain), listed[chosen, :after], agents=chosen,
                people=chosen, seed=context.seed,
            )  # fmt: skip
            judgements = judge_pairs(
                played, brain, person, item, seed=context.seed, experienced=True, visits=visits
            )
            ratings.append(judgements.frame["rating"].to_numpy().astype(np.float64))
        effects = genre_effects(person, exposed[item], *ratings)
        frames.append(
            effects.select(
                pl.exclude("person"), persona_id=ids.gather(effects["person"]), pages=pl.lit(after),
                left_out=len(people) - len(chosen),
            )
        )  # fmt: skip
    return pl.concat(frames).sort("pages", "persona_id")


def _films(
    world: AgentWorld, rated_items: Bools, lists: list[Ints], chosen: Ints, films: int
) -> tuple[Ints, Ints]:
    """Pairs of person and film that are rated: none that the person has rated or was shown."""
    order = np.argsort(combine(hash_ids(world.catalogue.ids), 5), kind="stable")[:films]
    free = ~rated_items[chosen]
    for shown in lists:
        items = shown[chosen].reshape(len(chosen), -1)
        row, place = np.nonzero(items >= 0)
        free[row, items[row, place]] = False
    row, place = np.nonzero(free[:, order])
    return chosen[row], order[place]


def scrolling(context: ExperimentContext, brain: Brain) -> Brain:
    """A brain that never leaves: the opened brain judges pages and reflects, `always` decides."""
    always = context.brain("always")

    class Scrolling:
        decide, interview = always.decide, always.interview

        def __getattr__(self, name: str) -> Any:
            return getattr(brain, name)

    return cast(Brain, Scrolling())


def genre_effects(people: Ints, exposed: Bools, biased: Any, unbiased: Any) -> pl.DataFrame:
    """Differences between the arms by person.

    ``people`` and ``exposed`` are the person of each rated film and whether it is of the exposed
    genres, ``biased`` and ``unbiased`` its ratings after either arm, NaN without one, all of shape
    (n,).

    Columns: ``person``, `exposed` and `others` (mean differences over films rated in both arms),
    `difference`, the films of both kinds, and those that lack a rating (``failed``).

    >>> genre_effects([0, 0, 0], [True, True, False], [5, 4, 3], [3, 4, 4]).row(0)[1:4]
    (1.0, -1.0, 2.0)
    """
    change = np.asarray(biased, np.float64) - np.asarray(unbiased, np.float64)
    rows = pl.DataFrame({"person": people, "genre": exposed, "change": change})
    genre, value = pl.col("genre"), pl.col("change")
    of_genre, of_others = value.filter(genre), value.filter(~genre)
    return (
        rows.with_columns(value.fill_nan(None))
        .group_by("person")
        .agg(
            exposed=of_genre.mean(),
            others=of_others.mean(),
            difference=of_genre.mean() - of_others.mean(),
            exposed_films=of_genre.count(),
            other_films=of_others.count(),
            failed=value.null_count(),
        )
        .sort("person")
    )
