"""docs/scale.md shows what the script computes from the benchmarks' figures."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from pipelines.stages.s60_graph import ITEMS_PER_PART

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def arithmetic() -> dict[str, object]:
    return runpy.run_path(str(ROOT / "docs/scale_table.py"))


def test_table_of_the_page_is_what_the_script_prints(arithmetic) -> None:
    assert arithmetic["table"]() in (ROOT / "docs/scale.md").read_text()


def test_estimates_follow_from_the_measured_figures(arithmetic) -> None:
    rows = dict(line[2:].split(" | ", 1) for line in arithmetic["table"]().splitlines()[2:])
    # 156 s x 2 cores x 600 times as many ratings = 187,200 core-seconds.
    assert "52 core-hours" in rows["ingest, dbt, marts"]
    # 2 x 10^10 pairs / 907,000 per second = 22,051 s; x 84 B = 1.68 TB.
    assert "6.1 core-hours, 1.7 TB" in rows["statistical scores"]
    # 395 TFLOP/s / (2 x 8 x 10^9 FLOP a token) / 50 tokens = 494 pairs/s.
    assert "494 pairs/s" in rows["model scores"]
    # (1,100 - 650) MiB / (4,532,586 - 1,285,070) ratings = 145 B; x 5,000 x 10^6.
    found = "5 billion ratings; 4 h of such a machine in 245 parts, 726 GB on each node"
    assert found in rows["similar items"]


def test_parts_are_those_of_the_stage(arithmetic) -> None:
    assert arithmetic["ITEMS_OF_A_PART"] == ITEMS_PER_PART


def test_a_rewritten_benchmark_is_an_error_and_not_an_old_figure(arithmetic) -> None:
    with pytest.raises(LookupError, match="0 rows 'no such row' with a column 'ratings'"):
        arithmetic["cell"]("benchmarks/earlier/graph.md", "no such row", "ratings")
