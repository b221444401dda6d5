"""Runs expectations with great-expectations, in memory and off line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pipelines.errors import ContractError

if TYPE_CHECKING:
    import polars as pl

    from pipelines.quality._spec import Expectation

__all__ = ["MAX_ROWS", "Outcome", "plain", "run_expectations", "sample_rows"]

#: Failing rows kept with a check.
MAX_ROWS = 10
#: Characters kept of a value in a failing row.
MAX_TEXT = 200
#: Expectations on every row whose figure is the smallest or largest value.
_EXTREMES = {"ExpectColumnValuesToBeBetween", "ExpectColumnPairValuesAToBeGreaterThanB"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one expectation on one frame."""

    passed: bool
    observed: Any
    failing: int
    of: int
    rows: list[dict[str, str | None]]
    problem: str | None = None


def run_expectations(
    frame: pl.DataFrame,
    expectations: Sequence[tuple[Expectation, Mapping[str, Any]]],
    *,
    where: str,
) -> dict[str, Outcome]:
    """Judge one frame by several expectations (with their arguments filled in).

    Only the columns that are read are handed to great-expectations, as pandas. Its context is
    made for the call and lives in memory: no files, no progress bars, no telemetry.

    Returns
    -------
    dict
        Outcome by expectation name.

    Raises
    ------
    ContractError
        If an expectation can't be evaluated at all (never taken as a pass).
    """
    import polars as pl

    outcomes: dict[str, Outcome] = {}
    runnable: list[tuple[Expectation, Mapping[str, Any]]] = []
    for spec, arguments in expectations:
        # great-expectations leaves nulls out of what it judges; here they are failures.
        columns = spec.columns()
        bad = (
            frame.filter(pl.any_horizontal(_unusable(frame, c) for c in columns))
            if columns
            else None
        )
        if bad is not None and bad.height:
            outcomes[spec.name] = Outcome(
                False,
                None,
                bad.height,
                frame.height,
                sample_rows(bad),
                problem=f"no value in {', '.join(columns)}",
            )
        elif columns and not frame.height:
            outcomes[spec.name] = Outcome(
                False, None, 0, 0, [], problem="there are no rows to judge"
            )
        else:
            runnable.append((spec, arguments))
    if runnable:
        for (spec, arguments), result in zip(runnable, _validate(frame, runnable), strict=True):
            outcomes[spec.name] = _outcome(frame, spec, arguments, result, where)
    return outcomes


def _unusable(frame: pl.DataFrame, column: str) -> pl.Expr:
    import polars as pl

    bad = pl.col(column).is_null()
    return bad | pl.col(column).is_nan() if frame.schema[column].is_float() else bad


def _validate(
    frame: pl.DataFrame, expectations: Sequence[tuple[Expectation, Mapping[str, Any]]]
) -> list[Any]:
    """Results in the order of the expectations."""
    import great_expectations as gx
    import great_expectations.expectations as classes
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    context = gx.get_context(
        mode="ephemeral",
        project_config=DataContextConfig(
            # The default makes a temporary folder for its pages.
            store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
            analytics_enabled=False,
            progress_bars=ProgressBarsConfig(globally=False, metric_calculations=False),
        ),
    )
    used = sorted({c for spec, _ in expectations for c in spec.columns()})
    # With no column read (a row count) any one column carries the rows.
    pandas = frame.select(used or frame.columns[:1]).to_pandas()
    definition = (
        context.data_sources.add_pandas("understudy")
        .add_dataframe_asset("view")
        .add_batch_definition_whole_dataframe("whole")
    )
    suite = gx.ExpectationSuite(
        name="view",
        expectations=[
            getattr(classes, spec.kind)(**arguments, meta={"position": n})
            for n, (spec, arguments) in enumerate(expectations)
        ],
    )
    # Not `unexpected_index_column_names`: listing the failing rows that way is Python per row
    # (9.5 s for 100,000 rows). They are looked up by their values instead.
    result = definition.get_batch({"dataframe": pandas}).validate(
        suite, result_format={"result_format": "BASIC", "partial_unexpected_count": MAX_ROWS}
    )
    # Results come grouped, not in the order asked for.
    return sorted(result.results, key=lambda r: int(r.expectation_config.meta["position"]))


def _outcome(
    frame: pl.DataFrame, spec: Expectation, arguments: Mapping[str, Any], result: Any, where: str
) -> Outcome:
    info = dict(result.exception_info or {})
    faults = [info, *(v for v in info.values() if isinstance(v, dict))]
    raised = next((f for f in faults if f.get("raised_exception")), None)
    if raised:
        raise ContractError(
            f"the check could not be evaluated: {str(raised.get('exception_message'))[:300]}",
            where=f"{where}.{spec.name}",
            hint="this is a fault of the check, not of the data",
        )
    found = dict(result.result)
    failing = int(found.get("unexpected_count") or 0)
    of = int(found.get("element_count") or frame.height)
    observed = found.get("observed_value")
    if observed is None and spec.columns():
        observed = _observed(frame, spec, arguments, failing, of)
    rows: list[dict[str, str | None]] = []
    if not result.success and failing:
        rows = _rows_with(frame, spec.columns(), found.get("partial_unexpected_list") or [])
    elif not result.success and found.get("partial_missing_list"):
        rows = [{"missing": str(plain(v))} for v in found["partial_missing_list"][:MAX_ROWS]]
    return Outcome(bool(result.success), plain(observed), failing, of, rows)


def _observed(
    frame: pl.DataFrame, spec: Expectation, arguments: Mapping[str, Any], failing: int, of: int
) -> Any:
    """The figure that the bound is about: a share of rows, or the value nearest to failing."""
    column = spec.columns()[-1]
    if spec.kind == "ExpectColumnDistinctValuesToContainSet":
        return frame[column].n_unique()
    low, high = arguments.get("min_value"), arguments.get("max_value")
    if "mostly" in arguments or spec.kind not in _EXTREMES:
        return 1 - failing / of if of else None
    if spec.kind == "ExpectColumnPairValuesAToBeGreaterThanB" or low is None:
        return frame[column].max()
    if high is None or frame.height == 1:
        return frame[column].min()
    return [frame[column].min(), frame[column].max()]


def _rows_with(
    frame: pl.DataFrame, columns: list[str], values: Sequence[Any]
) -> list[dict[str, str | None]]:
    """The first rows that hold one of the failing values."""
    import polars as pl

    keys = [
        v.values() if isinstance(v, dict) else v if isinstance(v, tuple | list) else (v,)
        for v in values
    ]
    wanted = pl.DataFrame(
        [dict(zip(columns, (plain(x) for x in key), strict=True)) for key in keys],
        schema={c: frame.schema[c] for c in columns},
    ).unique()
    return sample_rows(frame.join(wanted, on=columns, how="semi", maintain_order="left"))


def sample_rows(frame: pl.DataFrame) -> list[dict[str, str | None]]:
    """The first ten rows, each value as short plain text.

    >>> import polars as pl
    >>> sample_rows(pl.DataFrame({"a": [1.5, None]}))
    [{'a': '1.5'}, {'a': None}]
    """
    return [
        {k: None if v is None else _text(v) for k, v in row.items()}
        for row in frame.head(MAX_ROWS).to_dicts()
    ]


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return str(value)[:MAX_TEXT]


def plain(value: Any) -> Any:
    """A value that JSON can hold: numpy scalars unwrapped, not-a-number as text."""
    if hasattr(value, "item") and callable(value.item):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value)
