"""Customers without a language model: answers drawn from the answer model."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.products import content_words
from pipelines.seeding import uniform
from sim.dialogue._answers import AnswerModel, value_means
from sim.dialogue._feedback import TONES, tone_of
from sim.dialogue._protocol import NO_OPINION, NO_PREFERENCE, Answer, Comment, Question, Sale
from sim.dialogue._world import ChoiceSet, DialogueWorld

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = ["StatisticalCustomer", "match_facet"]

#: Questions in words whose facets are kept (count).
_QUESTIONS = 65_536
_PERSONAL = re.compile(r"\byou(r|rs)?\b", re.IGNORECASE)


def match_facet(question: str, shelf: ChoiceSet) -> int:
    """Facet whose kind, question or values share most words with a question; -1 for none.

    Kind and values count twice the words of the facet's question. Equal ones go to the first.

    >>> from sim.dialogue.testing import sample_world
    >>> shelf = sample_world().sets[0]
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

    def open(self, world: DialogueWorld, seed: int) -> None:
        """Keep the world; answers are computed by choice set."""
        self._world = world
        self._seed = seed
        self._drawn: dict[int, npt.NDArray[np.int8]] = {}
        self._matched = lru_cache(maxsize=_QUESTIONS)(self._match)
        self._vectors = cache(self._vectors_of)

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

    async def answer(self, question: Question) -> Answer:
        """A value of a facet; words for stated attributes and unmatched questions."""
        facet, number = question.facet, question.dialogue.set
        if facet < 0:
            text = question.text or ""
            stated = self._stated(text, question.persona)
            if stated is not None:
                return Answer(text=stated)
            facet = self._matched(number, text)
            if facet < 0:
                return Answer(text=NO_OPINION)
        return Answer(facet=facet, value=int(self._answers(number)[question.persona, facet]))

    async def feedback(self, sale: Sale) -> Comment:
        """A sentence of the regret's tone, and one on the facet that was missed most."""
        tone = int(tone_of(np.nanmax(sale.y) - sale.y[sale.product]))
        missed = self._missed(self._world.sets[sale.dialogue.set], sale) if tone else ""
        return Comment(text=TONES[tone] + missed)

    def _answers(self, number: int) -> npt.NDArray[np.int8]:
        """Answers of all personas to the facets of a set, of shape (personas, facets)."""
        if number not in self._drawn:
            world, shelf = self._world, self._world.sets[number]
            p = self.model.probabilities(shelf, shelf.y)
            first, chosen = shelf.answer_starts, []
            drawn = uniform(
                self._seed,
                world.persona_hashes[:, None],
                world.set_hashes[number],
                shelf.facet_hashes,
            )
            for n, width in enumerate(shelf.widths):
                total = np.cumsum(p[:, first[n] : first[n + 1]], axis=1, dtype=np.float64)
                place = (total / total[:, -1:] <= drawn[:, [n]]).sum(axis=1)
                chosen.append(np.where(place == width, NO_PREFERENCE, place))
            empty = np.zeros((len(p), 0))
            self._drawn[number] = (np.stack(chosen, axis=1) if chosen else empty).astype(np.int8)
        return self._drawn[number]

    def _stated(self, question: str, persona: int) -> str | None:
        """Answer to a question about the person from a stated attribute."""
        stated, words = self._world.attributes[persona], content_words(question)
        for name in sorted(stated):
            if content_words(name) & words and _PERSONAL.search(question):
                return f"My {name.replace('_', ' ')} is {stated[name]}."
        return None

    def _match(self, number: int, question: str) -> int:
        """Facet of a question by words, else by embedding; -1 for none."""
        shelf = self._world.sets[number]
        facet = match_facet(question, shelf)
        if facet < 0 and shelf.facets and self._encode is not None:
            cosine = self._vectors(number) @ self._encode([question])[0]
            facet = int(cosine.argmax()) if cosine.max() >= self._threshold else -1
        return facet

    @cached_property
    def _encode(self) -> Any:
        if self._given is not None or self._settings is None:
            return self._given
        from pipelines.memory import TextVectors

        return TextVectors.open(self._settings)

    def _vectors_of(self, number: int) -> Any:
        facets = self._world.sets[number].facets
        return self._encode([f"{f.question} {', '.join(f.values)}" for f in facets])

    def _missed(self, shelf: ChoiceSet, sale: Sale) -> str:
        """A sentence on the facet whose preferred value scores furthest above the sold one's.

        Empty where the product has the preferred value of every facet that it has.
        """
        if not shelf.facets:
            return ""
        means = value_means(shelf, sale.y[None])[0]
        means = np.where(np.isnan(means), -np.inf, means)
        of = np.array([facet.of[sale.product] for facet in shelf.facets])
        actual = means[shelf.starts + np.maximum(of, 0)]
        actual[(of < 0) | np.isinf(actual)] = np.inf
        missed = np.maximum.reduceat(means, shelf.starts) - actual
        n = int(missed.argmax())
        if not missed[n] > 0:
            return ""
        facet, start = shelf.facets[n], shelf.starts[n]
        preferred = facet.values[int(means[start : start + shelf.widths[n]].argmax())]
        return f" I would have preferred {_wish(facet.kind, preferred)}."


def _wish(kind: str, value: str) -> str:
    """A value of a facet in words.

    >>> _wish("color", "blue"), _wish("word:folds", "no")
    ('blue (color)', 'one that is not described with "folds"')
    """
    form, _, word = kind.partition(":")
    if form != "word" or value not in ("yes", "no"):
        return f"{value} ({kind})"
    return f'one that is {"not " if value == "no" else ""}described with "{word}"'
