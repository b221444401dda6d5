"""Experiment ``reviews``: what a count or a comment of somebody else changes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import polars as pl

from pipelines.seeding import hash_ids
from pipelines.study import Study
from sim.agents import AgentWorld, ItemTexts, Simulation, visit_values
from sim.experiments._comments import real_comments
from sim.experiments._context import ExperimentContext
from sim.experiments._experiment import experiment, page

#: Conditions in the order of SimUSER's Table 5.
CONDITIONS = ("none", "count", "negative", "positive")
_HINT = "a release of books has the reviews of Amazon; for others give `comments`"


@experiment(
    question="Do agents watch and like more or less where an item carries its number of reviews, a "
    "negative or a positive comment of somebody else?",
    paper="SimUSER, Table 5",
    conditions=("brain", "text"),
    **page("reviews"),
)
def reviews(
    study: Study,
    context: ExperimentContext,
    *,
    recommender: str = "popular",  # that is visited
    min_items: int = 10,  # with a negative and with a positive comment
    min_people: int = 10,  # whose visit did not fail
    negative: float = 2.0,  # a comment is negative up to this rating,
    positive: float = 4.0,  # and positive from this one on
    comments: pl.DataFrame | None = None,  # item_id, author, rating, text; by default the release's
) -> None:
    """Let the same agents visit the same pages under four conditions."""
    written = real_comments(context.release) if comments is None else comments
    texts = item_texts(written, context.world(), negative=negative, positive=positive)
    for condition in CONDITIONS[2:]:
        number = len(texts[condition].comments)
        study.require(f"items with a {condition} comment", number, min_items, _HINT)
        study.counts[f"items, {condition}"] = number
    for name, brain, source in context.players():
        world = context.world_of(brain)
        for condition in CONDITIONS:
            carried = texts[condition]
            # Without a text: the visits that other experiments have as well.
            shown = world if condition == "none" else replace(world, texts=carried)
            run = context.visits(brain, recommender, world=shown)
            key = {"visits": run.identity, "texts": carried.digest}
            frame = context.cell(study, key, partial(_values, run, world, carried))
            least = ("people with a visit", min_people, _HINT)
            row = study.add((name, condition), source, frame, least=least)
            study.counts[f"failed, {row.title}"] = int(run.identity["agents"]) - frame.height
    study.against("p_view", "p_like", text="none")


def item_texts(
    comments: pl.DataFrame, world: AgentWorld, *, negative: float = 2.0, positive: float = 4.0
) -> dict[str, ItemTexts]:
    """Texts by condition; comments of an item are in the order of a hash of their authors.

    ``comments`` has ``item_id, author, rating, text``; texts are those of the world's items. A
    comment is negative up to the rating ``negative`` and positive from ``positive`` on.
    """
    texts = comments.filter(pl.col("item_id").is_in(world.catalogue.ids))
    texts = texts.with_columns(rank=hash_ids(texts["author"])).sort("item_id", "rank", "author")
    counts = dict(texts.group_by("item_id").len().sort("item_id").iter_rows())
    out = {"none": ItemTexts(), "count": ItemTexts(reviews=counts)}
    rating = pl.col("rating")
    for name, chosen in (("negative", rating <= negative), ("positive", rating >= positive)):
        by_item = texts.filter(chosen).rows_by_key("item_id", named=True)
        out[name] = ItemTexts(
            comments={
                item: [(r["author"], r["text"]) for r in rows] for item, rows in by_item.items()
            }
        )
    return out


def _values(run: Simulation, world: AgentWorld, texts: ItemTexts) -> pl.DataFrame:
    """``agent, persona_id`` and the figures of every agent that did not fail."""
    agents = run.table("agents").collect()
    values = visit_values(agents, run.table("views"))
    users = dict(zip(world.people["persona_id"], world.graph_users, strict=True))
    owner = agents.select("agent", user=pl.col("persona_id").replace_strict(users))
    views = run.table("views").select("agent", "page", "position", "item_id").unique().collect()
    shown = views.join(owner, on="agent")
    carried = [
        float(texts.reviews is not None or bool(texts.comment(item, user)))
        for item, user in shown.select("item_id", "user").iter_rows()
    ]
    marked = shown.select("agent", covered=pl.Series(carried, dtype=pl.Float64))
    covered = marked.group_by("agent").mean()
    columns = values.select("agent", "persona_id", "p_view", "p_like")
    return columns.join(covered, on="agent", how="left").sort("agent")
