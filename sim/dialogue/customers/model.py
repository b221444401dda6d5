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
from sim.dialogue._asking import DialogueModel, Fault, Journal, Prompt, person_lines, seed_of
from sim.dialogue._feedback import tone_of
from sim.dialogue._leaks import LeakDetector
from sim.dialogue._protocol import (
    COMMENT,
    CUSTOMER,
    LEAKED,
    NO_PREFERENCE,
    UNMATCHED,
    Answer,
    Comment,
    Question,
    Sale,
)
from sim.dialogue._world import DialogueWorld
from sim.dialogue.customers.statistical import match_facet

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

    It decides before it speaks: a question about a facet, or in words that match one
    (:func:`sim.dialogue.customers.statistical.match_facet`), is a `Choice` over the facet's values
    and *no preference*. The answer is drawn from the model's distribution by a hash of (seed,
    persona, category, facet), and said in the words of its value. Any other question gets one line.
    The prompt of an answer holds persona, category, question and the customer's own earlier
    answers, never products or scores; that of a feedback holds sale, regret and the three best
    products, and must hide the last two. A reply with a leak
    (:class:`sim.dialogue._leaks.LeakDetector`) is asked once more, then it is `LEAKED`. Arguments
    are those of :class:`sim.dialogue._asking.DialogueModel`.
    """

    name = "model"

    def open(self, world: DialogueWorld, seed: int) -> None:
        """Take in personas and choice sets; see :class:`sim.dialogue.Customer`."""
        self._world, self._seed = world, seed
        self._leaks = cache(
            lambda number: LeakDetector(world.sets[number].titles, world.sets[number].item_ids)
        )

    def metadata(self) -> dict[str, Any]:
        """Model, prompts and sampling."""
        return {"customer": self.name, "decides_first": True, **self.described()}

    async def answer(self, question: Question) -> Answer:
        """Decide on a value, or say a line; see :class:`sim.dialogue.Customer`."""
        journal, number, facet = Journal(), question.dialogue.set, question.facet
        shelf = self._world.sets[number]
        if facet < 0 and question.text is not None:
            facet = match_facet(question.text, shelf)
        text = shelf.facets[facet].question if question.text is None else question.text
        prompt = partial(
            dialogue_answer_messages,
            person_lines(self._world, question.persona),
            shelf.name,
            text,
            said=question.dialogue.transcript,
        )
        group = f"dialogue/{self._world.persona_ids[question.persona]}"
        if facet < 0:
            heard = [text, *(past for past, _ in question.dialogue.transcript)]
            seed = seed_of(question.dialogue.seed(CUSTOMER), _ANSWER)
            captures = await self.reply(
                Prompt(
                    lambda fault: prompt(fault=fault), dialogue_text("answer"), group, seed,
                    partial(self._leak, number, heard),
                ),
                journal,
            )  # fmt: skip
            words = None if captures is None else captures["text"]
            return Answer(text=words, **journal.fields())
        options = (*map(one_line, shelf.facets[facet].values), _NO_PREFERENCE)
        shares = await self.reply(
            Prompt(lambda fault: prompt(options=options, fault=fault), Choice(options), group),
            journal,
        )
        value = UNMATCHED
        if shares is not None:
            persona = self._world.persona_hashes[question.persona]
            keys = (persona, self._world.set_hashes[number], shelf.facet_hashes[facet])
            drawn = uniform(self._seed, _DRAW, *keys)
            value = min(int(np.searchsorted(shares.cumsum(), drawn, side="right")), len(shares) - 1)
            value = NO_PREFERENCE if value == len(shares) - 1 else value
        return Answer(facet=facet, value=value, **journal.fields())

    async def feedback(self, sale: Sale) -> Comment:
        """Comment in one or two sentences; see :class:`sim.dialogue.Customer`."""
        journal, number = Journal(), sale.dialogue.set
        shelf, said = self._world.sets[number], sale.dialogue.transcript
        title, regret = shelf.titles[sale.product], float(sale.y.max() - sale.y[sale.product])
        top = [shelf.titles[product] for product in np.argsort(-sale.y, kind="stable")[:_TOP]]
        person = person_lines(self._world, sale.persona)
        captures = await self.reply(
            Prompt(
                lambda fault: dialogue_feedback_messages(
                    person, shelf.name, title, regret, int(tone_of(regret)), top,
                    said=said, fault=fault,
                ),
                dialogue_text("feedback"),
                f"dialogue/{self._world.persona_ids[sale.persona]}",
                seed_of(sale.dialogue.seed(COMMENT, 0), _FEEDBACK),
                partial(self._leak, number, [title, *(past for past, _ in said)]),
            ),
            journal,
        )  # fmt: skip
        return Comment(text=None if captures is None else captures["text"], **journal.fields())

    def _leak(self, number: int, said: Sequence[str], captures: dict[str, str]) -> Fault | None:
        kind = self._leaks(number).find(captures["text"], said=said)
        return None if kind is None else (LEAKED, _LEAKS[kind])
