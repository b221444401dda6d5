"""The page of the papers' claims holds those that the experiments test, and the papers' numbers."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from sim.experiments import EXPERIMENTS, open_experiment

FOLDER = Path(__file__).resolve().parents[2] / "docs"
PAGE = (FOLDER / "reproduction.md").read_text("utf-8")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_row_has_claim_and_papers_number(name: str) -> None:
    spec = importlib.util.spec_from_file_location("reproduction", FOLDER / "reproduction.py")
    assert spec is not None
    assert spec.loader is not None
    writer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(writer)
    (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| [`{name}`]"))
    claim = open_experiment(name).claim
    assert claim is not None
    assert claim.text in row
    assert writer.published(name) in row
