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
from sim.dialogue._protocol import FAILED, Action, Batched, Dialogue, Outcome
from sim.dialogue._world import ChoiceSet, DialogueWorld

__all__ = ["BestAgent", "OracleAgent", "PopularityAgent", "RandomAgent"]


class _Baseline:
    """Base of agents that recommend at once and keep nothing."""

    name = ""
    privileged = False

    def open(self, world: DialogueWorld, seed: int) -> None:  # noqa: ARG002
        """Keep the world."""
        self.world = world

    def learn(self, outcome: Outcome) -> None:
        """Do nothing."""

    def metadata(self) -> dict[str, Any]:
        """The name."""
        return {"name": self.name}


class RandomAgent(_Baseline):
    """Uniformly drawn products (RANDOM)."""

    name = "random"

    async def act(self, dialogue: Dialogue) -> Action:
        """Recommend a product by hash of the turn's seed."""
        return Action(product=int(uniform(dialogue.seed(), 121) * len(dialogue.order)))


class PopularityAgent(_Baseline):
    """Highest rating, then the cheaper, then the id; unknown ones last (POPULARITY)."""

    name = "popularity"

    def open(self, world: DialogueWorld, seed: int) -> None:  # noqa: ARG002
        """Find the best product of each set."""
        self.first = [_most_popular(s) for s in world.sets]

    async def act(self, dialogue: Dialogue) -> Action:
        """Recommend the set's most popular product."""
        return Action(product=dialogue.number(self.first[dialogue.set]))


def _most_popular(shelf: ChoiceSet) -> int:
    rating = np.where(np.isnan(shelf.rating), -np.inf, shelf.rating)
    price = np.where(np.isnan(shelf.price), np.inf, shelf.price)
    return int(np.lexsort((np.array(shelf.item_ids), price, -rating))[0])


class BestAgent(_Baseline):
    """The product with the persona's highest score: regret 0."""

    name = "best"
    privileged = True

    async def act(self, dialogue: Dialogue) -> Action:
        """Recommend the best product by the scores."""
        y = self.world.sets[dialogue.set].y[dialogue.persona]
        return Action(product=dialogue.number(int(np.nanargmax(y))))


class OracleAgent(_Baseline):
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
        self._chosen: dict[tuple[int, int | None], int] = {}

    def open(self, world: DialogueWorld, seed: int) -> None:
        """Open the rater; one whose scores are those that the regret is made of is refused."""
        super().open(world, seed)
        self._chosen.clear()
        rater_name = self._name if self._engine is None else str(self._engine.model)
        if rater_name in world.raters:
            raise ConfigError(
                "the oracle's rater is a member of the ensemble that made the scores",
                where=f"agent oracle, rater {rater_name}, {world.reference or 'world'}",
                hint=f"use a rater other than {', '.join(world.raters)}",
            )
        tables = world.tables(needs_of(self._name))
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

    async def act(self, dialogue: Dialogue) -> Action:
        """Recommend the rater's highest, the first of equal ones; failed without all ratings."""
        pair = (dialogue.set, dialogue.persona)
        if pair not in self._chosen:
            await Batched(self._rate, pair)
        product = self._chosen[pair]
        if product < 0:
            return Action(status=FAILED)
        return Action(product=dialogue.number(product))

    def _rate(self, waiting: list[tuple[int, int]]) -> list[None]:
        """Choose products of sets for personas."""
        assert self._rater is not None
        pairs = sorted(set(waiting) - self._chosen.keys())
        sets = [self.world.sets[number] for number, _ in pairs]
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
        return [None] * len(waiting)
