"""Figures of scores by choice set, and the check that asking a customer can pay."""

from types import SimpleNamespace

import polars as pl
import pytest

from pipelines.quality._check import view_functions
from pipelines.raters import choice_set_figures

SETS = pl.DataFrame(
    {
        "category_id": ["category:a", "category:a", "category:b", "category:b"],
        "item_id": ["asin:1", "asin:2", "asin:2", "asin:3"],
    }
)


def scores(rows: dict[tuple[int, int], float | None]) -> pl.DataFrame:
    """Scores by persona and product; None is a failed one."""
    return pl.DataFrame(
        [
            (f"persona:p:{who}", f"asin:{item}", y, "ok" if y is not None else "invalid")
            for (who, item), y in rows.items()
        ],
        schema=["persona_id", "item_id", "expected", "status"],
        orient="row",
    )


def view(table: pl.DataFrame) -> object:
    snapshot = SimpleNamespace(scan=table.lazy)
    evidence = SimpleNamespace(
        snapshot=snapshot,
        sibling_name=lambda name: f"products.{name}",
        needed=lambda _: SimpleNamespace(scan=SETS.lazy),
    )
    return view_functions("products.preference_scores")["asking"](evidence)


def test_the_worth_of_knowing_the_customer_by_hand():
    """Best products score 90 and 80, the best for both scores 55 on average: worth 30."""
    found = choice_set_figures(
        scores({(0, 1): 90, (0, 2): 10, (1, 1): 20, (1, 2): 80}).lazy(), SETS.lazy()
    ).row(0, named=True)
    assert found["category_id"] == "category:a"
    assert (found["personas"], found["products"]) == (2, 2)
    assert found["worth"] == pytest.approx(30)
    assert found["deviation"] == pytest.approx((40 + 30) / 2)
    assert (found["best"], found["reached_share"]) == (85, 1.0)


def test_a_set_that_everybody_scores_alike_is_flagged():
    """Set a: worth 0, deviation 20. Set b: worth 25, deviation 25, and half reach 60."""
    alike = {(0, 1): 90, (1, 1): 90, (0, 2): 50, (1, 2): 50, (0, 3): 0, (1, 3): 100}
    found = view(scores(alike))
    row = found.frame.row(0, named=True)
    assert row["paying_share"] == 0.5
    assert row["deviation"] == pytest.approx((20 + 25) / 2)
    assert row["reached_share"] == pytest.approx(3 / 4)
    assert (found.noted["sets"], found.noted["sets_flagged"]) == (2, 2)
    assert [flag["worth"] for flag in found.noted["flagged"]] == [0, 25]


def test_failed_scores_are_left_out_and_a_table_without_any_is_a_fault():
    table = scores({(0, 1): 90, (0, 2): None, (1, 1): 70, (1, 2): 30})
    found = choice_set_figures(table.lazy(), SETS.lazy())
    # Set a: bests 90 and 70, means 80 and 30.
    assert found.row(0, named=True)["worth"] == pytest.approx(0)
    assert view(scores({(0, 1): None})).problem == "no choice set is scored as a whole"
