"""A small honest source is published: checks of distributions do not apply to it, and say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.amazon_files import meta_2023, review_2023, write_lines

from orchestration.headless import RunReport, run_job
from pipelines.domains import DOMAINS
from pipelines.quality import SUITES
from pipelines.store import Release, Store

pytestmark = pytest.mark.pipeline

USERS, EACH = 30, 5
#: 150 reviews of 148 products: two products are reviewed twice, with the same stars.
ASINS = [f"B{n:09d}" for n in range(USERS * EACH - 2)]
SHELVES = ("Mugs", "Pans", "Whisks", "Woks")


@pytest.fixture(scope="module")
def published(
    tmp_path_factory: pytest.TempPathFactory, word_encoder: Path
) -> tuple[RunReport, Release]:
    """A run on the smallest of shops, whose tree has no choice set of the asked size."""
    folder = tmp_path_factory.mktemp("tiny")
    data = folder / "data"
    reviews = [
        review_2023(f"u{n // EACH}", ASINS[n % len(ASINS)], stars=(4.0, 5.0, 3.0)[n % 148 % 3])
        for n in range(USERS * EACH)
    ]
    write_lines(data / "amazon/2023/Home_and_Kitchen.jsonl", reviews)
    records = [
        meta_2023(
            asin,
            f"Pan {n}",
            main_category="Home & Kitchen",
            categories=["Home & Kitchen", "Kitchen", SHELVES[n % 4]],
            description=[f"Number {n}."],
        )
        for n, asin in enumerate(ASINS)
    ]
    write_lines(data / "amazon/2023/meta_Home_and_Kitchen.jsonl", records)
    tree = [f"Home & Kitchen > Kitchen > {shelf}" for shelf in SHELVES]
    write_lines(data / "taxonomy/tree.txt", [line.encode() for line in tree])
    report = run_job(
        "products",
        overrides={
            "world": {"folder": str(data)},
            "runtime": {"home": str(folder / "home")},
            "products": {"min_category_size": 60},
            "personas": {"count": 12},
            "embedding": {"model": str(word_encoder)},
            "scoring": {"max_pairs": 400},
        },
    )
    return report, Store(folder / "home").release("products@latest")


def test_tiny_source_is_published(published: tuple[RunReport, Release]) -> None:
    report, release = published
    assert report.checks_failed == []
    assert release.tables["interactions"].rows == 150
    assert release.tables["items"].rows == 148


def test_unmet_row_counts_are_stored_as_not_applicable(
    published: tuple[RunReport, Release],
) -> None:
    _, release = published
    record = release.checks["products.user_traits"]["conformity_tiers"]
    assert record.status == "not applicable"
    assert not record.blocks
    assert "same value" in record.details["skipped"]
    share = release.checks["products.items"]["genre_share"]
    assert share.details["skipped"] == "148 rows; at least 1,000 are needed"
    stored = json.loads(release.path.read_text())["checks"]["products.user_traits"]
    assert stored["conformity_tiers"]["status"] == "not applicable"
    # Integrity is checked at any size.
    judged = {
        c.name
        for checks in release.checks.values()
        for c in checks.values()
        if c.passed is not None
    }
    assert {"row_count", "rated_from", "ids_covered", "unit_norm"} <= judged


def test_empty_optional_tables_are_absent(published: tuple[RunReport, Release]) -> None:
    _, release = published
    optional = {name.removeprefix("products.") for name in DOMAINS["products"].optional}
    assert not optional & set(release.tables)
    assert "products.categories" in SUITES


def test_card_and_report_count_what_does_not_apply(published: tuple[RunReport, Release]) -> None:
    report, release = published
    stored = [c for checks in release.checks.values() for c in checks.values()]
    unjudged = sum(c.passed is None for c in stored)
    assert f" {unjudged} not applicable." in release.card()
    # The run also reports the checks of the tables that are absent.
    assert report.checks_not_applicable > unjudged > 10
