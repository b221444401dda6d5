"""Small worlds of ratings with known structure."""

from datetime import UTC, datetime, timedelta

import numpy as np
import polars as pl

GENRES = ("Action", "Comedy", "Drama", "Horror", "Romance")


def world(users, items, per_user, rate, *, seed=0, test=2, validation=2):
    """Tables of a world; ``rate(user, item, rng)`` gives half stars from 0.5 to 5.

    Everybody rates at moments of their own, so that some ratings of an item come before others.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        chosen = rng.permutation(items)[:per_user]
        for n, item in enumerate(chosen):
            split = "train"
            if n >= per_user - test:
                split = "test"
            elif n >= per_user - test - validation:
                split = "validation"
            moment = datetime(2020, 1, 1, tzinfo=UTC) + timedelta(
                minutes=int(n * 1000 + rng.integers(1000))
            )
            rows.append((f"ml-user:{user}", f"ml:{item}", rate(user, item, rng), moment, split))
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
    )
    films = pl.DataFrame(
        {
            "item_id": [f"ml:{n}" for n in range(items)],
            "title": [f"Film {n}" for n in range(items)],
            "year": [1950 + n % 70 for n in range(items)],
            "genres": [[GENRES[n % 5]] for n in range(items)],
        }
    )
    return {
        "items": films,
        "interactions": table.select(
            "user_id", "item_id", "rating", pl.lit("0.5-5").alias("scale"), "rated_at"
        ),
        "splits": table.select("user_id", "item_id", "split"),
    }


def noise(user, item, rng):
    """Half stars drawn alike, whoever rates whatever."""
    return float(rng.integers(1, 11)) / 2
