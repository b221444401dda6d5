"""Questions to brains outside a visit: items to judge or to classify for an experiment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from sim.agents._protocol import OK, Brain, Classification, Floats, Ints, Judgement, Question, Texts
from sim.agents._visit import Visit, judgement_fault, play, usable
from sim.agents._world import AgentWorld

#: Pages that are put to a brain at once (count): bounds the memory.
_AT_ONCE = 20_000
#: Keeps the draws of these questions apart from those of visits.
_JUDGE, _CLASSIFY = 17, 18


@dataclass(frozen=True)
class Asked:
    """Judgements of pairs of a person and an item."""

    #: A row per pair, in the order of the call: ``person`` and ``item`` (numbers), ``watched``,
    #: ``rating`` (1-5; null where not watched), ``chance`` (probability of watching) and
    #: ``expected`` (null where the brain has none), ``feeling``, ``status``. The others are null
    #: where the status is not ``ok``.
    frame: pl.DataFrame
    #: Prompts and replies together (count).
    tokens: int

    @property
    def failed(self) -> int:
        """Pairs without a usable reply (count)."""
        return int((self.frame["status"] != OK).sum())


def judge_pairs(
    world: AgentWorld,
    brain: Brain,
    people: Ints,
    items: Ints,
    *,
    seed: int = 0,
    experienced: bool = False,
    visits: Sequence[Visit] | None = None,
) -> Asked:
    """Put items to people, a page of ``world.per_page`` at a time.

    A reply that can't be used is asked for once more with the fault named, as in a visit; after
    that the pairs of its page have no judgement.

    Parameters
    ----------
    world, brain
        The release, opened, and the brain, opened on it.
    people, items
        Row of ``world.people`` and item number of each pair, of shape (n,).
    seed
        Of the questions, together with the person and the number of its page.
    experienced
        As of :class:`Question`: the items were watched, all are rated.
    visits
        Finished visits by person, whose entries and ratings the agents remember; default none.
    """
    before = {visit.person: visit for visit in visits or ()}
    pages: list[tuple[int, int, Ints]] = []
    order = np.argsort(people, kind="stable")
    starts = np.flatnonzero(np.diff(people[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        for number, start in enumerate(range(0, len(rows), world.per_page)):
            pages.append((int(people[rows[0]]), number, rows[start : start + world.per_page]))

    async def judged(person: int, number: int, rows: Ints) -> tuple[Judgement, int, str]:
        visit = before.get(person) or Visit(world, person, person)
        person_items = tuple(items[rows].tolist())

        def fault(reply: Judgement) -> str | None:
            if experienced and not all(opinion.watched for opinion in reply.opinions):
                return "an item that was watched has no rating"
            return judgement_fault(reply)

        return await usable(
            lambda attempt, history: Question(
                "judge", visit, (seed, person, number, _JUDGE, attempt), number + 1,
                items=person_items, positions=tuple(range(len(person_items))),
                experienced=experienced, fault=history,
            ),
            fault,
        )  # fmt: skip

    tokens, columns = 0, {name: np.full(len(people), None, object) for name in _COLUMNS}
    for part in range(0, len(pages), _AT_ONCE):
        chosen = pages[part : part + _AT_ONCE]
        replies = play(brain, (judged(*page) for page in chosen))
        for (_, _, rows), (reply, used, status) in zip(chosen, replies, strict=True):
            tokens += used
            columns["status"][rows] = status
            for row, opinion in zip(rows.tolist(), reply.opinions, strict=False):
                if status == OK:
                    for name in ("watched", "chance", "expected"):
                        columns[name][row] = getattr(opinion, name)
                    if opinion.watched:
                        columns["rating"][row] = opinion.rating
                        columns["feeling"][row] = opinion.feeling
    schema = {"person": pl.Int64, "item": pl.Int64, **_COLUMNS}
    data = {"person": people, "item": items, **{n: c.tolist() for n, c in columns.items()}}
    return Asked(pl.DataFrame(data, schema=schema, strict=False), tokens)


_COLUMNS: dict[str, Any] = {
    "watched": pl.Boolean,
    "rating": pl.Float64,
    "chance": pl.Float64,
    "expected": pl.Float64,
    "feeling": pl.String,
    "status": pl.String,
}


@dataclass(frozen=True)
class Classified:
    """Probabilities that people have interacted with items."""

    #: Probabilities of shape (n, m), NaN where there is no item or no usable reply.
    probabilities: Floats
    #: Status of each reply, of shape (n,).
    status: Texts
    #: Prompts and replies together (count).
    tokens: int


def classify_items(
    world: AgentWorld, brain: Brain, people: Ints, items: Ints, *, seed: int = 0
) -> Classified:
    """Ask which of some items people have interacted with (SimUSER, appendix C.12).

    A reply that can't be used is asked for once more with the fault named, as in a visit.
    ``people`` are rows of ``world.people``, of shape (n,), ``items`` item numbers, -1 for none, of
    shape (n, m). The seeds are of (seed, person).
    """

    async def classified(person: int, person_items: Ints) -> tuple[Classification, int, str]:
        visit, shown = Visit(world, person, person), person_items[person_items >= 0]

        def fault(reply: Classification) -> str | None:
            chances = reply.probabilities
            sound = len(chances) == len(shown) and all(0 <= chance <= 1 for chance in chances)
            return None if sound else "a probability is not between 0 and 1"

        return await usable(
            lambda attempt, history: Question(
                "classify", visit, (seed, person, 0, _CLASSIFY, attempt),
                items=tuple(shown.tolist()), positions=tuple(range(len(shown))), fault=history,
            ),
            fault,
        )  # fmt: skip

    chance, tokens = np.full(items.shape, np.nan), 0
    status: Texts = np.full(len(people), "invalid", object)
    for start in range(0, len(people), _AT_ONCE):
        rows = range(start, min(start + _AT_ONCE, len(people)))
        replies = play(brain, (classified(int(people[row]), items[row]) for row in rows))
        for row, (reply, used, answered) in zip(rows, replies, strict=True):
            tokens += used
            status[row] = answered
            if answered == OK:
                chance[row, items[row] >= 0] = reply.probabilities
    return Classified(chance, status, tokens)
