"""Baselines: random, popular, mean rating, and content, which is fitted on no ratings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ConfigError
from sim.environment import Catalogue, PersonaTable, split_rows
from sim.recommenders._interactions import checked_rows
from sim.recommenders._protocol import Floats, Ints, Recommender, ScoredRecommender

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pipelines.raters import BoundRater
    from sim._release import Release

#: Ratings at the global mean that every item starts with (count, set by hand), so that one rating
#: of five stars does not make the best item; LensKit's Bias likewise.
DAMPING = 5.0


class RandomRecommender(ScoredRecommender):
    """Items in a random order, one order per user and seed.

    It depends on nothing else.
    """

    name = "random"
    note = "Items in a random order per user."

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Count items and personas; interactions are not read."""
        del interactions
        self.shape = _shape(release)
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        from pipelines.seeding import uniform

        del seen, ratings
        assert self.shape is not None
        return uniform(self.seed, users[:, None], np.arange(self.shape[0])[None, :])


class _CommonScores(ScoredRecommender):
    """Base of recommenders that score items alike for everybody."""

    #: Scores of the items, of shape (items,), set by `fit`.
    _common: Floats

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        del seen, ratings
        return np.broadcast_to(self._common, (len(users), len(self._common)))


class PopularRecommender(_CommonScores):
    """The items with the most training ratings; the same for everybody."""

    name = "popular"
    note = "The items that people rated most often, the same for everybody."

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Count the training ratings of every item."""
        self.shape = _shape(release)
        self._common, _ = rating_stats(release, interactions)
        return self


class MeanRatingRecommender(_CommonScores):
    """The items with the best mean training rating; the same for everybody.

    The mean is damped: (sum of ratings + 5 x global mean) / (ratings + 5), so that an item without
    ratings is an average one. After `fit` it is in ``means``, of shape (items,), in the source's
    rating units.
    """

    name = "mean-rating"
    note = "The items that people rated best (damped mean), the same for everybody."

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Take the mean of every item's training ratings."""
        self.shape = _shape(release)
        count, mean = rating_stats(release, interactions)
        overall = float((count * mean).sum() / max(count.sum(), 1.0))
        self.means = self._common = (count * mean + DAMPING * overall) / (count + DAMPING)
        return self


class ContentRecommender(ScoredRecommender):
    """Items whose genres the persona likes and whose text is near the persona's text.

    The score is (liked genres - disliked genres) / genres of the item, from -1 to 1, plus the
    cosine of the persona's and the item's embeddings, from -1 to 1. Without the tables of
    embeddings it is the first part alone (see `note`). Nothing is fitted on ratings.
    """

    name = "content"
    note = "Genres that the persona likes, and the cosine of persona and item text."

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Read genres, and embeddings where there are any; interactions are not read."""
        del interactions
        self.shape = _shape(release)
        items, likes, dislikes = genre_tables(release)
        self._genres = items / np.maximum(items.sum(axis=1, keepdims=True), 1.0)
        self._profiles = likes - dislikes
        self._vectors: tuple[Floats, Floats] | None = None
        if "item_embeddings" in release and "persona_embeddings" in release:
            self._vectors = (
                text_vectors(release, "persona_embeddings", "persona_id"),
                text_vectors(release, "item_embeddings", "item_id"),
            )
        else:
            self.note = "Genres that the persona likes (the release has no embeddings)."
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        del seen, ratings
        scores = self._profiles[users] @ self._genres.T
        if self._vectors is not None:
            personas, items = self._vectors
            scores = scores + personas[users] @ items.T
        return np.asarray(scores)


def genre_tables(release: Release) -> tuple[Floats, Floats, Floats]:
    """Genres of items, liked and disliked genres of personas, as 0 and 1.

    Arrays of shape (items, genres), (personas, genres) and (personas, genres); genres in
    alphabetical order.
    """
    items, personas = Catalogue.read(release).frame, PersonaTable.read(release).frame
    lists = (items["genres"], personas["likes"], personas["dislikes"])
    names = sorted({g for column in lists for g in column.explode().drop_nulls().unique()})
    return tuple(_hot(column, names) for column in lists)  # type: ignore[return-value]


def _hot(lists: pl.Series, names: list[str]) -> Floats:
    out = np.zeros((len(lists), max(len(names), 1)))
    long = (
        pl.DataFrame({"row": np.arange(len(lists)), "name": lists})
        .explode("name")
        .drop_nulls()
        .with_columns(
            pl.col("name").replace_strict(names, range(len(names)), return_dtype=pl.Int64)
        )
    )
    out[long["row"].to_numpy(), long["name"].to_numpy()] = 1.0
    return out


def text_vectors(release: Release, table: str, key: str) -> Floats:
    """Unit vectors in the order of the numbers; zeros where there is none."""
    world = Catalogue.read(release).frame if key == "item_id" else PersonaTable.read(release).frame
    stored = (
        release[table]
        .polars([key, "vector"])
        .with_columns(pl.col("vector").cast(pl.List(pl.Float64)))
    )
    found = world.select(key).with_row_index("row").join(stored, on=key, how="inner")
    size = int(stored["vector"].list.len()[0])
    vectors = found["vector"].explode().to_numpy().reshape(found.height, size)
    out = np.zeros((world.height, size))
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    out[found["row"].to_numpy()] = vectors / np.where(length > 0, length, 1.0)
    return out


def _shape(release: Release) -> tuple[int, int]:
    return len(Catalogue.read(release)), len(PersonaTable.read(release))


def rating_stats(
    release: Release, interactions: pl.DataFrame | None = None
) -> tuple[Floats, Floats]:
    """Ratings (count) and mean rating per item, in the order of the items; 0 without ratings.

    The training columns of ``item_stats``, or those of the given interactions.
    """
    if interactions is None:
        release.require("item_stats")
        columns = ["item_id", "train_ratings", "train_mean_rating"]
        stats = release["item_stats"].polars(columns)
    else:
        rows = checked_rows(interactions, ("user_id", "item_id", "rating"))
        stats = rows.group_by("item_id").agg(
            train_ratings=pl.len(), train_mean_rating=pl.col("rating").mean()
        )
    items = Catalogue.read(release).frame.select("item_id")
    joined = items.join(stats, on="item_id", how="left", maintain_order="left").fill_null(0)
    return (
        joined["train_ratings"].to_numpy().astype(np.float64),
        joined["train_mean_rating"].to_numpy().astype(np.float64),
    )


#: Personas whose expected ratings decide the common list at most (count); the first by id.
_MAX_PERSONAS = 1_000
_NOTHING = np.zeros(0, np.int64), np.zeros(0)


class OracleRecommender(ScoredRecommender):
    """Each persona's items of highest expected rating: the ceiling for a policy.

    The expectation is that before the first recommendation; what a persona's later ratings
    change is not followed.
    """

    name = "oracle"
    note = "The items of each persona's highest expected ratings, which no policy can see."

    def __init__(self, rater: BoundRater) -> None:
        self.rater = rater

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Count items and personas; interactions are not read."""
        del interactions
        self.shape = len(Catalogue.read(release)), len(PersonaTable.read(release))
        self._sweeps: dict[int, np.ndarray] = {}
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        del seen, ratings
        return np.stack([self._of(int(user)) for user in users]).astype(np.float64)

    def _of(self, user: int) -> np.ndarray:
        """Expected ratings of every item, -inf where there is none, of shape (items,)."""
        if user not in self._sweeps:
            expected = self.rater.sweep(user, *_NOTHING)
            self._sweeps[user] = np.where(np.isnan(expected), -np.inf, expected).astype(np.float32)
        return self._sweeps[user]


class CommonListRecommender(_CommonScores):
    """The items of the highest mean expected rating over personas, the same for everybody."""

    name = "best common list"
    note = "The items of the highest mean expected rating, the same for everybody."

    def __init__(self, rater: BoundRater) -> None:
        self.rater = rater

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Average the expected ratings of the personas; interactions are not read."""
        del interactions
        self.shape = len(Catalogue.read(release)), len(PersonaTable.read(release))
        total, count = np.zeros(self.shape[0]), np.zeros(self.shape[0])
        for user in range(min(self.shape[1], _MAX_PERSONAS)):
            expected = self.rater.sweep(user, *_NOTHING)
            rated = ~np.isnan(expected)
            total[rated] += expected[rated]
            count += rated
        # An item that few were asked about is not the best one by luck.
        enough = count >= max(1.0, 0.5 * count.max())
        self._common = np.where(enough, total / np.maximum(count, 1.0), -np.inf)
        return self


Bools = npt.NDArray[np.bool_]
#: Users whose lists are filtered at once (count): bounds the memory of whole lists.
_AT_ONCE = 256


class MaskedRecommender:
    """Another recommender, fitted or not, without some items: the next best ones move up.

    ``mask`` is true for items that are left out, of shape (items,) for everybody or (personas,
    items). A masked item is no history: unlike a seen one it is not folded in.
    """

    def __init__(self, inner: Recommender, mask: npt.ArrayLike) -> None:
        self._inner, self._mask = inner, np.asarray(mask, np.bool_)
        self.name, self.note = inner.name, inner.note

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Fit the inner recommender; see :class:`Recommender`.

        Raises ConfigError if the mask has another shape than items or personas and items.
        """
        items, personas = len(Catalogue.read(release)), len(PersonaTable.read(release))
        if self._mask.shape not in ((items,), (personas, items)):
            raise ConfigError(
                f"a mask of shape {self._mask.shape}",
                where=f"recommender {self.name}",
                hint=f"({items},) or ({personas}, {items})",
            )
        self._inner = self._inner.fit(release, interactions=interactions)
        return self

    def recommend(
        self,
        users: npt.ArrayLike,
        k: int,
        *,
        seen: npt.ArrayLike | None = None,
        ratings: npt.ArrayLike | None = None,
    ) -> Ints:
        """See :class:`Recommender`; -1 where nothing unseen and unmasked is left."""
        who = np.asarray(users, np.int64).reshape(-1)
        out = np.full((len(who), k), -1, np.int64)
        for start in range(0, len(who), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            masked = self._of(who[part])
            longer = min(k + int(masked.sum(axis=1).max(initial=0)), self._mask.shape[-1])
            lists = self._inner.recommend(
                who[part],
                max(longer, k),
                seen=None if seen is None else np.asarray(seen)[part],
                ratings=None if ratings is None else np.asarray(ratings)[part],
            )
            valid = (lists >= 0) & ~np.take_along_axis(masked, np.maximum(lists, 0), axis=1)
            first = np.argsort(~valid, axis=1, kind="stable")[:, :k]
            out[part] = np.where(
                np.take_along_axis(valid, first, axis=1),
                np.take_along_axis(lists, first, axis=1),
                -1,
            )
        return out

    def _of(self, users: Ints) -> Bools:
        if self._mask.ndim == 1:
            return np.broadcast_to(self._mask, (len(users), len(self._mask)))
        # A user that does not exist is named by the inner recommender.
        return np.asarray(self._mask[np.clip(users, 0, len(self._mask) - 1)])


def with_feedback(release: Release, users: Sequence[str], items: Any) -> pl.DataFrame:
    """The training split and further positive interactions, to fit a recommender on.

    ``users`` and ``items`` are one interaction each: ``user_id`` (or a persona's id, without a
    match) and item number; each is rated best on the source's scale. A pair that is in the training
    split is added once. Returns ``user_id``, ``item_id`` and ``rating``, ordered by user and item.
    """
    from pipelines.raters import source_scale

    train = split_rows(release, ("train",))
    scale = source_scale(release["interactions"].lazy())
    ids = pl.Series("item_id", Catalogue.read(release).ids, dtype=pl.String)
    numbers = pl.Series(np.asarray(items, np.int64))
    added = pl.DataFrame(
        {"user_id": pl.Series(list(users), dtype=pl.String), "item_id": ids.gather(numbers)}
    ).unique(maintain_order=True)
    added = added.join(train, on=["user_id", "item_id"], how="anti", maintain_order="left")
    rows = added.with_columns(rating=pl.lit(scale.high, train.schema["rating"]))
    return pl.concat([train, rows.select(train.columns)]).sort("user_id", "item_id")
