"""Choice sets, facets, scores and personas of a release as arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ReleaseError
from pipelines.products import PRICE_VALUES, WORD_VALUES, persona_splits
from pipelines.seeding import U64, hash_ids

if TYPE_CHECKING:
    from sim._release import Release, Table

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float32]

#: Splits of personas; ``DialogueWorld.splits`` holds indices of it.
SPLITS = ("train", "validation", "test")
#: Best score below which a persona does not shop in a category (BIEL, section 4; points of 100).
MIN_BEST = 60.0


@dataclass(frozen=True, slots=True)
class Facet:
    """A property of the products of one choice set that can be asked about."""

    #: Id, unique within the choice set.
    facet_id: str
    #: Vocabulary, such as ``price``, ``brand`` or ``material``.
    kind: str
    #: Question to the customer.
    question: str
    #: Two to six values.
    values: tuple[str, ...]
    #: Number of each product's value, -1 without one; int8 of shape (products,).
    of: npt.NDArray[np.int8]


@dataclass(frozen=True)
class ChoiceSet:
    """Interchangeable products of a category, of which a customer buys one."""

    #: Category, its name, and the names from the root to it.
    category_id: str
    name: str
    path: str
    #: Products, in the set's own order.
    item_ids: tuple[str, ...]
    titles: tuple[str, ...]
    texts: tuple[str, ...]
    #: Price and mean rating; NaN where unknown, of shape (products,).
    price: Floats
    rating: Floats
    #: Text vectors of shape (products, dimensions); dimensions may be 0.
    vectors: Floats
    #: At most 30.
    facets: tuple[Facet, ...]
    #: Scores of shape (personas of the world, products), 0-100; NaN where the score failed or is
    #: not disclosed.
    y: Floats
    #: Whether its scores may be used by agents.
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
    def answer_starts(self) -> Ints:
        """First answer of each facet among all answers (its values, then *no preference*).

        With the number of answers at the end, of shape (facets + 1,).
        """
        return np.concatenate([[0], np.cumsum(self.widths + 1)])

    @cached_property
    def members(self) -> Floats:
        """1 where a product has a facet's value; of shape (products, values of all facets)."""
        members = np.zeros((len(self), int(self.widths.sum())), np.float32)
        for facet, start in zip(self.facets, self.starts, strict=True):
            rows = np.flatnonzero(facet.of >= 0)
            members[rows, start + facet.of[rows]] = 1.0
        return members

    @cached_property
    def value_names(self) -> tuple[tuple[str, str], ...]:
        """(kind, value) of each column of `members`."""
        return tuple((f.kind, value) for f in self.facets for value in f.values)

    @cached_property
    def facet_hashes(self) -> U64:
        """Hash of each facet's id, of shape (facets,)."""
        return hash_ids(f.facet_id for f in self.facets)


@dataclass(frozen=True)
class DialogueWorld:
    """Customers and choice sets of a release."""

    #: Choice sets, ordered by category id.
    sets: tuple[ChoiceSet, ...]
    #: Personas, their texts and stated attributes (such as ``age``), in the order of the rows of
    #: the scores.
    persona_ids: tuple[str, ...]
    descriptions: tuple[str, ...]
    attributes: tuple[Mapping[str, str], ...]
    #: Index of `SPLITS` for each persona, int8 of shape (personas,).
    splits: npt.NDArray[np.int8]
    #: Names of the raters whose mean the scores are.
    raters: tuple[str, ...] = ()
    #: Release that it was opened from; empty for a generated world.
    reference: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    #: That release; None for a generated or disclosed world.
    release: Release | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        where = self.reference or "world"
        people = len(self.persona_ids)
        if not self.sets or not people:
            raise ReleaseError(
                "no choice set or no persona has scores",
                where=where,
                hint="build the products with personas and scores",
            )
        for shelf in self.sets:
            if shelf.y.shape != (people, len(shelf)):
                raise ReleaseError(
                    f"scores have the shape {shelf.y.shape}, not {(people, len(shelf))}",
                    where=f"{where}, category {shelf.category_id}",
                )
            if len(shelf) < 2:
                raise ReleaseError(
                    "a choice set needs two products or more, found one",
                    where=f"{where}, category {shelf.category_id}",
                )
            scores = shelf.y[~np.isnan(shelf.y)]
            if scores.size and (scores.min() < 0 or scores.max() > 100):
                raise ReleaseError(
                    f"scores are from {scores.min():g} to {scores.max():g}, not on 0-100",
                    where=f"{where}, category {shelf.category_id}",
                    hint="score the choice sets on the scale 0-100",
                )

    @classmethod
    def open(cls, release: Release) -> DialogueWorld:
        """Read the choice sets of a products release, with scores of every persona that has any.

        A facet's ``kind`` is its id (``material``, ``word:folding``), so that equal values have
        equal names in every set. Choice sets without any score are left out; ``metadata`` counts
        them.

        Raises ReleaseError if the release lacks choice sets, facets, personas or scores, scores are
        not on 0-100, or a choice set has a single product.
        """
        release.require(*_TABLES)
        people = release["personas"].polars(["persona_id", *_STATED, "description"])
        shown = release["choice_set_items"].polars().sort("category_id", "position")
        items = shown["item_id"].unique(maintain_order=True)
        scores = _scores(release["preference_scores"], people["persona_id"], items, release.ref)
        rated = ~np.isnan(scores)
        rows, scored = np.flatnonzero(rated.any(axis=1)), np.asarray(rated.any(axis=0))
        products, vectors = _products(release, items)
        facets = _facets(release["facets"].polars(), shown)
        names = release["categories"].polars(["category_id", "name", "path"])
        titles = {row[0]: row[1:] for row in names.iter_rows()}
        place = {item: number for number, item in enumerate(items.to_list())}
        sets, unscored = [], 0
        for (category,), part in shown.group_by("category_id", maintain_order=True):
            at = np.array([place[item] for item in part["item_id"].to_list()])
            if not scored[at].any():
                unscored += 1
                continue
            name, path = titles[str(category)]
            sets.append(
                ChoiceSet(
                    category_id=str(category),
                    name=name,
                    path=path,
                    item_ids=tuple(part["item_id"].to_list()),
                    titles=tuple(products["title"].gather(at)),
                    texts=tuple(products["text"].gather(at)),
                    price=products["price"].to_numpy()[at],
                    rating=products["rating"].to_numpy()[at],
                    vectors=vectors[at],
                    facets=facets.get(str(category), ()),
                    y=scores[np.ix_(rows, at)],
                    seen=part["split"][0] == "train",
                )
            )
        people = people[rows.tolist()]
        ids = people["persona_id"].to_list()
        stated = people.select(_STATED).iter_rows(named=True)
        return cls(
            sets=tuple(sets),
            persona_ids=tuple(ids),
            descriptions=tuple(people["description"].to_list()),
            attributes=tuple(
                {k: str(v) for k, v in row.items() if v is not None} for row in stated
            ),
            splits=np.array([SPLITS.index(s) for s in persona_splits(ids)], np.int8),
            raters=_raters(release),
            reference=release.ref,
            release=release,
            metadata={
                "sets_without_scores": unscored,
                "personas_without_scores": int((~rated.any(axis=1)).sum()),
            },
        )

    @cached_property
    def identity(self) -> dict[str, Any]:
        """Release and a hash of the contents that decide dialogues, as JSON values."""
        digest = hashlib.blake2b(digest_size=16)
        for text in (*self.persona_ids, *self.descriptions, *map(repr, self.attributes)):
            digest.update(text.encode() + b"\0")
        digest.update(self.splits.tobytes())
        for s in self.sets:
            fields = (s.category_id, s.name, s.path, s.seen, s.item_ids, s.titles, s.texts)
            digest.update(repr(fields).encode())
            for facet in s.facets:
                digest.update(repr((facet.facet_id, facet.question, facet.values)).encode())
                digest.update(facet.of.tobytes())
            for values in (s.price, s.rating, s.vectors, s.y):
                digest.update(np.ascontiguousarray(values).tobytes())
        return {"release": self.reference, "contents": digest.hexdigest()}

    @cached_property
    def set_hashes(self) -> U64:
        """Hash of each category's id, of shape (sets,)."""
        return hash_ids(s.category_id for s in self.sets)

    @cached_property
    def persona_hashes(self) -> U64:
        """Hash of each persona's id, of shape (personas,)."""
        return hash_ids(self.persona_ids)

    @cached_property
    def scored(self) -> npt.NDArray[np.bool_]:
        """True for a persona with every score of a set, of shape (personas, sets)."""
        return np.stack([~np.isnan(s.y).any(axis=1) for s in self.sets], axis=1)

    @cached_property
    def best(self) -> Floats:
        """Best score of a persona in a set, -1 unless `scored`; of shape (personas, sets)."""
        best = np.stack([np.nan_to_num(s.y, nan=-1.0).max(axis=1) for s in self.sets], axis=1)
        return np.where(self.scored, best, -1.0).astype(np.float32)

    def disclosed(self) -> DialogueWorld:
        """The world as agents may read it: scores of train personas in seen categories only.

        Other personas are left out, and scores of unseen categories are NaN. ReleaseError if there
        is no train persona.
        """
        train = np.flatnonzero(self.splits == SPLITS.index("train"))
        if not len(train):
            raise ReleaseError(
                f"none of {len(self.persona_ids)} personas with scores is of the split train",
                where=self.reference or "world",
                hint="score more personas",
            )
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
            release=None,
        )

    def tables(self, names: Iterable[str]) -> dict[str, Any]:
        """Tables for raters: of the release, else as far as the world's arrays hold them.

        ``items`` and ``personas`` are given in any case, personas in the world's order; others
        where there are any.
        """
        needed = {"items", "personas", *names}
        if self.release is None:
            frames = self._frames()
            return {name: frames[name] for name in sorted(needed & frames.keys())}
        tables = {name: self.release[name].polars() for name in sorted(needed & set(self.release))}
        ids = pl.DataFrame({"persona_id": self.persona_ids})
        tables["personas"] = ids.join(
            tables["personas"], on="persona_id", how="left", maintain_order="left"
        )
        return tables

    def _frames(self) -> dict[str, pl.DataFrame]:
        """The arrays as tables: `items`, `personas`, `choice_set_items`, `facets`."""
        shown = [(s.category_id, i, n) for s in self.sets for n, i in enumerate(s.item_ids)]
        items = pl.DataFrame(
            {
                "item_id": [i for s in self.sets for i in s.item_ids],
                "title": [t for s in self.sets for t in s.titles],
                "description": [t for s in self.sets for t in s.texts],
                "price": np.concatenate([s.price for s in self.sets]),
                "average_rating": np.concatenate([s.rating for s in self.sets]),
            }
        )
        people = {"persona_id": self.persona_ids, "description": self.descriptions}
        stated = [
            (s.category_id, f.kind, f.kind, f.values[value], s.item_ids[n])
            for s in self.sets
            for f in s.facets
            for n, value in enumerate(f.of.tolist())
            if value >= 0
        ]
        return {
            "items": items.fill_nan(None).unique("item_id", maintain_order=True),
            "personas": pl.DataFrame(people),
            "choice_set_items": pl.DataFrame(
                shown, schema=["category_id", "item_id", "position"], orient="row"
            ),
            "facets": pl.DataFrame(
                stated,
                schema=dict.fromkeys(
                    ("category_id", "facet_id", "kind", "value", "item_id"), pl.String
                ),
                orient="row",
            ),
        }


#: Tables that a world is made of.
_TABLES = (
    *("choice_set_items", "categories", "products", "facets", "item_embeddings"),
    *("personas", "preference_scores"),
)
#: Attributes that questions about the person are answered from.
_STATED = ("age", "gender", "job", "hobby")
_SCALE = "0-100"
#: Scores that are read at once (count).
_ROWS = 250_000


def _scores(table: Table, people: pl.Series, items: pl.Series, where: str) -> Floats:
    """Expected scores of shape (personas, products); NaN where there is none."""
    scores = np.full((len(people), len(items)), np.nan, np.float32)
    rows = pl.DataFrame({"persona_id": people}).with_row_index("row").lazy()
    columns = pl.DataFrame({"item_id": items}).with_row_index("column").lazy()
    selected = table.lazy().select("persona_id", "item_id", "scale", "expected")
    for part in selected.collect_batches(chunk_size=_ROWS):
        others = sorted(set(part["scale"].unique()) - {_SCALE})
        if others:
            raise ReleaseError(
                f"scores are on {', '.join(others)}, not on {_SCALE}",
                where=f"{where}, table {table.name}",
                hint=f"score the choice sets again with product_scoring.scale={_SCALE}",
            )
        cells = (
            part.lazy()
            .join(rows, on="persona_id")
            .join(columns, on="item_id")
            .select("row", "column", pl.col("expected").cast(pl.Float32))
            .collect()
        )
        scores[cells["row"].to_numpy(), cells["column"].to_numpy()] = cells["expected"].to_numpy()
    return scores


def _products(release: Release, items: pl.Series) -> tuple[pl.DataFrame, Floats]:
    """Title, text, price and rating of products in the order of `items`, and their vectors."""
    columns = ("item_id", "title", "brand", "description", "features", "price", "average_rating")
    products = pl.DataFrame({"item_id": items})
    for table in (
        release["products"].polars(columns),
        release["item_embeddings"].polars(["item_id", "vector"]),
    ):
        products = products.join(table, "item_id", "left", maintain_order="left")
    text = pl.concat_str(
        "title", "brand", pl.col("features").list.join(". "), "description",
        separator=". ", ignore_nulls=True,
    )  # fmt: skip
    vectors = products["vector"].to_list()
    width = max((len(v) for v in vectors if v is not None), default=0)
    return products.select(
        pl.col("title").fill_null("a product"),
        text=text,
        price=pl.col("price").cast(pl.Float32),
        rating=pl.col("average_rating").cast(pl.Float32),
    ), np.array([v or [0.0] * width for v in vectors], np.float32).reshape(len(items), width)


def _facets(table: pl.DataFrame, shown: pl.DataFrame) -> dict[str, tuple[Facet, ...]]:
    """Facets of each choice set, in the order of their ids."""
    keys = ["category_id", "facet_id"]
    of_set = shown.group_by("category_id").agg(products=pl.len())
    placed = table.join(
        shown.select("category_id", "item_id", "position"), on=["category_id", "item_id"]
    ).join(of_set, on="category_id")
    by_category: dict[str, list[Facet]] = {}
    for (category, facet), part in placed.sort(*keys).group_by(keys, maintain_order=True):
        values = _ordered(part["value"].unique().to_list())
        number = {value: n for n, value in enumerate(values)}
        of = np.full(part["products"][0], -1, np.int8)
        of[part["position"].to_numpy()] = [number[value] for value in part["value"]]
        name = str(facet)
        choice_facet = Facet(name, name, part["question"][0], tuple(values), of)
        by_category.setdefault(str(category), []).append(choice_facet)
    return {category: tuple(facets) for category, facets in by_category.items()}


def _ordered(values: Sequence[str]) -> list[str]:
    """Values of a facet: of prices and words in their own order, of others by name."""
    for vocabulary in (PRICE_VALUES, WORD_VALUES):
        if set(values) <= set(vocabulary):
            return [value for value in vocabulary if value in values]
    return sorted(values)


def _raters(release: Release) -> tuple[str, ...]:
    """Names of the raters behind the scores: an ensemble's members, and models by name."""
    names = set(release["preference_scores"].polars(["rater"])["rater"].unique())
    scoring = release.settings.get("product_scoring", {})
    members = scoring.get("ensemble", ()) if "ensemble" in names else [{"rater": n} for n in names]
    for member in members:
        names.add(member["rater"])
        if member["rater"] in ("llm", "listwise"):
            engine = member.get("engine") or release.settings.get("engine", {})
            names.add(str(engine.get("model")))
    return tuple(sorted(names))
