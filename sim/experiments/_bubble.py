"""Experiment ``bubble``: genres of recommendations over rounds of retraining."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.seeding import combine, hash_ids
from sim.agents import AgentWorld, Brain, visit
from sim.experiments._context import ExperimentContext
from sim.experiments._feedback import Floats, Ints, drawn, item_table, rated, retrained
from sim.experiments._figures import finish_picture, paired, person_figures
from sim.experiments._protocol import Result, Row, TooFew
from sim.metrics import Figure
from sim.recommenders import MaskedRecommender

#: Rows that the recommender is trained on from round to round.
FEEDBACK = {
    "none": "nothing",
    "watched": "what the agent watched",
    "random items": "as many items of the round's part drawn at random",
}
_FIGURES = {
    "p_top1": "share of the recommended items in their commonest genre, an item of several genres "
    "counting one divided by their number, 0-1",
    "n_genres": "genres among the recommended items of a round (count)",
    "p_top1_slope": "change of p_top1 per round",
    "n_genres_slope": "change of n_genres per round",
}


@dataclass(frozen=True)
class BubbleSettings:
    """Settings of ``bubble``."""

    #: Name of the one that is retrained; ``als`` stands for Agent4Rec's MF.
    recommender: str = "als"
    #: Rounds, and parts of the items (count).
    rounds: int = 4
    #: Items of a part that a round needs (count).
    min_items: int = 20


class Bubble:
    """Filter bubbles: genre concentration of lists over rounds of simulated feedback."""

    name = "bubble"
    question = (
        "Do recommendations narrow to fewer genres from round to round as the recommender is "
        "retrained on what agents watched?"
    )
    anchor = "Agent4Rec, Fig. 8"
    figures = _FIGURES

    def __init__(self, settings: BubbleSettings | None = None) -> None:
        self.settings = settings or BubbleSettings()

    def run(self, context: ExperimentContext) -> Result:
        """Recommend, visit and retrain, round by round."""
        world = context.world()
        parts, _ = self._parts(world)
        smallest = int(np.bincount(parts, minlength=self.settings.rounds).min())
        if smallest < self.settings.min_items:
            raise TooFew(
                f"items in the smallest of {self.settings.rounds} parts",
                found=smallest,
                needed=self.settings.min_items,
                where=f"experiment {self.name}, {context.release.ref}",
            )
        sides: dict[tuple[str, str], tuple[Row, pl.DataFrame]] = {}
        counts: dict[str, int] = {}
        rows: list[Row] = []
        for brain in context.brains:
            mind = context.brain(brain)
            for feedback in FEEDBACK:
                alone = feedback == "none"
                if alone and sides:
                    continue
                played = context.world_of(mind)
                people = len(played) if alone else min(context.agents_of(mind), len(played))
                frame = context.cell(
                    self.name,
                    {
                        "brain": "none" if alone else context.identity(mind),
                        "shown": [world.pages, world.per_page] if alone else "as the brain",
                        "feedback": feedback,
                        "agents": people,
                        "seed": context.seed,
                        "settings": asdict(self.settings),
                    },
                    lambda w=played, b=mind, f=feedback, p=people: self._compute(  # type: ignore[misc]
                        w, b, f, p, context.seed
                    ),
                )
                labels = {"brain": "none" if alone else brain, "feedback": feedback}
                source = "baseline" if alone else context.source(mind)
                found = self._rows(labels, source, frame)
                rows += found
                sides[labels["brain"], feedback] = found[-1], frame
                counts[f"rows added, {found[-1].title}"] = int(frame["added"].sum())
        comparisons = []
        for (brain, feedback), side in sides.items():
            for other in (("none", "none"), (brain, "random items")):
                if other != (brain, feedback) and feedback == "watched" and other in sides:
                    for figure in ("p_top1_slope", "n_genres_slope"):
                        pair = paired(side, sides[other], figure, seed=context.seed)
                        comparisons += [] if pair is None else [pair]
        return Result(rows, comparisons, _NOTES, {"p_top1": _picture(rows)}, counts)

    def _rows(self, labels: dict[str, str], source: str, frame: pl.DataFrame) -> list[Row]:
        """A row per round, and one with the slopes."""
        rows = []
        for number in range(1, self.settings.rounds + 1):
            part = frame.filter(pl.col("round") == number)
            figures = person_figures(part, ("p_top1", "n_genres"))
            rows.append(Row(labels | {"round": str(number)}, source, figures, part.height))
        last = frame.filter(pl.col("round") == 1)
        figures = person_figures(last, ("p_top1_slope", "n_genres_slope"))
        note = f"Retrained on the training split and {FEEDBACK[labels['feedback']]}."
        rows.append(Row(labels | {"round": "slope"}, source, figures, last.height, note))
        return rows

    def _parts(self, world: AgentWorld) -> tuple[Ints, Ints]:
        people = world.people["persona_id"].to_list()
        return parts_of_rounds(world.catalogue.ids, people, self.settings.rounds)

    def _compute(
        self, world: AgentWorld, brain: Brain, feedback: str, people: int, seed: int
    ) -> pl.DataFrame:
        """Figures by person and round; slopes stand in every round."""
        of_items, begin = self._parts(world)
        everybody = np.arange(people)
        personas = world.people["persona"].to_numpy()
        known = rated(world, ("train",))
        gathered = np.zeros_like(known)
        fitted = retrained(world, self.settings.recommender)
        mask = np.ones((int(world.release["personas"].rows), known.shape[1]), np.bool_)
        columns: dict[str, list[Any]] = {"p_top1": [], "n_genres": [], "added": []}
        for number in range(self.settings.rounds):
            part = (begin[:, None] + number) % self.settings.rounds == of_items[None, :]
            mask[personas] = ~part
            shown = MaskedRecommender(fitted, mask)
            length = world.pages * world.per_page
            lists = shown.recommend(personas[:people], length, seen=world.known[:people])
            top, genres = genre_figures(lists, world.genres)
            columns["p_top1"].append(top)
            columns["n_genres"].append(genres)
            columns["added"].append(gathered[:people].sum(axis=1))
            if feedback == "none" or number + 1 == self.settings.rounds:
                continue
            views = visit(world, brain, shown, everybody, seed=seed + number)["views"]
            watched = item_table(world, views.filter(pl.col("watched")))
            if feedback == "random items":
                watched = drawn(part & ~known, watched.sum(axis=1), seed=seed + number)
            gathered |= watched
            fitted = retrained(world, self.settings.recommender, gathered)
        values = {name: np.stack(column, axis=1) for name, column in columns.items()}
        steep = {f"{name}_slope": slopes(values[name]) for name in ("p_top1", "n_genres")}
        ids = world.people["persona_id"][:people]
        return pl.concat(
            pl.DataFrame(
                {
                    "persona_id": ids,
                    "round": pl.repeat(number + 1, people, eager=True),
                    **{name: column[:, number] for name, column in values.items()},
                    **steep,
                }
            )
            for number in range(self.settings.rounds)
        )


_NOTES = [
    "A round recommends one part of the items, and every part is in each round for an equal share "
    "of the people: with the same parts for everybody a trend could be that of the parts. "
    "Feedback `none` shows what is left of that.",
    "Figures are of the whole list of a round, whether or not the agent stayed to see it, so that "
    "earlier exits are no narrowing.",
    "The brain `random` watches what it is shown at random: its slope is that of random feedback. "
    "A narrowing that agents cause is one beyond these controls.",
]


def genre_figures(lists: npt.ArrayLike, genres: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Share of the commonest genre, and number of genres, of recommended lists, of shape (n,).

    ``lists`` has item numbers, -1 where a list ends, of shape (n, k); ``genres`` is 1 where an item
    has a genre, of shape (items, genres). An item counts one divided by its genres for each of
    them; items without a genre are left out. NaN for a list without a genre.

    >>> share, number = genre_figures([[0, 1, 2, 3]], [[1, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1]])
    >>> float(share[0]), float(number[0])  # A: (1 + 1/2 + 1) / 4
    (0.625, 3.0)
    """
    items, flags = np.asarray(lists, np.int64), np.asarray(genres, np.float64)
    sizes = flags.sum(axis=1)
    parts = flags / np.maximum(sizes, 1.0)[:, None]
    there = (items >= 0) & (sizes[items] > 0)
    summed = np.where(there[:, :, None], parts[items], 0.0).sum(axis=1)
    count = there.sum(axis=1)
    share = summed.max(axis=1, initial=0.0) / np.maximum(count, 1)
    number = (summed > 0).sum(axis=1).astype(np.float64)
    empty = count == 0
    return np.where(empty, np.nan, share), np.where(empty, np.nan, number)


def slopes(values: npt.ArrayLike) -> Floats:
    """Least-squares slope over equidistant rounds, per row of shape (n, rounds).

    >>> slopes([[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]]).tolist()
    [1.0, 0.0]
    """
    rows = np.asarray(values, np.float64)
    time = np.arange(rows.shape[1]) - (rows.shape[1] - 1) / 2
    return np.asarray(rows @ time / (time @ time))


def parts_of_rounds(items: list[str], people: list[str], parts: int) -> tuple[Ints, Ints]:
    """Part of each item, and the part that each person begins with; both by a hash of the id.

    Person p is recommended part (start of p + r) mod `parts` in round r, so that each part is in
    every round equally often and no trend comes from what films a part happens to hold.
    """
    of_items = hash_ids(items) % np.uint64(parts)
    of_people = combine(hash_ids(people), 1) % np.uint64(parts)
    return of_items.astype(np.int64), of_people.astype(np.int64)


def _picture(rows: list[Row]) -> bytes:
    from matplotlib.figure import Figure as Picture

    picture = Picture(figsize=(7, 4))
    axes = picture.subplots()
    lines: dict[str, list[Any]] = {}
    for row in rows:
        if row.labels["round"] != "slope":
            name = f"{row.labels['brain']}, {row.labels['feedback']}"
            lines.setdefault(name, []).append(row.figures["p_top1"])
    for name, figures in lines.items():
        found = [(n + 1, f) for n, f in enumerate(figures) if isinstance(f, Figure)]
        values = [f.value for _, f in found]
        off = [[f.value - f.low for _, f in found], [f.high - f.value for _, f in found]]
        axes.errorbar([n for n, _ in found], values, yerr=off, marker="o", capsize=3, label=name)
    axes.set_xticks(range(1, max(map(len, lines.values())) + 1))
    axes.set_xlabel("round of retraining")
    axes.set_ylabel("share of the commonest genre (0-1)")
    axes.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    return finish_picture(picture, axes, "Commonest genre of the recommendations by round")
