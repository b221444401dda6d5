"""From a committed snapshot to what Dagster shows of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import dagster as dg

from orchestration.naming import asset_key
from pipelines.errors import ContractError, UnderstudyError
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
        metadata={
            "status": record.status,
            **({"details": dg.MetadataValue.json(details)} if details else {}),
        },
        description=str(details.get("message", "")) or None,
    )


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

    Carries the data version, row count, size, place, preview, statistics and plots, and the
    contract check.
    """
    from pipelines.figures import to_markdown_image
    from pipelines.markdown import preview_markdown

    shown: dict[str, Any] = {
        "dagster/row_count": snapshot.rows,
        "dagster/uri": str(snapshot.path),
        "version": snapshot.version,
        "size_bytes": snapshot.bytes,
        "files": len(snapshot.manifest.files),
        "reused": dg.MetadataValue.bool(reused),
        "inputs": dg.MetadataValue.json(dict(snapshot.manifest.inputs)),
    }
    shown.update(map(_shown, snapshot.manifest.stats.items()))
    if preview and snapshot.rows:
        shown["preview"] = dg.MetadataValue.md(
            preview_markdown(snapshot.scan().head(8).collect(), rows=8)
        )
    for name, png in (plots or {}).items():
        shown[name] = dg.MetadataValue.md(to_markdown_image(png, name))
    shown.update(map(_shown, (metadata or {}).items()))
    return dg.MaterializeResult(
        asset_key=asset_key(snapshot.dataset),
        metadata={k: v for k, v in shown.items() if v is not None},
        data_version=dg.DataVersion(snapshot.version),
        check_results=[check_result(snapshot.dataset, contract_record(snapshot))],
    )


def _shown(entry: tuple[str, Any]) -> tuple[str, Any]:
    name, value = entry
    return name, dg.MetadataValue.json(value) if isinstance(value, dict | list) else value
