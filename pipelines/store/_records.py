"""Small JSON records of the store: reading them strictly, and moving pointers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from pipelines.errors import IntegrityError, StoreError
from pipelines.store._layout import Layout
from pipelines.store._manifest import MANIFEST, Manifest, now, pretty_json
from pipelines.store._snapshot import Snapshot
from pipelines.store.files import Files, LocalFiles

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
