"""Customers and choice sets of lifetimes, drawn by hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from pipelines.errors import ConfigError
from pipelines.seeding import uniform
from sim.dialogue._book import SPLITS, Book, Ints

__all__ = ["CELLS", "SETTINGS", "Cell", "Lifetimes", "Setting", "product_order"]

Setting = Literal["customer", "category", "both"]
#: Parts of the shopping session that change from episode to episode (BIEL, section 5):
#: `customer` is one customer in many categories, `category` one category with many customers.
SETTINGS: tuple[Setting, ...] = get_args(Setting)
Cell = Literal["seen/seen", "unseen/seen", "seen/unseen", "unseen/unseen"]
#: Customer and category: whether agents may use their scores. Unseen customers are test personas.
CELLS: tuple[Cell, ...] = get_args(Cell)

_PERSONA, _SET, _ORDER = 101, 102, 103


@dataclass(frozen=True)
class Lifetimes:
    """Sequences of episodes; equal seeds give every agent equal customers, sets and orders.

    Attributes
    ----------
    seeds
        One per lifetime, of shape (lifetimes,).
    setting, cell
        Of `SETTINGS` and `CELLS`.
    sets, personas
        Numbers in the book, of shape (lifetimes, episodes).
    customers
        Label of the customer within the lifetime, from 0; of shape (lifetimes, episodes).
    skipped
        Pairs that were drawn and have no best score of 60 or lack a score, of shape (lifetimes,).
    """

    seeds: Ints
    setting: Setting
    cell: Cell
    sets: Ints
    personas: Ints
    customers: Ints
    skipped: Ints

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
    ) -> Lifetimes:
        """Draw customers and categories without repetition within a lifetime.

        Raises
        ------
        ConfigError
            If the setting or cell is unknown, or the cell has too few playable pairs.
        """
        for what, value, known in (("setting", setting, SETTINGS), ("cell", cell, CELLS)):
            if value not in known:
                raise ConfigError(f"unknown {what}", where=repr(value), hint=f"one of {known}")
        if episodes < 1:
            raise ConfigError("a lifetime needs an episode", where=f"episodes = {episodes}")
        customer, _, category = cell.partition("/")
        split = SPLITS.index("train" if customer == "seen" else "test")
        personas = np.flatnonzero(book.splits == split)
        sets = np.flatnonzero([s.seen == (category == "seen") for s in book.sets])
        for what, found, needed in (
            ("customers", personas, 1 if setting == "customer" else episodes),
            ("choice sets", sets, 1 if setting == "category" else episodes),
        ):
            if len(found) < needed:
                raise ConfigError(
                    f"lifetimes of {episodes} episodes need {needed} {what}, the cell {cell} has "
                    f"{len(found)}",
                    where=f"setting {setting}, {book.reference or 'book'}",
                    hint="take fewer episodes, another cell, or a larger release",
                )
        numbers = np.asarray(seeds, np.int64)
        drawn = np.empty((2, len(numbers), episodes), np.int64)
        skipped = np.zeros(len(numbers), np.int64)
        playable = book.playable[np.ix_(personas, sets)]
        for row, seed in enumerate(numbers):
            people = np.argsort(uniform(seed, _PERSONA, book.persona_hashes[personas]))
            shelves = np.argsort(uniform(seed, _SET, book.set_hashes[sets]))
            pairs, skipped[row] = _pairs(playable[np.ix_(people, shelves)], setting, episodes)
            if pairs is None:
                raise ConfigError(
                    f"no {episodes} episodes with a best score of 60 or more in the cell {cell}",
                    where=f"setting {setting}, seed {seed}, {book.reference or 'book'}",
                    hint="take fewer episodes or another cell",
                )
            drawn[0, row] = personas[people[pairs[0]]]
            drawn[1, row] = sets[shelves[pairs[1]]]
        labels = np.zeros(episodes) if setting == "customer" else np.arange(episodes)
        return cls(
            seeds=numbers,
            setting=setting,
            cell=cell,
            sets=drawn[1],
            personas=drawn[0],
            customers=np.tile(labels.astype(np.int64), (len(numbers), 1)),
            skipped=skipped,
        )


def product_order(book: Book, seeds: Ints, episode: int, sets: Ints) -> Ints:
    """Product at each number of a dialogue, -1 beyond its end; of shape (n, largest set)."""
    width = np.arange(int(book.sizes.max()))
    keys = uniform(seeds[:, None], _ORDER, episode, book.set_hashes[sets][:, None], width)
    beyond = width >= book.sizes[sets][:, None]
    keys[beyond] = 2.0
    order = np.argsort(keys, axis=1).astype(np.int64)
    order[beyond] = -1  # they sort behind all others, so that the places beyond are the same
    return order


def _pairs(
    playable: np.ndarray, setting: Setting, episodes: int
) -> tuple[tuple[Ints, Ints] | None, int]:
    """Rows and columns of the pairs that are played, in the order drawn, and how many are not."""
    skipped = 0
    if setting == "both":
        rows: list[int] = []
        columns: list[int] = []
        free = np.ones(playable.shape[0], np.bool_)
        for column in range(playable.shape[1]):
            if len(rows) == episodes:
                break
            left = np.flatnonzero(free)
            first = int(playable[left, column].argmax()) if len(left) else 0
            if not len(left) or not playable[left[first], column]:
                skipped += len(left)
                continue
            skipped += first
            free[left[first]] = False
            rows.append(int(left[first]))
            columns.append(column)
        if len(rows) < episodes:
            return None, skipped
        return (np.array(rows), np.array(columns)), skipped
    table = playable if setting == "customer" else playable.T
    for fixed, row in enumerate(table):
        found = np.flatnonzero(row)[:episodes]
        if len(found) == episodes:
            skipped += int(found[-1]) + 1 - episodes
            same = np.full(episodes, fixed)
            return ((same, found) if setting == "customer" else (found, same)), skipped
        skipped += len(row) - len(found)
    return None, skipped
