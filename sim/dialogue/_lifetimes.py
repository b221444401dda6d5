"""Customers and choice sets of lifetimes, drawn by hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError
from pipelines.seeding import uniform
from sim.dialogue._book import MIN_BEST, SPLITS, Book, Ints

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
#: Lifetimes that are drawn at once (count).
_DRAWN = 4_096


@dataclass(frozen=True)
class Lifetimes:
    """Sequences of episodes; equal seeds give every agent equal customers, sets and orders."""

    #: One per lifetime, of shape (lifetimes,).
    seeds: Ints
    #: Setting and cell, of `SETTINGS` and `CELLS`.
    setting: Setting
    cell: Cell
    #: Numbers in the book, of shape (lifetimes, episodes).
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
        book: Book,
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
        personas = np.flatnonzero(book.splits == split)
        sets = np.flatnonzero([s.seen == (category == "seen") for s in book.sets])
        for what, candidates, needed in (
            ("customers", personas, 1 if setting == "customer" else episodes),
            ("choice sets", sets, 1 if setting == "category" else episodes),
        ):
            if len(candidates) < needed:
                raise ConfigError(
                    f"lifetimes of {episodes} episodes need {needed} {what}, the cell {cell} has "
                    f"{len(candidates)}",
                    where=f"setting {setting}, {book.reference or 'book'}",
                    hint="use fewer episodes, another cell, or a larger release",
                )
        numbers = np.asarray(seeds, np.int64)
        drawn = np.empty((2, len(numbers), episodes), np.int64)
        skipped = np.zeros(len(numbers), np.int64)
        playable = book.best[np.ix_(personas, sets)] >= min_best
        for start in range(0, len(numbers), _DRAWN):
            rows = slice(start, start + _DRAWN)
            block = numbers[rows, None]
            people = np.argsort(uniform(block, _PERSONA, book.persona_hashes[personas]), axis=1)
            shelves = np.argsort(uniform(block, _SET, book.set_hashes[sets]), axis=1)
            if setting == "both":
                pairs = _varied(playable, people, shelves, episodes)
            elif setting == "customer":
                pairs = _fixed(playable, people, shelves, episodes)
            else:
                places, few, lacking = _fixed(playable.T, shelves, people, episodes)
                pairs = places[::-1], few, lacking
            places, skipped[rows], lacking = pairs
            if lacking.any():
                raise ConfigError(
                    f"no {episodes} episodes with a best score of {min_best:g} or more in the cell "
                    f"{cell}",
                    where=f"setting {setting}, seed {numbers[rows][lacking.argmax()]}, "
                    f"{book.reference or 'book'}",
                    hint="use fewer episodes or another cell",
                )
            drawn[:, rows] = personas[places[0]], sets[places[1]]
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
    book: Book, seeds: Ints, episode: int, sets: Ints, *, orders: int | None = ORDERS
) -> Ints:
    """Product at each number of a dialogue, -1 beyond its end; of shape (n, largest set).

    Each choice set has `orders` orders, of which a dialogue has one by hash; None: any order.
    """
    width = np.arange(int(book.sizes.max()))
    hashes = book.set_hashes[sets]
    if orders is None:
        drawn = (seeds[:, None], _ORDER, episode)
    else:
        share = uniform(seeds, _ORDER, episode, hashes)
        drawn = ((share * orders).astype(np.int64)[:, None], _ORDER, 0)
    keys = uniform(*drawn, hashes[:, None], width)
    beyond = width >= book.sizes[sets][:, None]
    keys[beyond] = 2.0
    order = np.argsort(keys, axis=1).astype(np.int64)
    order[beyond] = -1  # they sort behind all others, so that the places beyond are the same
    return order


def _fixed(
    playable: npt.NDArray[np.bool_], fixed: Ints, varied: Ints, episodes: int
) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """The first of ``fixed`` with enough playable pairs, and the first of ``varied`` in them.

    ``playable`` is of shape (fixed, varied); the others are orders of both by lifetime, of shapes
    (n, fixed) and (n, varied); ``episodes`` are the pairs of a lifetime (count). Returns pairs of
    shape (2, n, episodes), pairs skipped of shape (n,), and lifetimes that lack pairs.
    """
    count = playable.sum(axis=1)
    enough = count[fixed] >= episodes
    first = enough.argmax(axis=1)
    at = np.arange(len(fixed))
    chosen = fixed[at, first]
    ok = np.take_along_axis(playable[chosen], varied, axis=1)
    places = np.argsort(~ok, axis=1, kind="stable")[:, :episodes]
    # Of those before the chosen one all that can't be played; of its own those up to the last.
    lost = np.cumsum(playable.shape[1] - count[fixed], axis=1)
    before = np.where(first > 0, lost[at, np.maximum(first - 1, 0)], 0)
    skipped = before + places[:, -1] + 1 - episodes
    pairs = np.stack([np.repeat(chosen[:, None], episodes, 1), varied[at[:, None], places]])
    return pairs, skipped, ~enough.any(axis=1)


def _varied(
    playable: npt.NDArray[np.bool_], people: Ints, shelves: Ints, episodes: int
) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Pairs in which both change, as of `_fixed`: each set has the first free customer of it."""
    n = len(people)
    pairs = np.zeros((2, n, episodes), np.int64)
    skipped, filled = np.zeros(n, np.int64), np.zeros(n, np.int64)
    free = np.ones(people.shape, np.bool_)
    for column in shelves.T:
        open_ = np.flatnonzero(filled < episodes)
        if not len(open_):
            break
        who = people[open_]
        ok = playable[who, column[open_, None]] & free[open_]
        matched, first = ok.any(axis=1), ok.argmax(axis=1)
        passed = np.arange(people.shape[1]) < np.where(matched, first, people.shape[1])[:, None]
        skipped[open_] += (free[open_] & passed).sum(axis=1)
        rows, place = open_[matched], first[matched]
        pairs[:, rows, filled[rows]] = people[rows, place], column[rows]
        free[rows, place] = False
        filled[rows] += 1
    return pairs, skipped, filled < episodes
