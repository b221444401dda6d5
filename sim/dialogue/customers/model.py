"""Customers that a language model plays (BIEL, figures 10 and 11)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from pipelines.llm.engines import Choice
from pipelines.llm.grammars import dialogue_text
from pipelines.prompts import dialogue_answer_messages, dialogue_feedback_messages, one_line
from pipelines.seeding import uniform
from sim.dialogue._asking import DialogueModel, Fault, Journal, Prompt, seed_of
from sim.dialogue._book import Book
from sim.dialogue._feedback import tone_of
from sim.dialogue._leaks import LeakDetector
from sim.dialogue._protocol import (
    LEAKED,
    NO_PREFERENCE,
    UNMATCHED,
    Answers,
    Questions,
    Replies,
    Sales,
)

__all__ = ["ModelCustomer"]

_NO_PREFERENCE = "no preference"
_DRAW, _ANSWER, _FEEDBACK = 211, 212, 213
#: Products that the feedback's prompt shows as the best ones (count).
_TOP = 3
#: Faults in the words of the prompt, by kind of leak.
_LEAKS = {
    "title": "it named a product",
    "id": "it named a product",
    "index": "it named the number of a product",
    "score": "it named points or a score",
}


class ModelCustomer(DialogueModel):
    """Answers and comments with a language model that plays the persona.

    A facet's question is a `Choice` over its values and *no preference*; the answer is drawn from
    the model's distribution by a hash of (seed, persona, category, facet). A question in the
    agent's own words gets one line, which is matched to no facet. The prompt of an answer holds
    persona, category, question and the customer's own earlier answers, never products or scores;
    that of a feedback holds sale, regret and the three best products, and must hide the last two. A
    reply with a leak (:class:`sim.dialogue._leaks.LeakDetector`) is asked once more, then the row
    is `LEAKED`. Arguments are those of :class:`sim.dialogue._asking.DialogueModel`.
    """

    name = "model"

    def open(self, book: Book, seed: int) -> None:
        """Take in personas and choice sets; see :class:`sim.dialogue.Customer`."""
        self._book, self._seed = book, seed
        self._people = cache(self._person)
        self._leaks = cache(
            lambda number: LeakDetector(book.sets[number].titles, book.sets[number].item_ids)
        )

    def metadata(self) -> dict[str, Any]:
        """Model, prompts and sampling."""
        return {"customer": self.name, **self.described()}

    def answer(self, questions: Questions) -> Answers:
        """Answers to a batch of questions; see :class:`sim.dialogue.Customer`."""
        n, journal = len(questions), Journal(len(questions))
        texts = questions.text if questions.text is not None else np.full(n, None, object)
        prompts = [self._question(questions, row, texts[row]) for row in range(n)]
        replies = self.replies(prompts, journal)
        value = np.full(n, UNMATCHED, np.int8)
        words = np.full(n, None, object)
        for (row, _), reply in replies.items():
            if isinstance(reply, dict):
                words[row] = reply["text"]
                continue
            number, person = int(questions.set[row]), int(questions.persona[row])
            facet = int(questions.facet[row])
            draw = uniform(
                self._seed,
                _DRAW,
                self._book.persona_hashes[person],
                self._book.set_hashes[number],
                self._book.sets[number].facet_hashes[facet],
            )
            chosen = min(int(np.searchsorted(reply.cumsum(), draw, side="right")), len(reply) - 1)
            value[row] = NO_PREFERENCE if chosen == len(reply) - 1 else chosen
        return Answers(facet=questions.facet, value=value, text=words, **journal.fields())

    def feedback(self, sales: Sales) -> Replies:
        """Comments of one or two sentences; see :class:`sim.dialogue.Customer`."""
        n, journal = len(sales), Journal(len(sales))
        text = np.full(n, None, object)
        prompts = [self._sale(sales, row) for row in range(n)]
        for (row, _), reply in self.replies(prompts, journal).items():
            assert isinstance(reply, dict)
            text[row] = reply["text"]
        return Replies(text=text, **journal.fields())

    def _question(self, questions: Questions, row: int, text: str | None) -> Prompt:
        number, person = int(questions.set[row]), int(questions.persona[row])
        shelf, facet = self._book.sets[number], int(questions.facet[row])
        said = questions.transcript(row)
        closed = facet >= 0
        question = str(text) if text is not None else shelf.facets[facet].question
        options = self._options(number, facet) if closed else ()
        return Prompt(
            row,
            "answer",
            lambda fault: dialogue_answer_messages(
                self._people(person), shelf.name, question, options=options, said=said, fault=fault
            ),
            Choice(options) if closed else dialogue_text("answer"),
            f"dialogue/{self._book.persona_ids[person]}",
            seed_of(questions.seeds[row], _ANSWER),
            partial(self._leak, number, [question, *(past for past, _ in said)]),
        )

    def _sale(self, sales: Sales, row: int) -> Prompt:
        number, person = int(sales.set[row]), int(sales.persona[row])
        shelf, product = self._book.sets[number], int(sales.product[row])
        y = sales.y[row, : len(shelf)]
        regret = float(y.max() - y[product])
        top = [shelf.titles[p] for p in np.argsort(-y, kind="stable")[:_TOP]]
        said = sales.transcript(row)
        return Prompt(
            row,
            "feedback",
            lambda fault: dialogue_feedback_messages(
                self._people(person),
                shelf.name,
                shelf.titles[product],
                regret,
                int(tone_of(regret)),
                top,
                said=said,
                fault=fault,
            ),
            dialogue_text("feedback"),
            f"dialogue/{self._book.persona_ids[person]}",
            seed_of(sales.seeds[row], _FEEDBACK),
            partial(self._leak, number, [shelf.titles[product], *(past for past, _ in said)]),
        )

    def _options(self, number: int, facet: int) -> tuple[str, ...]:
        values = self._book.sets[number].facets[facet].values
        return (*map(one_line, values), _NO_PREFERENCE)

    def _leak(self, number: int, said: Sequence[str], captures: dict[str, str]) -> Fault | None:
        kind = self._leaks(number).find(captures["text"], said=said)
        return None if kind is None else (LEAKED, _LEAKS[kind])

    def _person(self, person: int) -> list[tuple[str, str]]:
        stated = self._book.attributes[person]
        facts = [(name.replace("_", " ").capitalize(), value) for name, value in stated.items()]
        return [*facts, ("Who this is", self._book.descriptions[person])]
