"""The seam of brains: batches of requests in, typed arrays and texts out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipelines.seeding import U64
from pipelines.statuses import STATUSES

if TYPE_CHECKING:
    from sim.agents._pages import Card
    from sim.agents._world import AgentWorld

__all__ = [
    "ACTIONS",
    "CLICK",
    "EMOTIONS",
    "EXIT",
    "FATIGUE",
    "MAX_CLICKS",
    "MOODS",
    "NEXT",
    "OK",
    "PREVIOUS",
    "STATUSES",
    "Bools",
    "Brain",
    "Classifications",
    "ClassifyRequests",
    "DecideRequests",
    "Decisions",
    "Entry",
    "Floats",
    "InterviewRequests",
    "Interviews",
    "Ints",
    "JudgeRequests",
    "Judgements",
    "Past",
    "ReflectRequests",
    "Reflections",
    "Replies",
    "Requests",
    "Texts",
]

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
#: Texts, None where there is none.
Texts: TypeAlias = npt.NDArray[np.object_]

#: Actions by their code in :class:`Decisions` (SimUSER, appendix C.10).
ACTIONS = ("NEXT", "PREVIOUS", "CLICK", "EXIT")
NEXT, PREVIOUS, CLICK, EXIT = range(4)
#: Overall feelings, levels of fatigue and emotions by their code (SimUSER, appendix C.10).
MOODS = ("NEGATIVE", "POSITIVE")
FATIGUE = ("NOT TIRED", "A LITTLE TIRED", "VERY TIRED")
EMOTIONS = ("CURIOUS", "FRUSTRATED", "EXCITED", "NEUTRAL", "OVERWHELMED")
#: Status of an answered request.
OK = "ok"
#: Items of one view whose long description may be asked for (count).
MAX_CLICKS = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that a visit added to an agent's episodic memory.

    Attributes
    ----------
    number
        Place in the agent's memory; training interactions have the numbers from 0 on, in the
        order of `AgentWorld.history`, and the visit goes on from there.
    kind
        ``action`` or ``reflection``.
    item_id
        The item it is about; None for a reflection.
    text
        Text of the entry.
    evidence
        Numbers of the entries that a reflection rests on.
    """

    number: int
    kind: str
    item_id: str | None
    text: str
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True)
class Past:
    """Views of each agent so far, the present one last; rows are those of the request.

    A view is what an agent sees at once: a page, or after a click one item of it.

    Attributes
    ----------
    pages
        Page of each view, from 1; 0 where there was no view, of shape (n, views).
    clicked
        Whether the view showed one clicked item of the page before it, of shape (n, views).
    items
        Item numbers by position, -1 where there was none, of shape (n, views, per_page).
    judged, watched
        Whether the agent judged and watched each, of the same shape.
    ratings
        On 1-5, NaN where there is none, of the same shape.
    entries
        Entries that row `i` of the request has added to its memory, oldest first.
    """

    pages: Ints
    clicked: Bools
    items: Ints
    judged: Bools
    watched: Bools
    ratings: Floats
    entries: Callable[[int], list[Entry]] = field(repr=False)


@dataclass(frozen=True)
class Requests:
    """A batch of agents and their states; every array is of shape (n,) unless stated.

    Attributes
    ----------
    world
        Items, people and pages.
    agents
        Numbers of the agents in the run. A brain uses them for nothing but names of its own:
        randomness comes from `seeds`.
    people
        Row of each agent's person in ``world.people``.
    views
        Number of the view, from 1.
    pages
        Number of the page, from 1.
    seeds
        Seed of the request, from (run, agent, view, state, attempt).
    attempts
        0, or 1 where the first reply was not usable.
    faults
        Fault of the first reply; None at the first attempt.
    memory
        Entries in the agent's memory, training interactions included (count): the valid numbers
        of evidence are those below it.
    past
        Views and actions so far.
    """

    world: AgentWorld
    agents: Ints
    people: Ints
    views: Ints
    pages: Ints
    seeds: U64
    attempts: Ints
    faults: Texts
    memory: Ints
    past: Past

    def __len__(self) -> int:
        return len(self.agents)


@dataclass(frozen=True)
class JudgeRequests(Requests):
    """A page each: which items are watched, and how they are rated.

    Attributes
    ----------
    items
        Item numbers by position, -1 where the page ends, of shape (n, per_page).
    asked
        Positions that are to be judged, of the same shape: all of a new page, those not watched
        yet of a page that is seen again, one after a click.
    detailed
        Positions whose long description is shown, of the same shape.
    cards
        Texts of the asked positions of row `i`, in order of position, for brains that read.
    experienced
        Whether every asked item has been watched, so that each is rated and felt about
        (SimUSER, section 4.3); an experiment asks so, a visit never does.
    """

    items: Ints
    asked: Bools
    detailed: Bools
    cards: Callable[[int], list[Card]] = field(repr=False)
    experienced: bool = False


@dataclass(frozen=True)
class DecideRequests(Requests):
    """Requests for an action after a page.

    Attributes
    ----------
    allowed
        Actions that are possible, of shape (n, 4), in the order of `ACTIONS`. NEXT on the last
        page ends the visit.
    clickable
        Positions that may be clicked, of shape (n, per_page).
    """

    allowed: Bools
    clickable: Bools


@dataclass(frozen=True)
class ReflectRequests(Requests):
    """Requests for conclusions from a page; ``past`` and ``memory`` have everything."""


@dataclass(frozen=True)
class InterviewRequests(Requests):
    """Requests for the satisfaction after the visit (SimUSER, appendix C.11)."""


@dataclass(frozen=True)
class ClassifyRequests(Requests):
    """Requests for the items that the agent has interacted with (SimUSER, appendix C.12).

    Attributes
    ----------
    items
        Item numbers, -1 for none, of shape (n, m).
    cards
        Texts of the items of row `i`, in order.
    """

    items: Ints
    cards: Callable[[int], list[Card]] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Replies:
    """Common fields of all replies; every array is of shape (n,).

    Attributes
    ----------
    status
        One of `STATUSES` per request; where it is not ``ok``, the reply's values mean nothing.
    faults
        Fault of the reply, for the second attempt; None without one.
    answer_keys
        Keys of the stored answers; None without a model.
    tokens
        Prompt and reply together (count).
    """

    status: Texts
    faults: Texts
    answer_keys: Texts
    tokens: Ints

    @staticmethod
    def fine(n: int) -> dict[str, Any]:
        """The fields of `n` replies that need no model: all ``ok``, no keys, no tokens."""
        nothing = np.full(n, None, object)
        return {
            "status": np.full(n, OK, object),
            "faults": nothing,
            "answer_keys": nothing,
            "tokens": np.zeros(n, np.int64),
        }


@dataclass(frozen=True, kw_only=True)
class Judgements(Replies):
    """Decisions on the items of pages; all of shape (n, per_page), read at asked positions.

    Attributes
    ----------
    watched
        Whether the item is watched.
    ratings
        A whole number from 1 to 5 where it is watched, else NaN.
    expected
        The rating that the agent expected, 1-5; NaN where the brain has none.
    valence
        Of the feeling: -1, 0 or 1; 0 where not watched.
    feelings, reasons
        Texts; None where there is none. A feeling belongs to a watched item.
    """

    watched: Bools
    ratings: Floats
    expected: Floats
    valence: Ints
    feelings: Texts
    reasons: Texts


@dataclass(frozen=True, kw_only=True)
class Decisions(Replies):
    """Next actions; all of shape (n,).

    Attributes
    ----------
    actions
        Codes of `ACTIONS`.
    targets
        Position that is clicked; -1 for any other action.
    moods, fatigue, emotions
        Codes of `MOODS`, `FATIGUE` and `EMOTIONS`.
    satisfaction
        With the recommendations so far, 0-1; NaN where the brain has no such number.
    reasons
        Texts; None where there is none.
    flagged
        Whether the agent would leave rather when content and rested than when neither, None where
        it was not asked; without the array nobody was asked.
    """

    actions: Ints
    targets: Ints
    moods: Ints
    fatigue: Ints
    emotions: Ints
    satisfaction: Floats
    reasons: Texts
    flagged: Texts | None = None


@dataclass(frozen=True, kw_only=True)
class Reflections(Replies):
    """Insights of agents (SimUSER, appendix C.9).

    Attributes
    ----------
    questions, insights
        Texts of shape (n, 3), or (n, 0) of a brain that does not reflect.
    evidence
        Numbers of the entries that each insight rests on, of shape (n, 3, e), padded with -1.
    """

    questions: Texts
    insights: Texts
    evidence: Ints


@dataclass(frozen=True, kw_only=True)
class Interviews(Replies):
    """Answers to the interview, of shape (n,): a whole number from 1 to 10, and why."""

    scores: Ints
    reasons: Texts


@dataclass(frozen=True, kw_only=True)
class Classifications(Replies):
    """Probability that the agent has interacted with each item, of shape (n, m); NaN for none."""

    probabilities: Floats


@runtime_checkable
class Brain(Protocol):
    """Decides for agents: what they watch, rate, feel, do and say.

    A brain knows no loop: what an agent has done stands in every request, and equal requests
    get equal replies, whatever else is in the batch and in whichever order. Rows of a batch are
    independent of each other. ``sim.agents.testing.BrainContract`` is the class that an
    implementation's tests inherit.

    Attributes
    ----------
    name
        Value of the column ``brain``.
    note
        One sentence on what it is and what it was fitted on, for reports.
    reads
        Whether it reads texts: cards, similar items, entries. The loop grows each agent's graph
        memory only for a brain that does.
    """

    name: str
    note: str
    reads: bool

    def open(self, world: AgentWorld) -> Self:
        """Fit or load what is needed for a release and a cast; returns itself.

        No result may depend on the number of agents, nor on anything of the test split.
        """
        ...

    def judge(self, requests: JudgeRequests) -> Judgements:
        """Choose the watched items of a page, and rate them."""
        ...

    def decide(self, requests: DecideRequests) -> Decisions:
        """Choose an action after a page."""
        ...

    def reflect(self, requests: ReflectRequests) -> Reflections:
        """Draw conclusions from a page."""
        ...

    def interview(self, requests: InterviewRequests) -> Interviews:
        """Rate the agents' satisfaction, with reasons."""
        ...

    def classify(self, requests: ClassifyRequests) -> Classifications:
        """Estimate which items agents have interacted with."""
        ...

    def metadata(self) -> dict[str, Any]:
        """Fitted and assumed values, and the model with its number of calls; JSON-ready.

        It decides, with `name`, which stored results are of this brain.
        """
        ...
