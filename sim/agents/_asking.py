"""Questions to brains outside a visit: items to judge or to classify for an experiment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import polars as pl

from pipelines.seeding import combine
from sim.agents._loop import Visits
from sim.agents._pages import Card, Cards
from sim.agents._protocol import (
    OK,
    Brain,
    ClassifyRequests,
    Floats,
    Ints,
    JudgeRequests,
    Past,
    Texts,
)
from sim.agents._world import AgentWorld

#: Pages that are put to a brain at once (count): bounds the memory.
_AT_ONCE = 20_000
#: Keeps the draws of these requests apart from those of visits.
_PHASE, _CLASSIFY = 17, 18


@dataclass(frozen=True)
class Asked:
    """Judgements of pairs of a person and an item."""

    #: A row per pair, in the order of the call: ``person`` and ``item`` (numbers), ``watched``,
    #: ``rating`` (1-5; null where not watched), ``expected`` (null where the brain has none),
    #: ``feeling``, ``status``. Where the status is not ``ok`` the others are null.
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
    visits: Visits | None = None,
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
        Of the requests, together with the person and the number of its page.
    experienced
        As of :class:`JudgeRequests`: the items were watched, all are rated.
    visits
        Finished visits of agent n as person n, whose entries and ratings the agents remember;
        default none.
    """
    size = world.per_page
    order = np.argsort(people, kind="stable")
    owner = people[order]
    starts = np.searchsorted(owner, owner, side="left")
    within = np.arange(len(owner)) - starts
    # A page per `size` pairs of a person.
    key = owner * (len(items) + 1) + within // size
    distinct, page = np.unique(key, return_inverse=True)
    pages = np.full((len(distinct), size), -1)
    pages[page, within % size] = items[order]
    who = np.zeros(len(distinct), np.int64)
    who[page] = owner
    number = np.zeros(len(distinct), np.int64)
    number[page] = within // size
    columns: dict[str, list[Texts]] = {name: [] for name in _COLUMNS}
    tokens = 0
    for start in range(0, len(distinct), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        values, used = _judged(
            world, brain, who[part], pages[part], number[part], seed, experienced, visits
        )
        tokens += used
        for name, value in values.items():
            columns[name].append(value)
    place = np.empty((len(order), 2), np.int64)
    place[order, 0], place[order, 1] = page, within % size

    def of(name: str) -> Texts:
        whole = np.concatenate([np.empty((0, size), object), *columns[name]])
        return whole[place[:, 0], place[:, 1]]

    schema = {"person": pl.Int64, "item": pl.Int64, **_COLUMNS}
    found = {"person": people, "item": items, **{name: of(name).tolist() for name in _COLUMNS}}
    return Asked(pl.DataFrame(found, schema=schema, strict=False), tokens)


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
    shape (n, m). The requests' seeds are of (seed, person).
    """
    chance, tokens = np.full(items.shape, np.nan), 0
    status: Texts = np.full(len(people), "invalid", object)
    for start in range(0, len(people), _AT_ONCE):
        rows = np.arange(start, min(start + _AT_ONCE, len(people)))
        faults: Texts = np.full(len(rows), None, object)
        for attempt in range(2):
            who, shown = people[rows], items[rows]
            n, view = len(rows), np.ones(len(rows), np.int64)
            reply = brain.classify(
                ClassifyRequests(
                    world=world,
                    agents=who,
                    people=who,
                    views=view,
                    pages=view,
                    seeds=combine(seed, who, 0, _CLASSIFY, attempt),
                    attempts=np.full(n, attempt),
                    faults=faults,
                    memory=world.history.lengths[who],
                    past=_past(world, who, shown, view, None),
                    items=shown,
                    cards=_cards(world, who, shown, None),
                )
            )
            tokens += int(reply.tokens.sum())
            found = reply.probabilities
            sound = np.all((shown < 0) | ((found >= 0) & (found <= 1)), axis=1)
            good = (reply.status == OK) & sound
            status[rows] = np.where((reply.status == OK) & ~sound, "invalid", reply.status)
            chance[rows[good]] = np.where(shown[good] >= 0, found[good], np.nan)
            if good.all():
                break
            faults = np.where(reply.faults == None, status[rows], reply.faults)[~good]  # noqa: E711
            rows = rows[~good]
    return Classified(chance, status, tokens)


_COLUMNS: dict[str, Any] = {
    "watched": pl.Boolean,
    "rating": pl.Float64,
    "expected": pl.Float64,
    "feeling": pl.String,
    "status": pl.String,
}


def _judged(
    world: AgentWorld,
    brain: Brain,
    people: Ints,
    items: Ints,
    number: Ints,
    seed: int,
    experienced: bool,
    visits: Visits | None,
) -> tuple[dict[str, Texts], int]:
    """Columns of shape (pages, per_page), as objects, and tokens."""
    shape = items.shape
    out = {name: np.full(shape, None, object) for name in _COLUMNS}
    out["status"][:] = "invalid"
    request = _request(world, people, items, number, seed, experienced, visits)
    rows, tokens = np.arange(len(people)), 0
    for attempt in range(2):
        reply = brain.judge(request)
        tokens += int(reply.tokens.sum())
        whole = np.isin(reply.ratings, (1.0, 2.0, 3.0, 4.0, 5.0))
        watched = reply.watched & request.asked
        sound = np.all(~watched | whole, axis=1)
        if experienced:
            sound &= np.all(~request.asked | watched, axis=1)
        good = (reply.status == OK) & sound
        status = np.where((reply.status == OK) & ~sound, "invalid", reply.status)
        out["status"][rows] = status[:, None]
        done = rows[good]
        out["watched"][done] = watched[good]
        out["rating"][done] = _known(np.where(watched, reply.ratings, np.nan)[good])
        out["expected"][done] = _known(reply.expected[good])
        out["feeling"][done] = np.where(watched, reply.feelings, np.array(None, object))[good]
        if attempt or good.all():
            break
        faults = np.where(reply.faults == None, status, reply.faults)  # noqa: E711
        rows = rows[~good]
        request = replace(
            _request(world, people[rows], items[rows], number[rows], seed, experienced, visits, 1),
            faults=faults[~good],
        )
    return out, tokens


def _known(values: Floats) -> Texts:
    """Numbers as objects, None for NaN."""
    out = values.astype(object)
    out[np.isnan(values)] = None
    return out


def _request(
    world: AgentWorld,
    people: Ints,
    items: Ints,
    number: Ints,
    seed: int,
    experienced: bool,
    visits: Visits | None,
    attempt: int = 0,
) -> JudgeRequests:
    n, asked = len(people), items >= 0
    view = np.ones(n, np.int64) if visits is None else visits.view[people] + 1
    memory = world.history.lengths if visits is None else visits.entries.lengths
    return JudgeRequests(
        world=world,
        agents=people,
        people=people,
        views=view,
        pages=number + 1,
        seeds=combine(seed, people, number, _PHASE, attempt),
        attempts=np.full(n, attempt),
        faults=np.full(n, None, object),
        memory=memory[people],
        past=_past(world, people, items, view, visits),
        items=items,
        asked=asked,
        detailed=np.zeros(items.shape, np.bool_),
        cards=_cards(world, people, items, visits),
        experienced=experienced,
    )


def _past(world: AgentWorld, people: Ints, items: Ints, view: Ints, visits: Visits | None) -> Past:
    """Views of the visits, if any, and the present one after them."""
    n, width = len(people), int(view.max(initial=1))
    shape = (n, width, items.shape[1])
    past = Past(
        pages=np.zeros((n, width), np.int64),
        clicked=np.zeros((n, width), np.bool_),
        items=np.full(shape, -1),
        judged=np.zeros(shape, np.bool_),
        watched=np.zeros(shape, np.bool_),
        ratings=np.full(shape, np.nan),
        entries=lambda row: (
            [] if visits is None else visits.entries.of(int(people[row]), world.catalogue.ids)
        ),
    )
    if visits is not None:
        before = width - 1
        for name in ("pages", "clicked", "items", "judged", "watched", "ratings"):
            getattr(past, name)[:, :before] = getattr(visits.log, name)[people, :before]
    past.pages[np.arange(n), view - 1] = 1
    past.items[np.arange(n), view - 1] = items
    return past


def _cards(
    world: AgentWorld, people: Ints, items: Ints, visits: Visits | None
) -> Callable[[int], list[Card]]:
    """Cards by row, made for all rows when the first one is read."""

    @cache
    def all_cards() -> list[list[Card]]:
        users = [world.graph_users[person] for person in people.tolist()]
        memories = None
        if world.graph:
            memories = [
                world.memory if visits is None else visits.graph_of(person)
                for person in people.tolist()
            ]
        short = np.zeros(items.shape, np.bool_)
        return Cards(world).of(items, short, users=users, memories=memories)

    return lambda row: all_cards()[row]
