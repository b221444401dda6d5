"""Faults become failures that no retry mechanism repeats without need."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl

from orchestration.naming import asset_key
from orchestration.results import contract_spec, materialize, reported
from pipelines.errors import ContractError, SourceUnavailableError, UnderstudyError
from pipelines.store import Store


def _runs_of(error: UnderstudyError) -> tuple[int, dg.ExecuteInProcessResult]:
    calls = []

    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=2))
    def faulty() -> None:
        calls.append(1)
        list(reported([], lambda: _raise(error)))

    result = dg.materialize([faulty], raise_on_error=False)
    return len(calls), result


def _raise(error: UnderstudyError) -> list[dg.AssetCheckResult]:
    raise error


def test_a_permanent_fault_is_not_retried_and_shows_its_line_and_rows() -> None:
    calls, result = _runs_of(ContractError("bad rows", where="t", details={"rows": [{"a": 1}]}))
    assert calls == 1
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    shown = failure.step_failure_data.user_failure_data
    assert shown is not None
    assert shown.description == "bad rows: t"
    assert shown.metadata["failing_rows"].value == [{"a": 1}]


def test_rows_that_break_a_contract_fail_its_check_and_commit_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path)
    bad = pl.DataFrame(
        {"movie_id": [1], "title": ["A (2000)"], "genres": ["Drama"]},
        schema={"movie_id": pl.Int64, "title": pl.String, "genres": pl.String},
    ).with_columns(movie_id=pl.lit(-5, pl.Int64))
    dataset = "raw.movielens_movies"

    @dg.multi_asset(specs=[dg.AssetSpec(asset_key(dataset))], check_specs=[contract_spec(dataset)])
    def movies() -> Iterator[Any]:
        yield from reported(
            [dataset], lambda: [materialize(store.commit(dataset, bad, code_version="1"))]
        )

    result = dg.materialize([movies], raise_on_error=False)
    assert not result.success
    (check,) = result.get_asset_check_evaluations()
    assert not check.passed
    assert check.check_name == "contract"
    assert "-5" in str(check.metadata["failing_rows"].value)
    assert not store.has(dataset)


def test_a_fault_of_the_moment_is_retried() -> None:
    calls, _ = _runs_of(SourceUnavailableError("try later"))
    assert calls == 3
