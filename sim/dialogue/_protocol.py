"""Seams of dialogues: agents that sell and customers that answer, one dialogue at a time.

Their methods are coroutines. Whoever needs a language model awaits :class:`Batched`, and the
replies of all running dialogues are asked for together; others answer at once.

Products have two numberings: that of the choice set (its own order) and that of the dialogue, in
which ``Dialogue.order`` shuffles them. Agents see and use the numbering of the dialogue.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, get_args, runtime_checkable

import numpy as np

from pipelines.seeding import combine
from sim.dialogue._world import ChoiceSet, DialogueWorld, Floats, Ints

#: Answer to a facet's question other than the number of a value.
NO_PREFERENCE = -1
#: A question that belongs to no facet, or whose answer has no value.
UNMATCHED = -2

#: Questions of an episode at most (BIEL, section 5).
MAX_QUESTIONS = 20

#: Statuses of replies and episodes. A `failed` or `leaked` one has no regret.
STATUSES = OK, FAILED, LEAKED = ("ok", "failed", "leaked")

#: Regrets that confidences are about (BIEL, section 5.1; points).
REGRET_LEVELS = (5.0, 10.0, 20.0, 30.0)
#: Events about the product that would be sold whose probability an agent may state.
CONFIDENCES = ("top_1", "top_5", "regret_5", "regret_10", "regret_20", "regret_30")
#: Columns of the same events where an agent also states percentages in words.
STATED = tuple(f"stated_{name}" for name in CONFIDENCES)

Feedback = Literal["none", "regret", "stars", "text"]
#: Forms of feedback; `none` is the control.
FEEDBACK: tuple[Feedback, ...] = get_args(Feedback)

#: Roles that the seeds of draws belong to.
AGENT, CUSTOMER, COMMENT = 201, 202, 203

#: Answers of a customer without a preference, and to a question that matches nothing.
INDIFFERENT = "I have no preference."
NO_OPINION = "I have no strong opinion on that."


def prefers(value: str) -> str:
    """Words of a customer that prefers a value.

    >>> prefers("blue"), prefers("no")
    ('I prefer blue.', 'No.')
    """
    return f"{value.capitalize()}." if value in ("yes", "no") else f"I prefer {value}."


@dataclass(frozen=True, eq=False, slots=True)
class Batched:
    """An item that a function answers together with those of other dialogues: ``await`` it."""

    #: Called with the items of all dialogues that wait for it; returns a reply for each, in order.
    answer: Callable[[list[Any]], Sequence[Any]]
    item: Any

    def __await__(self) -> Generator[Batched, Any, Any]:
        return (yield self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """Fields that all replies have."""

    #: One of `STATUSES`; unless it is ``ok``, the reply's values mean nothing.
    status: str = OK
    #: Keys of the stored model answers, with commas; None without a model.
    answer_key: str | None = None
    #: Prompts and replies together (count).
    tokens: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Action(Reply):
    """A question or a recommendation."""

    #: Whether the agent asks; else it recommends.
    ask: bool = False
    #: Facet that is asked about; -1 for a question in its words.
    facet: int = -1
    #: Question in the agent's words; None: the facet's.
    text: str | None = None
    #: Number in the dialogue of the recommended product; of a question, of the product that would
    #: be recommended now, or -1 if that is unknown.
    product: int = -1
    #: Expected regret of ``product`` and confidences under the agent's belief, in the order of
    #: `CONFIDENCES`; None where there is none.
    expected_regret: float | None = None
    confidences: Sequence[float] | None = None
    #: The same six as a language model states them in words.
    stated: Sequence[float] | None = None
    #: Probabilities of recommendations by number in the dialogue. No table holds them: those of a
    #: model are found by ``answer_key`` in the answer store.
    distribution: Floats | None = None
    #: Past episodes left out of the prompt because it was longer than the model's context (count).
    forgotten: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer(Reply):
    """A customer's answer to a question."""

    #: Facet that the question was matched to, -1 for none.
    facet: int = -1
    #: Number of the facet's value, `NO_PREFERENCE`, or `UNMATCHED`.
    value: int = UNMATCHED
    #: Words of the answer; None: those of the value.
    text: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Comment(Reply):
    """A customer's feedback in words; None of a reply that can't be used."""

    text: str | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer."""

    action: Action
    answer: Answer
    #: Both in words.
    words: tuple[str, str]

    @classmethod
    def of(cls, shelf: ChoiceSet, action: Action, answer: Answer) -> Turn:
        """The turn with the words of the facet and of its value where there are no others."""
        facet = shelf.facets[answer.facet] if answer.facet >= 0 else None
        question, text = action.text, answer.text
        if question is None and facet is not None:
            question = facet.question
        if text is None:
            value = answer.value
            text = prefers(facet.values[value]) if facet and value >= 0 else INDIFFERENT
        return cls(action, answer, (question or "", text))


@dataclass(frozen=True, slots=True)
class PastEpisode:
    """A finished episode as an agent may remember it."""

    episode: int
    category: str
    #: Label of the customer, such as ``customer 1``.
    customer: str
    #: Questions with the answers.
    turns: Sequence[tuple[str, str]]
    #: Title of the product that was sold; None if the episode failed.
    sold: str | None
    #: Feedback as a text; empty without one.
    feedback: str


@dataclass(eq=False)
class Dialogue:
    """A dialogue as its agent sees it: neither a score nor, unless it is privileged, a persona."""

    #: Choice set as a number of ``DialogueWorld.sets``, and label of the customer in the lifetime.
    set: int
    customer: int
    #: Product of the choice set at each number of the dialogue, of shape (products,).
    order: Ints
    #: Seed of the lifetime, number of the episode from 0, and seed of the run.
    lifetime: int = 0
    episode: int = 0
    run: int = 0
    #: Questions at most, and those that must be asked first (planning protocol, section 5.2).
    max_questions: int = MAX_QUESTIONS
    must_ask: int = 0
    turns: list[Turn] = field(default_factory=list)
    #: Finished episodes of the lifetime, oldest first; empty with memory off.
    past: list[PastEpisode] = field(default_factory=list)
    #: Anything that the agent keeps of the lifetime; emptied after each episode with memory off.
    memory: dict[str, Any] = field(default_factory=dict)
    #: Persona of the customer, for agents that are `privileged`; else None.
    persona: int | None = None
    _seeds: dict[int, list[int]] = field(default_factory=dict, init=False, repr=False)

    @property
    def questions_left(self) -> int:
        """Questions that may still be asked; at 0 the agent must recommend."""
        return self.max_questions - len(self.turns)

    @property
    def forced(self) -> bool:
        """Whether a recommendation is not allowed yet."""
        return len(self.turns) < self.must_ask

    def may_ask(self, limit: int | None) -> bool:
        """Whether questions are left, of those at most that the agent allows itself (None: any)."""
        allowed = limit is None or len(self.turns) < limit
        return self.questions_left > 0 and (self.forced or allowed)

    @property
    def transcript(self) -> list[tuple[str, str]]:
        """Questions and answers in words."""
        return [turn.words for turn in self.turns]

    @property
    def asked(self) -> Set[int]:
        """Facets that were asked about."""
        return {turn.answer.facet for turn in self.turns} - {-1}

    def seed(self, role: int = AGENT, turn: int | None = None) -> int:
        """Seed of a role's draws at a turn, by default the present one."""
        if role not in self._seeds:
            turns = np.arange(self.max_questions + 1)
            keys = combine(self.run, self.lifetime, self.episode, turns, role)
            self._seeds[role] = keys.tolist()
        return self._seeds[role][len(self.turns) if turn is None else turn]

    def number(self, product: int) -> int:
        """Number in the dialogue of a product of the choice set."""
        return int((self.order == product).argmax())

    def last_turn(self) -> Dialogue:
        """The same dialogue without questions left."""
        return replace(self, max_questions=len(self.turns), must_ask=0)


@dataclass(frozen=True, slots=True)
class Question:
    """A question to a customer."""

    #: Dialogue before the question, and number of the persona that answers.
    dialogue: Dialogue
    persona: int
    #: Facet or -1; words of the question, or None for those of the facet.
    facet: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Sale:
    """A recommendation that a customer comments on."""

    dialogue: Dialogue
    persona: int
    #: Number in the choice set.
    product: int
    #: The persona's scores, of shape (products,).
    y: Floats


@dataclass(frozen=True, slots=True)
class Outcome:
    """End of an episode, with no more than the form of feedback shows."""

    #: The dialogue when the product was recommended, and the number of that in the choice set.
    dialogue: Dialogue
    product: int
    #: Points, 0-5, and the customer's words; None unless that is the form of the feedback.
    regret: float | None = None
    stars: int | None = None
    text: str | None = None


@runtime_checkable
class Agent(Protocol):
    """Recommender that asks questions and sells one product per episode.

    ``sim.dialogue.testing.AgentContract`` is the class that an implementation's tests inherit.
    """

    @property
    def name(self) -> str:
        """Name in tables."""

    @property
    def privileged(self) -> bool:
        """True for an oracle that reads all scores and the personas; reported as a bound."""

    def open(self, world: DialogueWorld, seed: int) -> None:
        """Read the choice sets; ``world`` is ``DialogueWorld.disclosed()`` unless privileged."""

    async def act(self, dialogue: Dialogue) -> Action:
        """Ask or recommend; equal dialogues get equal actions."""

    def learn(self, outcome: Outcome) -> None:
        """Keep what follows from an episode in ``outcome.dialogue.memory``."""

    def metadata(self) -> dict[str, Any]:
        """Settings that decide its actions, as JSON values."""


@runtime_checkable
class Customer(Protocol):
    """Simulated shoppers.

    ``sim.dialogue.testing.CustomerContract`` is the class that an implementation's tests inherit.
    """

    @property
    def name(self) -> str:
        """Name in tables."""

    def open(self, world: DialogueWorld, seed: int) -> None:
        """Read personas, choice sets and scores, and prepare."""

    async def answer(self, question: Question) -> Answer:
        """Answer a question; equal ones get equal answers."""

    async def feedback(self, sale: Sale) -> Comment:
        """Comment on a sold product in one or two sentences."""

    def metadata(self) -> dict[str, Any]:
        """Settings that decide its answers, as JSON values."""
