"""The statistics and the finite-sample bounds behind the checks."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.config import Settings
from pipelines.contracts import CONTRACTS
from pipelines.quality._check import view_functions
from pipelines.quality._spec import Evidence
from pipelines.quality._stats import (
    concentration_bound,
    share_allowance,
    total_variation,
    tv_allowance,
)
from pipelines.store import Store


# 1, 2, 3, 4: 2 * (1 + 4 + 9 + 16) / (4 * 10) - 5 / 4 = 0.25
@pytest.mark.parametrize(
    ("counts", "gini"), [((3, 1, 4, 2), 0.25), ((5, 5, 5), 0.0), ((1, 1, 30), 186 / 96 - 4 / 3)]
)
def test_gini_of_ratings_per_item_is_that_of_its_definition(
    tmp_path: Path, counts: tuple[int, ...], gini: float
) -> None:
    rated_at = datetime(2010, 1, 1, tzinfo=UTC)
    rows = [
        (f"ml-user:{user}", f"ml:{item}", 3.0, "0.5-5", rated_at)
        for item, count in enumerate(counts)
        for user in range(count)
    ]
    table = "movies.interactions"
    frame = pl.DataFrame(rows, schema=CONTRACTS[table].polars_schema(), orient="row")
    store = Store(tmp_path)
    evidence = Evidence(table, store.commit(table, frame, code_version="1"), store, Settings())
    view = view_functions(table)["ratings"](evidence)
    assert view.frame is not None
    assert view.frame["gini"].item() == pytest.approx(gini, abs=1e-12)


def test_total_variation_of_disjoint_and_empty_histograms() -> None:
    assert total_variation({"a": 1}, {"b": 5}) == 1
    assert total_variation({}, {"b": 5}) == 1
    assert total_variation({}, {}) == 0


@pytest.mark.parametrize("n", [20, 200, 2000])
def test_correct_samples_stay_within_the_allowances(n: int) -> None:
    rng = np.random.default_rng(3)
    shares = rng.dirichlet(np.ones(13))
    draws = rng.multinomial(n, shares, size=1000)
    distance = 0.5 * np.abs(draws / n - shares).sum(axis=1)
    assert (distance > tv_allowance(list(shares), n)).sum() == 0
    names = rng.multinomial(n, np.full(100, 0.01), size=1000).max(axis=1) / n
    assert (names > concentration_bound(n, 0.01)).sum() == 0
    off = np.abs(draws / n - shares).max(axis=1)
    assert (off > share_allowance(n, 13)).sum() == 0


def test_suber_s_johns_are_refused_at_its_size() -> None:
    # 134 of 600 personas.
    assert concentration_bound(600, 0.01) < 134 / 600
    assert concentration_bound(600, 0.01) < 0.05
