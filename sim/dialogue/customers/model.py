"""Customers that a language model plays (BIEL, figures 10 and 11)."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import numpy as np

from pipelines.llm.engines import Choice
from pipelines.llm.grammars import dialogue_text
from pipelines.prompts import dialogue_answer_messages, dialogue_feedback_messages, one_line
from pipelines.seeding import uniform
from sim.dialogue._asking import DialogueModel, Fault, Journal, Prompt, person_lines, seed_of
from sim.dialogue._feedback import tone_of
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


#: Words of a title that identify a product together (count).
_RUN = 3
_WORD = re.compile(r"[^\W_]+")
#: Words that carry no meaning of their own; runs of a title go over them.
_FILLERS = frozenset(
    _WORD.findall(
        "a an and any are as at be but by for from i in is it its like looking me more my need no "
        "not of on one or prefer so some something that the their them these this to too want we "
        "what which with without would you your"
    )
)
_DIGIT = "one|two|three|four|five|six|seven|eight|nine"
_TEEN = "ten|eleven|twelve|thirteen|fourteen|fifteen|sixteen|seventeen|eighteen|nineteen"
_TENS = "twenty|thirty|forty|fifty|sixty|seventy|eighty|ninety"
#: A number in digits or words; a price is none.
_NUMBER = (
    r"(?<![$€£.\d])(?:\d+(?:\.\d+)?"
    rf"|(?:{_TENS})(?:[- ](?:{_DIGIT}))?|{_TEEN}|{_DIGIT}|zero|(?:one |a )?hundred)\b"
)
_JOIN = r"(?:\s*[:=#]\s*|\s+(?:(?:number|no\.?|nr\.?|is|was|of|at|with|about|around|only)\s+)*)"
_INDEX = re.compile(
    rf"\b(?:products?|items?|index|position|recommendation)"
    rf"(?:\s*[#:]\s*|\s+(?:(?:number|no\.?|nr\.?)\s*)?){_NUMBER}(?!\s*%)"
    rf"|(?<![\w&])#\s*\d+\b",
    re.IGNORECASE,
)
_SCORE = re.compile(
    rf"{_NUMBER}[- ]*(?:points?\b|pts\b|(?:out of|/)\s*(?:100|10|a hundred|ten)\b)"
    rf"|\b(?:scor(?:e[sd]?|ing)|regrets?)\b{_JOIN}(?:it\s+|an?\s+)?{_NUMBER}(?!\s*%)",
    re.IGNORECASE,
)
_ID = r"(?:ids?|asin|sku)"


class LeakDetector:
    """Finds what a customer's reply must not give away about a choice set.

    A *title* is given away by three or more of its words in a row, fillers left out, that stand in
    no other title of the set. Words that the agent itself `said` (its question, the title that it
    recommends) are no leak of a title. An *id* counts wherever it stands if it has a letter and a
    digit or is a number of five digits or more; any other only behind a word for it (`id 12`). An
    *index* or a *score* counts where it is named as such (`product 3`, `82 points`, `70 out of
    100`); prices, sizes and shares do not.

    Examples
    --------
    >>> leaks = LeakDetector(["Oral-B Pro 1000 Brush", "Foxy Curls Contour Creme"], ["B07X", "8"])
    >>> leaks.find("The Foxy Curls Contour one."), leaks.find("Product 2, I gave it 82 points.")
    ('title', 'index')
    >>> leaks.find("One with 2 heads, under $20.")
    >>> leaks.find("Yes, foxy curls contour!", said=["Do you like Foxy Curls Contour Creme?"])
    """

    def __init__(self, titles: Sequence[str], item_ids: Sequence[str] = ()) -> None:
        counted = Counter(run for title in titles for run in set(_runs(title)))
        self._runs = frozenset(run for run, times in counted.items() if times == 1)
        folded = {_folded(item) for item in item_ids}
        plain = {item for item in folded if not _unmistakable(item)}
        self._ids = _either(folded - plain)
        self._named_ids = _either(plain, rf"\b{_ID}\b\W*(?:(?:is|number|no)\W+)?")

    def find(self, text: str, *, said: Iterable[str] = ()) -> str | None:
        """Kind of the first leak: ``index``, ``score``, ``id``, ``title``; None without one.

        ``text`` is the customer's reply, ``said`` the agent's texts in the dialogue.
        """
        folded = _folded(text)
        for kind, pattern in (
            ("index", _INDEX),
            ("score", _SCORE),
            ("id", self._ids),
            ("id", self._named_ids),
        ):
            if pattern is not None and pattern.search(folded):
                return kind
        runs = self._runs.intersection(_runs(text))
        if runs and not runs <= {run for earlier in said for run in _runs(earlier)}:
            return "title"
        return None


class ModelCustomer(DialogueModel):
    """Answers and comments with a language model that plays the persona.

    It decides before it speaks: a question about a facet, or in words that match one
    (:func:`sim.dialogue.customers.statistical.match_facet`), is a `Choice` over the facet's values
    and *no preference*. The answer is drawn from the model's distribution by a hash of (seed,
    persona, category, facet), and said in the words of its value. Any other question gets one line.
    The prompt of an answer holds persona, category, question and the customer's own earlier
    answers, never products or scores; that of a feedback holds sale, regret and the three best
    products, and must hide the last two. A reply with a leak
    (:class:`LeakDetector`) is asked once more, then it is `LEAKED`. Arguments
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


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _runs(text: str) -> Iterator[tuple[str, ...]]:
    words = [word for word in _WORD.findall(_folded(text)) if word not in _FILLERS]
    return zip(*(words[start:] for start in range(_RUN)), strict=False)


def _unmistakable(item: str) -> bool:
    """True if a text can be nothing but an id."""
    digits = sum(c.isdigit() for c in item)
    return (digits > 0 and any(c.isalpha() for c in item)) or digits >= 5


def _either(items: Iterable[str], before: str = "") -> re.Pattern[str] | None:
    listed = sorted((re.escape(item) for item in items if item), key=len, reverse=True)
    return re.compile(rf"{before}(?<!\w)(?:{'|'.join(listed)})(?!\w)") if listed else None
