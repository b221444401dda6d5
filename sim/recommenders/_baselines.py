"""Baselines: random, popular, mean rating, and content, which is fitted on no ratings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
import polars as pl

from sim.environment import Cast, Catalogue
from sim.recommenders._interactions import checked_rows
from sim.recommenders._protocol import Floats, Ints, ScoredRecommender

if TYPE_CHECKING:
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


class PopularRecommender(ScoredRecommender):
    """The items with the most training ratings; the same for everybody."""

    name = "popular"
    note = "The items that people rated most often, the same for everybody."

    def fit(self, release: Release, *, interactions: pl.DataFrame | None = None) -> Self:
        """Count the training ratings of every item."""
        self.shape = _shape(release)
        self._count, _ = rating_stats(release, interactions)
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        del seen, ratings
        return np.broadcast_to(self._count, (len(users), len(self._count)))


class MeanRatingRecommender(ScoredRecommender):
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
        self.means = (count * mean + DAMPING * overall) / (count + DAMPING)
        return self

    def _scores(self, users: Ints, seen: Ints, ratings: Floats) -> Floats:
        del seen, ratings
        return np.broadcast_to(self.means, (len(users), len(self.means)))


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
    items, personas = Catalogue.read(release).frame, Cast.read(release).frame
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
    world = Catalogue.read(release).frame if key == "item_id" else Cast.read(release).frame
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
    return len(Catalogue.read(release)), len(Cast.read(release))


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
