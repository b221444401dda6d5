"""Lifetimes of dialogues, played in blocks, and their tables."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import orjson
import polars as pl

from pipelines.errors import ConfigError
from pipelines.hints import nearest
from pipelines.progress import advance
from sim._results import ResultCache
from sim.dialogue._lifetimes import Lifetimes, product_order
from sim.dialogue._protocol import (
    CONFIDENCES,
    FEEDBACK,
    MAX_QUESTIONS,
    OK,
    STATED,
    UNMATCHED,
    Action,
    Agent,
    Customer,
    Feedback,
    PastEpisode,
)
from sim.dialogue._shop import Episode, run_dialogues, shop
from sim.dialogue._world import MIN_BEST, DialogueWorld, Ints

#: Bumped whenever the same world and settings give other episodes.
CODE_VERSION = "4"
#: Lifetimes that are played and stored together (count).
BLOCK = 2_048


@dataclass(frozen=True)
class Options:
    """Settings of a run that its rows depend on."""

    #: Form of feedback; whether the agent keeps past episodes.
    feedback: Feedback = "text"
    memory: bool = True
    #: Questions of an episode at most.
    max_questions: int = MAX_QUESTIONS
    #: Questions that are asked without stopping (planning protocol, section 5.2).
    must_ask: int = 0
    #: Episodes, from 1, in which a recommendation is probed after each question.
    probes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.feedback not in FEEDBACK:
            hint = nearest(self.feedback, FEEDBACK)
            raise ConfigError("unknown feedback", where=repr(self.feedback), hint=hint)
        if not 0 <= self.must_ask <= self.max_questions <= 100:
            raise ConfigError(
                "questions must be from 0 to 100, forced ones no more than allowed",
                where=f"max_questions = {self.max_questions}, must_ask = {self.must_ask}",
            )


@dataclass(frozen=True)
class Played:
    """Tables of a run."""

    #: Key of the configuration (hex); the column ``run``.
    run: str
    #: Determinants of the rows other than the lifetimes' seeds, JSON-ready.
    identity: dict[str, Any]
    #: Tables ``dialogue.episodes`` and ``dialogue.turns``; ``turns`` is None if not kept.
    episodes: pl.DataFrame
    turns: pl.DataFrame | None
    #: Blocks that were read from the cache (count).
    reused: int = 0


def play(
    world: DialogueWorld,
    lifetimes: Lifetimes,
    agent: Agent,
    customer: Customer,
    *,
    feedback: Feedback = "text",
    memory: bool = True,
    max_questions: int = MAX_QUESTIONS,
    must_ask: int = 0,
    probes: Sequence[int] = (),
    seed: int = 0,
    keep_turns: bool = True,
    cache: ResultCache | None = None,
    block: int = BLOCK,
) -> Played:
    """Play lifetimes and return their episodes and turns, ordered by their keys.

    Draws depend on (lifetime's seed, episode, turn, role) alone, so that neither the size of blocks
    nor their order changes a row.

    Parameters
    ----------
    world, lifetimes
        Customers and choice sets; the episodes to play.
    agent, customer
        Not opened yet; they are opened if a block must be played. An agent that is not
        `privileged` gets ``world.disclosed()``.
    feedback, memory, max_questions, must_ask, probes
        See :class:`Options`.
    seed
        Of the agent and the customer, besides the lifetimes'.
    keep_turns
        Whether to return and store the turns.
    cache
        Finished blocks are read from it and written to it; None keeps none.
    block
        Lifetimes of a block (count).

    Raises
    ------
    ConfigError
        If the form of feedback is unknown or a limit is out of range.
    """
    options = Options(feedback, memory, max_questions, must_ask, tuple(sorted(set(probes))))
    identity = {
        "code_version": CODE_VERSION,
        "world": world.identity,
        "agent": agent.metadata() | {"name": agent.name},
        "customer": customer.metadata() | {"name": customer.name},
        "setting": lifetimes.setting,
        "cell": lifetimes.cell,
        "episodes": lifetimes.episodes,
        "seed": seed,
        "feedback": feedback,
        "memory": memory,
        "max_questions": max_questions,
        "must_ask": must_ask,
        "probes": options.probes,
        # Left out where it is the usual one, so that earlier results keep their keys.
        **({} if lifetimes.min_best == MIN_BEST else {"min_best": lifetimes.min_best}),
    }
    run = _key(identity)
    constant = {
        "run": run,
        "agent": agent.name,
        "customer": customer.name,
        "setting": lifetimes.setting,
        "feedback": feedback,
        "memory": memory,
        "cell": lifetimes.cell,
        "language_model": agent.metadata().get("language_model"),
    }
    opened, reused = False, 0
    frames: list[tuple[pl.DataFrame, pl.DataFrame | None]] = []
    for start in range(0, len(lifetimes), block):
        rows = range(start, min(start + block, len(lifetimes)))
        key = _key([run, keep_turns, lifetimes.seeds[rows].tolist()])
        stored = _stored(cache, key, keep_turns=keep_turns)
        if stored is None:
            if not opened:
                agent.open(world if agent.privileged else world.disclosed(), seed)
                customer.open(world, seed)
                opened = True
            orders = [
                product_order(world, lifetimes.seeds[rows], n, lifetimes.sets[rows, n])
                for n in range(lifetimes.episodes)
            ]
            live = partial(_live, world, lifetimes, agent, customer, options, seed)
            played = [
                episode
                for lifetime in run_dialogues(
                    live(row, [order[place] for order in orders]) for place, row in enumerate(rows)
                )
                for episode in lifetime
            ]
            turns = _turns(played, run) if keep_turns else None
            stored = _episodes(world, played, constant), turns
            if cache is not None:
                if turns is not None:
                    cache.put("turns", key, turns)
                cache.put("episodes", key, stored[0])  # written last: it stands for the block
        else:
            reused += 1
        frames.append(stored)
        advance("dialogues", rows.stop, len(lifetimes))
    kept_turns = [frame for _, frame in frames if frame is not None]
    return Played(
        run=run,
        identity=identity,
        episodes=_sorted("episodes", pl.concat([frame for frame, _ in frames])),
        turns=_sorted("turns", pl.concat(kept_turns)) if keep_turns else None,
        reused=reused,
    )


def _sorted(table: str, frame: pl.DataFrame) -> pl.DataFrame:
    from pipelines.contracts import CONTRACTS

    return frame.sort(CONTRACTS[f"dialogue.{table}"].key)


def _stored(
    cache: ResultCache | None, key: str, *, keep_turns: bool
) -> tuple[pl.DataFrame, pl.DataFrame | None] | None:
    episodes = None if cache is None else cache.frame("episodes", key)
    if cache is None or episodes is None:
        return None
    turns = cache.frame("turns", key) if keep_turns else None
    return None if keep_turns and turns is None else (episodes, turns)


def _key(value: Any) -> str:
    data = orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    return hashlib.blake2b(data, digest_size=16).hexdigest()


async def _live(
    world: DialogueWorld,
    lifetimes: Lifetimes,
    agent: Agent,
    customer: Customer,
    options: Options,
    seed: int,
    row: int,
    orders: list[Ints],
) -> list[Episode]:
    """Play the episodes of a lifetime one after the other."""
    played: list[Episode] = []
    memory: dict[str, Any] = {}
    past: list[PastEpisode] = []
    for number, order in enumerate(orders):
        episode = Episode.begin(
            world, lifetimes, row, number, order,
            run=seed, max_questions=options.max_questions, must_ask=options.must_ask,
            memory=memory, past=past[:],
        )  # fmt: skip
        if agent.privileged:
            episode.dialogue.persona = episode.persona
        probed = number + 1 in options.probes
        await shop(episode, agent, customer, options.feedback, probed=probed)
        played.append(episode)
        if not options.memory:
            memory = {}
            continue
        past.append(episode.remembered())
        if episode.status == OK:
            agent.learn(episode.outcome(options.feedback))
    return played


# Tables ---------------------------------------------------------------------------------------


def _episodes(
    world: DialogueWorld, played: list[Episode], constant: dict[str, Any]
) -> pl.DataFrame:
    sold = [e.sold if e.status == OK else -1 for e in played]
    scores = [float(e.y[n]) if n >= 0 else None for e, n in zip(played, sold, strict=True)]
    regrets = [float(e.regret) if n >= 0 else None for e, n in zip(played, sold, strict=True)]
    means = [float(e.best) - float(np.nanmean(e.y, dtype=np.float64)) for e in played]
    columns = constant | {
        "seed": [e.dialogue.lifetime for e in played],
        "episode": [e.dialogue.episode + 1 for e in played],
        "persona_id": [world.persona_ids[e.persona] for e in played],
        "category_id": [e.shelf.category_id for e in played],
        "questions": [len(e.dialogue.turns) for e in played],
        "repeated": [_repeated(e) for e in played],
        "unmatched": [sum(t.answer.value == UNMATCHED for t in e.dialogue.turns) for e in played],
        "item_id": [
            e.shelf.item_ids[n] if n >= 0 else None for e, n in zip(played, sold, strict=True)
        ],
        "rank": [_rank(e, n) for e, n in zip(played, sold, strict=True)],
        "score": _rounded(scores),
        "best": _rounded([float(e.best) for e in played]),
        "regret": _rounded(regrets),
        "random_regret": _rounded(means),
        "stars": [e.stars if e.status == OK else None for e in played],
        "status": [e.status for e in played],
        "tokens": [e.tokens for e in played],
        "forgotten": [e.forgotten for e in played],
    }
    return _sorted("episodes", _typed("episodes", columns, len(played)))


#: Columns of the lines of turns before the beliefs.
_LINE = (
    *("seed", "episode", "turn", "role", "kind", "text", "facet_id", "value", "item_id"),
    *("regret", "rank", "status", "answer_key"),
)
_BELIEF = ("expected_regret", *CONFIDENCES, *STATED)
_NO_BELIEF = (None,) * len(_BELIEF)


def _turns(played: list[Episode], run: str) -> pl.DataFrame:
    lines = [line for episode in played for line in _lines(episode)]
    columns: dict[str, Any] = dict(
        zip((*_LINE, *_BELIEF), map(list, zip(*lines, strict=True)), strict=True)
    )
    columns["regret"] = _rounded(columns["regret"])
    for name in _BELIEF:
        columns[name] = _rounded(columns[name], 100 if name == "expected_regret" else 1)
    columns["run"] = run
    return _sorted("turns", _typed("turns", columns, len(lines)))


def _lines(e: Episode) -> Iterator[tuple[Any, ...]]:
    """Questions, answers, probes, the recommendation and the feedback of an episode."""
    at, last = (e.dialogue.lifetime, e.dialogue.episode + 1), len(e.dialogue.turns)
    none = (None, None, None)
    for n, turn in enumerate(e.dialogue.turns):
        answer, status = turn.answer, OK
        if e.fault == "answer" and n + 1 == last:
            status = e.status
        facet = e.shelf.facets[answer.facet] if answer.facet >= 0 else None
        name = facet.facet_id if facet else None
        value = facet.values[answer.value] if facet and answer.value >= 0 else None
        question, words = turn.words
        yield (*at, n, "agent", "ask", question, name, None, *_product(e, e.product(turn.action)),
               OK, turn.action.answer_key, *_belief(turn.action))  # fmt: skip
        yield (*at, n, "customer", "answer", words, name, value, *none,
               status, answer.answer_key, *_NO_BELIEF)  # fmt: skip
    for n, probe in e.probes:
        yield (*at, n, "agent", "probe", *none, *_product(e, e.product(probe)),
               OK, probe.answer_key, *_belief(probe))  # fmt: skip
    if e.fault != "answer" and e.action is not None:
        status = e.status if e.fault == "agent" else OK
        yield (*at, last, "agent", "recommend", *none, *_product(e, e.sold),
               status, e.action.answer_key, *_belief(e.action))  # fmt: skip
    if e.comment is not None and e.comment.text is not None:
        yield (*at, last, "customer", "feedback", e.comment.text, None, None, *none,
               e.status, e.comment.answer_key, *_NO_BELIEF)  # fmt: skip


def _product(e: Episode, product: int) -> tuple[str | None, float | None, int | None]:
    """Id, regret and rank of a product of the choice set; nothing of -1."""
    if product < 0:
        return None, None, None
    return e.shelf.item_ids[product], float(e.best - e.y[product]), _rank(e, product)


def _rank(e: Episode, product: int) -> int | None:
    """One more than the number of better products; None of -1."""
    return None if product < 0 else 1 + int((e.y > e.y[product]).sum())


def _belief(action: Action) -> tuple[float | None, ...]:
    none = _NO_BELIEF[1 : 1 + len(CONFIDENCES)]
    return (action.expected_regret, *(action.confidences or none), *(action.stated or none))


def _repeated(e: Episode) -> int:
    """Questions that were asked before in the episode: the same facet, or the same words."""
    turns = e.dialogue.turns
    facets = [turn.answer.facet for turn in turns if turn.answer.facet >= 0]
    words = [" ".join(turn.words[0].casefold().split()) for turn in turns if turn.answer.facet < 0]
    return len(facets) - len(set(facets)) + len(words) - len(set(words))


def _rounded(values: Sequence[float | None], most: float | None = None) -> pl.Series:
    """Four decimals, from 0 to ``most``; null for None and NaN."""
    array = np.array(values, np.float64)
    if most is not None:
        array = np.clip(array, 0, most)
    return pl.Series(np.round(array, 4)).fill_nan(None)


def _typed(table: str, columns: dict[str, Any], height: int) -> pl.DataFrame:
    """A frame in the contract's order and types; single values are repeated."""
    from pipelines.contracts import CONTRACTS

    schema = CONTRACTS[f"dialogue.{table}"].polars_schema()
    return pl.DataFrame(
        {
            name: pl.Series(values, dtype=kind)
            if isinstance(values := columns[name], list | pl.Series)
            else pl.repeat(values, height, dtype=kind, eager=True)
            for name, kind in schema.items()
        }
    )
