"""GraphMemory on the real ml-latest-small archive."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import polars as pl
import pytest
from support.graphs import movie_triples

from pipelines.config import GraphSettings
from pipelines.graph import GraphMemory

pytestmark = [pytest.mark.shared_data, pytest.mark.night]


@pytest.fixture(scope="module")
def memory(shared_data: Path) -> GraphMemory:
    with zipfile.ZipFile(shared_data / "movielens" / "ml-latest-small.zip") as archive:
        films, ratings = (
            pl.read_csv(io.BytesIO(archive.read(f"ml-latest-small/{name}.csv")))
            for name in ("movies", "ratings")
        )
    items = films.select(
        pl.format("ml:{}", "movieId").alias("item_id"),
        pl.col("title").str.replace(r"\s*\(\d{4}\)\s*$", ""),
        pl.col("title").str.extract(r"\((\d{4})\)\s*$").cast(pl.Int64).alias("year"),
        pl.col("genres").str.split("|"),
        pl.lit([], pl.List(pl.String)).alias("directors"),
        pl.lit([], pl.List(pl.String)).alias("actors"),
    )
    interactions = ratings.select(
        pl.format("ml-user:{}", "userId").alias("user_id"),
        pl.format("ml:{}", "movieId").alias("item_id"),
        "rating",
        pl.lit("0.5-5").alias("scale"),
    )
    splits = interactions.select("user_id", "item_id", split=pl.lit("train"))
    users = interactions.select(pl.col("user_id").unique()).with_columns(
        age_band=pl.lit(None, pl.String), occupation=pl.lit(None, pl.String)
    )
    triples = movie_triples(items, interactions, splits, users, GraphSettings())
    return GraphMemory.from_tables(triples, items, interactions=interactions, users=["me"])


def test_a_series_is_found_from_its_first_part(memory: GraphMemory) -> None:
    """People who rated one of three films rated the others: no title or series is known here."""
    found = [n.title for n in memory.retrieve(None, "ml:260", k=5)]
    assert sum("Star Wars" in title for title in found) >= 2
    found = [n.title for n in memory.retrieve(None, "ml:4993", k=5)]
    assert sum("Lord of the Rings" in title for title in found) >= 2


def test_ratings_are_those_of_the_archive(memory: GraphMemory) -> None:
    """User 1 gave ml:1198 (Raiders of the Lost Ark) five stars."""
    found = {n.item_id: n for n in memory.retrieve("ml-user:1", "ml:1196", k=20)}
    assert (found["ml:1198"].rating, found["ml:1198"].rating_of) == (5.0, "own")
    others = {n.item_id: n for n in memory.retrieve("me", "ml:1196", k=20)}
    assert others["ml:1198"].rating == pytest.approx(4.2075, abs=1e-3)
    assert others["ml:1198"].rating_of == "others"


def test_a_simulated_users_ratings_move_what_is_retrieved(memory: GraphMemory) -> None:
    mine = memory.copy()
    before = {n.item_id: n.score for n in mine.retrieve("me", "ml:1", k=50)}
    for film in ("ml:1", "ml:3114", "ml:2355", "ml:4886"):
        mine.rate("me", film, 5.0)
    after = mine.retrieve("me", "ml:1", k=50)
    liked = {n.item_id: n for n in after if n.rating_of == "own"}
    assert set(liked) == {"ml:3114", "ml:2355", "ml:4886"}
    assert all(n.parts.user_similarity > 0 for n in liked.values())
    assert liked["ml:3114"].score > before["ml:3114"]
    assert {n.item_id: n.score for n in memory.retrieve("me", "ml:1", k=50)} == before
