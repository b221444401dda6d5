"""Time, calls, tokens and price of visits."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from pipelines.config import load_settings
from sim.experiments import ExperimentContext
from sim.experiments._cost import cost, per_thousand, price_of
from sim.experiments.testing import fresh


def test_price_is_tokens_times_prices_of_a_million() -> None:
    assert price_of(3_000_000, 1_000_000, 0.15, 0.60) == pytest.approx(1.05)


def test_runs_of_other_sizes_are_per_thousand_agents() -> None:
    found = per_thousand(np.array([2.0, 3.0, 4.0]), np.array([250, 500, 1000]))
    # 8, 6 and 4 seconds.
    assert found.value == pytest.approx(6.0)
    assert found.low == pytest.approx(6 - 4.303 * 2 / np.sqrt(3), abs=0.01)


def test_rows_without_a_model_make_no_calls(context: ExperimentContext) -> None:
    for row in cost.run(context).rows:
        assert row.figures["calls"].value == row.figures["price"].value == 0.0
        assert row.figures["cached_share"] is None
        assert row.figures["seconds"].value > 0


@pytest.mark.pipeline
def test_calls_and_tokens_of_a_model_are_counted(
    scripted: Callable[..., ExperimentContext],
) -> None:
    made = scripted()
    (row,) = [r for r in cost.run(made).rows if r.labels["brain"] == "model"]
    assert row.source == "model"
    assert row.n == made.sample["model_agents"]
    assert row.figures["calls"].value > 1_000
    assert row.figures["prompt_tokens"].value > row.figures["calls"].value
    # The rerun of a killed report calls nothing, whatever the engine would reply.
    again = fresh(made)
    assert cost.run(again).rows == cost.run(made).rows
    assert again.made == 0


def test_configured_prices_take_the_place_of_assumed_ones(context: ExperimentContext) -> None:
    settings = load_settings(
        overrides={
            "runtime": {"home": str(context.home)},
            "serving": {"input_price": 3.0, "output_price": 6.0},
        }
    )
    text = " ".join(cost.run(fresh(context, settings=settings)).notes)
    assert "3 USD per million prompt tokens, 6 of replies" in text
    assert "serving.input_price" in text
