"""Outcomes of the checks of a snapshot, kept beside it and merged under a lock."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import orjson

from pipelines.errors import IntegrityError
from pipelines.store._layout import Layout
from pipelines.store._manifest import now, pretty_json
from pipelines.store.files import LocalFiles
from pipelines.store.locks import mutex

__all__ = ["CheckKind", "CheckRecord", "Severity", "merge_checks", "read_checks"]

Severity = Literal["error", "warn"]
CheckKind = Literal["pandera", "dbt", "expectations", "lineage"]


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """What one check said about one snapshot.

    Attributes
    ----------
    name
        Unique among the checks of the dataset.
    passed
        Whether it passed.
    severity
        ``error`` blocks publishing when it did not pass; ``warn`` is only shown.
    kind
        Which of the gates made it.
    details
        Counts, bounds, failing rows (JSON).
    checked_at
        When (ISO 8601, UTC).
    """

    name: str
    passed: bool
    severity: Severity = "error"
    kind: CheckKind = "pandera"
    details: dict[str, Any] = field(default_factory=dict)
    checked_at: str = field(default_factory=now)

    @property
    def blocks(self) -> bool:
        """Whether it stops a release."""
        return self.severity == "error" and not self.passed


def read_checks(
    files: LocalFiles, layout: Layout, dataset: str, version: str
) -> dict[str, CheckRecord]:
    """The recorded checks of one snapshot by name; empty if there are none.

    Raises
    ------
    IntegrityError
        The record is damaged, naming the file.
    """
    path = layout.checks(dataset, version)
    data = files.read(path)
    if data is None:
        return {}
    try:
        records = [CheckRecord(**c) for c in orjson.loads(data)["checks"]]
        for record in records:
            if record.severity not in get_args(Severity) or not isinstance(record.passed, bool):
                raise ValueError(record.name)
    except (ValueError, TypeError, KeyError):
        raise IntegrityError(
            "the record of checks is damaged",
            where=str(path),
            hint="remove it and run the checks again",
        ) from None
    return {r.name: r for r in records}


def merge_checks(
    files: LocalFiles, layout: Layout, dataset: str, version: str, checks: Iterable[CheckRecord]
) -> None:
    """Add outcomes to those of a snapshot; a newer one replaces one of the same name."""
    with mutex(layout.lock(f"checks-{dataset}")):
        merged = read_checks(files, layout, dataset, version)
        merged.update({c.name: c for c in checks})
        content = {
            "dataset": dataset,
            "version": version,
            "checks": [asdict(merged[name]) for name in sorted(merged)],
        }
        files.put(layout.checks(dataset, version), pretty_json(content))
