"""Choice sets, facets, scores and personas of a release as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from pipelines.errors import ReleaseError
from pipelines.seeding import U64, hash_ids

__all__ = ["MIN_BEST", "SPLITS", "Book", "ChoiceSet", "Facet", "Floats", "Ints"]

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

#: Splits of personas; ``Book.splits`` holds indices of it.
SPLITS = ("train", "validation", "test")
#: Best score below which a persona does not shop in a category (BIEL, section 4; points of 100).
MIN_BEST = 60.0


@dataclass(frozen=True, slots=True)
class Facet:
    """A property of the products of one choice set that can be asked about.

    Attributes
    ----------
    facet_id
        Id, unique within the choice set.
    kind
        Vocabulary, such as ``price``, ``brand`` or ``material``.
    question
        Question to the customer.
    values
        Two to six values.
    of
        Number of each product's value, -1 without one; int8 of shape (products,).
    """

    facet_id: str
    kind: str
    question: str
    values: tuple[str, ...]
    of: npt.NDArray[np.int8]


@dataclass(frozen=True)
class ChoiceSet:
    """Interchangeable products of a category, of which a customer buys one.

    Attributes
    ----------
    category_id, name, path
        Category, its name, and the names from the root to it.
    item_ids, titles, texts
        Products, in the set's own order.
    price, rating
        Price and mean rating; NaN where unknown, of shape (products,).
    vectors
        Text vectors of shape (products, dimensions); dimensions may be 0.
    facets
        At most 30.
    y
        Scores of shape (personas of the book, products), 0-100; NaN where the score failed or is
        not disclosed.
    seen
        Whether its scores may be used by agents.
    """

    category_id: str
    name: str
    path: str
    item_ids: tuple[str, ...]
    titles: tuple[str, ...]
    texts: tuple[str, ...]
    price: Floats
    rating: Floats
    vectors: Floats
    facets: tuple[Facet, ...]
    y: Floats
    seen: bool = True

    def __len__(self) -> int:
        return len(self.item_ids)

    @cached_property
    def widths(self) -> Ints:
        """Number of values of each facet, of shape (facets,)."""
        return np.array([len(f.values) for f in self.facets], np.int64)

    @cached_property
    def starts(self) -> Ints:
        """First column of each facet among all values of the set, of shape (facets,)."""
        return np.cumsum(self.widths) - self.widths

    @cached_property
    def members(self) -> Floats:
        """1 where a product has a facet's value; of shape (products, values of all facets)."""
        found = np.zeros((len(self), int(self.widths.sum())), np.float32)
        for facet, start in zip(self.facets, self.starts, strict=True):
            rows = np.flatnonzero(facet.of >= 0)
            found[rows, start + facet.of[rows]] = 1.0
        return found

    @cached_property
    def value_names(self) -> tuple[tuple[str, str], ...]:
        """(kind, value) of each column of `members`."""
        return tuple((f.kind, value) for f in self.facets for value in f.values)

    @cached_property
    def facet_hashes(self) -> U64:
        """Hash of each facet's id, of shape (facets,)."""
        return hash_ids(f.facet_id for f in self.facets)


@dataclass(frozen=True)
class Book:
    """Customers and choice sets of a release.

    Attributes
    ----------
    sets
        Choice sets, ordered by category id.
    persona_ids, descriptions, attributes
        Personas, their texts and stated attributes (such as ``age``), in the order of the rows of
        the scores.
    splits
        Index of `SPLITS` for each persona, int8 of shape (personas,).
    raters
        Names of the raters whose mean the scores are.
    reference
        Release that it was opened from; empty for a generated book.
    """

    sets: tuple[ChoiceSet, ...]
    persona_ids: tuple[str, ...]
    descriptions: tuple[str, ...]
    attributes: tuple[Mapping[str, str], ...]
    splits: npt.NDArray[np.int8]
    raters: tuple[str, ...] = ()
    reference: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        where = self.reference or "book"
        people = len(self.persona_ids)
        if not self.sets or not people:
            raise ReleaseError(
                "no choice set or no persona has scores",
                where=where,
                hint="build the products with personas and scores",
            )
        for found in self.sets:
            if found.y.shape != (people, len(found)):
                raise ReleaseError(
                    f"scores have the shape {found.y.shape}, not {(people, len(found))}",
                    where=f"{where}, category {found.category_id}",
                )
            if len(found) < 2:
                raise ReleaseError(
                    "a choice set needs two products or more, found one",
                    where=f"{where}, category {found.category_id}",
                )
            known = found.y[~np.isnan(found.y)]
            if known.size and (known.min() < 0 or known.max() > 100):
                raise ReleaseError(
                    f"scores are from {known.min():g} to {known.max():g}, not on 0-100",
                    where=f"{where}, category {found.category_id}",
                    hint="score the choice sets on the scale 0-100",
                )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Release and a hash of the contents that decide dialogues, as JSON values."""
        found = hashlib.blake2b(digest_size=16)
        for text in (*self.persona_ids, *self.descriptions, *map(repr, self.attributes)):
            found.update(text.encode() + b"\0")
        found.update(self.splits.tobytes())
        for s in self.sets:
            own = (s.category_id, s.name, s.path, s.seen, s.item_ids, s.titles, s.texts)
            found.update(repr(own).encode())
            for facet in s.facets:
                found.update(repr((facet.facet_id, facet.question, facet.values)).encode())
                found.update(facet.of.tobytes())
            for values in (s.price, s.rating, s.vectors, s.y):
                found.update(np.ascontiguousarray(values).tobytes())
        return {"release": self.reference, "contents": found.hexdigest()}

    @cached_property
    def set_hashes(self) -> U64:
        """Hash of each category's id, of shape (sets,)."""
        return hash_ids(s.category_id for s in self.sets)

    @cached_property
    def persona_hashes(self) -> U64:
        """Hash of each persona's id, of shape (personas,)."""
        return hash_ids(self.persona_ids)

    @cached_property
    def sizes(self) -> Ints:
        """Products of each set, of shape (sets,)."""
        return np.array([len(s) for s in self.sets], np.int64)

    @cached_property
    def scored(self) -> npt.NDArray[np.bool_]:
        """Whether a persona has every score of a set, of shape (personas, sets)."""
        return np.stack([~np.isnan(s.y).any(axis=1) for s in self.sets], axis=1)

    @cached_property
    def playable(self) -> npt.NDArray[np.bool_]:
        """`scored`, and the best score reaches `MIN_BEST`; of shape (personas, sets)."""
        best = np.stack([np.nan_to_num(s.y, nan=-1.0).max(axis=1) for s in self.sets], axis=1)
        return self.scored & (best >= MIN_BEST)

    def scores(self, sets: Ints, personas: Ints) -> Floats:
        """Scores of pairs, of shape (n, largest set); NaN beyond the end of a smaller set."""
        found = np.full((len(sets), int(self.sizes.max())), np.nan, np.float32)
        for number, rows in groups(sets):
            found[rows, : self.sizes[number]] = self.sets[number].y[personas[rows]]
        return found

    def disclosed(self) -> Book:
        """The book as agents may read it: scores of train personas in seen categories only.

        Other personas are left out, and scores of unseen categories are NaN.
        """
        train = np.flatnonzero(self.splits == SPLITS.index("train"))
        return replace(
            self,
            sets=tuple(
                replace(s, y=s.y[train] if s.seen else np.full((len(train), len(s)), np.nan, "f4"))
                for s in self.sets
            ),
            persona_ids=tuple(self.persona_ids[n] for n in train),
            descriptions=tuple(self.descriptions[n] for n in train),
            attributes=tuple(self.attributes[n] for n in train),
            splits=self.splits[train],
        )


def groups(keys: npt.ArrayLike) -> list[tuple[int, Ints]]:
    """Distinct keys with the rows of each, both ascending.

    >>> [(key, rows.tolist()) for key, rows in groups([7, 3, 7])]
    [(3, [1]), (7, [0, 2])]
    """
    values = np.asarray(keys)
    order = np.argsort(values, kind="stable")
    found, first = np.unique(values[order], return_index=True)
    ends = [*first[1:].tolist(), len(order)]
    return [
        (int(key), order[start:end])
        for key, start, end in zip(found, first.tolist(), ends, strict=False)
    ]
