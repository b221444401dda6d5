"""What the pages of an asset show: figures as numbers, rows as tables, hashes last."""

from __future__ import annotations

import dagster as dg
import polars as pl
import pytest
from support import small_release

from orchestration.results import check_result, materialize, table
from pipelines.config import Settings
from pipelines.quality import figures_for
from pipelines.store import CheckRecord, Store


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("shown") / "home"
    small_release.build(folder)
    return Store(folder)


def test_observed_value_and_limits_of_a_check_are_numbers() -> None:
    record = CheckRecord(
        "share", False, "error",
        details={
            "observed": 0.4, "bound": {"min_value": 0.5, "max_value": 1.0}, "failing": 3, "of": 9,
            "rows": [{"item_id": "ml:1", "n": 2}], "because": "share of items with a genre",
        },
    )  # fmt: skip
    shown = check_result("movies.items", record).metadata
    numbers = {
        k: v.value
        for k, v in shown.items()
        if isinstance(v, dg.IntMetadataValue | dg.FloatMetadataValue)
    }
    assert numbers == {
        "observed": 0.4, "limit_min_value": 0.5, "limit_max_value": 1.0, "failing": 3, "of": 9
    }  # fmt: skip
    (row,) = shown["failing_rows"].records
    assert row.data == {"item_id": "ml:1", "n": 2}
    assert list(shown)[-1] == "details"


def test_preview_is_a_table_and_hashes_come_last(store: Store) -> None:
    snapshot = store.current("movies.items")
    shown = materialize(snapshot, metadata={"rmse": 1.9, "note": "text"}).metadata
    names = list(shown)
    assert names[0] == "dagster/row_count"
    assert names.index("rmse") < names.index("preview") < names.index("note")
    assert names[-2:] == ["inputs", "version"]
    assert shown["preview"].records[0].data["item_id"] == snapshot.read()["item_id"][0]


def test_cells_are_one_line_of_text_or_numbers() -> None:
    frame = pl.DataFrame(
        {
            "title": ["a\x1b[31m\nb" + "c" * 100],
            "year": [1995],
            "x": [float("nan")],
            "g": [["A", "B"]],
        }
    )
    (row,) = table(frame).records
    assert row.data["year"] == 1995
    assert row.data["x"] == "nan"
    assert row.data["g"] == "A, B"
    title = str(row.data["title"])
    assert title.startswith("a [31m b")
    assert len(title) == 80


def test_scores_have_entropy_and_seconds_per_pair(store: Store) -> None:
    snapshot = store.current("movies.preference_scores")
    figures = figures_for("movies.preference_scores", snapshot, Settings())
    rows = snapshot.read()
    assert figures["entropy"] == pytest.approx(rows["entropy"].mean(), rel=1e-3)
    assert figures["expected_rating"] == pytest.approx(rows["expected"].mean(), rel=1e-3)
    # 143 pairs, one of them refused.
    assert figures["failed_share"] == pytest.approx(1 / 143, rel=1e-3)


def test_cost_of_a_model_follows_from_tokens_and_prices(store: Store) -> None:
    class Scored:
        rows = 1
        manifest = type("Manifest", (), {"stats": {"scoring": {"pilot": {
            "scored_now": 4, "seconds": 2.0, "prompt_tokens": 1000, "completion_tokens": 10,
            "cached_tokens": 0, "calls": 4,
        }}}})  # fmt: skip

        def scan(self) -> pl.LazyFrame:
            return store.current("movies.preference_scores").scan()

    settings = Settings(serving={"input_price": 2.0, "output_price": 50.0})  # type: ignore[arg-type]
    figures = figures_for("movies.preference_scores", Scored(), settings)  # type: ignore[arg-type]
    # 1000 tokens at 2 and 10 tokens at 50 a million.
    assert figures["cost, pilot"] == pytest.approx(0.0025)
    assert figures["seconds per pair, pilot"] == 0.5
    assert figures["prompt_tokens, pilot"] == 1000
