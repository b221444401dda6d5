"""Raters of products in their choice sets, by facets, texts or words (BIEL, section 4).

Genres of products are levels of their categories, which all products of a set share. They differ
in their facets (``products.facets``) and their texts. The raters give a score in
points of 100, taken to the scale, with a normal distribution around it. A product in several sets
has the mean of its scores in each.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy import sparse
from scipy.special import ndtr, ndtri

from pipelines.errors import ContractError
from pipelines.raters.protocol import OK, Floats, Ints, RatingBatch, TableRater
from pipelines.scales import RatingScale
from pipelines.seeding import combine, hash_ids, uniform

#: Standard deviation of each distribution (points of 100): that of a model's scores over three
#: replicates is 4.1 (BIEL, section 4).
SPREAD = 4.0
#: Score of a product that meets no taste (points of 100).
_MIDDLE = 50.0
#: Standard deviation of the weight of a facet's value that a persona does not state; stated ones
#: weigh 1 and -1 (set by hand).
_UNSTATED = 0.25
#: Weights of facets by kind; of others 1 (set by hand: a word is weaker than a material).
_KINDS = {"word": 0.5}
#: Points of 100 per weight, of a set whose facets divide it by `ChoiceSets.division` (set by
#: hand, with the next two: the mean of both raters spreads by 15 to 30 points within sets).
_FACET_GAIN = 90.0
#: Points of 100 per standard deviation of similarity: of a product within its set, and of a set
#: among all sets.
_WITHIN_GAIN, _BETWEEN_GAIN = 30.0, 10.0
#: Points of 100 per facet value that a description names, and values that the place by mean rating
#: counts as, from the worst to the best of a set (set by hand).
_NAMED_GAIN, _PLACE = 5.0, 2.0
#: Words of a price that name its third, which no vocabulary has.
_PRICES = {
    "low": ("cheap", "inexpensive", "budget", "bargain"),
    "high": ("expensive", "luxury", "designer"),
}
_SENTENCE = re.compile(r"(?<=[.;!?])\s+")
#: Words of sentences on what a persona does not like.
_AGAINST = re.compile(
    r"\b(bored|tired|no patience|dislikes?|avoids?|hates?|refuses?|can't|cannot|never|"
    r"little use|no use|wary|leaves? \w+ cold|not for|put off|annoys?|last thing|"
    r"(steers?|stays?) (clear|away)|skips?|give up|(do|does) without|"
    r"and failed|hard to please)\b",
    re.IGNORECASE,
)
#: Personas whose scores are computed at once (count).
_BLOCK = 32
_NO_SET = "the product is in no choice set"
_NO_VECTOR = "the persona has no vector"


def around(score: npt.ArrayLike, scale: RatingScale, spread: float = SPREAD) -> Floats:
    """Normal distributions over a scale's answers, of shape (scores, answers).

    ``score`` are means in points of 100, clipped to 0-100; NaN gives NaN. ``spread`` is the
    standard deviation, in points of 100. What lies beyond an end of the scale is the end's.

    Examples
    --------
    >>> from pipelines.scales import SCALES
    >>> around([50.0], SCALES["1-5"], 25.0).round(2).tolist()
    [[0.07, 0.24, 0.38, 0.24, 0.07]]
    """
    score = np.clip(np.asarray(score, np.float64), 0.0, 100.0)
    points = 100.0 * (scale.answers - scale.low) / (scale.high - scale.low)
    edges = (points[:-1] + points[1:]) / 2
    below = ndtr((edges - score[:, None]) / spread)
    # A score of NaN is NaN at the ends, too.
    return np.asarray(np.diff(below, axis=1, prepend=0.0, append=1.0) + 0.0 * score[:, None])


@dataclass(frozen=True)
class ChoiceSets:
    """Choice sets as a matrix."""

    #: Products in a set, ascending.
    items: pl.Series
    #: Sets, ascending.
    categories: pl.Series
    #: Membership of shape (products, sets): 1 where a product is in a set.
    of: sparse.csr_array

    @classmethod
    def read(cls, choice_set_items: pl.DataFrame) -> ChoiceSets:
        """From rows ``category_id, item_id``; ContractError if there is none."""
        if not choice_set_items.height:
            raise ContractError("there is no choice set", where="products.choice_set_items")
        items = choice_set_items["item_id"].unique().sort()
        categories = choice_set_items["category_id"].unique().sort()
        rows = positions(choice_set_items["item_id"], items)
        columns = positions(choice_set_items["category_id"], categories)
        shape = (len(items), len(categories))
        return cls(
            items, categories, sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape)
        )

    def values_of(self, facets: pl.DataFrame) -> pl.DataFrame:
        """Facets of the sets' products, with the ``key`` ``facet_id:value`` of each."""
        return facets.with_columns(key=pl.format("{}:{}", "facet_id", "value")).filter(
            pl.col("item_id").is_in(self.items.implode())
            & pl.col("category_id").is_in(self.categories.implode())
        )

    @cached_property
    def sizes(self) -> Floats:
        """Products of each set (count), of shape (sets,)."""
        return np.asarray(self.of.sum(axis=0)).ravel()

    @cached_property
    def shares(self) -> sparse.csr_array:
        """Rows of `of`, each divided by its sum."""
        return sparse.csr_array(self.of / np.asarray(self.of.sum(axis=1)).reshape(-1, 1))


def positions(values: pl.Series, among: pl.Series) -> Ints:
    """Place of each value among distinct ones, -1 where it is not there, of shape (values,)."""
    place = pl.DataFrame({"value": among}).with_row_index("place")
    joined = pl.DataFrame({"value": values}).join(
        place, on="value", how="left", maintain_order="left"
    )
    return joined["place"].cast(pl.Int64).fill_null(-1).to_numpy()


class _ProductRater(TableRater):
    """Base of the raters: scores of the pairs that have one, as distributions."""

    language_model = False
    _missing = _NO_SET

    def __init__(self, choice_set_items: pl.DataFrame, scale: RatingScale) -> None:
        self._sets, self.scale = ChoiceSets.read(choice_set_items), scale

    def rate_pairs(
        self, personas: pl.DataFrame, items: pl.DataFrame, past: pl.DataFrame | None, pairs: Ints
    ) -> RatingBatch:
        """Distributions around the scores; `invalid`, with a note, for a product in no set."""
        del past
        who, what = pairs.T
        products, place = np.unique(what, return_inverse=True)
        column = positions(items["item_id"].gather(products), self._sets.items)
        score = np.full(len(who), np.nan)
        order = np.argsort(who, kind="stable")
        people, first = np.unique(who[order], return_index=True)
        first = np.append(first, len(order))
        in_sets = np.flatnonzero(column >= 0)
        dense = np.full(len(products), -1)
        dense[in_sets] = np.arange(len(in_sets))
        for start in range(0, len(people), _BLOCK):
            block = people[start : start + _BLOCK]
            rows = order[first[start] : first[start + len(block)]]
            rows = rows[column[place[rows]] >= 0]
            scores = self._scores(personas[block.tolist()], column[in_sets])
            score[rows] = scores[np.searchsorted(block, who[rows]), dense[place[rows]]]
        ok = np.isfinite(score)
        notes = [
            None if fine else (_NO_SET if lost else self._missing)
            for fine, lost in zip(ok.tolist(), (column[place] < 0).tolist(), strict=True)
        ]
        return RatingBatch(
            self.scale,
            around(score, self.scale),
            [OK if fine else "invalid" for fine in ok.tolist()],
            notes=None if ok.all() else notes,
        )

    def _described(self, fitted: dict[str, int], **by_hand: Any) -> dict[str, Any]:
        sets = {"choice_sets": len(self._sets.categories)}
        return self.described(sets | fitted, by_hand | {"spread": SPREAD})

    @abstractmethod
    def _scores(self, personas: pl.DataFrame, items: Ints) -> Floats:
        """Points of 100, of shape (personas, products of the sets); NaN for an unknown persona."""


class FacetRater(_ProductRater):
    """Adds up a persona's weights of a product's facet values (part-worths of conjoint analysis).

    A value that the persona likes weighs 1, one that it dislikes -1; entries of ``likes`` and
    ``dislikes`` are ``facet_id:value``, such as ``material:wood``. Weights of other values are
    normal draws fixed by persona, value and seed, as small as to decide between products that
    differ in no stated value. Weights of a set are divided by the root of its facets' variance
    (``_divisions``), so that sets with few facets spread as those with many. A product without a
    facet scores 50.
    """

    name = "facets"
    needs = ("choice_set_items", "facets")

    def __init__(
        self,
        choice_set_items: pl.DataFrame,
        facets: pl.DataFrame,
        scale: RatingScale,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(choice_set_items, scale)
        sets, self._seed = self._sets, seed
        facets = sets.values_of(facets)
        self._values = facets["key"].unique().sort()
        self._keys = hash_ids(self._values)
        category = positions(facets["category_id"], sets.categories)
        item = positions(facets["item_id"], sets.items)
        weight = facets["kind"].replace_strict(_KINDS, default=1.0, return_dtype=pl.Float64)
        root = np.sqrt(np.maximum(_divisions(facets, sets, category), 1e-12))
        times = np.asarray(sets.of.sum(axis=1)).ravel()
        entry = weight.to_numpy() / (root[category] * times[item])
        shape = (len(sets.items), len(self._values))
        self._worth = sparse.csr_array(
            (entry, (item, positions(facets["key"], self._values))), shape
        )

    def metadata(self) -> dict[str, Any]:
        """Counts of what was read and the constants set by hand."""
        return self._described(
            {"products": len(self._sets.items), "facet_values": len(self._values)},
            unstated_weight=_UNSTATED,
            kind_weights=_KINDS,
            points_per_weight=_FACET_GAIN,
        )

    def _scores(self, personas: pl.DataFrame, items: Ints) -> Floats:
        worth = self._worth[items]
        used = np.unique(worth.indices)
        draw = uniform(
            combine(self._seed, hash_ids(personas["persona_id"]))[:, None], self._keys[used]
        )
        # Half a step up: a draw of exactly 0 would be infinitely far out.
        weights = _UNSTATED * ndtri(draw + 2.0**-54)
        for column, sign in (("likes", 1.0), ("dislikes", -1.0)):
            stated = personas.select(pl.col(column)).with_row_index("row").explode(column)
            place = positions(stated[column], self._values[used.tolist()])
            matched = place >= 0
            weights[stated["row"].to_numpy()[matched], place[matched]] = sign
        return np.asarray(_MIDDLE + _FACET_GAIN * (worth[:, used] @ weights.T).T)


def _divisions(facets: pl.DataFrame, sets: ChoiceSets, category: Ints) -> Floats:
    """Variance of a sum of facets' weights within each set, if every value's has variance 1.

    That is the sum over facets of their weight squared times sum_v p_v (1 - p_v), with p_v the
    share of the set's products that have value v; of shape (sets,).
    """
    counted = (
        facets.with_columns(category=pl.Series(category))
        .group_by("category", "facet_id", "value")
        .agg(products=pl.len(), kind=pl.col("kind").first())
        .sort("category", "facet_id", "value")
    )
    of = counted["category"].to_numpy()
    share = counted["products"].to_numpy() / sets.sizes[of]
    weight = counted["kind"].replace_strict(_KINDS, default=1.0, return_dtype=pl.Float64)
    size = len(sets.categories)
    variance = weight.to_numpy() ** 2 * share * (1 - share)
    return np.asarray(np.bincount(of, variance, minlength=size), np.float64)


class TextRater(_ProductRater):
    """Scores the similarity of a persona's text and a product's.

    Cosines of one shelf's products with one text hardly differ, so each is read in standard
    deviations of the persona's similarity with all products of the set; the set's mean similarity,
    in standard deviations over all sets, moves all its products. A product without a vector has its
    set's mean; a persona without one is `invalid`, with a note.
    """

    name = "text"
    needs = ("choice_set_items", "item_embeddings", "persona_embeddings")
    _missing = _NO_VECTOR

    def __init__(
        self,
        choice_set_items: pl.DataFrame,
        item_embeddings: pl.DataFrame,
        persona_embeddings: pl.DataFrame,
        scale: RatingScale,
    ) -> None:
        super().__init__(choice_set_items, scale)
        sets = self._sets
        people = _matrix(persona_embeddings["vector"])
        place = positions(sets.items, item_embeddings["item_id"])
        self._known = place >= 0
        vectors = _matrix(item_embeddings["vector"].gather(place[self._known]))
        if len(people) and len(vectors) and vectors.shape[1] != people.shape[1]:
            raise ContractError(
                f"vectors of {people.shape[1]} and {vectors.shape[1]} numbers can't be compared",
                where="persona_embeddings, item_embeddings",
                hint="build both with the same embedding.model",
            )
        self._vectors = np.zeros((len(sets.items), people.shape[1]), np.float32)
        if len(people):
            self._vectors[self._known] = vectors
        self._compare(persona_embeddings["persona_id"], people)

    def for_personas(self, persona_embeddings: pl.DataFrame) -> TextRater:
        """The same products with the vectors of other personas."""
        rater = copy(self)
        rater._compare(persona_embeddings["persona_id"], _matrix(persona_embeddings["vector"]))
        return rater

    def _compare(self, ids: pl.Series, people: npt.NDArray[np.float32]) -> None:
        """Take the vectors of personas, and their similarities with each choice set."""
        sets = self._sets
        self._people, self._persona_vectors = ids, people
        of = sparse.csr_array(sets.of.multiply(self._known[:, None]))
        count = np.maximum(np.asarray(of.sum(axis=0)).ravel(), 1.0)
        size = (len(people), len(sets.categories))
        self._mean, self._deviation = np.empty(size), np.empty(size)
        item_vectors = self._vectors.astype(np.float64)
        for start in range(0, len(people), _BLOCK):
            block = slice(start, start + _BLOCK)
            cosine = people[block].astype(np.float64) @ item_vectors.T
            mean = (of.T @ cosine.T).T / count
            square = (of.T @ (cosine**2).T).T / count
            self._mean[block] = mean
            self._deviation[block] = np.sqrt(np.maximum(square - mean**2, 0.0))
        self._level = self._mean - self._mean.mean(axis=1, keepdims=True)
        self._level /= np.maximum(self._level.std(axis=1, keepdims=True), 1e-6)

    def metadata(self) -> dict[str, Any]:
        """Counts of what was read and the constants set by hand."""
        return self._described(
            {
                "products_with_vector": int(self._known.sum()),
                "personas_with_vector": len(self._people),
            },
            points_per_deviation={"in_set": _WITHIN_GAIN, "of_set": _BETWEEN_GAIN},
        )

    def _scores(self, personas: pl.DataFrame, items: Ints) -> Floats:
        place = positions(personas["persona_id"], self._people)
        has_vector = place >= 0
        out = np.full((personas.height, len(items)), np.nan)
        row = place[has_vector]
        # In double precision: deviations of cosines are small, and a score is a pair's alone.
        cosine = self._persona_vectors[row].astype(np.float64) @ self._vectors[items].T
        shares = self._sets.shares[items]
        # A set whose products are all alike to a persona carries no information on them.
        inverse = 1.0 / np.where(self._deviation[row] > 1e-6, self._deviation[row], np.inf)
        within = cosine * (shares @ inverse.T).T - (shares @ (inverse * self._mean[row]).T).T
        within[:, ~self._known[items]] = 0.0
        between = (shares @ self._level[row].T).T
        out[has_vector] = _MIDDLE + _WITHIN_GAIN * within + _BETWEEN_GAIN * between
        return out


class WordsRater(_ProductRater):
    """Counts facet values that a description names, and adds the place by mean rating.

    It reads the description alone, sentence by sentence: a value of which one of its words stands
    in a sentence counts for a product, or against it where the sentence is one of dislike. Best and
    worst mean rating (``average_rating`` of ``items``) of a set are as far apart as two values;
    products without a rating come last. ``position`` of ``choice_set_items``, if there, is the
    order on the shelf.
    """

    name = "words"
    needs = ("choice_set_items", "facets")

    def __init__(
        self,
        choice_set_items: pl.DataFrame,
        facets: pl.DataFrame,
        items: pl.DataFrame,
        scale: RatingScale,
    ) -> None:
        # Environments rate without the packages that match products to a tree.
        from pipelines.products import content_words, vocabularies

        super().__init__(choice_set_items, scale)
        sets = self._sets
        self._words = content_words
        facets = sets.values_of(facets)
        values = facets.select("key", "facet_id", "value").unique("key").sort("key")
        item = positions(facets["item_id"], sets.items)
        times = np.asarray(sets.of.sum(axis=1)).ravel()
        shape = (len(sets.items), values.height)
        self._worth = sparse.csr_array(
            (1.0 / times[item], (item, positions(facets["key"], values["key"]))), shape
        )
        self._named: dict[str, list[int]] = {}
        vocabulary = vocabularies()
        for n, (facet, value) in enumerate(values.select("facet_id", "value").iter_rows()):
            words = vocabulary[facet].values.get(value, ()) if facet in vocabulary else ()
            prices = _PRICES.get(value, ()) if facet == "price" else ()
            for word in content_words(" ".join((value, *words, *prices))) - {"yes", "no"}:
                self._named.setdefault(word, []).append(n)
        rating = items.select("item_id", "average_rating").unique("item_id")
        columns = [c for c in ("position", "item_id") if c in choice_set_items.columns]
        placed = (
            choice_set_items.join(rating, on="item_id", how="left")
            .with_columns(pl.col("average_rating").fill_nan(None))
            .sort("category_id", "average_rating", *columns, nulls_last=False)
            .with_columns(
                place=pl.int_range(pl.len()).over("category_id"), of=pl.len().over("category_id")
            )
            .group_by("item_id")
            .agg((pl.col("place") / (pl.col("of") - 1).clip(1)).mean())
        )
        self._place = np.zeros(len(sets.items))
        self._place[positions(placed["item_id"], sets.items)] = placed["place"].to_numpy()

    def metadata(self) -> dict[str, Any]:
        """Counts of what was read and the constants set by hand."""
        return self._described(
            {"products": len(self._sets.items), "facet_values": self._worth.shape[1]},
            points_per_value=_NAMED_GAIN,
            place=_PLACE,
        )

    def _scores(self, personas: pl.DataFrame, items: Ints) -> Floats:
        weights = np.zeros((personas.height, self._worth.shape[1]))
        for row, text in enumerate(personas["description"].to_list()):
            for sentence in _SENTENCE.split(text or ""):
                named = {n for w in self._words(sentence) for n in self._named.get(w, ())}
                weights[row, list(named)] += -1.0 if _AGAINST.search(sentence) else 1.0
        worth = (self._worth[items] @ np.sign(weights).T).T + _PLACE * self._place[items]
        return np.asarray(_MIDDLE + _NAMED_GAIN * worth)


def _matrix(vectors: pl.Series) -> npt.NDArray[np.float32]:
    """Vectors of shape (n, dimension)."""
    if not len(vectors):
        return np.zeros((0, 0), np.float32)
    width = len(vectors[0])
    return vectors.explode().to_numpy().astype(np.float32).reshape(-1, width)
