"""Outcomes of the checks of a snapshot, kept beside it and merged under a lock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import orjson

from pipelines.errors import IntegrityError
from pipelines.store._layout import Layout
from pipelines.store._manifest import now, pretty_json
from pipelines.store.files import LocalFiles
from pipelines.store.locks import mutex

Severity = Literal["error", "warn"]
CheckStatus = Literal["passed", "failed", "not applicable"]
CheckOutcome = Literal["passed", "warned", "failed", "not_applicable"]
CheckKind = Literal["pandera", "dbt", "expectations", "lineage"]


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """Outcome of one check of one snapshot."""

    #: Unique among the checks of the dataset.
    name: str
    #: Whether it passed; None if it does not apply to the snapshot (too few rows, nothing to
    #: compare with).
    passed: bool | None
    #: ``error`` blocks publishing if the check failed; ``warn`` is only shown.
    severity: Severity = "error"
    #: Kind of check.
    kind: CheckKind = "pandera"
    #: Counts, bounds, failing rows (JSON).
    details: dict[str, Any] = field(default_factory=dict)
    #: Time of the check (ISO 8601, UTC).
    checked_at: str = field(default_factory=now)

    @property
    def status(self) -> CheckStatus:
        """Outcome by name."""
        if self.passed is None:
            return "not applicable"
        return "passed" if self.passed else "failed"

    @property
    def outcome(self) -> CheckOutcome:
        """Status, with failed checks of severity ``warn`` as ``warned``."""
        if self.passed is None:
            return "not_applicable"
        return "passed" if self.passed else "failed" if self.severity == "error" else "warned"

    @property
    def blocks(self) -> bool:
        """Whether it stops a release."""
        return self.severity == "error" and self.passed is False

    def to_json(self) -> dict[str, Any]:
        """Stored form, with the status by name."""
        content = asdict(self)
        del content["passed"]
        return content | {"status": self.status}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> CheckRecord:
        """Parse the stored form; older records have ``passed`` in place of ``status``."""
        fields = dict(content)
        if "status" in fields:
            fields["passed"] = _PASSED[fields.pop("status")]
        record = cls(**fields)
        if record.severity not in get_args(Severity) or not isinstance(record.passed, bool | None):
            raise ValueError(record.name)
        return record


def count_outcomes(records: Iterable[CheckRecord]) -> dict[str, int]:
    """Number of checks by outcome.

    >>> count_outcomes([CheckRecord("rows", True), CheckRecord("posters", False, "warn")])
    {'passed': 1, 'warned': 1, 'failed': 0, 'not_applicable': 0}
    """
    counts: dict[str, int] = dict.fromkeys(get_args(CheckOutcome), 0)
    for record in records:
        counts[record.outcome] += 1
    return counts


_PASSED: Mapping[str, bool | None] = {"passed": True, "failed": False, "not applicable": None}


def read_checks(
    files: LocalFiles, layout: Layout, dataset: str, version: str
) -> dict[str, CheckRecord]:
    """The recorded checks of one snapshot by name; IntegrityError if the record is damaged."""
    path = layout.checks(dataset, version)
    data = files.read(path)
    if data is None:
        return {}
    try:
        records = [CheckRecord.from_json(c) for c in orjson.loads(data)["checks"]]
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
    added = list(checks)
    with mutex(layout.lock(f"checks-{dataset}")):
        records = read_checks(files, layout, dataset, version)
        records.update({c.name: c for c in added})
        content = {
            "dataset": dataset,
            "version": version,
            "checks": [records[name].to_json() for name in sorted(records)],
        }
        files.put(layout.checks(dataset, version), pretty_json(content))
