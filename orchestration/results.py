"""From a committed snapshot to what Dagster shows of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import dagster as dg
import polars as pl

from orchestration.naming import asset_key
from pipelines.errors import ContractError, UnderstudyError
from pipelines.markdown import plain_text
from pipelines.quality import CONTRACT_CHECK
from pipelines.stages import contract_record
from pipelines.store import CheckRecord, Severity, Snapshot

__all__ = [
    "absent",
    "check_result",
    "contract_spec",
    "failure_of",
    "materialize",
    "not_applicable",
    "reported",
    "table",
    "transient_retry",
]

Result = TypeVar("Result")

#: Steps that talk to a network or share the DuckDB file may be tried again; permanent faults
#: say so themselves (see `reported`) and are not.
transient_retry = dg.RetryPolicy(
    max_retries=2, delay=5, backoff=dg.Backoff.EXPONENTIAL, jitter=dg.Jitter.PLUS_MINUS
)


def contract_spec(dataset: str) -> dg.AssetCheckSpec:
    """Check spec of a dataset's contract."""
    return dg.AssetCheckSpec(
        CONTRACT_CHECK,
        asset=asset_key(dataset),
        blocking=True,
        description="Types, ranges, nulls and key of every row (pandera), checked before commit.",
    )


def failure_of(error: UnderstudyError) -> dg.Failure:
    """A Dagster failure that carries the error's one line and is retried only if that can help."""
    metadata: dict[str, Any] = {"error": type(error).__name__}
    rows = error.details.get("rows")
    if rows:
        metadata["failing_rows"] = dg.MetadataValue.json(rows)
    return dg.Failure(description=str(error), metadata=metadata, allow_retries=not error.permanent)


def reported(
    datasets: Sequence[str], make: Callable[[], Iterable[Result]]
) -> Iterator[Result | dg.AssetCheckResult]:
    """Yield the results of a step that writes ``datasets`` (if any), or its failure.

    Rows that break a contract fail the dataset's contract check, with the rows, before the step
    fails: nothing was committed. Every named error becomes a failure of one line that is
    retried only if that can help.
    """
    try:
        results = list(make())
    except UnderstudyError as error:
        if isinstance(error, ContractError):
            refused = [d for d in datasets if d == error.where] or list(datasets)[:1]
            for dataset in refused:
                yield dg.AssetCheckResult(
                    check_name=CONTRACT_CHECK,
                    asset_key=asset_key(dataset),
                    passed=False,
                    severity=dg.AssetCheckSeverity.ERROR,
                    description=str(error),
                    metadata={"failing_rows": dg.MetadataValue.json(error.details.get("rows", []))},
                )
        raise failure_of(error) from error
    yield from results


def check_result(dataset: str, record: CheckRecord) -> dg.AssetCheckResult:
    """A stored check as Dagster shows it, failing rows included."""
    details = {k: v for k, v in record.details.items() if v is not None}
    return dg.AssetCheckResult(
        check_name=record.name,
        asset_key=asset_key(dataset),
        # Dagster knows passed and failed only: the status says which checks do not apply.
        passed=record.passed is not False,
        severity=dg.AssetCheckSeverity.ERROR
        if record.severity == "error"
        else dg.AssetCheckSeverity.WARN,
        metadata={"status": record.status, **_check_figures(details)},
        description=str(details.get("message", "")) or None,
    )


def _check_figures(details: Mapping[str, Any]) -> dict[str, Any]:
    """Observed value and limits as numbers, failing rows as a table, and the rest as JSON."""
    observed, bound = details.get("observed"), dict(details.get("bound") or {})
    low, high = observed if isinstance(observed, list) and len(observed) == 2 else (observed, None)
    figures = {
        "observed": low,
        "observed_max": high,
        **{f"limit_{name}": value for name, value in bound.items()},
        **{name: details.get(name) for name in ("failing", "of")},
    }
    shown: dict[str, Any] = {
        k: round(v, 6) if isinstance(v, float) else v for k, v in figures.items() if _is_number(v)
    }
    rows = details.get("rows")
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        shown["failing_rows"] = table(pl.DataFrame(rows, infer_schema_length=None, strict=False))
    others = {k: v for k, v in details.items() if k not in shown and k not in ("bound", "rows")}
    return {**shown, **({"details": dg.MetadataValue.json(others)} if others else {})}


def table(frame: pl.DataFrame, rows: int = 8) -> dg.TableMetadataValue:
    """The first rows as a table: numbers stay numbers, text of any origin is one line of text."""
    if not frame.width:
        frame = pl.DataFrame({"rows": pl.Series([], dtype=pl.String)})
    records = [
        dg.TableRecord({plain_text(name): _cell(value) for name, value in row.items()})
        for row in frame.head(rows).iter_rows(named=True)
    ]
    columns = [dg.TableColumn(plain_text(name), str(kind)) for name, kind in frame.schema.items()]
    return dg.MetadataValue.table(records, dg.TableSchema(columns))


def _cell(value: Any) -> str | int | float | bool | None:
    if isinstance(value, float):
        return round(value, 6) if math.isfinite(value) else str(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, list):
        value = ", ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in value[:8])
    return plain_text(str(value), 80)


def not_applicable(
    dataset: str, name: str, reason: str, severity: Severity = "error"
) -> dg.AssetCheckResult:
    """Result of a check of a dataset that is absent."""
    details = {"message": f"not applicable: {reason}", "skipped": reason}
    return check_result(dataset, CheckRecord(name, None, severity, details=details))


def absent(dataset: str, reason: str) -> dg.MaterializeResult[Any]:
    """Materialize result of an optional dataset that has no rows and so no snapshot."""
    return dg.MaterializeResult(
        asset_key=asset_key(dataset),
        metadata={"dagster/row_count": 0, "absent": reason},
        check_results=[not_applicable(dataset, CONTRACT_CHECK, reason)],
    )


def materialize(
    snapshot: Snapshot,
    *,
    reused: bool = False,
    metadata: Mapping[str, Any] | None = None,
    plots: Mapping[str, bytes] | None = None,
    preview: bool = True,
) -> dg.MaterializeResult[Any]:
    """Materialize result of a committed snapshot.

    Carries the data version, row count, figures, preview, plots, statistics, size, place and
    versions in this order, and the contract check.
    """
    from pipelines.figures import to_markdown_image

    given = {**snapshot.manifest.stats, **(metadata or {})}
    shown: dict[str, Any] = {"dagster/row_count": snapshot.rows}
    # Dagster plots numbers of its own and no others: they stand before text and JSON.
    shown.update((name, value) for name, value in given.items() if _is_number(value))
    if preview and snapshot.rows:
        shown["preview"] = table(snapshot.scan().head(8).collect())
    for name, png in (plots or {}).items():
        shown[name] = dg.MetadataValue.md(to_markdown_image(png, name))
    shown.update(_shown(entry) for entry in given.items() if entry[0] not in shown)
    shown |= {
        "size_bytes": snapshot.bytes,
        "files": len(snapshot.manifest.files),
        "reused": dg.MetadataValue.bool(reused),
        "dagster/uri": str(snapshot.path),
        "inputs": dg.MetadataValue.json(dict(snapshot.manifest.inputs)),
        "version": snapshot.version,
    }
    return dg.MaterializeResult(
        asset_key=asset_key(snapshot.dataset),
        metadata={k: v for k, v in shown.items() if v is not None},
        data_version=dg.DataVersion(snapshot.version),
        check_results=[check_result(snapshot.dataset, contract_record(snapshot))],
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(entry: tuple[str, Any]) -> tuple[str, Any]:
    name, value = entry
    return name, dg.MetadataValue.json(value) if isinstance(value, dict | list) else value
