"""Traits of users by dbt's own macro with the default settings, on figures worked out by hand."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from support.hundred_k import traits_by_dbt

from pipelines.warehouse import TIER_ENDS

ITEMS = pl.DataFrame(
    {
        "item_id": [f"ml:{n}" for n in range(300)],
        "genres": [["Drama"]] * 300,
    }
)


def traits_of(repository: Path, ratings: dict[str, list[float]], *, held: str = "") -> pl.DataFrame:
    """Traits of users who rated the first films in order; `held` marks one row as a test row."""
    rows = [
        (user, f"ml:{n}", rating)
        for user, given in ratings.items()
        for n, rating in enumerate(given)
    ]
    interactions = pl.DataFrame(rows, ["user_id", "item_id", "rating"], orient="row").with_columns(
        scale=pl.lit("1-5")
    )
    last = pl.format("{}/{}", "user_id", "item_id") == held
    splits = interactions.select(
        "user_id", "item_id", split=pl.when(last).then(pl.lit("test")).otherwise(pl.lit("train"))
    )
    return traits_by_dbt(repository, interactions, splits, ITEMS).sort("user_id")


def test_pickiness_ends_at_three_and_a_half_and_four_and_a_half(repository: Path) -> None:
    ratings = {
        "ml-user:1": [4.0, 5.0],
        "ml-user:2": [3.0, 4.0],
        # 49 fours and 51 threes: 3.49.
        "ml-user:3": [4.0] * 49 + [3.0] * 51,
    }
    found = traits_of(repository, ratings)
    assert found["mean_rating"].to_list() == [4.5, 3.5, pytest.approx(3.49)]
    assert found["pickiness"].to_list() == ["not_picky", "moderately_picky", "extremely_picky"]


def test_default_tiers_end_at_the_quantiles_of_agent4rec(repository: Path) -> None:
    assert TIER_ENDS == {
        "activity": (0.6, 0.9), "conformity": (0.25, 0.8), "diversity": (0.33, 0.66),
        "pickiness": (3.5, 4.5),
    }  # fmt: skip
    # User n of 100 has n ratings, all of them 3: nobody is far from the others.
    found = traits_of(repository, {f"ml-user:{n:03d}": [3.0] * n for n in range(1, 101)})
    assert found["activity"].to_list() == list(range(1, 101))
    assert found["activity_tier"].to_list() == ["low"] * 60 + ["medium"] * 30 + ["high"] * 10
    # All of one distance share the tier of the smallest: they follow the others.
    assert set(found["conformity_tier"]) == {"high"}


def test_conformity_is_high_for_the_smallest_quarter(repository: Path) -> None:
    # Of 40 users, number n is the further from the film's mean the higher n is.
    given = [3.0 + (1 if n % 2 else -1) * (n // 2) / 20 for n in range(40)]
    found = traits_of(repository, {f"ml-user:{n:02d}": [r] for n, r in enumerate(given)})
    mean = sum(given) / 40
    assert found["conformity"].to_list() == pytest.approx(
        [(r - mean) ** 2 for r in given], abs=1e-6
    )
    order = found.sort("conformity")["conformity_tier"].to_list()
    assert order == ["high"] * 10 + ["medium"] * 22 + ["low"] * 8


def test_diversity_80_counts_the_most_frequent_genres(repository: Path) -> None:
    films = {"Drama": 5, "Comedy": 3, "War": 1, "Horror": 1}
    names = [genre for genre, count in films.items() for _ in range(count)]
    items = pl.DataFrame(
        {"item_id": [f"ml:{n}" for n in range(10)], "genres": [[g] for g in names]}
    )
    rows = pl.DataFrame(
        {"user_id": ["a"] * 10 + ["b"] * 9, "item_id": [f"ml:{n}" for n in [*range(10), *range(9)]]}
    ).with_columns(rating=pl.lit(3.0), scale=pl.lit("1-5"))
    splits = rows.select("user_id", "item_id", split=pl.lit("train"))
    found = traits_by_dbt(repository, rows, splits, items).sort("user_id")
    assert found["diversity"].to_list() == [4, 3]
    # a: Drama and Comedy have 8 of 10, exactly 0.8. b: Drama has 5 of 9, with Comedy 8 of 9.
    assert found["diversity_80"].to_list() == [2, 1]
    # Two users: the lower third is b, and the upper end (0.66) is a's own value.
    assert found["diversity_80_tier"].to_list() == ["medium", "low"]


def test_a_held_out_rating_is_no_part_of_the_traits(repository: Path) -> None:
    low, high = (
        traits_of(repository, {"ml-user:1": [3.0, last], "ml-user:2": [4.0]}, held="ml-user:1/ml:1")
        for last in (1.0, 5.0)
    )
    assert low.equals(high)
    assert low["activity"].to_list() == [1, 1]
