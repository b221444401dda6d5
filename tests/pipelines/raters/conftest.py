"""A small world whose ratings follow stated effects, so that a fit can be checked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl
import pytest

GENRES = ("Action", "Comedy", "Drama", "Horror", "Romance", "Western")


@dataclass(frozen=True)
class World:
    """Tables of a release, and the truth behind them."""

    items: pl.DataFrame
    item_stats: pl.DataFrame
    interactions: pl.DataFrame
    splits: pl.DataFrame
    item_embeddings: pl.DataFrame
    persona_embeddings: pl.DataFrame
    personas: pl.DataFrame
    true_quality: dict[str, float] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, pl.DataFrame]:
        """Tables that raters are fitted on."""
        names = ("items", "item_stats", "interactions", "splits")
        return {name: getattr(self, name) for name in names}

    @property
    def vectors(self) -> dict[str, pl.DataFrame]:
        """The two embedding tables."""
        names = ("item_embeddings", "persona_embeddings")
        return {name: getattr(self, name) for name in names}


def _unit(rows: np.ndarray) -> np.ndarray:
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def _vectors(key: str, ids: list[str], rows: np.ndarray) -> pl.DataFrame:
    return pl.DataFrame(
        {key: ids, "model": "test@0", "text_sha256": "0" * 64, "vector": _unit(rows).tolist()},
        schema_overrides={"vector": pl.List(pl.Float32)},
    )


def build_world(seed: int = 4, users: int = 150, films: int = 80, per_user: int = 40) -> World:
    rng = np.random.default_rng(seed)
    has = rng.random((films, len(GENRES))) < 0.3
    quality = rng.normal(0, 0.5, films)
    leniency = rng.normal(0, 0.4, users)
    taste = rng.normal(0, 0.5, (users, len(GENRES)))
    topic = rng.normal(0, 1, (films, 6))
    interest = rng.normal(0, 1, (users, 6))
    ids = [f"ml:{n + 1}" for n in range(films)]
    start = datetime(2020, 1, 1, tzinfo=UTC)
    rows = []
    for user in range(users):
        for time, film in enumerate(rng.choice(films, per_user, replace=False)):
            genres = has[film]
            liking = taste[user, genres].mean() if genres.any() else 0.0
            level = 3.4 + quality[film] + leniency[user] + liking
            level += 0.15 * float(interest[user] @ topic[film]) / np.sqrt(6)
            stars = np.clip(np.round(2 * (level + rng.normal(0, 0.6))) / 2, 0.5, 5)
            part = "train" if time < 0.8 * per_user else "validation"
            part = "test" if time >= 0.9 * per_user else part
            rows.append(
                (f"ml-user:{user}", ids[film], float(stars), start + timedelta(hours=time), part)
            )
    table = pl.DataFrame(
        rows,
        schema={
            "user_id": pl.String,
            "item_id": pl.String,
            "rating": pl.Float64,
            "rated_at": pl.Datetime("us", "UTC"),
            "split": pl.String,
        },
        orient="row",
    ).sort("user_id", "item_id")
    train = table.filter(split="train")
    stats = (
        pl.DataFrame({"item_id": ids})
        .join(
            table.group_by("item_id").agg(ratings=pl.len().cast(pl.Int64)), on="item_id", how="left"
        )
        .join(
            train.group_by("item_id").agg(
                train_ratings=pl.len().cast(pl.Int64), train_mean_rating=pl.col("rating").mean()
            ),
            on="item_id",
            how="left",
        )
        .with_columns(pl.col("ratings", "train_ratings").fill_null(0))
        .sort("ratings", "item_id", descending=[True, False])
        .with_row_index("popularity_rank", offset=1)
        .with_columns(pl.col("popularity_rank").cast(pl.Int64))
        .sort("item_id")
    )
    genres = [[g for g, there in zip(GENRES, row, strict=True) if there] for row in has]
    likes = [["Comedy", "Drama"], ["Horror"], ["Action"], ["Romance", "Western"]] * 5
    dislikes = [["Horror"], ["Romance"], [], ["Action", "Horror"]] * 5
    people = [f"persona:small:{n:07d}" for n in range(len(likes))]
    items = pl.DataFrame(
        {
            "item_id": ids,
            "title": [f"Film {n}" for n in range(films)],
            "genres": genres,
            "vote_average": np.clip(6 + 1.5 * quality + rng.normal(0, 0.3, films), 0, 10),
            "vote_count": rng.integers(0, 400, films),
        },
        schema_overrides={"genres": pl.List(pl.String)},
    ).sort("item_id")
    return World(
        items=items,
        item_stats=stats,
        interactions=table.select(
            "user_id", "item_id", "rating", pl.lit("0.5-5").alias("scale"), "rated_at"
        ),
        splits=table.select("user_id", "item_id", "split"),
        item_embeddings=_vectors("item_id", ids, topic),
        persona_embeddings=_vectors("persona_id", people, rng.normal(0, 1, (len(people), 6))),
        personas=pl.DataFrame(
            {
                "persona_id": people,
                "likes": likes,
                "dislikes": dislikes,
                "description": ["Somebody who likes films and says so."] * len(people),
            },
            schema_overrides={"dislikes": pl.List(pl.String)},
        ),
        true_quality=dict(zip(ids, quality.tolist(), strict=True)),
    )


@pytest.fixture(scope="session")
def small_world() -> World:
    return build_world()


@pytest.fixture(scope="session")
def world_of() -> Callable[..., World]:
    """Makes worlds of other sizes: :func:`build_world`."""
    return build_world
