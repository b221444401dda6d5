"""A run whose model can't do its work stops; other faults let independent steps end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from orchestration.headless import PlannedRun, _run
from orchestration.results import reported
from pipelines.errors import AnswerError, EngineError, StoreError, UnderstudyError


@pytest.mark.parametrize(
    ("error", "later"),
    [(AnswerError("no text"), []), (EngineError("dead"), []), (StoreError("full"), ["b", "c"])],
    ids=["refused cohort", "dead engine", "other fault"],
)
def test_failed_model_stops_the_run_at_once(error: UnderstudyError, later: list[str]) -> None:
    ran: list[str] = []
    shown: list[tuple[str, str]] = []

    @dg.asset
    def a() -> Iterator[Any]:
        def make() -> list[Any]:
            raise error

        yield from reported([], make)

    @dg.asset
    def b() -> None:
        ran.append("b")

    @dg.asset(deps=[b])
    def c() -> None:
        ran.append("c")

    defs = dg.Definitions([a, b, c], jobs=[dg.define_asset_job("one")])
    planned = PlannedRun("one", "base", (a.key, b.key, c.key))
    with (
        dg.DagsterInstance.ephemeral() as instance,
        pytest.raises(type(error), match=f"a: {error}"),
    ):
        _run(
            defs, planned, instance, Path(), "CRITICAL",
            lambda event, step, *_: shown.append((event, step)),
        )  # fmt: skip
    assert ran == later
    assert ("failed", "a") in shown
    assert [step for event, step in shown if event == "failed"] == ["a"]
