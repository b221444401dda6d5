"""Agents that ask nothing: two floors, the rater of the description, and the bound."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError
from pipelines.products import vocabularies
from pipelines.seeding import uniform
from sim.dialogue._book import Book, ChoiceSet, Floats, Ints
from sim.dialogue._protocol import Actions, Outcomes, Views
from sim.dialogue.customers.statistical import _words

__all__ = ["BestAgent", "OracleAgent", "PopularityAgent", "RandomAgent"]


class _Seller:
    """An agent that recommends at once and keeps nothing."""

    name = ""
    privileged = False

    def open(self, book: Book, seed: int) -> None:  # noqa: ARG002
        """Keep the book."""
        self.book = book

    def act(self, views: Views) -> Actions:
        """Recommend."""
        return Actions(
            ask=np.zeros(len(views), np.bool_),
            facet=np.full(len(views), -1),
            product=self.sell(views),
        )

    def sell(self, views: Views) -> Ints:
        """Recommended products, as numbers in the dialogue."""
        raise NotImplementedError

    def learn(self, outcomes: Outcomes) -> None:
        """Do nothing."""

    def wipe(self, lifetimes: Ints) -> None:
        """Do nothing."""

    def metadata(self) -> dict[str, Any]:
        """The name."""
        return {"name": self.name}


class RandomAgent(_Seller):
    """Uniformly drawn products (RANDOM)."""

    name = "random"

    def sell(self, views: Views) -> Ints:
        """A product by hash of the turn's seed."""
        sizes = self.book.sizes[views.set]
        return (uniform(views.seeds, 121) * sizes).astype(np.int64)


class PopularityAgent(_Seller):
    """Highest rating, then the cheaper, then the id; unknown ones last (POPULARITY)."""

    name = "popularity"

    def open(self, book: Book, seed: int) -> None:  # noqa: ARG002
        """Find the best product of each set."""
        self.first = np.array([_most_popular(s) for s in book.sets], np.int64)

    def sell(self, views: Views) -> Ints:
        """The set's most popular product."""
        return views.placed(self.first[views.set])


def _most_popular(shelf: ChoiceSet) -> int:
    rating = np.where(np.isnan(shelf.rating), -np.inf, shelf.rating)
    price = np.where(np.isnan(shelf.price), np.inf, shelf.price)
    return int(np.lexsort((np.array(shelf.item_ids), price, -rating))[0])


class BestAgent(_Seller):
    """The product with the persona's highest score: regret 0."""

    name = "best"
    privileged = True

    def sell(self, views: Views) -> Ints:
        """The best product by the scores."""
        assert views.persona is not None
        y = self.book.scores(views.set, views.persona)
        return views.placed(np.nanargmax(y, axis=1).astype(np.int64))


#: Scores of products for a persona's description: (book, set, description) to (products,).
Rater = Callable[[Book, ChoiceSet, str], npt.ArrayLike]


class OracleAgent(_Seller):
    """The product that a rater of the persona's description scores highest (ORACLE).

    Parameters
    ----------
    rater
        Name; refused if it is a member of the ensemble that made the scores. ``words`` adds
        up the facet values that the description likes, subtracts those that it does not, and adds
        the rating.
    rate
        Scores of products by `rater`; None: those of ``words``.
    """

    name = "oracle"
    privileged = True

    def __init__(self, rater: str = "words", rate: Rater | None = None) -> None:
        if rate is None and rater != "words":
            raise ConfigError(
                "no such rater of descriptions",
                where=f"agent oracle, rater {rater!r}",
                hint="use words, or give its function as rate=",
            )
        self._rater = rater
        self._rate: Rater = rate or _stated_tastes
        self._chosen: dict[tuple[int, int], int] = {}

    def open(self, book: Book, seed: int) -> None:
        """Refuse a rater whose scores are those that the regret is made of."""
        super().open(book, seed)
        self._chosen.clear()
        if self._rater in book.raters:
            raise ConfigError(
                "the oracle's rater is a member of the ensemble that made the scores",
                where=f"agent oracle, rater {self._rater}, {book.reference or 'book'}",
                hint=f"take a rater other than {', '.join(book.raters)}",
            )

    def metadata(self) -> dict[str, Any]:
        """Name and rater."""
        return {"name": self.name, "rater": self._rater}

    def sell(self, views: Views) -> Ints:
        """The rater's highest, the first of equal ones."""
        assert views.persona is not None
        found = np.empty(len(views), np.int64)
        for row, key in enumerate(zip(views.set.tolist(), views.persona.tolist(), strict=True)):
            if key not in self._chosen:
                shelf, text = self.book.sets[key[0]], self.book.descriptions[key[1]]
                scores = np.asarray(self._rate(self.book, shelf, text), np.float64)
                self._chosen[key] = int(scores.argmax())
            found[row] = self._chosen[key]
        return views.placed(found)


#: Words of a price that name its third, which no vocabulary has.
_PRICES = {
    "low": ("cheap", "inexpensive", "budget", "bargain"),
    "high": ("expensive", "luxury", "designer"),
}
#: Words of sentences on what a persona does not like.
_AGAINST = re.compile(
    r"\b(bored|tired|no patience|dislikes?|avoids?|hates?|refuses?|can't|cannot|never|"
    r"little use|no use|wary|leaves? \w+ cold|not for|put off|annoys?|last thing|"
    r"(steers?|stays?) (clear|away)|skips?|give up|(do|does) without|"
    r"and failed|hard to please)\b",
    re.IGNORECASE,
)


def _stated_tastes(book: Book, shelf: ChoiceSet, description: str) -> Floats:  # noqa: ARG001
    """Facet values that a description likes less those that it does not, of shape (products,).

    A value counts by the sentences that have one of its words, liked less disliked; the place
    by rating counts as much as two values.
    """
    known = vocabularies()
    weight = np.zeros(len(shelf.value_names), np.float32)
    sentences = [
        (_words(part), -1.0 if _AGAINST.search(part) else 1.0)
        for part in re.split(r"(?<=[.;!?])\s+", description)
    ]
    for n, (kind, value) in enumerate(shelf.value_names):
        named = known[kind].values.get(value, ()) if kind in known else ()
        prices = _PRICES.get(value, ()) if kind == "price" else ()
        words = _words(" ".join((value, *named, *prices))) - {"yes", "no"}
        weight[n] = sum(sign for own, sign in sentences if own & words)
    rating = np.where(np.isnan(shelf.rating), -np.inf, shelf.rating)
    place = np.argsort(np.argsort(rating, kind="stable")) / max(
        len(shelf) - 1, 1
    )  # from 0 to 1, best rated
    found = shelf.members @ np.sign(weight) + 2 * place
    return np.asarray(found, np.float32)
