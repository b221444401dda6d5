"""Histories of series and of people: what is in them, and what is not."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.ablations import CaseRule, human_cases, series_cases, suite_named
from pipelines.contracts import CONTRACTS
from pipelines.errors import ContractError
from pipelines.scales import SCALES

MOVIES = suite_named("movies")
STARS = SCALES["0.5-5"]
SERIES = pl.DataFrame(
    {
        "series": ["rocky"] * 3,
        "item_id": ["ml:1", "ml:2", "ml:3"],
        "held_out": [False, True, False],
    }
)
ITEMS = pl.DataFrame({"item_id": [f"ml:{n}" for n in range(1, 9)]})
STATS = pl.DataFrame(
    {
        "item_id": ITEMS["item_id"],
        "train_ratings": [5, 5, 5, 5, 5, 5, 5, 0],
        "train_mean_rating": [3.0, 3.0, 3.0, 4.0, 2.3, 4.9, 0.5, None],
    }
)
PEOPLE = pl.DataFrame(
    {
        "persona_id": [f"persona:a:{n}" for n in range(5)] + ["persona:books:0"],
        "domain": ["movies"] * 5 + ["books"],
    }
)


def cases(**rule: int) -> pl.DataFrame:
    made = series_cases(
        SERIES, ITEMS, STATS, PEOPLE, STARS, MOVIES, CaseRule(**{"draws": 1, **rule})
    )
    return CONTRACTS["ablations.movies_series_cases"].validate(made)


def test_the_held_out_item_is_asked_and_the_others_are_in_the_history() -> None:
    for row in cases(fillers=2).iter_rows(named=True):
        assert row["item_id"] == "ml:2"
        assert {"ml:1", "ml:3"} <= set(row["history"])
        assert "ml:2" not in row["history"]
        assert len(row["history"]) == len(set(row["history"])) == 4


def test_the_series_is_rated_high_or_low_and_the_rest_with_its_mean() -> None:
    # 4.0 stars are 8, 2.3 are 4.6 and so 5, 4.9 are 9.8 and so 10, 0.5 is 1.
    means = {"ml:4": 8.0, "ml:5": 5.0, "ml:6": 10.0, "ml:7": 1.0}
    for row in cases(fillers=4).iter_rows(named=True):
        of = zip(row["history"], row["ratings"], row["high"], row["low"], strict=True)
        for item, mean, high, low in of:
            if item in means:
                assert (mean, high, low) == (means[item], None, None)
            else:
                assert mean is None
                assert high in (9.0, 10.0)
                assert low in (1.0, 2.0)


def test_an_item_that_nobody_rated_fills_no_history_and_no_other_domains_persona_is_asked() -> None:
    made = cases(fillers=50)
    assert "ml:8" not in set(made["history"].explode())
    assert made["history"].list.len().unique().to_list() == [6], "all there is, and no more"
    assert set(made["persona_id"]) == {f"persona:a:{n}" for n in range(5)}


def test_so_many_users_as_asked_for_and_never_one_twice() -> None:
    made = cases(users=3, draws=4)
    for _, draw in made.group_by("draw"):
        assert draw["persona_id"].n_unique() == draw.height == 3
    assert made["persona_id"].n_unique() > 3, "another draw, other users"


def test_the_series_does_not_stand_at_one_end_of_the_history() -> None:
    # Else the most recent would always, or never, be of the series.
    places = {
        place
        for row in cases(draws=20).iter_rows(named=True)
        for place, item in enumerate(row["history"])
        if item in ("ml:1", "ml:3")
    }
    assert places == set(range(6))


# -- people -------------------------------------------------------------------------------------

START = datetime(2020, 1, 1, tzinfo=UTC)


def world(rows: list[tuple[str, str, float, str]]) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Interactions and splits of (user, item, rating, split), rated in this order."""
    frame = pl.DataFrame(rows, schema=["user_id", "item_id", "rating", "split"], orient="row")
    frame = frame.with_columns(
        scale=pl.lit("0.5-5"),
        rated_at=pl.Series([START + timedelta(hours=n) for n in range(len(rows))]),
    )
    return frame.drop("split"), frame.select("user_id", "item_id", "split")


ROWS = [
    ("ml-user:1", "ml:1", 1.0, "train"),
    ("ml-user:1", "ml:2", 2.0, "train"),
    ("ml-user:1", "ml:3", 3.0, "train"),
    ("ml-user:1", "ml:4", 4.0, "test"),
    ("ml-user:2", "ml:1", 5.0, "train"),
    ("ml-user:2", "ml:4", 2.0, "validation"),
    ("ml-user:2", "ml:5", 0.5, "test"),
    ("ml-user:3", "ml:4", 5.0, "test"),  # without a history
]


def test_the_human_distribution_by_hand() -> None:
    made = human_cases(*world(ROWS), CaseRule(people=50, draws=1))
    # Two items, each counting half: ml:4 with 4 and 2, ml:5 with 0.5.
    assert made.distribution == {
        **{f"{a:g}": 0.0 for a in STARS.answers}, "4": 0.25, "2": 0.25, "0.5": 0.5,
    }  # fmt: skip


def test_only_held_out_ratings_are_asked_and_only_training_ratings_shown() -> None:
    made = human_cases(*world(ROWS), CaseRule(people=200, draws=2, past=2))
    table = CONTRACTS["ablations.movies_human_cases"].validate(made.cases)
    asked = set(table.select("user_id", "item_id", "rating").iter_rows())
    assert asked == {
        ("ml-user:1", "ml:4", 4.0), ("ml-user:2", "ml:4", 2.0), ("ml-user:2", "ml:5", 0.5),
    }  # fmt: skip
    shown = {u: (h, r) for u, h, r in table.select("user_id", "history", "ratings").iter_rows()}
    assert shown == {
        "ml-user:1": (["ml:2", "ml:3"], [2.0, 3.0]),  # the latest two, oldest first
        "ml-user:2": (["ml:1"], [5.0]),
    }


def test_an_item_is_drawn_uniformly_then_one_of_its_ratings() -> None:
    table = human_cases(*world(ROWS), CaseRule(people=4_000, draws=1)).cases
    share = table.filter(pl.col("item_id") == "ml:5").height / table.height
    assert share == pytest.approx(0.5, abs=0.03)
    of_four = table.filter(pl.col("item_id") == "ml:4")
    assert (of_four["rating"] == 4.0).mean() == pytest.approx(0.5, abs=0.04)


def test_draws_are_independent_and_repeatable() -> None:
    one, same = (human_cases(*world(ROWS), CaseRule(people=30, draws=2)).cases for _ in range(2))
    assert one.equals(same)
    first, second = (one.filter(pl.col("draw") == d)["item_id"].to_list() for d in (0, 1))
    assert first != second


def test_without_held_out_ratings_there_are_no_cases() -> None:
    made = human_cases(*world([(*row[:3], "train") for row in ROWS]), CaseRule())
    assert made.cases.is_empty()
    assert not made.distribution


def test_ratings_on_two_scales_are_an_error() -> None:
    interactions, splits = world(ROWS)
    mixed = interactions.with_columns(
        scale=pl.when(pl.col("user_id") == "ml-user:1").then(pl.lit("1-5")).otherwise("scale")
    )
    with pytest.raises(ContractError, match="one scale"):
        human_cases(mixed, splits, CaseRule())


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 5), st.integers(1, 8), st.sampled_from(STARS.answers.tolist()),
            st.sampled_from(["train", "validation", "test"]),
        ),
        min_size=1, max_size=40, unique_by=lambda row: row[:2],
    )
)  # fmt: skip
def test_no_case_knows_its_own_answer(rows: list[tuple[int, int, float, str]]) -> None:
    named = [(f"ml-user:{u}", f"ml:{i}", r, s) for u, i, r, s in rows]
    made = human_cases(*world(named), CaseRule(people=20, draws=1))
    train = {(u, i): r for u, i, r, s in named if s == "train"}
    for row in made.cases.iter_rows(named=True):
        assert row["item_id"] not in row["history"]
        assert row["history"]
        for item, rating in zip(row["history"], row["ratings"], strict=True):
            assert train[row["user_id"], item] == rating
    if made.distribution:
        assert sum(made.distribution.values()) == pytest.approx(1.0)
