"""Lifetimes whose agent is outside the program: of environments, tools and a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import AnswerError, ConfigError, ReleaseError
from pipelines.hints import nearest
from pipelines.seeding import combine
from sim.dialogue._book import MIN_BEST, Book, Floats, Ints
from sim.dialogue._feedback import stars_of, tone_of
from sim.dialogue._lifetimes import CELLS, SETTINGS, Cell, Lifetimes, Setting, product_order
from sim.dialogue._protocol import (
    FEEDBACK,
    MAX_QUESTIONS,
    NO_PREFERENCE,
    OK,
    STATUSES,
    Answers,
    Customer,
    Feedback,
    Questions,
    Sales,
)
from sim.dialogue._run import _INDIFFERENT, _prefers
from sim.dialogue.customers.statistical import NO_OPINION

#: Facets and products of a choice set at most (count).
MAX_FACETS, MAX_PRODUCTS = 30, 50
#: Answer to a facet that was not asked about.
NOT_ASKED = -3
#: Streams of the customers' seeds.
_ANSWER, _COMMENT = 301, 302


@dataclass(frozen=True)
class Rules:
    """Settings of a lifetime; ConfigError if one is out of range."""

    #: Setting as in ``Lifetimes.draw``.
    setting: Setting = "customer"
    cell: Cell = "unseen/seen"
    episodes: int = 1
    #: One of `FEEDBACK`.
    feedback: Feedback = "text"
    #: Questions of an episode at most (count).
    max_questions: int = MAX_QUESTIONS
    #: Points per question in rewards; never in regret.
    question_cost: float = 0.0
    #: Best score below which a customer does not shop in a category (points).
    min_best: float = MIN_BEST

    def __post_init__(self) -> None:
        for name, allowed in (("setting", SETTINGS), ("cell", CELLS), ("feedback", FEEDBACK)):
            value = getattr(self, name)
            if value not in allowed:
                hint = nearest(value, allowed)
                raise ConfigError(f"{name} is {value!r}", where="dialogue", hint=hint)
        for name, low in (
            ("episodes", 1),
            ("max_questions", 0),
            ("question_cost", 0),
            ("min_best", 0),
        ):
            value = getattr(self, name)
            if not low <= value < float("inf"):
                raise ConfigError(f"{name} is {value}", where="dialogue", hint=f"at least {low}")


@dataclass(frozen=True, slots=True)
class Sold:
    """Ends of episodes."""

    #: Number in the choice set; -1 where nothing was sold.
    product: Ints
    #: y of the product (0 where nothing was sold) and of the best one, 0-100.
    score: Floats
    best: Floats
    #: Feedback as a number: regret (points), stars (0-5), or tone of the text (0 delighted, 3
    #: disappointed); -1 without one.
    feedback: Floats
    #: Feedback in words; empty with `none`.
    text: npt.NDArray[np.object_]

    @property
    def regret(self) -> Floats:
        """Best score minus score (points)."""
        return self.best - self.score


class Sessions:
    """A batch of lifetimes, ``rows`` at once, advanced by calls of :meth:`ask` and :meth:`sell`.

    A lifetime depends on its seed alone, not on its row or the others. ``customer`` is opened on
    the book. Raises ReleaseError if a choice set has more than 50 products or 30 facets.
    """

    def __init__(self, book: Book, customer: Customer, rows: int, rules: Rules) -> None:
        for shelf in book.sets:
            for what, count, limit in (
                ("products", len(shelf), MAX_PRODUCTS),
                ("facets", len(shelf.facets), MAX_FACETS),
            ):
                if count > limit:
                    raise ReleaseError(
                        f"a choice set has {count} {what}, dialogues allow {limit}",
                        where=f"{book.reference or 'book'}, category {shelf.category_id}",
                        hint="build the products again",
                    )
        self.book, self.customer, self.rules = book, customer, rules
        shape = (rows, rules.episodes)
        self.seed = np.zeros(rows, np.int64)
        self.sets, self.personas = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.labels = np.zeros(shape, np.int64)
        self.episode = np.full(rows, -1, np.int64)
        self.turn = np.zeros(rows, np.int64)
        self.order = np.full((rows, int(book.sizes.max())), -1, np.int64)
        self.y = np.full(self.order.shape, np.nan, np.float32)
        self.answers = np.full((rows, MAX_FACETS), NOT_ASKED, np.int8)
        self.feedback = np.full(rows, -1.0, np.float32)
        self._said = np.full((rows, max(rules.max_questions, 1), 2), None, dtype=object)
        # Values of facets by product of each set, padded with -1; -2 beyond the set's end.
        width = self.order.shape[1]
        self._values = np.full((len(book.sets), width + 1, MAX_FACETS), -2, np.int8)
        for number, shelf in enumerate(book.sets):
            for f, facet in enumerate(shelf.facets):
                self._values[number, : len(shelf), f] = facet.of
        self._facets = np.array([len(s.facets) for s in book.sets], np.int64)

    @property
    def over(self) -> npt.NDArray[np.bool_]:
        """Whether a lifetime has ended, or not begun; of shape (rows,)."""
        return (self.episode < 0) | (self.episode >= self.rules.episodes)

    @property
    def questions_left(self) -> Ints:
        """Questions left in the current episodes, of shape (rows,)."""
        return np.asarray(self.rules.max_questions - self.turn, np.int64)

    def now(self, rows: Ints) -> Ints:
        """Choice sets of the current episodes; of ended lifetimes, the last one's."""
        return self.sets[rows, self._current(rows)]

    def begin(self, rows: Ints, seeds: Ints) -> None:
        """Start lifetimes."""
        rules = self.rules
        drawn = Lifetimes.draw(
            self.book,
            seeds,
            setting=rules.setting,
            cell=rules.cell,
            episodes=rules.episodes,
            min_best=rules.min_best,
        )
        self.seed[rows] = seeds
        self.sets[rows], self.personas[rows] = drawn.sets, drawn.personas
        self.labels[rows] = drawn.customers
        self.episode[rows] = 0
        self.feedback[rows] = -1.0
        self._enter(rows)

    def products(self, rows: Ints) -> npt.NDArray[np.int8]:
        """Values by number in the dialogue and facet, of shape (n, 50, 30).

        -1: the product has no value of the facet; -2: there is no such product or facet.
        """
        out = np.full((len(rows), MAX_PRODUCTS, MAX_FACETS), -2, np.int8)
        # Number -1 is the row of missing products.
        out[:, : self.order.shape[1]] = self._values[self.now(rows)[:, None], self.order[rows]]
        return out

    def allowed(self, rows: Ints) -> npt.NDArray[np.bool_]:
        """Facets that can be asked about and products that can be sold, of shape (n, 80)."""
        out = np.zeros((len(rows), MAX_FACETS + MAX_PRODUCTS), np.bool_)
        left = self.questions_left[rows, None] > 0
        exists = np.arange(MAX_FACETS) < self._facets[self.now(rows), None]
        out[:, :MAX_FACETS] = exists & left & (self.answers[rows] == NOT_ASKED)
        out[:, MAX_FACETS : MAX_FACETS + self.order.shape[1]] = self.order[rows] >= 0
        return out

    def said(self, row: int) -> list[tuple[str, str]]:
        """Questions and answers of the current episode."""
        said: list[tuple[str, str]] = [(q, a) for q, a in self._said[row, : self.turn[row]]]
        return said

    def ask(
        self, rows: Ints, facets: Ints, texts: npt.NDArray[np.object_] | None = None
    ) -> npt.NDArray[np.object_]:
        """Ask each row's customer one question, and return the answers in words.

        ``rows`` are lifetimes with questions left, ``facets`` those of the set, -1 for a question
        in words; ``texts`` are the questions (None: the facets'). Raises AnswerError if a reply
        failed or leaked; nothing has changed then.
        """
        assert (self.questions_left[rows] > 0).all()
        assert not self.over[rows].any()
        sets, turn = self.now(rows), self.turn[rows]
        words = np.array(
            [
                self.book.sets[s].facets[f].question if text is None else text
                for s, f, text in zip(sets, facets, _texts(texts, len(rows)), strict=True)
            ],
            dtype=object,
        )
        questions = Questions(
            lifetime=self.seed[rows],
            episode=self.episode[rows],
            turn=turn,
            seeds=combine(self.seed[rows], self.episode[rows], turn, _ANSWER),
            set=sets,
            persona=self.personas[rows, self.episode[rows]],
            facet=facets,
            text=texts,
            transcript=lambda n: self.said(int(rows[n])),
        )
        answers = self.customer.answer(questions)
        self._check(answers.status, rows)
        spoken = self._spoken(answers, sets)
        matched = answers.facet >= 0
        self.answers[rows[matched], answers.facet[matched]] = answers.value[matched]
        self._said[rows, turn, 0], self._said[rows, turn, 1] = words, spoken
        self.turn[rows] += 1
        return spoken

    def waste(self, rows: Ints) -> None:
        """Use up a question that can't be asked, such as one about a facet that is not there."""
        self._said[rows, self.turn[rows], 0] = ""
        self._said[rows, self.turn[rows], 1] = ""
        self.turn[rows] += 1

    def sell(self, rows: Ints, numbers: Ints) -> Sold:
        """End the current episodes, and go on with the next ones.

        ``rows`` are lifetimes that are not over, ``numbers`` products as numbered in the dialogues;
        -1 sells nothing. Raises AnswerError if a customer's feedback failed or leaked; nothing has
        changed then.
        """
        assert not self.over[rows].any()
        products = np.where(numbers < 0, -1, self.order[rows, numbers])
        y = self.y[rows]
        best = np.nanmax(y, axis=1)
        score = np.where(products < 0, 0.0, y[np.arange(len(rows)), products]).astype(np.float32)
        number, text = self._comment(rows, products, score, best)
        self.feedback[rows] = number
        self.episode[rows] += 1
        self._enter(rows[~self.over[rows]])
        return Sold(products, score, best, number, text)

    def _comment(
        self, rows: Ints, products: Ints, score: Floats, best: Floats
    ) -> tuple[Floats, npt.NDArray[np.object_]]:
        number = np.full(len(rows), -1.0, np.float32)
        text = np.full(len(rows), "", dtype=object)
        form, sold = self.rules.feedback, np.flatnonzero(products >= 0)
        regret = best - score
        if form == "none" or not len(sold):
            return number, text
        if form == "text":
            number[sold] = tone_of(regret[sold])
            at = rows[sold]
            sales = Sales(
                lifetime=self.seed[at],
                episode=self.episode[at],
                seeds=combine(self.seed[at], self.episode[at], 0, _COMMENT),
                set=self.now(at),
                persona=self.personas[at, self.episode[at]],
                product=products[sold],
                y=self.y[at],
                transcript=lambda n: self.said(int(at[n])),
            )
            replies = self.customer.feedback(sales)
            self._check(replies.status, at)
            text[sold] = replies.text
        elif form == "stars":
            number[sold] = stars_of(score[sold], best[sold])
            text[sold] = [f"{n:.0f} of 5 stars" for n in number[sold]]
        else:
            number[sold] = regret[sold]
            text[sold] = [f"regret: {n:.0f} points" for n in number[sold]]
        return number, text

    def _enter(self, rows: Ints) -> None:
        if not len(rows):
            return
        sets = self.now(rows)
        personas = self.personas[rows, self.episode[rows]]
        self.y[rows] = self.book.scores(sets, personas)
        for episode in np.unique(self.episode[rows]).tolist():
            at = self.episode[rows] == episode
            # A policy could remember a few orders.
            self.order[rows[at]] = product_order(
                self.book, self.seed[rows[at]], episode, sets[at], orders=None
            )
        self.turn[rows] = 0
        self.answers[rows] = NOT_ASKED
        self._said[rows] = None

    def _current(self, rows: Ints) -> Ints:
        return np.minimum(self.episode[rows], self.rules.episodes - 1)

    def _spoken(self, answers: Answers, sets: Ints) -> npt.NDArray[np.object_]:
        out = np.full(len(sets), NO_OPINION, dtype=object)
        for n, given in enumerate(_texts(answers.text, len(sets))):
            facet, value = int(answers.facet[n]), int(answers.value[n])
            if given is not None:
                out[n] = given
            elif value >= 0:
                out[n] = _prefers(self.book.sets[sets[n]].facets[facet].values[value])
            elif value == NO_PREFERENCE:
                out[n] = _INDIFFERENT
        return out

    def _check(self, status: npt.NDArray[np.int8] | None, rows: Ints) -> None:
        if status is None or (status == OK).all():
            return
        bad = int(np.flatnonzero(status != OK)[0])
        row = int(rows[bad])
        raise AnswerError(
            f"the customer's reply {STATUSES[int(status[bad])]}",
            where=f"lifetime {self.seed[row]}, episode {self.episode[row]}",
            hint="reset, or use another customer",
        )


def _texts(texts: npt.NDArray[np.object_] | None, count: int) -> Any:
    return [None] * count if texts is None else texts
