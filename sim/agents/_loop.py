"""Visits of many agents at once: a state machine per agent, and waves over all of them.

An agent is in one of six states: BROWSE (a page is judged), CLICK (one item of it is judged again
with its long description), DECIDE, REFLECT, INTERVIEW and DONE. A wave puts the pending request of
every live agent to the brain, one call per kind of request, on any page of each agent. State
is in arrays with a row per agent, so that no step loops over agents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from pipelines.errors import ContractError, UnderstudyError
from pipelines.seeding import combine
from sim.agents._entries import ACTION, REFLECTION, EntryLog
from sim.agents._pages import Card, Cards
from sim.agents._protocol import (
    ACTIONS,
    CLICK,
    EXIT,
    MAX_CLICKS,
    NEXT,
    OK,
    PREVIOUS,
    Bools,
    Brain,
    DecideRequests,
    Decisions,
    Floats,
    InterviewRequests,
    Interviews,
    Ints,
    Judgements,
    JudgeRequests,
    Past,
    Reflections,
    ReflectRequests,
    Replies,
    Texts,
)
from sim.agents._world import AgentWorld

#: States of an agent.
BROWSE, CLICKED, DECIDE, REFLECT, INTERVIEW, DONE = range(6)
#: Why a visit ended: the agent left; nothing more to show, or the page limit; two unusable replies.
EXIT_REASONS = ("chosen", "limit", "failed")
CHOSEN, LIMIT, FAILED = range(3)
#: A visit shows pages at most this often, each time counted, per page of the limit.
_AGAIN = 2
_NO_TEXT: Texts = np.array(None, object)


class Visits:
    """Visits of some agents to a recommender; :meth:`run` plays all of them to their end.

    ``lists`` are items by page, of shape (n, pages, per_page), -1 where nothing is left; ``agents``
    the agents' numbers, which their seeds come from, ascending, and ``people`` the rows of their
    persons in ``world.people``, of shape (n,).

    Attributes of shape (n,): ``page`` and ``view`` (present ones, from 1), ``exit_page`` and
    ``exit_reason`` (a code of `EXIT_REASONS`), ``satisfaction`` (the last, NaN without one),
    ``interview`` (score, 0 without one) and ``tokens``.
    """

    def __init__(
        self, world: AgentWorld, brain: Brain, *, lists: Ints, agents: Ints, people: Ints, seed: int
    ) -> None:
        n, size = len(agents), world.per_page
        self.world, self.brain, self.lists = world, brain, lists
        self.agents, self.people, self.seed = agents, people, seed
        self.phase = np.full(n, BROWSE)
        self.page = np.zeros(n, np.int64)
        self.view = np.zeros(n, np.int64)
        self.visits = np.zeros(n, np.int64)
        self.clicks = np.zeros(n, np.int64)
        self.attempt = np.zeros(n, np.int64)
        self.fault = np.full(n, None, object)
        self.heading = np.zeros(n, np.int64)
        self.exit_reason = np.full(n, CHOSEN)
        self.satisfaction = np.full(n, np.nan)
        self.interview = np.zeros(n, np.int64)
        self.tokens = np.zeros(n, np.int64)
        self.asked = np.zeros((n, size), np.bool_)
        self.entries = EntryLog(world.history.lengths[people])
        self.log = _ViewLog.empty(n, world.pages + 1, size)
        self.waves = 0
        self._cards = Cards(world)
        self._titles = np.array(self._cards.titles, object)
        # Copies share the graph until they add something.
        self._memories: dict[int, Any] = {}
        self._begin(np.arange(n), np.ones(n, np.int64))

    def run(self, on_wave: Callable[[int], None] | None = None) -> None:
        """Play until every agent is done.

        ``on_wave`` is called with the number of live agents before each wave.

        Raises
        ------
        ContractError
            If the brain raises, or its replies have another shape than the requests.
        EngineError
            If a model run as a whole failed.
        """
        while (live := int((self.phase != DONE).sum())) > 0:
            if on_wave is not None:
                on_wave(live)
            self.wave()

    def wave(self) -> None:
        """Put every pending request to the brain, one call per kind, and take the replies in."""
        phase = self.phase.copy()
        self.waves += 1
        for states, step in (
            ((BROWSE, CLICKED), self._judge),
            ((DECIDE,), self._decide),
            ((REFLECT,), self._reflect),
            ((INTERVIEW,), self._interviewed),
        ):
            rows = np.flatnonzero(np.isin(phase, states))
            if len(rows):
                step(rows)

    # -- requests ------------------------------------------------------------------------------

    def _judge(self, rows: Ints) -> None:
        at = self.view[rows] - 1
        items = self.log.items[rows, at]
        asked = self.asked[rows]
        detailed = asked & self.log.clicked[rows, at, None]
        request = JudgeRequests(
            **self._common(rows),
            items=items,
            asked=asked,
            detailed=detailed,
            cards=self._cards_of(rows, np.where(asked, items, -1), detailed),
        )
        reply = self._ask("judge", request)
        assert isinstance(reply, Judgements)
        self._shaped(reply, items.shape, "watched", "ratings", "expected", "valence",
                     "feelings", "reasons")  # fmt: skip
        watched = reply.watched & asked
        whole = np.isin(reply.ratings, (1.0, 2.0, 3.0, 4.0, 5.0))
        good = self._usable(rows, reply, np.all(~watched | whole, axis=1), "a rating is not 1 to 5")
        log = self.log
        log.status[rows, at], log.keys[rows, at] = self._status, reply.answer_keys
        log.judged[rows, at] = asked
        rows, at, watched = rows[good], at[good], watched[good]
        log.watched[rows, at] = watched
        log.ratings[rows, at] = np.where(watched, reply.ratings[good], np.nan)
        log.expected[rows, at] = np.where(asked[good], reply.expected[good], np.nan)
        log.valence[rows, at] = np.where(watched, reply.valence[good], 0)
        log.feelings[rows, at] = np.where(watched, reply.feelings[good], _NO_TEXT)
        log.reasons[rows, at] = np.where(asked[good], reply.reasons[good], _NO_TEXT)
        self.phase[rows] = DECIDE
        row, place = np.nonzero(watched)
        if not len(row):
            return
        seen, stars = items[good][row, place], reply.ratings[good][row, place]
        felt = reply.feelings[good][row, place]
        texts = self._titles[seen] + _RATED[stars.astype(np.int64)]
        spoken = felt != None  # noqa: E711
        texts[spoken] = texts[spoken] + " " + felt[spoken]
        self.entries.add(rows[row], ACTION, seen, texts)
        if self.brain.reads and self.world.graph:
            for agent, item, star in zip(rows[row].tolist(), seen.tolist(), stars.tolist(),
                                         strict=True):  # fmt: skip
                user = self.world.graph_users[int(self.people[agent])]
                self.graph_of(agent).rate(user, self.world.catalogue.ids[item], star)

    def _decide(self, rows: Ints) -> None:
        at = self.view[rows] - 1
        allowed = np.ones((len(rows), len(ACTIONS)), np.bool_)
        clickable = self._clickable(rows)
        allowed[:, CLICK] = clickable.any(axis=1)
        allowed[:, PREVIOUS] = self._unwatched(rows, self.page[rows] - 1).any(axis=1)
        request = DecideRequests(**self._common(rows), allowed=allowed, clickable=clickable)
        reply = self._ask("decide", request)
        assert isinstance(reply, Decisions)
        self._shaped(reply, (len(rows),), "actions", "targets", "moods", "fatigue", "emotions",
                     "satisfaction", "reasons")  # fmt: skip
        everyone, size = np.arange(len(rows)), self.world.per_page
        known = (reply.actions >= 0) & (reply.actions < len(ACTIONS))
        action = np.where(known, reply.actions, NEXT)
        target = np.clip(reply.targets, 0, size - 1)
        points = (reply.targets == target) & clickable[everyone, target]
        possible = known & allowed[everyone, action] & ((action != CLICK) | points)
        good = self._usable(rows, reply, possible, "this action is not possible now")
        log = self.log
        log.page_status[rows, at], log.page_keys[rows, at] = self._status, reply.answer_keys
        rows, at, action, target = rows[good], at[good], action[good], target[good]
        log.actions[rows, at] = action
        log.targets[rows, at] = np.where(action == CLICK, target, -1)
        log.moods[rows, at], log.fatigue[rows, at] = reply.moods[good], reply.fatigue[good]
        log.emotions[rows, at] = reply.emotions[good]
        log.page_reasons[rows, at] = reply.reasons[good]
        if reply.flagged is not None:
            log.flagged[rows, at] = reply.flagged[good]
        self.satisfaction[rows] = reply.satisfaction[good]
        clicks = action == CLICK
        self._click(rows[clicks], target[clicks])
        rows, action = rows[~clicks], action[~clicks]
        page = self.page[rows] + np.where(action == PREVIOUS, -1, 1)
        shown = np.minimum(page, self.world.pages)
        over = (page > self.world.pages) | (self.lists[rows, shown - 1, 0] < 0)
        over |= self.visits[rows] >= _AGAIN * self.world.pages
        leaves = action == EXIT
        self.heading[rows] = np.where(leaves | over, 0, page)
        self.exit_reason[rows] = np.where(~leaves & over, LIMIT, CHOSEN)
        self.phase[rows] = REFLECT

    def _reflect(self, rows: Ints) -> None:
        reply = self._ask("reflect", ReflectRequests(**self._common(rows)))
        assert isinstance(reply, Reflections)
        width = reply.insights.shape[1]
        self._shaped(reply, (len(rows), width), "questions", "insights")
        if reply.evidence.shape[:2] != (len(rows), width):
            raise self._broken("reflect", f"evidence of shape {reply.evidence.shape}")
        memory = self.entries.lengths[rows]
        there = (reply.evidence >= -1) & (reply.evidence < memory[:, None, None])
        good = self._usable(
            rows,
            reply,
            np.all(there, axis=(1, 2)),
            "the evidence names an entry that does not exist",
        )
        self.log.page_status[rows, self.view[rows] - 1] = self._status
        chosen = rows[good]
        if width:
            each = np.repeat(chosen, width)
            nothing = np.full(len(each), -1)
            texts = reply.insights[good].ravel()
            evidence = reply.evidence[good].reshape(len(each), reply.evidence.shape[2])
            self.entries.add(each, REFLECTION, nothing, texts, evidence)
        leaves = self.heading[chosen] == 0
        self.phase[chosen[leaves]] = INTERVIEW
        on = chosen[~leaves]
        self._begin(on, self.heading[on])

    def _interviewed(self, rows: Ints) -> None:
        reply = self._ask("interview", InterviewRequests(**self._common(rows)))
        assert isinstance(reply, Interviews)
        self._shaped(reply, (len(rows),), "scores", "reasons")
        good = self._usable(
            rows, reply, (reply.scores >= 1) & (reply.scores <= 10), "the score is not 1 to 10"
        )
        self.log.page_status[rows, self.view[rows] - 1] = self._status
        self.interview[rows[good]] = reply.scores[good]
        self.phase[rows[good]] = DONE

    # -- transitions ---------------------------------------------------------------------------

    def _begin(self, rows: Ints, page: Ints) -> None:
        """Show a page: all of it, or of one that was seen before what is not watched yet."""
        self.page[rows] = page
        self.visits[rows] += 1
        self.clicks[rows] = 0
        self.asked[rows] = self._unwatched(rows, page)
        self._show(rows, clicked=False)
        self.phase[rows] = BROWSE

    def _click(self, rows: Ints, target: Ints) -> None:
        """Show one item of the present page with its long description."""
        self.clicks[rows] += 1
        self.asked[rows] = False
        self.asked[rows, target] = True
        self._show(rows, clicked=True)
        self.phase[rows] = CLICKED

    def _show(self, rows: Ints, *, clicked: bool) -> None:
        self.view[rows] += 1
        self.log.reserve(int(self.view.max(initial=0)))
        at = self.view[rows] - 1
        self.log.pages[rows, at] = self.page[rows]
        self.log.items[rows, at] = self.lists[rows, self.page[rows] - 1]
        self.log.clicked[rows, at] = clicked

    def _unwatched(self, rows: Ints, page: Ints) -> Bools:
        """Positions of a page with an item that is not watched yet; none of page 0."""
        seen = (self.log.pages[rows] == page[:, None])[:, :, None] & self.log.watched[rows]
        items = self.lists[rows, np.maximum(page, 1) - 1]
        return np.asarray((items >= 0) & ~seen.any(axis=1) & (page > 0)[:, None])

    def _clickable(self, rows: Ints) -> Bools:
        """Unwatched positions of the present page that were not clicked since it was opened."""
        log, views = self.log, np.arange(self.log.pages.shape[1])
        since = self.view[rows] - self.clicks[rows]
        own = (views >= since[:, None]) & (views < self.view[rows][:, None])
        clicked = (log.judged[rows] & (log.clicked[rows] & own)[:, :, None]).any(axis=1)
        left = (self.clicks[rows] < MAX_CLICKS)[:, None]
        return np.asarray(self._unwatched(rows, self.page[rows]) & ~clicked & left)

    # -- asking --------------------------------------------------------------------------------

    def _common(self, rows: Ints) -> dict[str, Any]:
        views, phase, attempt = self.view[rows], self.phase[rows], self.attempt[rows]
        width = int(views.max())
        log = self.log
        return {
            "world": self.world,
            "agents": self.agents[rows],
            "people": self.people[rows],
            "views": views,
            "pages": self.page[rows],
            "seeds": combine(self.seed, self.agents[rows], views, phase, attempt),
            "attempts": attempt,
            "faults": self.fault[rows],
            "memory": self.entries.lengths[rows],
            "past": Past(
                pages=log.pages[rows, :width],
                clicked=log.clicked[rows, :width],
                items=log.items[rows, :width],
                judged=log.judged[rows, :width],
                watched=log.watched[rows, :width],
                ratings=log.ratings[rows, :width],
                entries=lambda n: self.entries.of(int(rows[n]), self.world.catalogue.ids),
            ),
        }

    def _ask(self, kind: str, request: Any) -> Replies:
        try:
            reply: Replies = getattr(self.brain, kind)(request)
        except UnderstudyError:
            raise
        except Exception as error:
            what = f"{kind} raised {type(error).__name__}: {error}"
            raise self._broken(kind, what) from error
        self._shaped(reply, (len(request),), "status", "faults", "answer_keys", "tokens")
        return reply

    def _shaped(self, reply: Replies, shape: tuple[int, ...], *names: str) -> None:
        """Refuse replies whose arrays have another shape than the requests."""
        for name in names:
            found = np.shape(getattr(reply, name, ()))
            if found != shape:
                what = f"{name} of shape {found}, not {shape}"
                raise self._broken(type(reply).__name__, what)

    def _broken(self, kind: str, what: str) -> ContractError:
        hint = "sim.agents.testing.BrainContract says what a brain returns"
        return ContractError(what, where=f"brain {self.brain.name}, {kind}", hint=hint)

    def _usable(self, rows: Ints, reply: Replies, sound: Bools, fault: str) -> Bools:
        """Usable replies, as booleans; the others are asked once more, then their agents fail."""
        answered = np.asarray(reply.status == OK, np.bool_)
        good = answered & sound
        self._status = np.where(answered & ~sound, "invalid", reply.status)
        self.tokens[rows] += reply.tokens
        named = np.where(answered, fault, np.where(reply.faults == None, reply.status,  # noqa: E711
                                                   reply.faults))  # fmt: skip
        again = rows[~good & (self.attempt[rows] == 0)]
        failed = rows[~good & (self.attempt[rows] > 0)]
        self.fault[rows] = np.where(good, _NO_TEXT, named)
        self.attempt[rows] = 0
        self.attempt[again] = 1
        self.phase[failed] = DONE
        self.exit_reason[failed] = FAILED
        return good

    def _cards_of(self, rows: Ints, items: Ints, detailed: Bools) -> Callable[[int], list[Card]]:
        """Cards by row of a request, made for all rows when the first one is read."""

        @cache
        def made() -> list[list[Card]]:
            users = [self.world.graph_users[person] for person in self.people[rows].tolist()]
            memories = [self.graph_of(row) for row in rows.tolist()] if self.world.graph else None
            return self._cards.of(items, detailed, users=users, memories=memories)

        return lambda n: made()[n]

    def graph_of(self, row: int) -> Any:
        """The graph memory of one agent."""
        if row not in self._memories:
            self._memories[row] = self.world.memory.copy()
        return self._memories[row]


#: Ending of an entry, after the title, by rating.
_RATED = np.array([f": watched, rated {n} of 5." for n in range(6)], object)


@dataclass
class _ViewLog:
    """Record of every view, of shape (n, views[, per_page])."""

    pages: Ints
    clicked: Bools
    items: Ints
    judged: Bools
    watched: Bools
    ratings: Floats
    expected: Floats
    valence: Ints
    feelings: Texts
    reasons: Texts
    status: Texts
    keys: Texts
    actions: Ints
    targets: Ints
    moods: Ints
    fatigue: Ints
    emotions: Ints
    flagged: Texts
    page_reasons: Texts
    page_status: Texts
    page_keys: Texts

    @classmethod
    def empty(cls, n: int, views: int, size: int) -> _ViewLog:
        """Room for some views of `n` agents."""
        page, item = (n, views), (n, views, size)
        return cls(
            pages=np.zeros(page, np.int64),
            clicked=np.zeros(page, np.bool_),
            items=np.full(item, -1, np.int64),
            judged=np.zeros(item, np.bool_),
            watched=np.zeros(item, np.bool_),
            ratings=np.full(item, np.nan),
            expected=np.full(item, np.nan),
            valence=np.zeros(item, np.int64),
            feelings=np.full(item, None, object),
            reasons=np.full(item, None, object),
            status=np.full(page, None, object),
            keys=np.full(page, None, object),
            actions=np.full(page, -1, np.int64),
            targets=np.full(page, -1, np.int64),
            moods=np.full(page, -1, np.int64),
            fatigue=np.full(page, -1, np.int64),
            emotions=np.full(page, -1, np.int64),
            flagged=np.full(page, None, object),
            page_reasons=np.full(page, None, object),
            page_status=np.full(page, None, object),
            page_keys=np.full(page, None, object),
        )

    def reserve(self, views: int) -> None:
        """Make room for this many views, doubling it where there is too little."""
        n, room, size = self.items.shape
        if views <= room:
            return
        more = _ViewLog.empty(n, room, size)
        for name in vars(self):
            setattr(self, name, np.concatenate([getattr(self, name), getattr(more, name)], axis=1))
