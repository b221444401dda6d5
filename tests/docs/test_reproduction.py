"""The page of the papers' claims holds those that the experiments test, and the papers' numbers."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from sim.experiments import EXPERIMENTS, open_experiment

FOLDER = Path(__file__).resolve().parents[2] / "docs"
PAGE = (FOLDER / "reproduction.md").read_text("utf-8")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_row_has_claim_and_papers_number(name: str) -> None:
    published = runpy.run_path(str(FOLDER / "reproduction.py"))["published"]
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| [`{name}`]"))
    claim = open_experiment(name).claim
    assert claim is not None
    assert claim.text in row
    assert published(name) in row
