"""Small JSON records of the store: reading them strictly, and moving pointers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import orjson

from pipelines.errors import IntegrityError, StoreError
from pipelines.store._layout import Layout
from pipelines.store._manifest import MANIFEST, Manifest, now, pretty_json
from pipelines.store._snapshot import Snapshot
from pipelines.store.files import Files, LocalFiles
from pipelines.store.locks import mutex

#: Format of the home: layout of its folders, manifests, lock files and pointers. It is raised
#: with a change that an older version would misread; homes from before the record are of format 1.
FORMAT = 2


def check_format(files: Files) -> None:
    """Make sure that this version can read and write a home, which may be of a newer format."""
    path = Layout(files.root).format
    record = read_record(files, path)
    if record is None:
        return
    number = record.get("format")
    if not isinstance(number, int):
        raise IntegrityError(
            "the record names no format", where=str(path), hint="restore it from a copy"
        )
    if number > FORMAT:
        raise StoreError(
            f"the store is of format {number}, and this version knows formats up to {FORMAT}",
            where=str(files.root),
            hint="use the version that wrote it or a newer one, or another UNDERSTUDY_HOME",
        )


def mark_format(files: LocalFiles) -> None:
    """Record the format of a home that is new or was written in an older one."""
    path = Layout(files.root).format
    record = read_record(files, path)
    if record is None:
        files.put_new(path, format_record())
    elif record.get("format") != FORMAT:
        files.put(path, format_record())


def format_record() -> bytes:
    """The record of the format that this version writes."""
    return pretty_json({"format": FORMAT, "created_at": now()})


def read_record(files: Files, path: Path) -> dict[str, Any] | None:
    """A JSON object, or None if there is no such file; IntegrityError if it is none."""
    data = files.read(path)
    if data is None:
        return None
    try:
        record = orjson.loads(data)
    except orjson.JSONDecodeError:
        record = None
    if not isinstance(record, dict):
        raise IntegrityError("not a JSON object", where=str(path), hint="remove the damaged file")
    return record


def read_version(files: Files, path: Path) -> str | None:
    """The version that a pointer or build record names, or None if there is no such file."""
    record = read_record(files, path)
    if record is None:
        return None
    version = record.get("version")
    if not isinstance(version, str):
        raise IntegrityError(
            "the record names no version", where=str(path), hint="remove the damaged file"
        )
    return version


def move_pointer(files: Files, path: Path, name: str, version: str) -> None:
    """Make a pointer name this version; nothing is written if it does already.

    The last of two processes wins.
    """
    # A damaged pointer is replaced.
    with suppress(IntegrityError):
        if read_version(files, path) == version:
            return
    files.put(path, pretty_json({"name": name, "version": version, "moved_at": now()}))


def open_snapshot(files: Files, folder: Path) -> Snapshot:
    """Open ``<…>/<dataset>/<version>`` after a cheap check (manifest, names, sizes).

    IntegrityError if it has no manifest, another one's, or files are missing or of another size.
    """
    path = folder / MANIFEST
    data = files.read(path)
    if data is None:
        raise IntegrityError(
            "no manifest", where=str(path), hint="remove its folder and build the table again"
        )
    manifest = Manifest.from_json(data, path)
    if (manifest.dataset, manifest.version) != (folder.parent.name, folder.name):
        raise IntegrityError(
            f"the manifest of {manifest.dataset}@{manifest.version} in another's folder",
            where=str(path),
            hint="remove its folder and build the table again",
        )
    snapshot = Snapshot(manifest.dataset, manifest.version, folder, manifest, files)
    snapshot.check()
    return snapshot


Severity = Literal["error", "warn"]
CheckStatus = Literal["passed", "failed", "not applicable"]
CheckOutcome = Literal["passed", "warned", "failed", "not_applicable"]
CheckKind = Literal["pandera", "dbt", "expectations", "lineage"]


@dataclass(frozen=True, slots=True)
class CheckRecord:
    """Outcome of one check of one snapshot."""

    #: Unique among the checks of the dataset.
    name: str
    #: True if it passed; None if it does not apply to the snapshot (too few rows, nothing to
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
        """True if it stops a release."""
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
