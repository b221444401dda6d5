"""Releases: lock files over snapshots, each with a dataset card."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from pipelines.errors import IntegrityError, ReleaseError
from pipelines.paths import ObjectPath, release_path
from pipelines.store._layout import Layout
from pipelines.store._manifest import MANIFEST, canonical_json, hash16, pretty_json
from pipelines.store._records import (
    CheckRecord,
    check_format,
    open_snapshot,
    read_record,
    read_version,
)
from pipelines.store._snapshot import Snapshot, union
from pipelines.store.remote import open_files

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_LOCK_FILE = re.compile(r"([a-z0-9][a-z0-9-]{0,62})@([0-9a-f]{16})\.json")
_HINT = "restore it from a copy, or publish again under another name"


@dataclass(frozen=True, slots=True)
class TableLock:
    """A pinned table: its snapshot, size (rows, bytes) and manifest's SHA-256.

    A table that is built by cohort is pinned as one snapshot per cohort, its ``parts``; the hash is
    then that of theirs.
    """

    dataset: str
    version: str
    rows: int
    bytes: int
    manifest_sha256: str
    parts: tuple[TableLock, ...] = ()

    @property
    def snapshots(self) -> tuple[TableLock, ...]:
        """The locks of its parts, or itself."""
        return self.parts or (self,)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> TableLock:
        """Parse the stored form; older ones have no parts."""
        parts = tuple(map(cls.from_json, content.get("parts", ())))
        return cls(**{**content, "parts": parts})


@dataclass(frozen=True, slots=True)
class Release:
    """A named, versioned lock over snapshots.

    Attributes
    ----------
    name, version
        ``movies@<version>``; the version follows from world, tables, checks and settings.
    created_at, run_id
        When (ISO 8601, UTC) and by which run it was first published.
    world
        The set of sources it was made from.
    tables
        Short name to pinned snapshot.
    lineage
        Every dataset the tables were made from, with its one version, and ``file:`` inputs
        with their hashes. Of a table that is built by cohort: ``<table>-<cohort>``.
    checks
        Dataset to check name to outcome, as they stood at publishing.
    settings
        Identity settings it was made with.
    card_sha256
        Hash (hex) of the dataset card.
    path
        The lock file.
    home
        The store that holds its tables.
    """

    name: str
    version: str
    created_at: str
    world: str
    tables: dict[str, TableLock]
    lineage: dict[str, str]
    checks: dict[str, dict[str, CheckRecord]]
    settings: dict[str, Any]
    card_sha256: str
    run_id: str | None = None
    path: Path = field(default=Path(), compare=False)
    home: Path = field(default=Path(), compare=False)

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    def snapshot(self, table: str) -> Snapshot:
        """The pinned snapshot of a table (short name, such as ``items``), after a cheap check.

        ReleaseError if the release has no such table; IntegrityError if it is missing or not the
        one that was pinned.
        """
        pinned = self.tables.get(table)
        if pinned is None:
            raise ReleaseError(
                f"no table {table!r} in {self}",
                where=str(self.path),
                hint=f"it has {', '.join(sorted(self.tables))}",
            )
        return self._open(pinned)

    def _open(self, pinned: TableLock) -> Snapshot:
        if pinned.parts:
            return union(pinned.dataset, map(self._open, pinned.parts))
        folder = Layout(self.home).snapshot(pinned.dataset, pinned.version)
        snapshot = open_snapshot(open_files(self.home), folder)
        if lock_table(snapshot) != pinned:
            raise IntegrityError(
                "the manifest is not the one that was released",
                where=str(folder / MANIFEST),
                hint="restore it from a copy",
            )
        return snapshot

    def card(self) -> str:
        """The dataset card (Markdown); IntegrityError if it is missing or was changed."""
        path = self.path.with_name(f"{self}.md")
        data = open_files(self.home).read(path)
        if data is None or hashlib.sha256(data).hexdigest() != self.card_sha256:
            raise IntegrityError(
                "the dataset card is missing or was changed", where=str(path), hint=_HINT
            )
        return data.decode()

    def with_version(self) -> Release:
        """The release with the version that follows from its content.

        Times, run, details of checks and hashes of manifests (which hold times) don't enter: the
        same content published anywhere is the same version. A check that does not apply counts like
        one that passed: whether there was an earlier release to compare with is no content.
        """
        tables = {n: [t.dataset, t.version] for n, t in self.tables.items()}
        checks = {
            dataset: {c.name: [c.kind, c.severity, c.passed is not False] for c in records.values()}
            for dataset, records in self.checks.items()
        }
        content = {
            "name": self.name,
            "world": self.world,
            "tables": tables,
            "checks": checks,
            "settings": self.settings,
        }
        return replace(self, version=hash16(content))

    def to_json(self) -> bytes:
        """The lock file, which carries a digest of itself."""
        content = asdict(self)
        del content["path"], content["home"]
        content["checks"] = {
            dataset: {name: record.to_json() for name, record in records.items()}
            for dataset, records in self.checks.items()
        }
        return pretty_json({**content, "digest": _digest(content)})

    @classmethod
    def from_json(cls, data: bytes, path: Path, home: Path) -> Release:
        """Parse and check a lock file; IntegrityError if it is damaged or was changed."""
        try:
            content = orjson.loads(data)
            digest = content.pop("digest")
            release = cls(
                **{
                    **content,
                    "tables": {n: TableLock.from_json(t) for n, t in content["tables"].items()},
                    "checks": {
                        d: {n: CheckRecord.from_json(c) for n, c in records.items()}
                        for d, records in content["checks"].items()
                    },
                },
                path=path,
                home=home,
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            raise IntegrityError("the lock file is damaged", where=str(path), hint=_HINT) from None
        if digest != _digest(content) or release.with_version().version != release.version:
            raise IntegrityError(
                "the lock file was changed after it was published", where=str(path), hint=_HINT
            )
        return release


def lock_table(snapshot: Snapshot) -> TableLock:
    """Pin of a snapshot."""
    parts = tuple(map(lock_table, snapshot.parts))
    if parts:
        data = "".join(part.manifest_sha256 for part in parts).encode()
    else:
        data = snapshot.place.read(snapshot.path / MANIFEST) or b""
    return TableLock(
        snapshot.dataset,
        snapshot.version,
        snapshot.rows,
        snapshot.bytes,
        hashlib.sha256(data).hexdigest(),
        parts,
    )


def check_release_name(name: str) -> str:
    """The name; ReleaseError unless lower-case letters, digits, hyphens (63 at most)."""
    if not _NAME.fullmatch(name) or name == "latest":
        raise ReleaseError(
            "not a release name",
            where=repr(name),
            hint="lower-case letters, digits and hyphens; not `latest`",
        )
    return name


def find_release(home: Path, reference: str | Path) -> Release:
    """See :meth:`Store.release <pipelines.store.Store.release>`."""
    text = str(reference)
    if isinstance(reference, Path) or "/" in text or text.endswith(".json"):
        path = release_path(text)
        if isinstance(path, ObjectPath) and path.suffix != ".json":
            return find_release(path.parent, path.name)
        return _open_lock(home, path)
    if text == "latest":
        return _newest(home)
    name, _, version = text.partition("@")
    check_release_name(name)
    if version in {"", "latest"}:
        latest = latest_release(home, name)
        if latest is None:
            raise _unknown(home, text)
        return latest
    layout, files = Layout(home), open_files(home)
    parsed = [_LOCK_FILE.fullmatch(n) for n in files.names(layout.releases)]
    versions = [m[2] for m in parsed if m and m[1] == name and m[2].startswith(version)]
    if len(versions) != 1:
        raise _unknown(home, text, len(versions))
    return _open_lock(home, layout.release(name, versions[0]))


def latest_release(home: Path, name: str) -> Release | None:
    """Release that ``<name>@latest`` points to, or None if nothing was published under the name."""
    layout = Layout(home)
    version = read_version(open_files(home), layout.latest(name))
    return None if version is None else _open_lock(home, layout.release(name, version))


def list_releases(home: Path, name: str | None = None) -> list[Release]:
    """All releases (of a name), oldest first; damaged lock files are left out."""
    layout, files = Layout(home), open_files(home)
    releases = []
    for file in files.names(layout.releases):
        parsed = _LOCK_FILE.fullmatch(file)
        if parsed and name in {None, parsed[1]}:
            try:
                releases.append(_open_lock(home, layout.releases / file))
            except IntegrityError:
                continue
    return sorted(releases, key=lambda r: (r.created_at, r.name, r.version))


def _newest(home: Path) -> Release:
    """The release whose pointer moved last, over all names."""
    layout, files = Layout(home), open_files(home)
    folder = layout.latest("x").parent
    names = [n.removesuffix(".json") for n in files.names(folder) if n.endswith(".json")]
    moved: list[tuple[str, str]] = []
    for name in names:
        record: Mapping[str, Any] = read_record(files, folder / f"{name}.json") or {}
        moved.append((str(record.get("moved_at", "")), name))
    newest = latest_release(home, max(moved)[1]) if moved else None
    if newest is None:
        raise _unknown(home, "latest")
    return newest


def _open_lock(home: Path, path: Path) -> Release:
    data = open_files(path.parent).read(path)
    if data is None:
        raise ReleaseError("no such release", where=str(path), hint="see `understudy release list`")
    beside = path.parent.parent
    if path.parent.name == "releases" and open_files(beside).names(beside / "data"):
        home = beside
        check_format(open_files(home))
    release = Release.from_json(data, path, home)
    parsed = _LOCK_FILE.fullmatch(path.name)
    if parsed and f"{release}.json" != path.name:
        raise IntegrityError(
            f"the lock file of {release} under another's name", where=str(path), hint=_HINT
        )
    return release


def _unknown(home: Path, reference: str, matches: int = 0) -> ReleaseError:
    releases = list_releases(home)
    published = [str(r) for r in releases]
    name, _, version = reference.partition("@")
    near = difflib.get_close_matches(name, sorted({r.name for r in releases}), n=1)
    if not published:
        hint = "publish one: understudy run"
    elif near and near[0] != name:
        hint = f"did you mean {near[0]}{f'@{version}' if version else ''}?"
    else:
        hint = f"published: {', '.join(published[-5:])}"
    return ReleaseError(
        f"{matches or 'no'} releases match {reference!r}",
        where=str(home),
        hint=hint,
        details={"published": published},
    )


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content)).hexdigest()
