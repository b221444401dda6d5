"""The seam of brains: batches of questions of visits in, a reply to each out."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipelines.seeding import U64, combine

if TYPE_CHECKING:
    from sim.agents._visit import Visit
    from sim.agents._world import AgentWorld

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Bools: TypeAlias = npt.NDArray[np.bool_]
#: Texts, None where there is none.
Texts: TypeAlias = npt.NDArray[np.object_]

#: Actions after a page, overall feelings, levels of fatigue and emotions (SimUSER, appendix C.10).
ACTIONS = NEXT, PREVIOUS, CLICK, EXIT = "NEXT", "PREVIOUS", "CLICK", "EXIT"
MOODS = ("negative", "positive")
FATIGUE = ("not tired", "a little tired", "very tired")
EMOTIONS = ("CURIOUS", "FRUSTRATED", "EXCITED", "NEUTRAL", "OVERWHELMED")
#: Status of an answered question.
OK = "ok"
#: Items of one page whose long description may be asked for (count).
MAX_CLICKS = 2

Kind = Literal["judge", "decide", "reflect", "interview", "classify"]
#: Methods of a brain.
KINDS: tuple[Kind, ...] = ("judge", "decide", "reflect", "interview", "classify")


@dataclass(frozen=True, eq=False)
class Question:
    """What a visit asks its brain; ``await`` gives the reply.

    The visit is as it was before the question: its person, views and entries may be read, not
    changed.
    """

    #: Method of the brain that answers.
    kind: Kind
    visit: Visit
    #: Keys of the question's random numbers: run, agent, view, state, attempt.
    key: tuple[int, int, int, int, int]
    #: Number of the page, from 1.
    page: int = 1
    #: Items to judge or to classify, and their positions on the page, from 0.
    items: tuple[int, ...] = ()
    positions: tuple[int, ...] = ()
    #: Whether the long description is shown, as after a click.
    detailed: bool = False
    #: Whether all items have been watched, so that each is rated and felt about (SimUSER, section
    #: 4.3); an experiment asks so, a visit never does.
    experienced: bool = False
    #: Possible actions, and positions that may be clicked. NEXT on the last page ends the visit.
    actions: tuple[str, ...] = ()
    clickable: tuple[int, ...] = ()
    #: Fault of the first reply to the question; None at the first attempt.
    fault: str | None = None

    def __await__(self) -> Generator[Question, Any, Any]:
        return (yield self)


def seeds_of(questions: Sequence[Question]) -> U64:
    """Seeds of questions, from their keys, of shape (n,)."""
    return combine(*np.array([q.key for q in questions], np.int64).reshape(-1, 5).T)


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry that a visit added to an agent's episodic memory."""

    #: Place in the agent's memory; training interactions have the numbers from 0 on, in the order
    #: of `AgentWorld.history`, and the visit goes on from there.
    number: int
    #: ``action`` or ``reflection``.
    kind: Literal["action", "reflection"]
    #: Number of the item that it is about; None for a reflection.
    item: int | None
    text: str
    #: Numbers of the entries that a reflection rests on.
    evidence: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Fields that all replies have."""

    #: One of `pipelines.statuses.STATUSES`; unless it is ``ok``, the reply's values mean nothing.
    status: str = OK
    #: Fault of the reply, for the second attempt; None without one.
    fault: str | None = None
    #: Keys of the stored answers, with commas; None without a model.
    answer_key: str | None = None
    #: Prompts and replies together (count).
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Opinion:
    """Decision on an item."""

    watched: bool
    #: From 1 to 5 where the item is watched, else None.
    rating: int | None = None
    #: Probability that it is watched; None where the brain has none.
    chance: float | None = None
    #: Rating that the agent expected, 1-5; None where the brain has none.
    expected: float | None = None
    #: Texts; None where there is none. A feeling belongs to a watched item.
    reason: str | None = None
    feeling: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Judgement(Reply):
    """Opinions on the items of a question, in their order."""

    opinions: tuple[Opinion, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision(Reply):
    """The next action, and how the agent feels."""

    #: One of the possible actions, and the position of the clicked item.
    action: str = NEXT
    target: int | None = None
    #: Of `MOODS`, `FATIGUE` and `EMOTIONS`.
    mood: str = "positive"
    fatigue: str = "not tired"
    emotion: str = "NEUTRAL"
    #: With the recommendations so far, 0-1; None where the brain has no such number.
    satisfaction: float | None = None
    reason: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reflection(Reply):
    """Insights, and numbers of the entries that each rests on (SimUSER, appendix C.9)."""

    insights: tuple[tuple[str, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Interview(Reply):
    """Satisfaction after the visit, from 1 to 10 (SimUSER, appendix C.11)."""

    score: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Classification(Reply):
    """Probability that the agent has interacted with each item (SimUSER, appendix C.12)."""

    probabilities: tuple[float, ...] = field(default=())


@runtime_checkable
class Brain(Protocol):
    """Decides for agents: what they watch, rate, feel and do.

    A brain knows no loop: what an agent has done stands in every question, and equal questions
    get equal replies, whatever else is in the batch and in whichever order; randomness comes from
    `seeds_of`. Each method returns a reply per question, in order.
    ``sim.agents.testing.BrainContract`` is the class that an implementation's tests inherit.
    """

    #: Value of the column ``brain``.
    name: str
    #: One sentence on what it is and what it was fitted on, for reports.
    note: str
    #: Whether it reads texts: cards, similar items, entries.
    reads: bool

    def open(self, world: AgentWorld) -> Self:
        """Fit or load what is needed for a release and a cast; returns itself.

        No result may depend on the number of agents, nor on anything of the test split.
        """

    def judge(self, questions: Sequence[Question]) -> list[Judgement]:
        """Choose which items are watched, and rate them."""

    def decide(self, questions: Sequence[Question]) -> list[Decision]:
        """Choose an action after a page."""

    def reflect(self, questions: Sequence[Question]) -> list[Reflection]:
        """Draw conclusions from a page."""

    def interview(self, questions: Sequence[Question]) -> list[Interview]:
        """Rate the agents' satisfaction after their visits."""

    def classify(self, questions: Sequence[Question]) -> list[Classification]:
        """Estimate which items agents have interacted with."""

    def metadata(self) -> dict[str, Any]:
        """Fitted and assumed values, and the model with its number of calls; JSON-ready.

        It decides, with `name`, which stored results are of this brain.
        """
