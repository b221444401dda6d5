"""Agents that ask nothing: two baselines, the rater of the description, and the bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from pipelines.config import Settings
from pipelines.errors import ConfigError
from pipelines.hints import nearest
from pipelines.llm.answers import AnswerStore
from pipelines.raters import Rater, needs_of, open_rater
from pipelines.seams import RATERS
from pipelines.seeding import uniform
from sim.dialogue._book import Book, ChoiceSet, Ints
from sim.dialogue._protocol import FAILED, OK, Actions, Outcomes, Views

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


class OracleAgent(_Seller):
    """The product that a rater of the persona scores highest (ORACLE).

    ``rater`` is the name of a rater (:func:`pipelines.raters.open_rater`) or ``module:Class``;
    refused if it is a member of the ensemble that made the scores. ``words`` reads the description
    without a language model. Of the settings, `product_scoring`, `engine` and `serving` are read.
    """

    name = "oracle"
    privileged = True

    def __init__(self, rater: str = "words", settings: Settings | None = None) -> None:
        names = [n for n in RATERS.names() if n not in ("ensemble", "replay")]
        if rater not in names and ":" not in rater:
            raise ConfigError(
                "no such rater", where=f"agent oracle, rater {rater!r}", hint=nearest(rater, names)
            )
        self._name = rater
        given = settings or Settings()
        self._engine = given.engine if rater in ("llm", "listwise") else None
        # The raters read the section of the domain.
        update = {"rater": rater, "ensemble": (), "scale": "0-100"}
        scoring = given.product_scoring.model_copy(update=update)
        self._settings = given.model_copy(update={"product_scoring": scoring})
        self._rater: Rater | None = None
        self._chosen: dict[tuple[int, int], int] = {}

    def open(self, book: Book, seed: int) -> None:
        """Open the rater; one whose scores are those that the regret is made of is refused."""
        super().open(book, seed)
        self._chosen.clear()
        rater_name = self._name if self._engine is None else str(self._engine.model)
        if rater_name in book.raters:
            raise ConfigError(
                "the oracle's rater is a member of the ensemble that made the scores",
                where=f"agent oracle, rater {rater_name}, {book.reference or 'book'}",
                hint=f"use a rater other than {', '.join(book.raters)}",
            )
        tables = book.tables(needs_of(self._name))
        self._personas, self._items = tables.pop("personas"), tables["items"]
        self._row = {item: n for n, item in enumerate(self._items["item_id"].to_list())}
        store = None
        if self._engine is not None:
            store = AnswerStore(self._settings.runtime.home, self._settings.serving)
        self.close()
        self._rater = open_rater(self._settings, domain="products", store=store, **tables)

    def close(self) -> None:
        """Close the rater, if it can be closed."""
        close = getattr(self._rater, "close", None)
        self._rater = None
        if close is not None:
            close()

    def metadata(self) -> dict[str, Any]:
        """Name, rater and its model."""
        metadata: dict[str, Any] = {"name": self.name, "rater": self._name}
        if self._engine is not None:
            metadata |= {"language_model": self._engine.model, "engine": self._engine.kind}
        return metadata

    def act(self, views: Views) -> Actions:
        """Recommend the rater's highest, the first of equal ones; failed without all ratings."""
        assert views.persona is not None
        pairs = list(zip(views.set.tolist(), views.persona.tolist(), strict=True))
        self._rate(sorted(set(pairs) - self._chosen.keys()))
        product = np.array([self._chosen[pair] for pair in pairs], np.int64)
        return Actions(
            ask=np.zeros(len(views), np.bool_),
            facet=np.full(len(views), -1),
            product=views.placed(np.maximum(product, 0)),
            status=np.where(product < 0, FAILED, OK).astype(np.int8),
        )

    def _rate(self, pairs: list[tuple[int, int]]) -> None:
        """Choose products of sets for personas."""
        if not pairs:
            return
        assert self._rater is not None
        sets = [self.book.sets[number] for number, _ in pairs]
        people, who = np.unique([persona for _, persona in pairs], return_inverse=True)
        what = np.array([self._row[item] for shelf in sets for item in shelf.item_ids])
        indices = np.stack([np.repeat(who, [len(shelf) for shelf in sets]), what], axis=1)
        # A product may be in several sets that a persona is asked about.
        unique, back = np.unique(indices, axis=0, return_inverse=True)
        personas = self._personas[people.tolist()]
        batch = self._rater.rate(personas, self._items, pairs=unique)
        ends = np.cumsum([len(shelf) for shelf in sets])[:-1]
        for pair, scores in zip(pairs, np.split(batch.expected[back], ends), strict=True):
            complete = not np.isnan(scores).any()
            self._chosen[pair] = int(np.round(scores, 6).argmax()) if complete else -1
