"""Lifetimes of dialogues, played to their end, and their tables."""

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
from sim.dialogue._lifetimes import Lifetimes
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
from sim.dialogue._world import MIN_BEST, DialogueWorld

#: Bumped whenever the same world and settings give other episodes.
CODE_VERSION = "4"
#: Lifetimes that are played together (count): bounds the memory.
_AT_ONCE = 2_048


@dataclass(frozen=True)
class Played:
    """Tables of a run."""

    #: Key of the configuration (hex); the column ``run``.
    run: str
    #: Determinants of the rows other than the lifetimes' seeds, JSON-ready.
    identity: dict[str, Any]
    #: Tables ``dialogue.episodes`` and ``dialogue.turns``.
    episodes: pl.DataFrame
    turns: pl.DataFrame


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
) -> Played:
    """Play lifetimes and return their episodes and turns, ordered by their keys.

    Draws depend on (lifetime's seed, episode, turn, role) alone, so that a lifetime is the same
    whatever others are played with it.

    Parameters
    ----------
    world, lifetimes
        Customers and choice sets; the episodes to play.
    agent, customer
        Not opened yet. An agent that is not `privileged` gets ``world.disclosed()``.
    feedback
        One of `FEEDBACK`.
    memory
        Whether the agent keeps past episodes.
    max_questions, must_ask
        Questions of an episode at most, and those that are asked without stopping (counts;
        planning protocol, section 5.2).
    probes
        Episodes, from 1, in which a recommendation is probed after each question.
    seed
        Of the agent and the customer, besides the lifetimes'.

    Raises
    ------
    ConfigError
        If the form of feedback is unknown or a limit is out of range.
    """
    if feedback not in FEEDBACK:
        hint = nearest(feedback, FEEDBACK)
        raise ConfigError("unknown feedback", where=repr(feedback), hint=hint)
    if not 0 <= must_ask <= max_questions <= 100:
        raise ConfigError(
            "questions must be from 0 to 100, forced ones no more than allowed",
            where=f"max_questions = {max_questions}, must_ask = {must_ask}",
        )
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
        "probes": sorted(set(probes)),
        # Left out where it is the usual one, so that earlier results keep their keys.
        **({} if lifetimes.min_best == MIN_BEST else {"min_best": lifetimes.min_best}),
    }
    data = orjson.dumps(identity, option=orjson.OPT_SORT_KEYS | orjson.OPT_SERIALIZE_NUMPY)
    run = hashlib.blake2b(data, digest_size=16).hexdigest()
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
    agent.open(world if agent.privileged else world.disclosed(), seed)
    customer.open(world, seed)
    live = partial(
        _live, world, lifetimes, agent, customer, feedback, memory, probes,
        run=seed, max_questions=max_questions, must_ask=must_ask,
    )  # fmt: skip
    episodes, turns = list[pl.DataFrame](), list[pl.DataFrame]()
    for start in range(0, len(lifetimes), _AT_ONCE):
        rows = range(start, min(start + _AT_ONCE, len(lifetimes)))
        ended = [episode for played in run_dialogues(map(live, rows)) for episode in played]
        episodes.append(_frame("episodes", [constant | _episode(world, e) for e in ended]))
        turns.append(_frame("turns", [line for e in ended for line in _lines(e, run)]))
        advance("dialogues", rows.stop, len(lifetimes))
    return Played(run, identity, _sorted("episodes", episodes), _sorted("turns", turns))


async def _live(
    world: DialogueWorld,
    lifetimes: Lifetimes,
    agent: Agent,
    customer: Customer,
    feedback: Feedback,
    memory: bool,
    probes: Sequence[int],
    row: int,
    **fields: int,
) -> list[Episode]:
    """Play the episodes of a lifetime one after the other; ``fields`` are its dialogues'."""
    played: list[Episode] = []
    notes: dict[str, Any] = {}
    past: list[PastEpisode] = []
    for number in range(lifetimes.episodes):
        episode = Episode.begin(world, lifetimes, row, number, memory=notes, past=past[:], **fields)
        if agent.privileged:
            episode.dialogue.persona = episode.persona
        await shop(episode, agent, customer, feedback, probed=number + 1 in probes)
        played.append(episode)
        if not memory:
            notes = {}
            continue
        past.append(episode.remembered())
        if episode.status == OK:
            agent.learn(episode.outcome(feedback))
    return played


# Tables ---------------------------------------------------------------------------------------


def _episode(world: DialogueWorld, e: Episode) -> dict[str, Any]:
    """Columns of an episode's own in the table of episodes."""
    turns, best = e.dialogue.turns, float(e.best)
    sold = e.sold if e.status == OK else -1
    return {
        "seed": e.dialogue.lifetime,
        "episode": e.dialogue.episode + 1,
        "persona_id": world.persona_ids[e.persona],
        "category_id": e.shelf.category_id,
        "questions": len(turns),
        "repeated": _repeated(e),
        "unmatched": sum(turn.answer.value == UNMATCHED for turn in turns),
        **_product(e, sold),
        "score": float(e.y[sold]) if sold >= 0 else None,
        "best": best,
        "random_regret": best - float(np.nanmean(e.y, dtype=np.float64)),
        "stars": e.stars if e.status == OK else None,
        "status": e.status,
        "tokens": e.tokens,
        "forgotten": e.forgotten,
    }


def _lines(e: Episode, run: str) -> Iterator[dict[str, Any]]:
    """Questions, answers, probes, the recommendation and the feedback of an episode."""
    at = {"run": run, "seed": e.dialogue.lifetime, "episode": e.dialogue.episode + 1}
    agent, customer = at | {"role": "agent"}, at | {"role": "customer"}
    turns = e.dialogue.turns
    for n, turn in enumerate(turns):
        answer, (question, words) = turn.answer, turn.words
        facet = e.shelf.facets[answer.facet] if answer.facet >= 0 else None
        about = {"turn": n, "facet_id": facet.facet_id if facet else None}
        failed = e.fault == "answer" and n + 1 == len(turns)
        yield {
            **agent, **about, "kind": "ask", "text": question,
            **_offer(e, turn.action, e.product(turn.action)),
        }  # fmt: skip
        yield {
            **customer, **about, "kind": "answer", "text": words,
            "value": facet.values[answer.value] if facet and answer.value >= 0 else None,
            "status": e.status if failed else OK, "answer_key": answer.answer_key,
        }  # fmt: skip
    for n, probe in e.probes:
        yield {**agent, "turn": n, "kind": "probe", **_offer(e, probe, e.product(probe))}
    if e.fault != "answer" and e.action is not None:
        offer = _offer(e, e.action, e.sold)
        if e.fault == "agent":
            offer["status"] = e.status
        yield {**agent, "turn": len(turns), "kind": "recommend", **offer}
    if e.comment is not None and e.comment.text is not None:
        yield {
            **customer, "turn": len(turns), "kind": "feedback", "text": e.comment.text,
            "status": e.status, "answer_key": e.comment.answer_key,
        }  # fmt: skip


def _offer(e: Episode, action: Action, product: int) -> dict[str, Any]:
    """Columns of a product that the agent sells or would sell, with its beliefs about it."""
    return {
        **_product(e, product),
        "status": OK,
        "answer_key": action.answer_key,
        "expected_regret": action.expected_regret,
        **dict(zip(CONFIDENCES, action.confidences or (), strict=False)),
        **dict(zip(STATED, action.stated or (), strict=False)),
    }


def _product(e: Episode, product: int) -> dict[str, Any]:
    """Id, regret and rank (one more than the number of better ones) of a product; none of -1."""
    if product < 0:
        return {}
    regret, better = float(e.best - e.y[product]), int((e.y > e.y[product]).sum())
    return {"item_id": e.shelf.item_ids[product], "regret": regret, "rank": 1 + better}


def _repeated(e: Episode) -> int:
    """Questions that were asked before in the episode: the same facet, or the same words."""
    turns = e.dialogue.turns
    facets = [turn.answer.facet for turn in turns if turn.answer.facet >= 0]
    words = [" ".join(turn.words[0].casefold().split()) for turn in turns if turn.answer.facet < 0]
    return len(facets) - len(set(facets)) + len(words) - len(set(words))


def _frame(table: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    """A frame in the contract's types; numbers have four decimals and lie within their range."""
    from pipelines.contracts import CONTRACTS

    frame = pl.DataFrame(rows, schema=CONTRACTS[f"dialogue.{table}"].polars_schema())
    numbers = {}
    for name, kind in frame.schema.items():
        if kind == pl.Float64:
            limit = 1 if name in (*CONFIDENCES, *STATED) else 100
            numbers[name] = np.round(np.clip(frame[name].to_numpy(), 0, limit), 4)
    return frame.with_columns(pl.Series(k, v).fill_nan(None) for k, v in numbers.items())


def _sorted(table: str, frames: list[pl.DataFrame]) -> pl.DataFrame:
    from pipelines.contracts import CONTRACTS

    return pl.concat(frames).sort(CONTRACTS[f"dialogue.{table}"].key)
