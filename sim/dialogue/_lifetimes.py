"""Customers and choice sets of lifetimes, drawn by hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError
from pipelines.seeding import uniform
from sim.dialogue._world import MIN_BEST, SPLITS, DialogueWorld, Ints

Setting = Literal["customer", "category", "both"]
#: Parts of the shopping session that change from episode to episode (BIEL, section 5):
#: `customer` is one customer in many categories, `category` one category with many customers.
SETTINGS: tuple[Setting, ...] = get_args(Setting)
Cell = Literal["seen/seen", "unseen/seen", "seen/unseen", "unseen/unseen"]
#: Customer and category: whether agents may use their scores. Unseen customers are test personas.
CELLS: tuple[Cell, ...] = get_args(Cell)

#: Orders of a choice set's products: prompts of dialogues with the same one begin alike (count).
ORDERS = 4

_PERSONA, _SET, _ORDER = 101, 102, 103


@dataclass(frozen=True)
class Lifetimes:
    """Sequences of episodes; equal seeds give every agent equal customers, sets and orders."""

    #: One per lifetime, of shape (lifetimes,).
    seeds: Ints
    #: Setting and cell, of `SETTINGS` and `CELLS`.
    setting: Setting
    cell: Cell
    #: Numbers in the world, of shape (lifetimes, episodes).
    sets: Ints
    personas: Ints
    #: Label of the customer within the lifetime, from 0; of shape (lifetimes, episodes).
    customers: Ints
    #: Pairs that were drawn and whose best score is below ``min_best``, or that lack a score; of
    #: shape (lifetimes,).
    skipped: Ints
    #: Best score below which a persona does not shop in a category (points).
    min_best: float = MIN_BEST

    def __len__(self) -> int:
        return len(self.seeds)

    @property
    def episodes(self) -> int:
        """Episodes per lifetime."""
        return int(self.sets.shape[1])

    @classmethod
    def draw(
        cls,
        world: DialogueWorld,
        seeds: Sequence[int] | Ints,
        *,
        setting: Setting = "customer",
        cell: Cell = "unseen/seen",
        episodes: int = 10,
        min_best: float = MIN_BEST,
    ) -> Lifetimes:
        """Draw customers and categories without repetition within a lifetime.

        Raises ConfigError if the setting or cell is unknown, or the cell has too few playable
        pairs.
        """
        for what, value, allowed in (("setting", setting, SETTINGS), ("cell", cell, CELLS)):
            if value not in allowed:
                raise ConfigError(f"unknown {what}", where=repr(value), hint=f"one of {allowed}")
        if episodes < 1:
            raise ConfigError("a lifetime needs an episode", where=f"episodes = {episodes}")
        customer, _, category = cell.partition("/")
        split = SPLITS.index("train" if customer == "seen" else "test")
        personas = np.flatnonzero(world.splits == split)
        sets = np.flatnonzero([s.seen == (category == "seen") for s in world.sets])
        for what, candidates, needed in (
            ("customers", personas, 1 if setting == "customer" else episodes),
            ("choice sets", sets, 1 if setting == "category" else episodes),
        ):
            if len(candidates) < needed:
                raise ConfigError(
                    f"lifetimes of {episodes} episodes need {needed} {what}, the cell {cell} has "
                    f"{len(candidates)}",
                    where=f"setting {setting}, {world.reference or 'world'}",
                    hint="use fewer episodes, another cell, or a larger release",
                )
        numbers = np.asarray(seeds, np.int64)
        drawn = np.empty((2, len(numbers), episodes), np.int64)
        skipped = np.zeros(len(numbers), np.int64)
        playable = world.best[np.ix_(personas, sets)] >= min_best
        rule = _varied if setting == "both" else _fixed
        for row, seed in enumerate(numbers.tolist()):
            orders = [
                np.argsort(uniform(seed, _PERSONA, world.persona_hashes[personas])),
                np.argsort(uniform(seed, _SET, world.set_hashes[sets])),
            ]
            by_set = setting == "category"
            first, second = orders[::-1] if by_set else orders
            pairs, skipped[row] = rule(playable.T if by_set else playable, first, second, episodes)
            if pairs is None:
                raise ConfigError(
                    f"no {episodes} episodes with a best score of {min_best:g} or more in the cell "
                    f"{cell}",
                    where=f"setting {setting}, seed {seed}, {world.reference or 'world'}",
                    hint="use fewer episodes or another cell",
                )
            people, shelves = pairs[::-1] if by_set else pairs
            drawn[:, row] = personas[people], sets[shelves]
        labels = np.zeros(episodes) if setting == "customer" else np.arange(episodes)
        return cls(
            seeds=numbers,
            setting=setting,
            cell=cell,
            sets=drawn[1],
            personas=drawn[0],
            customers=np.tile(labels.astype(np.int64), (len(numbers), 1)),
            skipped=skipped,
            min_best=min_best,
        )


def product_order(
    world: DialogueWorld, seed: int, episode: int, number: int, *, orders: int | None = ORDERS
) -> Ints:
    """Product of a choice set at each number of a dialogue, of shape (products,).

    Each choice set has `orders` orders, of which a dialogue has one by hash; None: any order.
    """
    category, width = world.set_hashes[number], np.arange(len(world.sets[number]))
    if orders is not None:
        # Lifetimes and episodes share the orders.
        seed, episode = int(uniform(seed, _ORDER, episode, category) * orders), 0
    return np.argsort(uniform(seed, _ORDER, episode, category, width)).astype(np.int64)


#: Pairs of a lifetime as two arrays of shape (episodes,); None if it lacks some.
Pairs = tuple[Ints, Ints] | None


def _fixed(
    playable: npt.NDArray[np.bool_], fixed: Ints, varied: Ints, episodes: int
) -> tuple[Pairs, int]:
    """The first of ``fixed`` with enough playable pairs, and the first of ``varied`` in them.

    ``playable`` is of shape (fixed, varied); the others are orders of both. Returns the pairs and
    how many were skipped before the last of them.
    """
    skipped = 0
    for chosen in fixed:
        places = np.flatnonzero(playable[chosen, varied])[:episodes]
        if len(places) == episodes:
            skipped += int(places[-1]) + 1 - episodes
            return (np.full(episodes, chosen), varied[places]), skipped
        skipped += int((~playable[chosen]).sum())
    return None, skipped


def _varied(
    playable: npt.NDArray[np.bool_], people: Ints, shelves: Ints, episodes: int
) -> tuple[Pairs, int]:
    """Pairs in which both change, as of `_fixed`: each set has the first free customer of it."""
    pairs, free, skipped = [], people, 0
    for shelf in shelves:
        matches = np.flatnonzero(playable[free, shelf])
        skipped += int(matches[0]) if len(matches) else len(free)
        if len(matches):
            pairs.append((free[matches[0]], shelf))
            free = np.delete(free, matches[0])
        if len(pairs) == episodes:
            return (np.array([p for p, _ in pairs]), np.array([s for _, s in pairs])), skipped
    return None, skipped
