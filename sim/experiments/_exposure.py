"""Experiment ``exposure``: ratings of genres after pages of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl

from pipelines.seeding import combine, hash_ids
from sim.agents import (
    ACTIONS,
    EMOTIONS,
    AgentWorld,
    Brain,
    Classifications,
    ClassifyRequests,
    DecideRequests,
    Decisions,
    InterviewRequests,
    Interviews,
    Judgements,
    JudgeRequests,
    Reflections,
    ReflectRequests,
    Replies,
    Visits,
    judge_pairs,
    page_lists,
)
from sim.experiments._context import ExperimentContext
from sim.experiments._feedback import Bools, Ints, rated
from sim.experiments._figures import finish_picture, paired, person_figures
from sim.experiments._protocol import Comparison, Result, Row, TooFew
from sim.metrics import Figure
from sim.recommenders import MaskedRecommender, Recommender

_FIGURES = {
    "exposed": "mean rating of films of the exposed genres after the biased pages, less that after "
    "the unbiased ones (1-5)",
    "others": "the same of all other films (1-5)",
    "difference": "exposed less others: difference in differences (1-5)",
}


@dataclass(frozen=True)
class ExposureSettings:
    """Settings of ``exposure``."""

    #: The only genres that the biased recommender shows, in small letters.
    genres: tuple[str, ...] = ("action", "horror")
    #: Name of the recommender that both arms see, with other items masked in the biased one.
    recommender: str = "random"
    #: Pages after which films are rated, ascending (counts).
    pages: tuple[int, ...] = (5, 20, 50)
    #: Agents, and films that each is asked for (counts; SimUSER, appendix F.7).
    agents: int = 50
    films: int = 500
    #: Films where a model is asked (count).
    model_films: int = 20
    #: Agents with enough films to see that figures need (count).
    min_agents: int = 10


class Exposure:
    """Mere exposure: change of ratings after pages of one genre, in a difference in differences."""

    name = "exposure"
    question = (
        "Do agents rate genres higher after pages that show nothing else than after pages of all "
        "genres?"
    )
    anchor = "SimUSER, appendix F.7 and Fig. 10"
    figures = _FIGURES

    def __init__(self, settings: ExposureSettings | None = None) -> None:
        self.settings = settings or ExposureSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Scroll both arms, then rate the same films."""
        rows: list[Row] = []
        comparisons: list[Comparison] = []
        counts: dict[str, int] = {}
        notes = list(_NOTES)
        sides: dict[tuple[str, int], tuple[Row, pl.DataFrame]] = {}
        for brain, name, options in _variants(context.brains):
            mind = context.brain(name, **options)
            pages, films = self._size(context, mind)
            frame = context.cell(
                self.name,
                {
                    **context.identity(mind),
                    "seed": context.seed,
                    "agents": min(self.settings.agents, context.agents_of(mind)),
                    "scrolled": pages,
                    "settings": asdict(replace(self.settings, films=films)),
                },
                lambda m=mind, p=pages, f=films: self._compute(context, m, p, f),  # type: ignore[misc]
            )
            counts[f"agents, {brain}"] = frame["persona_id"].n_unique()
            counts[f"agents left out for lack of films, {brain}"] = int(frame["left_out"].max())  # type: ignore[arg-type]
            counts[f"films without a usable rating, {brain}"] = int(frame["failed"].sum())
            if not options and not mind.reads and (frame["difference"].drop_nulls() == 0).all():
                notes.append(_placebo(brain))
            for after in pages:
                part = frame.filter(pl.col("pages") == after)
                labels = {"brain": brain, "pages": str(after)}
                mean = part.select("exposed_films", "other_films").mean().row(0)
                row = Row(
                    labels,
                    context.source(mind),
                    person_figures(part, list(_FIGURES)),
                    part["difference"].count(),
                    f"Films rated per agent: {mean[0]:.1f} of the exposed genres, "
                    f"{mean[1]:.1f} others.",
                )
                rows.append(row)
                sides[brain, after] = row, part
                if brain != "random" and ("random", after) in sides:
                    # The placebo is 0 of everybody: the test is one against no effect.
                    found = paired(
                        sides[brain, after], sides["random", after], "difference", seed=context.seed
                    )
                    comparisons += [] if found is None else [found]
        return Result(rows, comparisons, notes, {"difference": _picture(rows)}, counts)

    def _size(self, context: ExperimentContext, brain: Brain) -> tuple[list[int], int]:
        """Pages after which films are rated, and films: fewer where a model is asked."""
        if context.source(brain) != "model":
            return list(self.settings.pages), self.settings.films
        limit = context.sample["model_pages"]
        pages = [p for p in self.settings.pages if p <= limit] or [limit]
        return pages, min(self.settings.films, self.settings.model_films)

    def _compute(
        self, context: ExperimentContext, brain: Brain, pages: list[int], films: int
    ) -> pl.DataFrame:
        """Effects by person and number of pages."""
        world = context.world(pages=max(pages), traits=context.world_of(brain).traits)
        exposed = self._exposed(world)
        wanted = min(self.settings.agents, context.agents_of(brain))
        chosen, considered = self._people(world, exposed, max(pages), wanted)
        inner = context.recommender(self.settings.recommender)
        arms: dict[str, Recommender] = {
            "biased": MaskedRecommender(inner, ~exposed),
            "unbiased": inner,
        }
        people = np.arange(considered)
        lists = {name: page_lists(world, arm, people) for name, arm in arms.items()}
        asked = self._films(world, lists, chosen, films)
        frames = []
        for after in pages:
            played = context.world(pages=after, traits=world.traits)
            found = {}
            for name in arms:
                shown = lists[name][:, :after].copy()
                shown[~np.isin(people, chosen)] = -1
                visits = Visits(
                    played,
                    Scrolling(brain),
                    lists=shown,
                    agents=people,
                    people=people,
                    seed=context.seed,
                )
                visits.run()
                found[name] = judge_pairs(
                    played, brain, *asked, seed=context.seed, experienced=True, visits=visits
                ).frame
            effects = genre_effects(
                asked[0],
                exposed[asked[1]],
                *(found[name]["rating"].to_numpy().astype(np.float64) for name in arms),
            )
            ids = world.people["persona_id"].gather(effects["person"])
            frames.append(
                effects.with_columns(
                    persona_id=ids, pages=pl.lit(after), left_out=considered - len(chosen)
                ).drop("person")
            )
        return pl.concat(frames).sort("pages", "persona_id")

    def _exposed(self, world: AgentWorld) -> Bools:
        """Items of the genres."""
        names = [n for n, name in enumerate(world.genre_names)
                 if name.lower() in self.settings.genres]  # fmt: skip
        exposed = np.asarray(world.genres[:, names].any(axis=1), np.bool_)
        if not exposed.any():
            raise TooFew(
                f"items of the genres {' and '.join(self.settings.genres)}",
                found=0,
                needed=1,
                where=f"experiment {self.name}, {world.release.ref}",
                hint="name other genres in the settings of the experiment",
            )
        return exposed

    def _people(
        self, world: AgentWorld, exposed: Bools, pages: int, wanted: int
    ) -> tuple[Ints, int]:
        """People with enough unseen films of the genres, and how many were looked at for them."""
        needed = pages * world.per_page
        left = (exposed & ~rated(world, ("train",))).sum(axis=1)
        chosen = np.flatnonzero(left >= needed)[:wanted]
        least = min(self.settings.min_agents, wanted)
        if len(chosen) < least:
            raise TooFew(
                f"people with {needed:,} unseen items of the genres "
                f"{' and '.join(self.settings.genres)}",
                found=len(chosen),
                needed=least,
                where=f"experiment {self.name}, {world.release.ref}",
                hint="fewer pages in the settings of the experiment",
            )
        return chosen, int(chosen[-1]) + 1

    def _films(
        self, world: AgentWorld, lists: dict[str, Ints], chosen: Ints, films: int
    ) -> tuple[Ints, Ints]:
        """Pairs of person and film that are rated: none that the person has rated or was shown."""
        order = np.argsort(combine(hash_ids(world.catalogue.ids), 5), kind="stable")[:films]
        known = rated(world, ("train",))[chosen]
        for shown in lists.values():
            items = shown[chosen].reshape(len(chosen), -1)
            row, place = np.nonzero(items >= 0)
            known[row, items[row, place]] = True
        row, place = np.nonzero(~known[:, order])
        return chosen[row], order[place]


_NOTES = [
    "Before the first page both arms are the same agent: the difference between the arms is the "
    "change. Nobody leaves early. Films that an agent was shown in either arm, or had rated, are "
    "not asked for: an effect is one on the genre, not on the film.",
    "Only what a brain keeps of a visit can carry an effect: the model's brain reads entries, "
    "reflections and its own ratings of similar films; the rater of `statistical, learning` takes "
    "in the ratings of the visit. What that one learns from are its own draws, which on average "
    "are what it expected: no exposure effect is built into it.",
]


def _variants(brains: Sequence[str]) -> list[tuple[str, str, dict[str, Any]]]:
    """Label, name and options of each brain, and the statistical one that learns in the visit."""
    out: list[tuple[str, str, dict[str, Any]]] = [(name, name, {}) for name in brains]
    return [*out, ("statistical, learning", "statistical", {"learns": True})]


def _placebo(brain: str) -> str:
    return (
        f"`{brain}` keeps nothing of a visit that a rating depends on: its row is a placebo and "
        "exactly 0. It says that both arms are asked alike, and nothing about exposure."
    )


class Scrolling:
    """A brain that never leaves: the opened brain ``inner`` judges pages and reflects."""

    def __init__(self, inner: Brain) -> None:
        self._inner = inner
        self.name, self.note, self.reads = inner.name, inner.note, inner.reads

    def open(self, world: AgentWorld) -> Self:
        """Keep the inner brain as it is."""
        del world
        return self

    def judge(self, requests: JudgeRequests) -> Judgements:
        """See the inner brain."""
        return self._inner.judge(requests)

    def decide(self, requests: DecideRequests) -> Decisions:
        """NEXT."""
        n = len(requests)
        return Decisions(
            actions=np.full(n, ACTIONS.index("NEXT")),
            targets=np.full(n, -1),
            moods=np.ones(n, np.int64),
            fatigue=np.zeros(n, np.int64),
            emotions=np.full(n, EMOTIONS.index("NEUTRAL")),
            satisfaction=np.full(n, np.nan),
            reasons=np.full(n, None, object),
            **Replies.fine(n),
        )

    def reflect(self, requests: ReflectRequests) -> Reflections:
        """See the inner brain."""
        return self._inner.reflect(requests)

    def interview(self, requests: InterviewRequests) -> Interviews:
        """The middle score for each; no model is asked."""
        n = len(requests)
        return Interviews(scores=np.full(n, 5), reasons=np.full(n, None, object), **Replies.fine(n))

    def classify(self, requests: ClassifyRequests) -> Classifications:
        """See the inner brain."""
        return self._inner.classify(requests)

    def metadata(self) -> dict[str, Any]:
        """Metadata of the inner brain."""
        return self._inner.metadata()


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
    rows = rows.with_columns(pl.col("change").fill_nan(None))
    genre, value = pl.col("genre"), pl.col("change")
    return (
        rows.group_by("person")
        .agg(
            exposed=value.filter(genre).mean(),
            others=value.filter(~genre).mean(),
            exposed_films=value.filter(genre).count(),
            other_films=value.filter(~genre).count(),
            failed=value.null_count(),
        )
        .sort("person")
        .select(
            "person",
            "exposed",
            "others",
            (pl.col("exposed") - pl.col("others")).alias("difference"),
            "exposed_films",
            "other_films",
            "failed",
        )
    )


def _picture(rows: list[Row]) -> bytes:
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(7, 4))
    axes = picture.subplots()
    for brain in dict.fromkeys(row.labels["brain"] for row in rows):
        found = [
            (int(row.labels["pages"]), figure)
            for row in rows
            if row.labels["brain"] == brain
            and isinstance(figure := row.figures["difference"], Figure)
        ]
        values = [f.value for _, f in found]
        off = [[f.value - f.low for _, f in found], [f.high - f.value for _, f in found]]
        axes.errorbar([n for n, _ in found], values, yerr=off, marker="o", capsize=3, label=brain)
    axes.axhline(0, color="black", linewidth=0.8)
    axes.set_xlabel("pages scrolled")
    axes.set_ylabel("difference in differences (rating 1-5)")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return finish_picture(picture, axes, "Rating of exposed genres against others")
