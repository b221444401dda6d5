"""The seam of brains: batches of requests in, typed arrays and texts out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipelines.seeding import U64

if TYPE_CHECKING:
    from sim.agents._pages import Card
    from sim.agents._world import AgentWorld

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
    """An entry that a visit added to an agent's episodic memory."""

    #: Place in the agent's memory; training interactions have the numbers from 0 on, in the order
    #: of `AgentWorld.history`, and the visit goes on from there.
    number: int
    #: ``action`` or ``reflection``.
    kind: str
    #: The item it is about; None for a reflection.
    item_id: str | None
    #: Text of the entry.
    text: str
    #: Numbers of the entries that a reflection rests on.
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True)
class Past:
    """Views of each agent so far, the present one last; rows are those of the request.

    A view is what an agent sees at once: a page, or after a click one item of it.
    """

    #: Page of each view, from 1; 0 where there was no view, of shape (n, views).
    pages: Ints
    #: Whether the view showed one clicked item of the page before it, of shape (n, views).
    clicked: Bools
    #: Item numbers by position, -1 where there was none, of shape (n, views, per_page).
    items: Ints
    #: Whether the agent judged and watched each, of the same shape.
    judged: Bools
    watched: Bools
    #: On 1-5, NaN where there is none, of the same shape.
    ratings: Floats
    #: Entries that row `i` of the request has added to its memory, oldest first.
    entries: Callable[[int], list[Entry]] = field(repr=False)


@dataclass(frozen=True)
class Requests:
    """A batch of agents and their states; every array is of shape (n,) unless stated."""

    #: Items, people and pages.
    world: AgentWorld
    #: Numbers of the agents in the run. A brain uses them for nothing but names of its own:
    #: randomness comes from `seeds`.
    agents: Ints
    #: Row of each agent's person in ``world.people``.
    people: Ints
    #: Number of the view, from 1.
    views: Ints
    #: Number of the page, from 1.
    pages: Ints
    #: Seed of the request, from (run, agent, view, state, attempt).
    seeds: U64
    #: 0, or 1 where the first reply was not usable.
    attempts: Ints
    #: Fault of the first reply; None at the first attempt.
    faults: Texts
    #: Entries in the agent's memory, training interactions included (count): the valid numbers of
    #: evidence are those below it.
    memory: Ints
    #: Views and actions so far.
    past: Past

    def __len__(self) -> int:
        return len(self.agents)


@dataclass(frozen=True)
class JudgeRequests(Requests):
    """A page each: which items are watched, and how they are rated."""

    #: Item numbers by position, -1 where the page ends, of shape (n, per_page).
    items: Ints
    #: Positions that are to be judged, of the same shape: all of a new page, those not watched yet
    #: of a page that is seen again, one after a click.
    asked: Bools
    #: Positions whose long description is shown, of the same shape.
    detailed: Bools
    #: Texts of the asked positions of row `i`, in order of position, for brains that read.
    cards: Callable[[int], list[Card]] = field(repr=False)
    #: Whether every asked item has been watched, so that each is rated and felt about (SimUSER,
    #: section 4.3); an experiment asks so, a visit never does.
    experienced: bool = False


@dataclass(frozen=True)
class DecideRequests(Requests):
    """Requests for an action after a page."""

    #: Actions that are possible, of shape (n, 4), in the order of `ACTIONS`. NEXT on the last page
    #: ends the visit.
    allowed: Bools
    #: Positions that may be clicked, of shape (n, per_page).
    clickable: Bools


@dataclass(frozen=True)
class ReflectRequests(Requests):
    """Requests for conclusions from a page; ``past`` and ``memory`` have everything."""


@dataclass(frozen=True)
class InterviewRequests(Requests):
    """Requests for the satisfaction after the visit (SimUSER, appendix C.11)."""


@dataclass(frozen=True)
class ClassifyRequests(Requests):
    """Requests for the items that the agent has interacted with (SimUSER, appendix C.12)."""

    #: Item numbers, -1 for none, of shape (n, m).
    items: Ints
    #: Texts of the items of row `i`, in order.
    cards: Callable[[int], list[Card]] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Replies:
    """Common fields of all replies; every array is of shape (n,)."""

    #: One of `pipelines.statuses.STATUSES` per request; where it is not ``ok``, the reply's values
    #: mean nothing.
    status: Texts
    #: Fault of the reply, for the second attempt; None without one.
    faults: Texts
    #: Keys of the stored answers; None without a model.
    answer_keys: Texts
    #: Prompt and reply together (count).
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
    """Decisions on the items of pages; all of shape (n, per_page), read at asked positions."""

    #: Whether the item is watched.
    watched: Bools
    #: A whole number from 1 to 5 where it is watched, else NaN.
    ratings: Floats
    #: The rating that the agent expected, 1-5; NaN where the brain has none.
    expected: Floats
    #: Valence of the feeling: -1, 0 or 1; 0 where not watched.
    valence: Ints
    #: Texts; None where there is none. A feeling belongs to a watched item.
    feelings: Texts
    reasons: Texts


@dataclass(frozen=True, kw_only=True)
class Decisions(Replies):
    """Next actions; all of shape (n,)."""

    #: Codes of `ACTIONS`.
    actions: Ints
    #: Position that is clicked; -1 for any other action.
    targets: Ints
    #: Codes of `MOODS`, `FATIGUE` and `EMOTIONS`.
    moods: Ints
    fatigue: Ints
    emotions: Ints
    #: With the recommendations so far, 0-1; NaN where the brain has no such number.
    satisfaction: Floats
    #: Texts; None where there is none.
    reasons: Texts
    #: Whether the agent would leave rather when content and rested than when neither, None where it
    #: was not asked; without the array no agent was asked.
    flagged: Texts | None = None


@dataclass(frozen=True, kw_only=True)
class Reflections(Replies):
    """Insights of agents (SimUSER, appendix C.9)."""

    #: Texts of shape (n, 3), or (n, 0) of a brain that does not reflect.
    questions: Texts
    insights: Texts
    #: Numbers of the entries that each insight rests on, of shape (n, 3, e), padded with -1.
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
    """

    #: Value of the column ``brain``.
    name: str
    #: One sentence on what it is and what it was fitted on, for reports.
    note: str
    #: Whether it reads texts: cards, similar items, entries. The loop grows each agent's graph
    #: memory only for a brain that does.
    reads: bool

    def open(self, world: AgentWorld) -> Self:
        """Fit or load what is needed for a release and a cast; returns itself.

        No result may depend on the number of agents, nor on anything of the test split.
        """

    def judge(self, requests: JudgeRequests) -> Judgements:
        """Choose the watched items of a page, and rate them."""

    def decide(self, requests: DecideRequests) -> Decisions:
        """Choose an action after a page."""

    def reflect(self, requests: ReflectRequests) -> Reflections:
        """Draw conclusions from a page."""

    def interview(self, requests: InterviewRequests) -> Interviews:
        """Rate the agents' satisfaction, with reasons."""

    def classify(self, requests: ClassifyRequests) -> Classifications:
        """Estimate which items agents have interacted with."""

    def metadata(self) -> dict[str, Any]:
        """Fitted and assumed values, and the model with its number of calls; JSON-ready.

        It decides, with `name`, which stored results are of this brain.
        """
