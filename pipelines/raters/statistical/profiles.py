"""The two sides of a pair as matrices: a catalogue of items, profiles of personas or people."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import polars as pl
from scipy.sparse import csr_matrix

from pipelines.errors import ContractError
from pipelines.raters.protocol import Floats, Ints
from pipelines.raters.statistical.tastes import Basis, PersonaTastes, Tastes
from pipelines.scales import SCALES, RatingScale
from pipelines.seeding import hash_ids

Singles: TypeAlias = npt.NDArray[np.float32]

_Real = TypeVar("_Real", Singles, Floats)

#: Parts of a rating, in the order of the feature columns and weights.
EFFECTS = ("quality", "leniency", "agreement", "conflict", "similarity", "history", "word", "taste")
#: Standardised similarity beyond this is cut (set by hand).
_MOST_SIMILAR = 4.0
#: All pairs of the rows at hand are computed if that is at most this many times the pairs
#: wanted: a matrix product is that much cheaper per pair than gathering vectors.
_DENSE_FACTOR = 8


@dataclass(frozen=True)
class Catalogue:
    """Items."""

    #: Row of each item id.
    index: dict[str, int]
    #: Genre names, the columns of `shares`.
    genres: tuple[str, ...]
    #: Shape (items, genres): 1 / (number of the item's genres) for each it has, else 0.
    shares: Singles
    #: Relative to the mean rating, in the source's rating units; 0 until :meth:`judged`.
    quality: Floats
    #: Unit vectors of shape (items, dimension); a row of zeros where there is none.
    vectors: Singles
    #: Whether each item has a vector, of shape (items,).
    embedded: npt.NDArray[np.bool_]
    #: Mean (dimension,) and covariance (dimension, dimension) of the vectors.
    centre: Singles
    spread: Singles
    #: Basis of taste, and its features of the items, of shape (items, features).
    basis: Basis
    features: Floats
    #: Columns that a person's weights belong to: 1, the features, the quality.
    taste: Floats

    @classmethod
    def build(
        cls, items: pl.DataFrame, counts: Floats, embeddings: pl.DataFrame | None
    ) -> Catalogue:
        """A catalogue of the rows of `items` with these training ratings each (counts)."""
        genres = items["genres"].explode().drop_nulls().unique().sort().to_list()
        vectors = vector_matrix(items["item_id"], embeddings, "item_id")
        listed = genre_matrix(items["genres"], genres)
        embedded = np.asarray(vectors.any(axis=1))
        nonzero = vectors[embedded]
        centre = nonzero.mean(axis=0) if len(nonzero) else np.zeros(vectors.shape[1], np.float32)
        off = nonzero - centre
        spread = off.T @ off / max(len(nonzero), 1)
        ids = items["item_id"].to_list()
        basis = Basis.fit(items, listed, vectors, counts)
        return cls(
            {item: row for row, item in enumerate(ids)},
            tuple(genres),
            _shares(listed),
            np.zeros(len(ids)),
            vectors,
            embedded,
            centre.astype(np.float32),
            spread.astype(np.float32),
            basis,
            basis.of(items, listed, vectors, counts),
            np.zeros((len(ids), 0)),
        ).judged(np.zeros(len(ids)))

    @property
    def taste_groups(self) -> tuple[Ints, ...]:
        """Columns of `taste` by kind: genres, text components, year, popularity, quality."""
        genres, size = len(self.genres) + 1, self.taste.shape[1]
        groups = [np.arange(1, genres), np.arange(genres, size - 3)]
        return tuple(g for g in (*groups, *np.arange(size - 3, size)[:, None]) if len(g))

    def judged(self, quality: Floats) -> Catalogue:
        """The same items with these qualities."""
        return replace(
            self,
            quality=quality,
            taste=np.column_stack([np.ones(len(quality)), self.features, quality]),
        )

    def unrated(self, items: pl.DataFrame) -> tuple[Singles, Floats]:
        """Genre shares and features of items outside the catalogue: they have no ratings."""
        listed = genre_matrix(items["genres"], self.genres)
        blank = np.zeros((items.height, self.vectors.shape[1]), dtype=np.float32)
        return _shares(listed), self.basis.of(items, listed, blank, np.zeros(items.height))

    def with_average(self) -> Catalogue:
        """The catalogue with one more row at its end: an item of which nothing is known."""
        shares = np.zeros((1, len(self.genres)), dtype=np.float32)
        return self.joined(shares, np.zeros((1, self.features.shape[1])), np.zeros(1))

    def joined(self, shares: Singles, features: Floats, quality: Floats) -> Catalogue:
        """The catalogue with more rows at its end, which the index does not know."""
        blank = np.zeros((len(shares), self.vectors.shape[1]), dtype=np.float32)
        more = replace(
            self,
            shares=np.concatenate([self.shares, shares]),
            vectors=np.concatenate([self.vectors, blank]),
            embedded=np.concatenate([self.embedded, np.zeros(len(shares), dtype=np.bool_)]),
            features=np.concatenate([self.features, features]),
        )
        return more.judged(np.concatenate([self.quality, quality]))


@dataclass(frozen=True)
class StatedMarks:
    """Statements of raters about their marks."""

    #: Genres with stated good (bad) marks, of shape (n, genres), 0 or 1.
    praised: Singles
    panned: Singles
    #: Their addition to the location, in logits, of shape (n, 4): for items with a praised genre,
    #: with a panned one, with neither, and for all without a more definite statement. 0 without
    #: any.
    shifts: Floats

    def of(self, person: Ints, praised: Singles | Floats, panned: Singles | Floats) -> Floats:
        """Shifts of pairs, given which of their items have a praised or panned genre."""
        of_genre = np.where(
            praised > 0,
            self.shifts[person, 0],
            np.where(panned > 0, self.shifts[person, 1], self.shifts[person, 2]),
        )
        return np.asarray(np.where(of_genre != 0, of_genre, self.shifts[person, 3]), np.float64)


@dataclass(frozen=True)
class Profiles:
    """People and personas who rate."""

    #: Rating units above (below) what others would give, of shape (n,).
    leniency: Floats
    #: Shape (n, genres), 0 or 1.
    likes: Singles
    dislikes: Singles
    #: Unit taste vectors of shape (n, dimension); zeros where unknown.
    vectors: Singles
    #: Rating units per unit of the catalogue's `taste` columns that a rating history taught, of
    #: shape (n, columns); zeros without one. The first column is 0: it is in `leniency`.
    tastes: Floats
    #: Unknown part of each one's surplus over a typical item, in squared rating units, of shape
    #: (n,).
    variance: Floats
    #: Statements about marks; None if there are none.
    marks: StatedMarks | None = None
    #: Posterior of taste given likes and dislikes, and the draw from it; None where `likes` and
    #: `dislikes` enter as shares of the item's genres.
    stated: PersonaTastes | None = None

    @property
    def persona(self) -> PersonaTastes:
        """Tastes of personas, which all profiles but people's stand-ins have."""
        assert self.stated is not None
        return self.stated

    def standard(self, catalogue: Catalogue) -> tuple[Singles, Singles]:
        """Mean and spread of each profile's similarity over the catalogue, each (n,)."""
        mean = self.vectors @ catalogue.centre
        variance = np.einsum("ij,ij->i", self.vectors @ catalogue.spread, self.vectors)
        return mean, np.sqrt(np.maximum(variance, 0.0))


def _shares(listed: Singles) -> Singles:
    total = np.maximum(listed.sum(axis=1, keepdims=True), 1)
    return np.asarray(listed / total, dtype=np.float32)


def genre_matrix(lists: pl.Series, genres: Sequence[str]) -> Singles:
    """Shape (rows, genres), 1 where the row's list has the genre; other genres are ignored."""
    out = np.zeros((len(lists), len(genres)), dtype=np.float32)
    long = (
        pl.DataFrame({"row": np.arange(len(lists)), "genre": lists})
        .explode("genre")
        .join(
            pl.DataFrame(
                {"genre": list(genres), "column": np.arange(len(genres))},
                schema={"genre": pl.String, "column": pl.Int64},
            ),
            on="genre",
            how="inner",
        )
    )
    out[long["row"].to_numpy(), long["column"].to_numpy()] = 1.0
    return out


def vector_matrix(ids: pl.Series, embeddings: pl.DataFrame | None, key: str) -> Singles:
    """Vectors in the order of `ids`, zeros where there is none; (rows, 0) without a table."""
    if embeddings is None or not embeddings.height:
        return np.zeros((len(ids), 0), dtype=np.float32)
    joined = (
        pl.DataFrame({key: ids})
        .with_row_index("row")
        .join(embeddings.select(key, "vector"), on=key, how="inner")
    )
    dimension = len(embeddings["vector"][0])
    out = np.zeros((len(ids), dimension), dtype=np.float32)
    values = joined["vector"].cast(pl.List(pl.Float32)).explode().to_numpy()
    out[joined["row"].to_numpy()] = values.reshape(joined.height, dimension)
    return out


def pair_features(profiles: Profiles, catalogue: Catalogue, pairs: Ints) -> Floats:
    """Features of each pair, shape (pairs, effects), in the order of `EFFECTS`.

    `agreement` and `conflict` are what liked and disliked genres tell of taste, in rating units;
    for stand-ins of people the shares of the item's genres that are liked and disliked
    (conflict enters negatively, so that every weight is at least 0). `taste` is the draw of a
    persona's taste, in rating units; `similarity` is the
    cosine of taste and item text, standardised over the catalogue for each profile; `history`
    is what ratings of similar items say, in rating units; `word` is from statements about marks,
    in logits.
    """
    person, item = pairs[:, 0], pairs[:, 1]
    out = np.empty((len(pairs), len(EFFECTS)))
    out[:, 0] = catalogue.quality[item]
    out[:, 1] = profiles.leniency[person]
    block = _Block.of(pairs)

    def felt(weights: Floats) -> Floats | float:
        return block.products(weights, catalogue.taste) if weights.any() else 0.0

    if profiles.stated is None:
        out[:, 2] = block.products(profiles.likes, catalogue.shares)
        out[:, 3] = -block.products(profiles.dislikes, catalogue.shares)
        out[:, 7] = 0.0
    else:
        out[:, 2] = felt(profiles.stated.liked)
        out[:, 3] = felt(profiles.stated.disliked)
        out[:, 7] = felt(profiles.stated.drawn)
    out[:, 5] = felt(profiles.tastes)
    out[:, 6] = 0.0
    if profiles.marks is not None:
        out[:, 6] = profiles.marks.of(
            person,
            block.products(profiles.marks.praised, catalogue.shares),
            block.products(profiles.marks.panned, catalogue.shares),
        )
    if not profiles.vectors.shape[1] or not catalogue.vectors.shape[1]:
        out[:, 4] = 0.0
        return out
    mean, spread = profiles.standard(catalogue)
    cosine = block.products(profiles.vectors, catalogue.vectors)
    comparable = (spread[person] > 1e-6) & catalogue.embedded[item]
    standard = (cosine - mean[person]) / np.where(comparable, spread[person], 1.0)
    out[:, 4] = np.where(comparable, np.clip(standard, -_MOST_SIMILAR, _MOST_SIMILAR), 0.0)
    return out


@dataclass(frozen=True)
class _Block:
    """Pairs, with the distinct rows on either side and each pair's place among them."""

    pairs: Ints
    people: Ints
    person: Ints
    things: Ints
    thing: Ints

    @classmethod
    def of(cls, pairs: Ints) -> _Block:
        people, person = np.unique(pairs[:, 0], return_inverse=True)
        things, thing = np.unique(pairs[:, 1], return_inverse=True)
        return cls(pairs, people, person, things, thing)

    def products(self, left: _Real, right: _Real) -> _Real:
        """Inner products of the two rows of each pair, of shape (pairs,)."""
        if len(self.people) * len(self.things) <= _DENSE_FACTOR * len(self.pairs):
            dense = _rows_of(left, self.people) @ _rows_of(right, self.things).T
            return dense[self.person, self.thing]
        out = np.empty(len(self.pairs), dtype=left.dtype)
        for start in range(0, len(self.pairs), 32_768):
            part = self.pairs[start : start + 32_768]
            out[start : start + len(part)] = np.einsum(
                "ij,ij->i", left[part[:, 0]], right[part[:, 1]]
            )
        return out


def _rows_of(matrix: _Real, rows: Ints) -> _Real:
    # Distinct sorted rows as many as the matrix has are all of it: no copy.
    return matrix if len(rows) == len(matrix) else matrix[rows]


#: Shrunken mean surplus (rating units) from which a genre counts as liked or disliked, and
#: the pseudo-ratings of surplus 0 that it is shrunk with (both set by hand).
GENRE_THRESHOLD = 0.1
GENRE_STRENGTH = 4.0


@dataclass(frozen=True)
class HumanRows:
    """Ratings of some users, sorted by user and time.

    ``user`` and ``item`` are rows in `users` (their ids) and in the catalogue, of shape (ratings,);
    ``rating`` is on the source's scale.
    """

    users: list[str]
    user: Ints
    item: Ints
    rating: Floats

    def __len__(self) -> int:
        return len(self.rating)

    def take(self, mask: np.ndarray) -> HumanRows:
        """The rows of the mask, with all users kept."""
        return HumanRows(self.users, self.user[mask], self.item[mask], self.rating[mask])

    def earlier(self, share: float) -> npt.NDArray[np.bool_]:
        """Mask of this share of each user's ratings, the earliest, of shape (ratings,)."""
        count = np.bincount(self.user, minlength=len(self.users))
        first = np.cumsum(count) - count
        place = np.arange(len(self)) - first[self.user]
        return np.asarray(place < np.ceil(share * count[self.user]))


def source_scale(interactions: pl.DataFrame | pl.LazyFrame) -> RatingScale:
    """The one known scale that the interactions are on; ContractError if there is no such one."""
    names = interactions.lazy().select(pl.col("scale").unique().sort()).collect()["scale"].to_list()
    if len(names) != 1 or names[0] not in SCALES:
        raise ContractError("interactions must be on one known scale", where=f"scale: {names}")
    return SCALES[names[0]]


def collect_rows(
    interactions: pl.DataFrame | pl.LazyFrame,
    splits: pl.DataFrame | pl.LazyFrame,
    split: str,
    catalogue: Catalogue,
    *,
    most: int | None = None,
    users: list[str] | None = None,
) -> HumanRows:
    """Ratings of one split, of all users or of as many as `most` rows allow.

    Whole users are then taken in the order of their ids' hashes, which is arbitrary and the same
    every time. ``users`` restricts them.
    """
    # Ids are hashed and rows picked on the splits alone: the wide table is read only for the
    # users that are needed, so that 25 million ratings don't have to be joined.
    part = splits.lazy().filter(pl.col("split") == split).select("user_id", "item_id")
    if users is not None:
        part = part.filter(pl.col("user_id").is_in(users))
    counts = part.group_by("user_id").len().collect(engine="streaming")
    if most is not None and counts["len"].sum() > most:
        counts = counts.with_columns(pl.Series("rank", hash_ids(counts["user_id"]))).sort("rank")
        counts = counts.filter(pl.col("len").cast(pl.Int64).cum_sum() <= most)
    chosen = counts["user_id"].sort()
    rows = (
        interactions.lazy()
        .filter(pl.col("user_id").is_in(chosen.implode()))
        .select("user_id", "item_id", "rating", "rated_at")
        .join(
            part.filter(pl.col("user_id").is_in(chosen.implode())),
            on=["user_id", "item_id"],
            how="inner",
        )
        .sort("user_id", "rated_at", "item_id")
        .collect(engine="streaming")
    )
    place = {user: n for n, user in enumerate(chosen)}
    item = rows["item_id"].replace_strict(catalogue.index, default=-1, return_dtype=pl.Int64)
    user = rows["user_id"].replace_strict(place, default=-1, return_dtype=pl.Int64)
    unknown = rows.filter(item < 0)
    if unknown.height:
        raise ContractError(
            f"{unknown.height} interactions are of items that are not in `items`",
            where="interactions",
            details={"rows": unknown.select("user_id", "item_id").head(10).to_dicts()},
        )
    return HumanRows(chosen.to_list(), user.to_numpy(), item.to_numpy(), rows["rating"].to_numpy())


def genre_surplus(
    rows: HumanRows, catalogue: Catalogue, mean: float, leniency: Floats
) -> tuple[Floats, Floats]:
    """Shrunken mean surplus of people by genre, and the surplus of each rating (rating units).

    Shapes (users, genres) and (ratings,). ``leniency``: of each user, of shape (users,); the others
    as for :func:`stand_ins`.
    """
    # Residuals after leniency are taste.
    residual = rows.rating - mean - catalogue.quality[rows.item] - leniency[rows.user]
    listed = (catalogue.shares > 0).astype(np.float64)
    return group_surplus(rows, residual, listed)[0], np.asarray(residual)


def group_surplus(rows: HumanRows, rest: Floats, groups: Any) -> tuple[Floats, Floats]:
    """Shrunken mean surplus of people by group of items: genres, makers, decades.

    ``rest`` is the surplus of each rating over what is expected of user and item, of shape
    (ratings,); ``groups`` is 1 where an item is in a group, of shape (items, groups), dense or
    sparse. Returns the mean surplus, shrunk with `GENRE_STRENGTH` ratings of surplus 0, and rated
    items (count), both of shape (users, groups).
    """
    cells = (rows.user, rows.item)
    shape = (len(rows.users), groups.shape[0])
    total, seen = (
        _dense(csr_matrix((values, cells), shape=shape) @ groups)
        for values in (rest, np.ones(len(rows)))
    )
    return total / (seen + GENRE_STRENGTH), seen


def _dense(matrix: Any) -> Floats:
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix)


def stand_ins(rows: HumanRows, catalogue: Catalogue, mean: float, tastes: Tastes) -> Profiles:
    """Profiles of the users of `rows` as if they had stated their genres and described their taste.

    Users without rows are neutral. ``tastes`` are the beliefs about the users after these rows:
    their first column is the leniency. The profiles have no history: their `tastes` are 0.
    """
    size = len(rows.users)
    leniency = tastes.mean[:, 0]
    affinity, residual = genre_surplus(rows, catalogue, mean, leniency)
    cells = (rows.user, rows.item)
    shape = (size, len(catalogue.index))
    liked = csr_matrix(((residual > 0).astype(np.float32), cells), shape=shape)
    vectors = np.asarray(liked @ catalogue.vectors, dtype=np.float32)
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return Profiles(
        leniency=leniency,
        likes=(affinity > GENRE_THRESHOLD).astype(np.float32),
        dislikes=(affinity < -GENRE_THRESHOLD).astype(np.float32),
        vectors=np.asarray(vectors / np.where(length > 0, length, 1.0), dtype=np.float32),
        tastes=np.zeros((size, catalogue.taste.shape[1])),
        variance=tastes.variance,
    )
