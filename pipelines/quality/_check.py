"""Running a dataset's suite on one snapshot."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pipelines.errors import ContractError
from pipelines.quality._spec import (
    VIEWS,
    Evidence,
    Expectation,
    Fact,
    MissingTableError,
    Setting,
    View,
    ViewFunction,
)
from pipelines.quality._suites import SUITES, drift_views, queries

if TYPE_CHECKING:
    import polars as pl

    from pipelines.config import Settings
    from pipelines.quality._spec import Expectation, PersonaTargets
    from pipelines.store import CheckRecord, Snapshot, Store

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
    """Judge one frame by several expectations (with their arguments filled in); outcomes by name.

    Only the columns that are read are handed to great-expectations, as pandas. Its context is made
    for the call and lives in memory: no files, no progress bars, no telemetry.

    Raises :class:`ContractError` if an expectation can't be evaluated at all (never taken as a
    pass).
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
                False, None, 0, 0, [], problem="there are no rows to check"
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
            hint="this is an error in the check, not in the data",
        )
    details = dict(result.result)
    failing = int(details.get("unexpected_count") or 0)
    of = int(details.get("element_count") or frame.height)
    observed = details.get("observed_value")
    if observed is None and spec.columns():
        observed = _observed(frame, spec, arguments, failing, of)
    rows: list[dict[str, str | None]] = []
    if not result.success and failing:
        rows = _rows_with(frame, spec.columns(), details.get("partial_unexpected_list") or [])
    elif not result.success and details.get("partial_missing_list"):
        rows = [{"missing": str(plain(v))} for v in details["partial_missing_list"][:MAX_ROWS]]
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
    failing = pl.DataFrame(
        [dict(zip(columns, (plain(x) for x in key), strict=True)) for key in keys],
        schema={c: frame.schema[c] for c in columns},
    ).unique()
    return sample_rows(frame.join(failing, on=columns, how="semi", maintain_order="left"))


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


def check_dataset(
    dataset: str,
    snapshot: Snapshot,
    *,
    store: Store,
    settings: Settings,
    previous: Snapshot | None = None,
    context: Mapping[str, Snapshot] | None = None,
    persona_targets: PersonaTargets | None = None,
) -> list[CheckRecord]:
    """Run every expectation of a dataset on one of its snapshots.

    Drift is judged against ``previous``, the table's snapshot in the last release of the same
    world; without one these checks are not applicable (``no previous``). Related tables are those
    of ``context`` by dataset, else the store's current ones (a release pins those).

    Returns
    -------
    list of CheckRecord
        One per expectation, in the suite's order. ``details`` holds ``observed`` (a number, or
        the smallest and largest), ``bound`` (the limits by name) and ``expected`` (the same as
        text), ``failing`` and ``of`` (rows of what was judged), ``rows`` (if it failed: up to
        ten, as text), ``because``, ``expectation``, ``message`` (one line for people),
        ``compared_with`` (versions of other tables), and ``skipped`` or ``problem`` where
        there is one.

    Raises
    ------
    ContractError
        If the dataset has no suite, the snapshot is another dataset's, or a check can't be
        evaluated.
    """
    if dataset not in SUITES:
        raise ContractError(
            "no expectations are declared", where=dataset, hint=f"one of {', '.join(SUITES)}"
        )
    if snapshot.dataset != dataset:
        raise ContractError(f"the snapshot is of {snapshot.dataset}", where=dataset)
    evidence = Evidence(
        dataset, snapshot, store, settings, previous, dict(context or {}), persona_targets
    )
    functions = view_functions(dataset)
    records: dict[str, CheckRecord] = {}
    by_view: dict[str, list[Expectation]] = {}
    for spec in SUITES[dataset]:
        by_view.setdefault(spec.view, []).append(spec)
    for name, specs in by_view.items():
        # A view at a time: only one is held in memory.
        try:
            view = functions[name](evidence)
        except MissingTableError as error:
            view = View.missing(str(error))
        compared = evidence.compared_with()
        for spec, details, passed in _judge(view, specs, settings, snapshot):
            if compared:
                details["compared_with"] = compared
            records[spec.name] = _record(spec, passed, details)
    return [records[spec.name] for spec in SUITES[dataset]]


def view_functions(dataset: str) -> dict[str, ViewFunction]:
    """The views of a dataset by name."""
    # Only here: views bring numpy, scipy and the graph, which reading the suites does not need.
    import pipelines.quality._views_graph
    import pipelines.quality._views_personas
    import pipelines.quality._views_scores  # noqa: F401

    table = dataset.rpartition(".")[2]
    functions = {name: function for (of, name), function in VIEWS.items() if of == table}
    return {**queries(table), **functions, **drift_views(dataset)}


def _judge(
    view: View, specs: list[Expectation], settings: Settings, snapshot: Snapshot
) -> list[tuple[Expectation, dict[str, Any], bool | None]]:
    if view.problem is not None:
        return [(spec, {"problem": view.problem}, False) for spec in specs]
    if view.frame is None:
        return [(spec, {"skipped": view.skipped}, None) for spec in specs]
    judged: list[tuple[Expectation, dict[str, Any], bool | None]] = []
    # Expectations that apply from the same number on are run together.
    groups: dict[tuple[str, int] | None, list[Expectation]] = {}
    for spec in specs:
        groups.setdefault(spec.applies_from, []).append(spec)
    for applies_from, group in groups.items():
        applicable = view
        if applies_from is not None:
            applicable = _large_enough(view, *applies_from, snapshot)
        if applicable.frame is None:
            judged += [(spec, {"skipped": applicable.skipped}, None) for spec in group]
            continue
        resolved = [(spec, _resolve(spec, view, settings)) for spec in group]
        outcomes = run_expectations(applicable.frame, resolved, where=snapshot.dataset)
        for spec, arguments in resolved:
            outcome = outcomes[spec.name]
            judged.append((spec, _details(spec, outcome, arguments, applicable), outcome.passed))
    return judged


def _large_enough(view: View, counted: str, number: int, snapshot: Snapshot) -> View:
    """The view's rows that stand for at least ``number`` of what is counted, if there are any."""
    assert view.frame is not None, "a view without a frame has no rows to count"
    counts = {"rows": snapshot.rows, **view.facts}
    if counted in counts:
        count, frame = int(counts[counted]), view.frame
    else:
        count = max(view.frame[counted].to_list(), default=0)
        frame = view.frame.filter(view.frame[counted] >= number)
    # An empty table is a fault at any size: its checks run, and fail.
    if count < number and snapshot.rows:
        unit = counted.replace("_", " ")
        return View.skip(f"{count:,} {unit}; at least {number:,} are needed")
    return replace(view, frame=frame)


def _resolve(spec: Expectation, view: View, settings: Settings) -> dict[str, Any]:
    """The expectation's arguments with settings and facts filled in."""
    out: dict[str, Any] = {}
    for key, value in spec.arguments.items():
        if isinstance(value, Setting):
            out[key] = value.resolve(settings)
        elif isinstance(value, Fact):
            out[key] = view.facts[value.name]
        else:
            out[key] = value
    return out


_BOUNDS = ("min_value", "max_value", "mostly", "value", "value_set")


def _details(
    spec: Expectation, outcome: Outcome, arguments: Mapping[str, Any], view: View
) -> dict[str, Any]:
    bound = {k: plain(arguments[k]) for k in _BOUNDS if arguments.get(k) is not None}
    details: dict[str, Any] = {
        "observed": outcome.observed,
        "bound": bound,
        "expected": _expected(spec, bound),
        "failing": outcome.failing,
        "of": outcome.of,
        **plain(view.noted),
    }
    rows = outcome.rows
    if not outcome.passed and view.examples is not None and view.examples.height:
        rows = sample_rows(view.examples)
    elif not outcome.passed and not rows and view.frame is not None and not spec.columns():
        # A row count has no failing values: its rows are what is too many or too few.
        rows = sample_rows(view.frame)
    if rows:
        details["rows"] = rows
    if outcome.problem:
        details["problem"] = outcome.problem
    return details


def _expected(spec: Expectation, bound: Mapping[str, Any]) -> str:
    """The bound as text.

    >>> spec = Expectation("a", "warn", "v", "ExpectColumnValuesToBeBetween", {}, "")
    >>> _expected(spec, {"min_value": 1, "mostly": 0.4})
    'at least 40 % of rows with at least 1'
    """
    low, high = bound.get("min_value"), bound.get("max_value")
    if spec.kind == "ExpectColumnPairValuesAToBeGreaterThanB":
        text = f"{spec.arguments['column_B']} at most {spec.arguments['column_A']}"
    elif "value_set" in bound:
        word = "with" if spec.kind.endswith("ContainSet") else "one of"
        text = f"{word} {', '.join(map(str, bound['value_set']))}"
    elif "value" in bound:
        text = f"exactly {_number(bound['value'])}"
    elif low is not None and high is not None:
        text = f"{_number(low)} to {_number(high)}" if low != high else f"exactly {_number(low)}"
    elif low is not None or high is not None:
        text = f"at least {_number(low)}" if high is None else f"at most {_number(high)}"
    else:
        text = "all different"
    if "mostly" in bound:
        return f"at least {_number(100 * bound['mostly'])} % of rows with {text}"
    return text


def _message(spec: Expectation, passed: bool | None, details: Mapping[str, Any]) -> str:
    if details.get("skipped"):
        return f"{spec.because}: not applicable, {details['skipped']}"
    if details.get("problem"):
        return f"{spec.because}: {details['problem']}"
    observed = details["observed"]
    several = observed if isinstance(observed, list) else [observed]
    shown = " to ".join("none" if v is None else _number(v) for v in several)
    text = f"{spec.because}: {shown}; {'as' if passed else 'but'} expected {details['expected']}"
    return text if passed or spec.remedy is None else f"{text} ({spec.remedy})"


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _record(spec: Expectation, passed: bool | None, details: dict[str, Any]) -> CheckRecord:
    from pipelines.store import CheckRecord

    return CheckRecord(
        name=spec.name,
        passed=passed,
        severity=spec.severity,
        kind="expectations",
        details={
            "message": _message(spec, passed, details),
            **details,
            "because": spec.because,
            "expectation": spec.kind,
        },
    )
