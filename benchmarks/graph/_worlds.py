"""Canonical movie tables for the graph benchmarks, straight from files, without the pipeline.

``ml-100k``, ``ml-latest-small`` come from the published archives in a data folder;
``generated-N`` is the generated sample world with N × 100,000 ratings (N × 943 users and
√N × 1,682 films, so that a person rates as much in every size).
"""

from __future__ import annotations

import gzip
import io
import json
import math
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import polars as pl

__all__ = ["embeddings_of", "load"]

Tables = dict[str, pl.DataFrame]
#: Dimension of the default encoder's vectors.
_DIMENSION = 384
_GENRES_100K = (
    "unknown", "Action", "Adventure", "Animation", "Children", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi",
    "Thriller", "War", "Western",
)  # fmt: skip


def load(name: str, data: Path | None) -> Tables:
    """Tables ``items, interactions, splits, users`` of a world by name."""
    if name.startswith("generated-"):
        return _generated(int(name.partition("-")[2]))
    if data is None:
        raise SystemExit(f"{name} needs --data")
    return _ml_100k(data) if name == "ml-100k" else _ml_latest_small(data)


def embeddings_of(items: pl.DataFrame) -> pl.DataFrame:
    """Random unit vectors of the encoder's dimension: the cost is theirs, the meaning is not."""
    rng = np.random.default_rng(20)
    raw = rng.normal(size=(items.height, _DIMENSION)).astype(np.float32)
    raw /= np.linalg.norm(raw, axis=1, keepdims=True)
    vector = pl.Series("vector", raw).cast(pl.List(pl.Float32))
    return items.select("item_id").with_columns(vector)


def _generated(factor: int) -> Tables:
    from pipelines.config import SampleSettings
    from pipelines.sample_world import write_sample_world

    size = SampleSettings(
        films=round(1682 * math.sqrt(factor)), users=943 * factor, ratings=100_000 * factor
    )
    with tempfile.TemporaryDirectory() as folder:
        write_sample_world(Path(folder), size, broken_rows=False)
        source = Path(folder, "movielens", "sample")
        return _csv_tables(
            (source / "movies.csv").read_bytes(),
            (source / "ratings.csv").read_bytes(),
            (source / "links.csv").read_bytes(),
            Path(folder, "tmdb", "movies.jsonl.gz"),
        )


def _ml_latest_small(data: Path) -> Tables:
    with zipfile.ZipFile(data / "movielens" / "ml-latest-small.zip") as archive:
        parts = [archive.read(f"ml-latest-small/{n}.csv") for n in ("movies", "ratings", "links")]
    return _csv_tables(*parts, data / "tmdb" / "movies.jsonl.gz")


def _csv_tables(movies: bytes, ratings: bytes, links: bytes, tmdb: Path) -> Tables:
    people = _people(tmdb)
    tmdb_id = pl.read_csv(io.BytesIO(links), columns=["movieId", "tmdbId"])
    items = (
        pl.read_csv(io.BytesIO(movies), schema_overrides={"movieId": pl.Int64})
        .join(tmdb_id, on="movieId", how="left")
        .join(people, left_on="tmdbId", right_on="tmdb_id", how="left")
        .select(
            pl.format("ml:{}", "movieId").alias("item_id"),
            pl.col("title").str.replace(r"\s*\(\d{4}\)\s*$", ""),
            pl.col("title").str.extract(r"\((\d{4})\)\s*$").cast(pl.Int64).alias("year"),
            pl.when(pl.col("genres") == "(no genres listed)")
            .then(pl.lit([], pl.List(pl.String)))
            .otherwise(pl.col("genres").str.split("|"))
            .alias("genres"),
            pl.col("actors", "directors").fill_null([]),
        )
    )
    interactions = pl.read_csv(io.BytesIO(ratings)).select(
        pl.format("ml-user:{}", "userId").alias("user_id"),
        pl.format("ml:{}", "movieId").alias("item_id"),
        pl.col("rating").cast(pl.Float64),
        pl.lit("0.5-5").alias("scale"),
        pl.col("timestamp").alias("at"),
    )
    users = interactions.select(pl.col("user_id").unique()).with_columns(
        age_band=pl.lit(None, pl.String), occupation=pl.lit(None, pl.String)
    )
    return _tables(items, interactions, users)


def _ml_100k(data: Path) -> Tables:
    with zipfile.ZipFile(data / "movielens" / "ml-100k.zip") as archive:
        texts = {
            name: archive.read(f"ml-100k/u.{name}").decode("latin-1").encode()
            for name in ("data", "item", "user")
        }

    def read(name: str, separator: str, columns: list[str]) -> pl.DataFrame:
        return pl.read_csv(
            texts[name], separator=separator, has_header=False, quote_char=None, new_columns=columns
        )

    flags = [f"genre {n}" for n in _GENRES_100K]
    films = read("item", "|", ["id", "title", "released", "video", "url", *flags])
    listed = [pl.when(pl.col(f"genre {n}") == 1).then(pl.lit(n)) for n in _GENRES_100K]
    items = films.select(
        pl.format("ml:{}", "id").alias("item_id"),
        pl.col("title").str.replace(r"\s*\(\d{4}\)\s*$", ""),
        pl.col("released").str.extract(r"(\d{4})$").cast(pl.Int64).alias("year"),
        pl.concat_list(listed).list.drop_nulls().alias("genres"),
        pl.lit([], pl.List(pl.String)).alias("actors"),
        pl.lit([], pl.List(pl.String)).alias("directors"),
    )
    interactions = read("data", "\t", ["user", "film", "rating", "at"]).select(
        pl.format("ml-user:{}", "user").alias("user_id"),
        pl.format("ml:{}", "film").alias("item_id"),
        pl.col("rating").cast(pl.Float64),
        pl.lit("1-5").alias("scale"),
        "at",
    )
    # The bands of ml-1m, which the paper uses.
    bands = pl.col("age").cut([17, 24, 34, 44, 49, 55], labels=["Under 18", "18-24", "25-34",
        "35-44", "45-49", "50-55", "56+"])  # fmt: skip
    users = read("user", "|", ["id", "age", "sex", "occupation", "zip"]).select(
        pl.format("ml-user:{}", "id").alias("user_id"),
        bands.cast(pl.String).alias("age_band"),
        "occupation",
    )
    return _tables(items, interactions, users)


def _people(tmdb: Path) -> pl.DataFrame:
    """Directors and the first five actors by TMDB id, from dump lines."""
    rows = []
    with gzip.open(tmdb, "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            credits_ = record.get("credits") or {}
            cast = [p["name"] for p in (credits_.get("cast") or [])[:5]]
            crew = credits_.get("crew") or []
            rows.append((record["id"], cast, [p["name"] for p in crew if p["job"] == "Director"]))
    kinds = {"tmdb_id": pl.Int64, "actors": pl.List(pl.String), "directors": pl.List(pl.String)}
    return pl.DataFrame(rows, schema=kinds, orient="row").unique("tmdb_id", keep="first")


def _tables(items: pl.DataFrame, interactions: pl.DataFrame, users: pl.DataFrame) -> Tables:
    """With the split: per user by time, 80/10/10."""
    place = pl.int_range(pl.len()).over("user_id") / pl.len().over("user_id")
    splits = (
        interactions.sort("user_id", "at", "item_id")
        .with_columns(place=place)
        .select(
            "user_id",
            "item_id",
            split=pl.when(pl.col("place") < 0.8)
            .then(pl.lit("train"))
            .when(pl.col("place") < 0.9)
            .then(pl.lit("validation"))
            .otherwise(pl.lit("test")),
        )
    )
    return {
        "items": items.sort("item_id"),
        "interactions": interactions.drop("at").sort("user_id", "item_id"),
        "splits": splits,
        "users": users.sort("user_id"),
    }
