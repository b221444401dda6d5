"""Customers without a language model: answers drawn from the answer model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.products import content_words
from pipelines.seeding import uniform
from sim.dialogue._answers import AnswerModel, answer_columns, value_means
from sim.dialogue._book import Book, ChoiceSet, Ints, groups
from sim.dialogue._feedback import TONES, tone_of
from sim.dialogue._protocol import NO_PREFERENCE, UNMATCHED, Answers, Questions, Replies, Sales

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = ["NO_OPINION", "StatisticalCustomer", "match_facet"]

#: Answer to a question that matches neither a facet nor a stated attribute.
NO_OPINION = "I have no strong opinion on that."

_PERSONAL = re.compile(r"\byou(r|rs)?\b", re.IGNORECASE)


def match_facet(question: str, shelf: ChoiceSet) -> int:
    """Facet whose kind, question or values share most words with a question; -1 for none.

    Kind and values count twice the words of the facet's question. Equal ones go to the first.

    >>> from sim.dialogue.testing import sample_book
    >>> shelf = sample_book().sets[0]
    >>> shelf.facets[match_facet("How high a PRICE may it have?", shelf)].kind
    'price'
    >>> match_facet("How was your day?", shelf)
    -1
    """
    words = content_words(question)
    counts = []
    for facet in shelf.facets:
        named = content_words(" ".join((facet.kind, *facet.values)))
        counts.append(2 * len(words & named) + len(words & (content_words(facet.question) - named)))
    return int(np.argmax(counts)) if counts and max(counts) > 0 else -1


class StatisticalCustomer:
    """Customers that answer from their scores.

    The answer to a facet is a draw by hash of (seed, persona, category, facet), so that the same
    question always gets the same answer. Other questions are answered from stated attributes if
    they name one, are matched to a facet by words, then by embedding, or have no answer.

    Parameters
    ----------
    tau, delta, unfaithful
        Of the :class:`sim.dialogue._answers.AnswerModel`.
    threshold
        Cosine from which a question is matched to a facet by its embedding.
    encode
        Vectors of texts, of unit length; None: of the settings' embedder.
    settings
        Section `embedding`; None without `encode`: questions are matched by words alone.
    """

    def __init__(
        self,
        tau: float = 10.0,
        delta: float = 5.0,
        unfaithful: float = 0.0,
        threshold: float = 0.6,
        encode: Callable[[Sequence[str]], npt.NDArray[np.float32]] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.model = AnswerModel(tau, delta, unfaithful)
        self.name = "statistical"
        self._threshold = threshold
        self._given = encode
        self._settings = settings

    def open(self, book: Book, seed: int) -> None:
        """Keep the book; answers are computed by choice set."""
        self._book = book
        self._seed = seed
        self._drawn: dict[int, npt.NDArray[np.int8]] = {}
        self._matched: dict[tuple[int, str], int] = {}
        self._vectors: dict[int, Any] = {}

    def metadata(self) -> dict[str, Any]:
        """Answer model, threshold and whether questions are matched by embedding."""
        return {
            "name": self.name,
            "tau": self.model.tau,
            "delta": self.model.delta,
            "unfaithful": self.model.unfaithful,
            "threshold": self._threshold,
            "embedding": self._given is not None or self._settings is not None,
        }

    def answer(self, questions: Questions) -> Answers:
        """Values for facets; texts for stated attributes and unmatched questions."""
        facet = questions.facet.copy()
        text = np.full(len(questions), None, object)
        if questions.text is not None:
            for row in np.flatnonzero(facet < 0).tolist():
                facet[row], text[row] = self._understood(questions, row)
        value = np.full(len(questions), UNMATCHED, np.int8)
        matched = np.flatnonzero(facet >= 0)
        for number, rows in groups(questions.set[matched]):
            at = matched[rows]
            value[at] = self._answers(number)[questions.persona[at], facet[at]]
        return Answers(facet=facet, value=value, text=text)

    def feedback(self, sales: Sales) -> Replies:
        """A sentence of the regret's tone, and one on the facet that was missed most."""
        best = np.nanmax(sales.y, axis=1)
        tones = tone_of(best - sales.y[np.arange(len(sales)), sales.product])
        text = np.array([TONES[t] for t in tones.tolist()], object)
        behind = np.flatnonzero(tones > 0)
        for number, rows in groups(sales.set[behind]):
            at = behind[rows]
            text[at] += self._missed(number, sales.persona[at], sales.product[at])
        return Replies(text=text)

    def _answers(self, number: int) -> npt.NDArray[np.int8]:
        """Answers of all personas to the facets of a set, of shape (personas, facets)."""
        if number not in self._drawn:
            book, shelf = self._book, self._book.sets[number]
            p = self.model.probabilities(shelf, shelf.y)
            first, chosen = answer_columns(shelf), []
            drawn = uniform(
                self._seed,
                book.persona_hashes[:, None],
                book.set_hashes[number],
                shelf.facet_hashes,
            )
            for n, width in enumerate(shelf.widths):
                total = np.cumsum(p[:, first[n] : first[n + 1]], axis=1, dtype=np.float64)
                place = (total / total[:, -1:] <= drawn[:, [n]]).sum(axis=1)
                chosen.append(np.where(place == width, NO_PREFERENCE, place))
            empty = np.zeros((len(p), 0))
            self._drawn[number] = (np.stack(chosen, axis=1) if chosen else empty).astype(np.int8)
        return self._drawn[number]

    def _understood(self, questions: Questions, row: int) -> tuple[int, str | None]:
        """Facet of a question in words, or -1 and the answer to it."""
        assert questions.text is not None
        question, number = questions.text[row] or "", int(questions.set[row])
        stated = self._book.attributes[int(questions.persona[row])]
        words = content_words(question)
        for name in sorted(stated):
            if content_words(name) & words and _PERSONAL.search(question):
                return -1, f"My {name.replace('_', ' ')} is {stated[name]}."
        key = (number, question)
        if key not in self._matched:
            shelf = self._book.sets[number]
            facet = match_facet(question, shelf)
            if facet < 0 and shelf.facets and self._encode is not None:
                facet = self._nearest(question, number)
            self._matched[key] = facet
        facet = self._matched[key]
        return facet, None if facet >= 0 else NO_OPINION

    @cached_property
    def _encode(self) -> Any:
        if self._given is not None or self._settings is None:
            return self._given
        from pipelines.memory import TextVectors

        return TextVectors.open(self._settings)

    def _nearest(self, question: str, number: int) -> int:
        """Facet whose question is nearest by embedding, -1 below the threshold."""
        if number not in self._vectors:
            facets = self._book.sets[number].facets
            self._vectors[number] = self._encode(
                [f"{f.question} {', '.join(f.values)}" for f in facets]
            )
        cosine = self._vectors[number] @ self._encode([question])[0]
        return int(cosine.argmax()) if cosine.max() >= self._threshold else -1

    def _missed(self, number: int, personas: Ints, products: Ints) -> Any:
        """Sentences on the facet whose preferred value scores furthest above the sold one's.

        An empty text where the product has the preferred value of every facet that it has.
        """
        shelf = self._book.sets[number]
        texts = np.full(len(personas), "", object)
        if not shelf.facets:
            return texts
        means = value_means(shelf, shelf.y[personas])
        means = np.where(np.isnan(means), -np.inf, means)
        of = np.stack([f.of for f in shelf.facets], axis=1)[products].astype(np.int64)
        actual = np.take_along_axis(means, shelf.starts + np.maximum(of, 0), axis=1)
        actual[(of < 0) | np.isinf(actual)] = np.inf
        missed = np.maximum.reduceat(means, shelf.starts, axis=1) - actual
        facet = missed.argmax(axis=1)
        start = shelf.starts[facet]
        place = np.arange(means.shape[1])
        inside = (place >= start[:, None]) & (place < (start + shelf.widths[facet])[:, None])
        preferred = np.where(inside, means, -np.inf).argmax(axis=1)
        said = [f" I would have preferred {_wish(*name)}." for name in shelf.value_names]
        rows = np.flatnonzero(missed.max(axis=1) > 0)
        texts[rows] = [said[n] for n in preferred[rows].tolist()]
        return texts


def _wish(kind: str, value: str) -> str:
    """A value of a facet in words.

    >>> _wish("color", "blue"), _wish("word:folds", "no")
    ('blue (color)', 'one that is not described with "folds"')
    """
    form, _, word = kind.partition(":")
    if form != "word" or value not in ("yes", "no"):
        return f"{value} ({kind})"
    return f'one that is {"not " if value == "no" else ""}described with "{word}"'
