"""Seams of dialogues: agents that sell, and customers that answer.

Products have two numberings: that of the choice set (its own order) and that of the dialogue, in
which ``Views.order`` shuffles them. Agents see and use the numbering of the dialogue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, Protocol, TypeAlias, get_args, runtime_checkable

import numpy as np
import numpy.typing as npt

from pipelines.seeding import U64
from sim.dialogue._book import Book, Floats, Ints

Bools: TypeAlias = npt.NDArray[np.bool_]
Codes: TypeAlias = npt.NDArray[np.int8]
#: Texts, or None: object array of shape (n,).
Texts: TypeAlias = npt.NDArray[np.object_]

#: Answer to a facet's question other than the number of a value.
NO_PREFERENCE = -1
#: A question that belongs to no facet, or whose answer has no value.
UNMATCHED = -2

#: Questions of an episode at most (BIEL, section 5).
MAX_QUESTIONS = 20

#: Statuses of actions, answers and episodes, by code. A `failed` or `leaked` one has no regret.
STATUSES = ("ok", "failed", "leaked")
OK, FAILED, LEAKED = range(3)

#: Regrets that confidences are about (BIEL, section 5.1; points).
REGRET_LEVELS = (5.0, 10.0, 20.0, 30.0)
#: Events about the product that would be sold whose probability an agent may state.
CONFIDENCES = ("top_1", "top_5", "regret_5", "regret_10", "regret_20", "regret_30")
#: Columns of the same events where an agent also states percentages in words.
STATED = tuple(f"stated_{name}" for name in CONFIDENCES)

Feedback = Literal["none", "regret", "stars", "text"]
#: Forms of feedback; `none` is the control.
FEEDBACK: tuple[Feedback, ...] = get_args(Feedback)


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


@dataclass(frozen=True, slots=True)
class Views:
    """Dialogues at an agent's turn. All arrays have one row per dialogue."""

    #: Number of the lifetime, episode from 0, questions so far.
    lifetime: Ints
    episode: Ints
    turn: Ints
    #: Seeds of the agent's draws at this turn.
    seeds: U64
    #: Choice set, as a number of ``Book.sets``.
    set: Ints
    #: Label of the customer within the lifetime, from 0.
    customer: Ints
    #: Product of the choice set at each number of the dialogue, -1 beyond its end; of shape (n,
    #: largest set).
    order: Ints
    #: Questions so far, of shape (n, most questions): the facet, -1 for none; the number of the
    #: value, `NO_PREFERENCE` or `UNMATCHED`. Beyond ``turn``: -1 and `UNMATCHED`.
    facets: Ints
    answers: Codes
    #: Questions that may still be asked; at 0 the agent must recommend.
    questions_left: Ints
    #: Recommendations are not allowed yet (planning protocol, section 5.2).
    must_ask: Bools
    #: Questions and answers of a row's dialogue, as texts.
    transcript: Callable[[int], list[tuple[str, str]]]
    #: Past episodes of a row's lifetime, oldest first; empty with memory off.
    past: Callable[[int], list[PastEpisode]]
    #: Persona of each dialogue, for agents that are `privileged`; else None.
    persona: Ints | None = None

    def __len__(self) -> int:
        return len(self.lifetime)

    def take(self, rows: Ints) -> Views:
        """Some dialogues of the batch."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        arrays = {n: v[rows] for n, v in values.items() if isinstance(v, np.ndarray)}
        texts = {
            "transcript": lambda row: self.transcript(int(rows[row])),
            "past": lambda row: self.past(int(rows[row])),
        }
        return Views(**{**values, **arrays, **texts})

    def placed(self, products: Ints) -> Ints:
        """Numbers in the dialogue of one product of the choice set per row, of shape (n,)."""
        return np.asarray((self.order == products[:, None]).argmax(axis=1), np.int64)


@dataclass(frozen=True, slots=True)
class Actions:
    """Questions and recommendations of a batch."""

    #: Whether the row asks; else it recommends.
    ask: Bools
    #: Facet that is asked about; -1 for a question of its own words.
    facet: Ints
    #: Number in the dialogue of the recommended product; of a row that asks, of the product that
    #: would be recommended now, or -1 if that is unknown.
    product: Ints
    #: Question in the agent's own words; None: the facet's. The whole argument may be None.
    text: Texts | None = None
    #: Codes of `STATUSES`; None: all are `OK`.
    status: Codes | None = None
    #: Expected regret of ``product`` and confidences under the agent's belief, of shapes (n,) and
    #: (n, 6), order of `CONFIDENCES`; NaN or None where there is none.
    expected_regret: Floats | None = None
    confidences: Floats | None = None
    #: The same six as a language model states them in words, of shape (n, 6).
    stated: Floats | None = None
    #: Probabilities of recommendations by number in the dialogue, of shape (n, largest set). No
    #: table holds them: those of a model are found by ``answer_key`` in the answer store.
    distribution: Floats | None = None
    #: Key of the stored model answer, and its tokens; None without a model.
    answer_key: Texts | None = None
    tokens: Ints | None = None
    #: Past episodes left out of the prompt because it was longer than the model's context, of shape
    #: (n,); None without a model.
    forgotten: Ints | None = None


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Ends of episodes, with no more than the form of feedback shows."""

    #: The dialogues when the product was recommended.
    views: Views
    #: Recommended product, as a number of the choice set; -1 of a failed episode.
    product: Ints
    #: Points; None unless the feedback is `regret`.
    regret: Floats | None = None
    #: 0-5; None unless the feedback is `stars`. -1 where there is none.
    stars: Ints | None = None
    #: The customer's words; None unless the feedback is `text`.
    text: Texts | None = None


@dataclass(frozen=True, slots=True)
class Questions:
    """Questions to customers; rows are dialogues of one turn."""

    #: Fields as in `Views`; seeds are for the customer's draws.
    lifetime: Ints
    episode: Ints
    turn: Ints
    seeds: U64
    #: Numbers of ``Book.sets`` and of personas.
    set: Ints
    persona: Ints
    #: Question: the facet or -1; its words, or None for those of the facet.
    facet: Ints
    text: Texts | None
    #: Earlier questions of a row's dialogue with the customer's answers.
    transcript: Callable[[int], list[tuple[str, str]]]

    def __len__(self) -> int:
        return len(self.lifetime)


@dataclass(frozen=True, slots=True)
class Answers:
    """Answers of customers."""

    #: Facet that the question was matched to, -1 for none.
    facet: Ints
    #: Number of the facet's value, `NO_PREFERENCE`, or `UNMATCHED`.
    value: Codes
    #: Words of an answer; None: those of the value.
    text: Texts | None = None
    #: Status as in `Actions`.
    status: Codes | None = None
    answer_key: Texts | None = None
    tokens: Ints | None = None


@dataclass(frozen=True, slots=True)
class Sales:
    """Recommendations that customers comment on.

    ``product`` is a number of the choice set; ``y`` are the persona's scores of shape (n, largest
    set), NaN beyond the end of the set.
    """

    lifetime: Ints
    episode: Ints
    seeds: U64
    set: Ints
    persona: Ints
    product: Ints
    y: Floats
    transcript: Callable[[int], list[tuple[str, str]]]

    def __len__(self) -> int:
        return len(self.lifetime)


@dataclass(frozen=True, slots=True)
class Replies:
    """Feedback of customers in words, with statuses as in `Actions`."""

    text: Texts
    status: Codes | None = None
    answer_key: Texts | None = None
    tokens: Ints | None = None


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
        """True if it reads the whole book and the personas: a bound, not a competitor."""

    def open(self, book: Book, seed: int) -> None:
        """Read the choice sets and prepare; ``book`` is ``Book.disclosed()`` unless privileged."""

    def act(self, views: Views) -> Actions:
        """Ask or recommend. Changes no state, and depends on no other row of the batch."""

    def learn(self, outcomes: Outcomes) -> None:
        """Take in the ends of episodes, at most one per lifetime."""

    def wipe(self, lifetimes: Ints) -> None:
        """Forget everything of these lifetimes."""

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

    def open(self, book: Book, seed: int) -> None:
        """Read personas, choice sets and scores, and prepare."""

    def answer(self, questions: Questions) -> Answers:
        """Answers to a batch of questions; no row depends on another."""

    def feedback(self, sales: Sales) -> Replies:
        """Comments on sold products, one or two sentences each."""

    def metadata(self) -> dict[str, Any]:
        """Settings that decide its answers, as JSON values."""
