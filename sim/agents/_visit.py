"""A visit: one person sees pages, watches, rates, feels, decides and remembers.

:func:`browse` is a coroutine that awaits what it asks a brain. :func:`play` runs the coroutines of
many agents at once: it gathers their questions and puts those of one kind to the brain in one
batch.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar

import numpy as np

from pipelines.errors import ContractError, UnderstudyError
from pipelines.progress import advance
from sim._scheduler import run_all
from sim.agents._protocol import (
    CLICK,
    EXIT,
    MAX_CLICKS,
    NEXT,
    OK,
    PREVIOUS,
    Brain,
    Decision,
    Entry,
    Interview,
    Ints,
    Judgement,
    Kind,
    Opinion,
    Question,
    Reflection,
    Reply,
)
from sim.agents._world import AgentWorld

#: Why a visit ended: the agent left; nothing more to show, or the page limit; two unusable replies.
CHOSEN, LIMIT, FAILED = "chosen", "limit", "failed"
#: A visit shows pages at most this often, each time counted, per page of the limit.
_AGAIN = 2
#: States of a visit in the keys of its questions.
_PAGE, _CLICKED, _DECIDE, _REFLECT, _INTERVIEW = range(5)

Pages: TypeAlias = Sequence[tuple[int, ...]]
Check: TypeAlias = Callable[[Any], str | None]
T = TypeVar("T")


@dataclass
class View:
    """What an agent sees at once: a page, or after a click one item of it."""

    #: Number of the page, from 1, and all of its items by position.
    page: int
    items: tuple[int, ...]
    clicked: bool
    #: Positions that are judged: all of a new page, those not watched yet of a page that is seen
    #: again, one after a click.
    asked: tuple[int, ...]
    #: Opinions by position; empty if no usable reply came.
    opinions: dict[int, Opinion] = field(default_factory=dict)
    decision: Decision | None = None
    #: Status and key of the last reply about the items, and of the last one after it.
    status: str = OK
    answer_key: str | None = None
    page_status: str | None = None
    page_key: str | None = None

    def watched(self) -> list[int]:
        """Positions that the agent watched in this view."""
        return [place for place, opinion in self.opinions.items() if opinion.watched]


@dataclass(eq=False)
class Visit:
    """The visit of one agent as far as it has come."""

    world: AgentWorld
    #: Number of the agent, from which its random numbers come, and the row of its person.
    agent: int
    person: int
    #: Of the run.
    seed: int = 0
    views: list[View] = field(default_factory=list)
    #: Entries that the visit added to the memory, after the training interactions.
    entries: list[Entry] = field(default_factory=list)
    exit_reason: str = CHOSEN
    satisfaction: float | None = None
    interview: int | None = None
    #: Prompts and replies together (count).
    tokens: int = 0

    @property
    def memory(self) -> int:
        """Entries of the memory, training interactions included (count)."""
        return int(self.world.history.lengths[self.person]) + len(self.entries)

    @property
    def user(self) -> str:
        """Id of the person in the graph."""
        return self.world.graph_users[self.person]

    def watched(self, page: int | None = None) -> list[tuple[int, Opinion]]:
        """Items that were watched, of one page or all, with the opinions on them."""
        return [
            (view.items[place], view.opinions[place])
            for view in self.views
            if page is None or view.page == page
            for place in view.watched()
        ]

    @cached_property
    def _graph(self) -> tuple[Any, list[int]]:
        return self.world.memory.copy(), [0]

    @property
    def graph(self) -> Any:
        """The agent's own copy of the graph, with its ratings of this visit."""
        memory, taken = self._graph
        seen = self.watched()
        for item, opinion in seen[taken[0] :]:
            memory.rate(self.user, self.world.catalogue.ids[item], float(opinion.rating or 0))
        taken[0] = len(seen)
        return memory

    def remember(self, kind: Any, item: int | None, text: str, evidence: Any = ()) -> None:
        """Add an entry."""
        self.entries.append(Entry(self.memory, kind, item, text, tuple(evidence)))

    async def ask(self, kind: Kind, state: int, check: Check, page: int, **parts: Any) -> Any:
        """The brain's usable reply; an unusable one is asked for once more with its fault named.

        ``check`` names the fault of a reply whose values can't be used.
        """
        view = self.views[-1]
        key = (self.seed, self.agent, len(self.views), state)
        reply, self.tokens, status = await usable(
            lambda attempt, fault: Question(
                kind, self, (*key, attempt), page, fault=fault, **parts
            ),
            check,
            self.tokens,
        )
        if kind == "judge":
            view.status, view.answer_key = status, reply.answer_key
        else:
            view.page_status = status
            view.page_key = reply.answer_key if kind == "decide" else view.page_key
        if status != OK:
            raise _FailedError
        return reply


class _FailedError(Exception):
    """Two replies in a row could not be used."""


async def usable(
    question: Callable[[int, str | None], Question], check: Check, tokens: int = 0
) -> tuple[Any, int, str]:
    """A reply, ``tokens`` with what it took, and its status, after at most two attempts."""
    fault: str | None = None
    for attempt in (0, 1):
        reply = await question(attempt, fault)
        tokens += reply.tokens
        wrong = check(reply) if reply.status == OK else None
        status = "invalid" if wrong else reply.status
        if status == OK:
            break
        fault = wrong or reply.fault or reply.status
    return reply, tokens, status


async def browse(visit: Visit, pages: Pages) -> Visit:
    """Play one person's visit to its end.

    ``pages`` are items by position and page; an empty page and all behind it are never shown.
    """
    page, shown = 1, 0
    try:
        while page:
            shown += 1
            decision = await _look(visit, pages, page)
            page += -1 if decision.action == PREVIOUS else 1
            over = page > len(pages) or not pages[page - 1] or shown >= _AGAIN * len(pages)
            if decision.action == EXIT or over:
                page = 0
                visit.exit_reason = CHOSEN if decision.action == EXIT else LIMIT
            await _reflect(visit)
        reply: Interview = await visit.ask(
            "interview", _INTERVIEW, _interview_fault, visit.views[-1].page
        )
        visit.interview = reply.score
    except _FailedError:
        visit.exit_reason, visit.satisfaction = FAILED, None
    return visit


async def _look(visit: Visit, pages: Pages, page: int) -> Decision:
    """Watch, rate and decide, until the agent leaves the page."""
    items = pages[page - 1]
    clicked: list[int] = []
    asked = _unwatched(visit, pages, page)
    while True:
        view = View(page, items, bool(clicked), asked)
        visit.views.append(view)
        await _judge(visit, view)
        left = _unwatched(visit, pages, page)
        clickable = tuple(p for p in left if p not in clicked) if len(clicked) < MAX_CLICKS else ()
        possible = {
            NEXT: True, PREVIOUS: bool(_unwatched(visit, pages, page - 1)),
            CLICK: bool(clickable), EXIT: True,
        }  # fmt: skip
        actions = tuple(action for action, may in possible.items() if may)
        decision: Decision = await visit.ask(
            "decide", _DECIDE, partial(_impossible, actions, clickable), page,
            actions=actions, clickable=clickable,
        )  # fmt: skip
        view.decision, visit.satisfaction = decision, decision.satisfaction
        if decision.action != CLICK:
            return decision
        assert decision.target is not None
        clicked.append(decision.target)
        asked = (decision.target,)


def _impossible(
    actions: tuple[str, ...], clickable: tuple[int, ...], reply: Decision
) -> str | None:
    """Fault of a decision; None if it can be carried out."""
    possible = reply.action in actions and (reply.action != CLICK or reply.target in clickable)
    return None if possible else "this action is not possible now"


async def _judge(visit: Visit, view: View) -> None:
    """Put the asked items of a view to the brain, and remember what was watched."""
    items = tuple(view.items[place] for place in view.asked)
    reply: Judgement = await visit.ask(
        "judge", _CLICKED if view.clicked else _PAGE, judgement_fault, view.page,
        items=items, positions=view.asked, detailed=view.clicked,
    )  # fmt: skip
    view.opinions = dict(zip(view.asked, reply.opinions, strict=True))
    for item, opinion in zip(items, reply.opinions, strict=True):
        if opinion.watched:
            felt = f" {opinion.feeling}" if opinion.feeling else ""
            title = visit.world.titles[item]
            text = f"{title}: watched, rated {opinion.rating} of 5.{felt}"
            visit.remember("action", item, text)


async def _reflect(visit: Visit) -> None:
    memory = visit.memory

    def fault(reply: Reflection) -> str | None:
        cited = [number for _, evidence in reply.insights for number in evidence]
        exist = all(0 <= number < memory for number in cited)
        return None if exist else "the evidence names an entry that does not exist"

    reply: Reflection = await visit.ask("reflect", _REFLECT, fault, visit.views[-1].page)
    for text, evidence in reply.insights:
        visit.remember("reflection", None, text, evidence)


def judgement_fault(reply: Judgement) -> str | None:
    """Fault of opinions; None if every watched item, and no other, has a rating from 1 to 5."""
    for opinion in reply.opinions:
        if opinion.watched and opinion.rating not in (1, 2, 3, 4, 5):
            return "a rating is not 1 to 5"
    return None


def _interview_fault(reply: Interview) -> str | None:
    return None if 1 <= reply.score <= 10 else "the score is not 1 to 10"


def _unwatched(visit: Visit, pages: Pages, page: int) -> tuple[int, ...]:
    """Positions of a page with an item that is not watched yet; none of page 0."""
    if page < 1:
        return ()
    seen = {p for view in visit.views if view.page == page for p in view.watched()}
    return tuple(place for place in range(len(pages[page - 1])) if place not in seen)


def play(brain: Brain, coroutines: Iterable[Coroutine[Question, Reply | None, T]]) -> list[T]:
    """Run coroutines to their end and return their results, in order.

    Pending questions of one kind are put to the brain in one call (:mod:`sim._scheduler`).

    Raises
    ------
    ContractError
        If the brain raises, or does not give a reply of the right kind to every question.
    EngineError
        If a model run as a whole failed.
    """

    def answer(kind: Kind, questions: list[Question]) -> list[Reply]:
        advance(f"{kind}: {len(questions):,} agents")
        return _replies(brain, kind, questions)

    return run_all(coroutines, lambda question: question.kind, answer)


_REPLIES = {"judge": Judgement, "decide": Decision, "reflect": Reflection, "interview": Interview}


def _replies(brain: Brain, kind: Kind, questions: list[Question]) -> list[Reply]:
    where = f"brain {brain.name}, {kind}"
    hint = "sim.agents.testing.BrainContract says what a brain returns"
    try:
        replies: list[Any] = list(getattr(brain, kind)(questions))
    except UnderstudyError:
        raise
    except Exception as error:
        what = f"{kind} raised {type(error).__name__}: {error}"
        raise ContractError(what, where=where, hint=hint) from error
    if len(replies) != len(questions):
        what = f"{len(replies)} replies to {len(questions)} questions"
        raise ContractError(what, where=where, hint=hint)
    for question, reply in zip(questions, replies, strict=True):
        if not isinstance(reply, _REPLIES.get(kind, Reply)):
            raise ContractError(f"a reply is a {type(reply).__name__}", where=where, hint=hint)
        if isinstance(reply, Judgement) and reply.status == OK:
            number = len(reply.opinions)
            if number != len(question.items):
                what = f"{number} opinions on {len(question.items)} items"
                raise ContractError(what, where=where, hint=hint)
    return replies


def visits_of(
    world: AgentWorld, brain: Brain, lists: Ints, *, agents: Ints, people: Ints, seed: int
) -> list[Visit]:
    """Finished visits of some agents.

    ``lists`` are items by page, of shape (n, pages, per_page), -1 where nothing is left; ``agents``
    the agents' numbers, which their seeds come from, and ``people`` the rows of their persons in
    ``world.people``, of shape (n,). Errors are those of :func:`play`.
    """
    shown = [
        [tuple(item for item in page if item >= 0) for page in own]
        for own in np.asarray(lists).tolist()
    ]
    return play(
        brain,
        (
            browse(Visit(world, agent, person, seed), pages)
            for agent, person, pages in zip(agents.tolist(), people.tolist(), shown, strict=True)
        ),
    )
