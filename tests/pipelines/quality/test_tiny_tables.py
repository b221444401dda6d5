"""Small honest tables are never stopped by a check of a distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest

from pipelines.quality import check_dataset

#: The only checks that ask for a number of rows as such.
SIZES = {"row_count", "user_count", "item_count"}


def _alike(items: pl.DataFrame, ratings: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A single genre and year, no texts, and all ratings of five stars."""
    return (
        items.with_columns(
            genres=pl.lit(["Drama"]),
            year=pl.lit(1925, pl.Int64),
            overview=pl.lit(None, pl.String),
            actors=pl.lit([], pl.List(pl.String)),
            directors=pl.lit([], pl.List(pl.String)),
        ),
        ratings.with_columns(rating=5.0),
    )


@pytest.mark.pipeline
@pytest.mark.parametrize(
    ("films", "users", "personas", "change"),
    [(2, 1, 1, None), (2, 1, 1, _alike), (7, 3, 4, _alike), (40, 9, 30, None)],
    ids=["one user", "one user, alike", "few rows, alike", "some rows"],
)
def test_tiny_tables_are_not_blocked_by_distributions(
    make_world: Callable[..., Any], films: int, users: int, personas: int, change: Any
) -> None:
    world = make_world(films, users, personas, seed=films, change=change)
    blocking, judged = {}, set()
    for dataset, table in world.tables.items():
        records = check_dataset(dataset, table, store=world.store, settings=world.settings)
        judged |= {(dataset, r.name) for r in records if r.passed is not None}
        blocking |= {(dataset, r.name): r.details["message"] for r in records if r.blocks}
    assert {key: text for key, text in blocking.items() if key[1] not in SIZES} == {}
    # Rows, keys and relations are checked at any size.
    assert {
        ("movies.graph_triples", "no_leaks"),
        ("movies.interactions", "rated_from"),
        ("movies.item_embeddings", "unit_norm"),
        ("movies.preference_scores", "probabilities_sum"),
        ("movies.personas", "cohort_size"),
    } <= judged


def test_too_few_rows_are_named_with_the_number_asked_for(make_world: Callable[..., Any]) -> None:
    world = make_world(40, 9, 4)
    table = world.tables["movies.interactions"]
    records = check_dataset(table.dataset, table, store=world.store, settings=world.settings)
    record = next(r for r in records if r.name == "rating_mean")
    assert record.status == "not applicable"
    assert record.details["skipped"] == "270 rows; at least 1,000 are needed"
    assert record.details["message"] == (
        "mean rating (stars): not applicable, 270 rows; at least 1,000 are needed"
    )
