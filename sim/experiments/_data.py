"""People and visits as experiments read them, and their questions to brains."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.llm.answers import Asking
from pipelines.llm.engines import Choice, Message, Request, Sampling
from pipelines.raters import rescale, source_scale
from pipelines.scales import scale_named
from pipelines.seeding import combine, hash_ids, uniform
from sim.agents import AgentWorld, Brain, Simulation, judge_pairs
from sim.environment import split_rows
from sim.experiments._context import ExperimentContext
from sim.recommenders import Recommender, open_recommender, with_feedback

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
#: Test items per person that a brain with a model is asked about at most (count).
ITEMS_OF_MODEL = 8


def item_frame(world: AgentWorld, **columns: Any) -> pl.DataFrame:
    """``item`` (number), ``item_id`` and columns of one value per item."""
    numbers = np.arange(len(world.catalogue))
    return pl.DataFrame({"item": numbers, "item_id": world.catalogue.ids, **columns})


def item_table(world: AgentWorld, rows: pl.DataFrame) -> Bools:
    """True for each ``item_id`` of an ``agent`` or ``user_id``, of shape (people, items)."""
    people = pl.DataFrame({"user_id": world.people["user_id"], "agent": np.arange(len(world))})
    pairs = rows if "agent" in rows.columns else rows.join(people, on="user_id")
    pairs = pairs.select("agent", "item_id").join(item_frame(world), on="item_id")
    return pair_table(
        pairs["agent"].to_numpy() % len(world),
        pairs["item"].to_numpy(),
        (len(world), len(world.catalogue)),
    )


def pair_table(rows: npt.ArrayLike, columns: npt.ArrayLike, shape: tuple[int, int]) -> Bools:
    """True at each pair of a row and a column."""
    out = np.zeros(shape, np.bool_)
    out[np.asarray(rows, np.int64), np.asarray(columns, np.int64)] = True
    return out


def rated(world: AgentWorld, *splits: str) -> Bools:
    """True where a person has rated an item in one of the splits, of shape (people, items)."""
    return item_table(world, split_rows(world.release, splits))


def list_hits(relevant: Bools, lists: Ints) -> Bools:
    """Relevance of each listed item; ``lists`` has item numbers, -1 where a list ends."""
    return np.asarray(np.take_along_axis(relevant, np.maximum(lists, 0), axis=1) & (lists >= 0))


def training_means(world: AgentWorld) -> Floats:
    """Mean training rating of each person on 1-5, of shape (people,); NaN without one."""
    lengths = world.history.lengths
    owner = np.repeat(np.arange(len(lengths)), lengths)
    with np.errstate(invalid="ignore"):
        return np.asarray(
            np.bincount(owner, world.history.ratings, minlength=len(lengths)) / lengths
        )


def rated_rows(world: AgentWorld, split: str) -> pl.DataFrame:
    """Ratings of a split on 1-5: ``user_id``, ``item`` (number), ``truth``."""
    rows = split_rows(world.release, (split,))
    scale = source_scale(world.release["interactions"].lazy())
    stars = np.asarray(rescale(rows["rating"].to_numpy(), scale, scale_named("1-5")), np.float64)
    return (
        rows.select("user_id", "item_id", truth=pl.Series(stars))
        .join(item_frame(world), on="item_id")
        .select("user_id", "item", "truth")
        .sort("user_id", "item")
    )


def held_out_pairs(
    world: AgentWorld, *, people: int | None = None, most: int | None = None
) -> pl.DataFrame:
    """Test ratings of the world's people: ``person``, ``item`` (numbers), ``truth`` (1-5).

    Only of the first ``people`` (count) in the order of a hash, and at most ``most`` items of each,
    drawn by a hash.
    """
    numbers = world.people.select("user_id", person=pl.int_range(pl.len(), dtype=pl.Int64))
    pairs = rated_rows(world, "test").join(numbers, on="user_id").sort("person", "item")
    if people is not None:
        pairs = pairs.filter(pl.col("person") < people)
    if most is not None and pairs.height:
        ids = np.asarray(hash_ids(pairs["user_id"]))
        rank = pl.Series("rank", uniform(0, ids, pairs["item"].to_numpy()))
        order = pl.col("rank").rank("ordinal").over("person")
        pairs = pairs.with_columns(rank).filter(order <= most)
    return pairs.select("person", "item", "truth")


def pairs_of(context: ExperimentContext, brain: Brain) -> pl.DataFrame:
    """Test pairs that a brain is asked about: all, or a sample where a model is asked."""
    world = context.world_of(brain)
    if context.source(brain) == "model":
        return held_out_pairs(world, people=context.agents_of(brain), most=ITEMS_OF_MODEL)
    return held_out_pairs(world, people=context.agents)


def judged(
    context: ExperimentContext,
    brain: Brain,
    pairs: pl.DataFrame,
    *,
    key: dict[str, Any] | None = None,
    **asking: Any,
) -> pl.DataFrame:
    """Judgements of pairs by agents that have watched each item; cached.

    ``pairs`` has ``person`` and ``item``; other columns are carried along. ``key`` has further
    determinants of the judgements beside brain and pairs. ``asking`` are arguments of
    `judge_pairs`; a function among them is replaced by its result. Adds ``watched``, ``rating``,
    ``expected``, ``feeling``, ``status``.
    """
    world = context.world_of(brain)

    def compute() -> pl.DataFrame:
        given = {name: v() if callable(v) else v for name, v in asking.items()}
        people, items = pairs["person"].to_numpy(), pairs["item"].to_numpy()
        replies = judge_pairs(
            given.pop("world", world), brain, people, items, seed=context.seed,
            **{"experienced": True, **given},
        )  # fmt: skip
        return pl.concat([pairs, replies.frame.drop("person", "item")], how="horizontal")

    digest = hashlib.sha256(pairs.write_csv().encode()).hexdigest()
    full_key = {
        "brain": context.identity(brain),
        "pairs": digest,
        "seed": context.seed,
        **(key or {}),
    }
    return context.cell("judged", full_key, compute)


def finished(run: Simulation) -> pl.DataFrame:
    """``agent`` and ``persona_id`` of the agents of visits that did not fail."""
    agents = run.table("agents").filter(pl.col("exit_reason") != "failed")
    return agents.select("agent", "persona_id").sort("agent").collect()


def watched_items(run: Simulation) -> pl.DataFrame:
    """Visits of agents that did not fail: their ids, page, position, item id and rating."""
    views = run.table("views").filter(pl.col("watched"))
    rows = views.select("agent", "page", "position", "item_id", "rating").collect()
    return rows.join(finished(run), on="agent", how="inner", maintain_order="left")


def asking_brain(context: ExperimentContext) -> Brain | None:
    """The first brain of the context whose model can be asked; None without one."""
    brains = (context.brain(name) for name in context.brains)
    return next((b for b in brains if isinstance(b, Asking)), None)


def chosen(
    context: ExperimentContext,
    brain: Brain,
    questions: Sequence[tuple[Message, ...]],
    options: Sequence[str],
    **key: Any,
) -> Floats:
    """Probabilities of the options for each question, of shape (questions, options); cached.

    A question whose answer can't be used has NaN. ``key`` has what the questions depend on.
    """
    assert isinstance(brain, Asking)

    def requests() -> Iterator[Request]:
        for n, messages in enumerate(questions):
            yield Request(
                messages, constraint=Choice(tuple(options)), sampling=Sampling(1.0, max_tokens=1),
                tag=n,
            )  # fmt: skip

    def compute() -> pl.DataFrame:
        out = np.full((len(questions), len(options)), np.nan)
        for request, _, answer in brain.ask_all(requests()):
            if answer.status == "ok" and answer.probabilities is not None:
                shares = np.asarray(answer.probabilities, np.float64)
                out[request.tag] = shares / shares.sum()
        return pl.DataFrame(out, schema=list(options))

    text = hashlib.sha256(repr(questions).encode()).hexdigest()
    full_key = {
        "brain": context.identity(brain),
        "questions": text,
        "options": list(options),
        **key,
    }
    return context.cell("asked", full_key, compute).to_numpy()


def numbers(table: Bools) -> Ints:
    """Item numbers of each row, ascending, padded with -1.

    >>> numbers(np.array([[True, False, True], [False, False, False]])).tolist()
    [[0, 2], [-1, -1]]
    """
    counts = table.sum(axis=1)
    out = np.full((len(table), int(counts.max(initial=0))), -1, np.int64)
    out[np.arange(out.shape[1]) < counts[:, None]] = np.nonzero(table)[1]
    return out


def drawn(candidates: Bools, counts: npt.ArrayLike, *, seed: int) -> Bools:
    """Candidates of each row drawn at random, at most as many as counted.

    ``candidates`` are of shape (n, items), ``counts`` of shape (n,); draws belong to (seed, row,
    item).
    """
    rows, items = candidates.shape
    order = uniform(seed, np.arange(rows)[:, None], np.arange(items)[None, :])
    rank = np.where(candidates, order, 2.0).argsort(axis=1, kind="stable").argsort(axis=1)
    return np.asarray(candidates & (rank < np.asarray(counts, np.int64)[:, None]))


def shuffled(feedback: Bools, ids: list[str], *, seed: int) -> Bools:
    """Everybody's feedback given to another person: rows moved by one along a random circle.

    ``feedback`` is of shape (people, items), of at least two people with these ``ids``.
    """
    order = np.argsort(combine(seed, hash_ids(ids)), kind="stable")
    out = np.zeros_like(feedback)
    out[order] = feedback[np.roll(order, 1)]
    return out


def retrained(world: AgentWorld, name: str, feedback: Bools | None = None) -> Recommender:
    """A recommender fitted on the training split and feedback, of shape (people, items)."""
    recommender = open_recommender(name)
    if feedback is None:
        return recommender.fit(world.release)
    person, item = np.nonzero(feedback)
    users = [world.graph_users[n] for n in person.tolist()]
    return recommender.fit(world.release, interactions=with_feedback(world.release, users, item))
