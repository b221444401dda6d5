"""Experiment ``reviews``: what a count or a comment of somebody else changes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import polars as pl

from pipelines.seeding import hash_ids
from sim.agents import AgentWorld, Brain, ItemTexts, Simulation, visit_values
from sim.experiments._comments import real_comments
from sim.experiments._context import ExperimentContext
from sim.experiments._figures import bars, paired, person_figures
from sim.experiments._protocol import Comparison, Result, Row, TooFew

#: Meanings of the figures by name.
_FIGURES = {
    "p_view": "share of the shown items that were watched, 0-1",
    "p_like": "share of the shown items that were rated above 3, 0-1",
    "covered": "share of the shown items that carried the text, 0-1",
}
#: Conditions in the order of SimUSER's Table 5.
CONDITIONS = ("none", "count", "negative", "positive")


@dataclass(frozen=True)
class ReviewsSettings:
    """Settings of ``reviews``."""

    #: That is visited.
    recommender: str = "popular"
    #: Items with a negative and with a positive comment that figures need (count).
    min_items: int = 10
    #: People whose visit did not fail that figures need (count).
    min_people: int = 10
    #: A comment is negative up to the first rating and positive from the second on.
    negative: float = 2.0
    positive: float = 4.0


class Reviews:
    """Views and likes with nothing, a count, a negative and a positive comment on every item.

    ``comments`` (``item_id, author, rating, text``) replace the release's own reviews, for a domain
    whose reviews have no texts.
    """

    name = "reviews"
    question = (
        "Do agents watch and like more or less where an item carries its number of reviews, a "
        "negative or a positive comment of somebody else?"
    )
    anchor = "SimUSER, Table 5"
    figures = _FIGURES

    def __init__(
        self, settings: ReviewsSettings | None = None, comments: pl.DataFrame | None = None
    ) -> None:
        self.settings = settings or ReviewsSettings()
        self._comments = comments

    def run(self, context: ExperimentContext) -> Result:
        """Let the same agents visit the same pages under four conditions."""
        comments = real_comments(context.release) if self._comments is None else self._comments
        texts = item_texts(comments, context.world(), self.settings)
        for name in ("negative", "positive"):
            self._enough(f"items with a {name} comment", len(texts[name].comments),
                         self.settings.min_items, "items")  # fmt: skip
        rows: list[Row] = []
        comparisons: list[Comparison] = []
        counts = {f"items, {name}": len(texts[name].comments) for name in CONDITIONS[2:]}
        for brain in context.brains:
            mind = context.brain(brain)
            plain = None
            for condition in CONDITIONS:
                frame, agents = self._visits(context, mind, texts[condition], condition)
                labels = {"brain": brain, "text": condition}
                figures = person_figures(frame, list(_FIGURES))
                people = frame["persona_id"].n_unique()
                source, note = context.source(mind), ""
                try:
                    self._enough("people with a visit", people, self.settings.min_people, brain)
                except TooFew as few:
                    if source != "model":
                        raise
                    figures, note = dict.fromkeys(_FIGURES), few.what
                row = Row(labels, source, figures, people, note)
                rows.append(row)
                counts[f"failed, {row.title}"] = agents - frame.height
                if plain is None:
                    plain = row, frame
                    continue
                for figure in ("p_view", "p_like"):
                    found = paired((row, frame), plain, figure, seed=context.seed)
                    comparisons += [] if found is None else [found]
        notes = [
            "Every condition has the same agents, lists and seeds. Comments are those of other "
            "people: an agent is never shown the review that its own person wrote, and an item "
            f"without such a comment shows none (`covered`). Negative: up to "
            f"{self.settings.negative:g}, positive: from {self.settings.positive:g} on 1-5.",
            "The brains `random` and `statistical` read no texts: their rows are placebos, and "
            "their differences are exactly zero.",
            "SimUSER's Table 5 gives 0.501 for MultVAE without a text where its Table 3 has 0.521.",
        ]
        picture = _picture(rows)
        return Result(rows, comparisons, notes, {"views": picture}, counts)

    def _visits(
        self, context: ExperimentContext, brain: Brain, texts: ItemTexts, condition: str
    ) -> tuple[pl.DataFrame, int]:
        """Figures of every agent that did not fail, and agents (count)."""
        world = context.world_of(brain)
        # Without a text: the visits that other experiments have as well.
        shown = world if condition == "none" else replace(world, texts=texts)
        run = context.visits(brain, self.settings.recommender, world=shown)
        frame = context.cell(
            self.name,
            {"visits": run.identity, "texts": texts.digest, **asdict(self.settings)},
            lambda: _values(run, world, texts),
        )
        return frame, int(run.identity["agents"])

    def _enough(self, what: str, found: int, needed: int, where: str) -> None:
        if found < needed:
            raise TooFew(
                what,
                found=found,
                needed=needed,
                where=f"experiment {self.name}, {where}",
                hint="a release of books has the reviews of Amazon; for others give `comments`",
            )


def item_texts(
    comments: pl.DataFrame, world: AgentWorld, settings: ReviewsSettings
) -> dict[str, ItemTexts]:
    """Texts by condition; comments of an item are in the order of a hash of their authors.

    ``comments`` has ``item_id, author, rating, text``; texts are those of the world's items.
    """
    known = comments.filter(pl.col("item_id").is_in(world.catalogue.ids))
    rank = pl.Series("rank", hash_ids(known["author"]))
    known = known.with_columns(rank).sort("item_id", "rank", "author").drop("rank")
    counts = dict(known.group_by("item_id").len().sort("item_id").iter_rows())
    out = {"none": ItemTexts(), "count": ItemTexts(reviews=counts)}
    for name, rows in (
        ("negative", known.filter(pl.col("rating") <= settings.negative)),
        ("positive", known.filter(pl.col("rating") >= settings.positive)),
    ):
        by_item: dict[str, list[tuple[str | None, str]]] = {}
        for item, author, text in rows.select("item_id", "author", "text").iter_rows():
            by_item.setdefault(item, []).append((author, text))
        out[name] = ItemTexts(comments=by_item)
    return out


def _values(run: Simulation, world: AgentWorld, texts: ItemTexts) -> pl.DataFrame:
    """``agent, persona_id`` and the figures of every agent that did not fail."""
    agents = run.table("agents").collect()
    values = visit_values(agents, run.table("views")).select(
        "agent", "persona_id", "p_view", "p_like"
    )
    views = run.table("views").select("agent", "page", "position", "item_id").unique().collect()
    users = dict(zip(world.people["persona_id"], world.graph_users, strict=True))
    owner = agents.select("agent", user=pl.col("persona_id").replace_strict(users))
    shown = views.join(owner, on="agent")
    pairs = shown.select("item_id", "user").unique()
    carried = [
        (item, user, float(texts.reviews is not None or bool(texts.comment(item, user))))
        for item, user in pairs.iter_rows()
    ]
    schema: dict[str, Any] = {"item_id": pl.String, "user": pl.String, "covered": pl.Float64}
    marked = shown.join(pl.DataFrame(carried, schema=schema, orient="row"), on=["item_id", "user"])
    covered = marked.group_by("agent").agg(pl.col("covered").mean())
    return values.join(covered, on="agent", how="left").sort("agent")


def _picture(rows: list[Row]) -> bytes:
    series: dict[str, list[Any]] = {}
    for row in rows:
        series.setdefault(row.labels["brain"], []).append(row.figures["p_view"])
    return bars("Views by the text on every item", CONDITIONS, series, "share watched (0-1)")
