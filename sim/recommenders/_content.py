"""A recommender that reads the persona and the item, and knows no ratings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np

from sim.recommenders._baselines import _shape
from sim.recommenders._protocol import Floats, Ints, ScoredRecommender

if TYPE_CHECKING:
    import polars as pl

    from sim._release import Release

__all__ = ["ContentRecommender", "genre_tables"]


class ContentRecommender(ScoredRecommender):
    """Items whose genres the persona likes and whose text is near the persona's text.

    The score is (liked genres - disliked genres) / genres of the item, from -1 to 1, plus the
    cosine of the persona's and the item's embeddings, from -1 to 1. Without the tables of
    embeddings it is the first part alone, and `note` says so. Nothing is fitted on ratings.
    """

    name = "content"
    note = "Genres that the persona likes, and the cosine of persona and item text."

    def fit(self, release: Release) -> Self:
        """Read genres, and embeddings where there are any."""
        self.shape = _shape(release)
        items, likes, dislikes = genre_tables(release)
        self._genres = items / np.maximum(items.sum(axis=1, keepdims=True), 1.0)
        self._profiles = likes - dislikes
        self._vectors: tuple[Floats, Floats] | None = None
        if "item_embeddings" in release and "persona_embeddings" in release:
            self._vectors = (
                _vectors(release, "persona_embeddings", "persona_id"),
                _vectors(release, "item_embeddings", "item_id"),
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
    """Genres of items, liked genres and disliked genres of personas, as 0 and 1.

    Returns
    -------
    Arrays of shape (items, genres), (personas, genres) and (personas, genres); genres in
    alphabetical order.
    """
    from sim.environment import Cast, Catalogue

    items, personas = Catalogue.read(release).frame, Cast.read(release).frame
    lists = (items["genres"], personas["likes"], personas["dislikes"])
    names = sorted({g for column in lists for g in column.explode().drop_nulls().unique()})
    return tuple(_hot(column, names) for column in lists)  # type: ignore[return-value]


def _hot(lists: pl.Series, names: list[str]) -> Floats:
    import polars as pl

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


def _vectors(release: Release, table: str, key: str) -> Floats:
    """Unit vectors in the order of the numbers; zeros for whom there is none."""
    import polars as pl

    from sim.environment import Cast, Catalogue

    world = Catalogue.read(release).frame if key == "item_id" else Cast.read(release).frame
    found = (
        world.select(key)
        .with_row_index("row")
        .join(release[table].polars([key, "vector"]), on=key, how="inner")
    )
    flat = found["vector"].cast(pl.List(pl.Float64)).explode().to_numpy()
    vectors = np.asarray(flat, np.float64).reshape(found.height, -1)
    out = np.zeros((world.height, vectors.shape[1]))
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    out[found["row"].to_numpy()] = vectors / np.where(length > 0, length, 1.0)
    return out
