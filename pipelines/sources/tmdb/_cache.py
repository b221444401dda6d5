"""Answers of the API on disk: one file per film, written atomically."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import orjson

from pipelines.errors import SourceError, StoreError
from pipelines.sources._original import open_file

__all__ = ["CacheEntry", "Lookup", "Status", "TmdbCache", "slim"]

#: TMDB's terms forbid keeping its content for longer than six months.
RECORD_AGE = timedelta(days=180)
#: A film that TMDB doesn't know, or answers with another one, is asked for again after this.
MISSING_AGE = timedelta(days=30)

_FORMAT = 1
_MAX_FILE = 64 << 20  # bytes
_STALE_TEMPORARY = 3600.0  # seconds
#: Kept of the hundreds of people that a record credits.
_MAX_CAST = 30
_DEPARTMENTS = frozenset({"Directing", "Writing"})

Status = Literal["found", "not_found", "another_film"]


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """What TMDB answered for a film.

    Attributes
    ----------
    tmdb_id
        The id that was asked for.
    status
        ``found``; ``not_found`` (404); ``another_film`` (the answer has another id).
    fetched_at
        When (UTC).
    record
        The answer, :func:`slim`; ``None`` if not found.
    """

    tmdb_id: int
    status: Status
    fetched_at: datetime
    record: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class Lookup:
    """An entry, if there is a usable one; ``corrupt`` if a file is there but torn."""

    entry: CacheEntry | None
    corrupt: bool = False


class TmdbCache:
    """A folder of ``<tmdb id>.json`` files.

    Each holds the answer and its checksum, so that a torn file (power loss, a full disk, an
    editor) is noticed and asked for again rather than trusted.

    Parameters
    ----------
    folder
        Made when first written to.
    record_age, missing_age
        How long a record, and the note that there is none, count as fresh.
    """

    def __init__(
        self,
        folder: Path,
        *,
        record_age: timedelta = RECORD_AGE,
        missing_age: timedelta = MISSING_AGE,
    ) -> None:
        self.folder = folder
        self._record_age = record_age
        self._missing_age = missing_age

    def path(self, tmdb_id: int) -> Path:
        """Where the film's answer is kept."""
        return self.folder / f"{tmdb_id}.json"

    def __bool__(self) -> bool:
        """Whether any answer is kept."""
        try:
            names = [p.name for p in self.folder.iterdir()] if self.folder.exists() else []
        except OSError as error:
            raise StoreError(
                f"the TMDB cache can't be read ({error.strerror})", where=str(self.folder)
            ) from None
        return any(name[0].isdigit() and name.endswith(".json") for name in names)

    def lookup(self, tmdb_id: int) -> Lookup:
        """Return the fresh, intact answer for a film, if there is one.

        Raises
        ------
        StoreError
            If the file is there but can't be read.
        """
        path = self.path(tmdb_id)
        try:
            if not path.exists():
                return Lookup(None)
            with open_file(path, str(path)) as file:
                content = file.read(_MAX_FILE)
        except (OSError, SourceError) as error:
            why = error.what if isinstance(error, SourceError) else error.strerror
            raise StoreError(f"the TMDB cache can't be read ({why})", where=str(path)) from None
        entry = _parse(content, tmdb_id)
        if entry is None:
            return Lookup(None, corrupt=True)
        allowed = self._record_age if entry.status == "found" else self._missing_age
        return Lookup(None if datetime.now(UTC) - entry.fetched_at > allowed else entry)

    def put(self, tmdb_id: int, status: Status, record: dict[str, Any] | None) -> CacheEntry:
        """Keep an answer: whole or not at all.

        Raises
        ------
        StoreError
            If it can't be written (disk full, permissions); the previous answer is kept.
        """
        kept = slim(record) if record is not None else None
        body = orjson.dumps(kept)
        now = datetime.now(UTC)
        head = orjson.dumps(
            {
                "format": _FORMAT,
                "tmdb_id": tmdb_id,
                "status": status,
                "fetched_at": now.isoformat(timespec="seconds"),
                "sha256": hashlib.sha256(body).hexdigest(),
            }
        )
        self._write(self.path(tmdb_id), b'{"meta":' + head + b',"record":' + body + b"}\n")
        return CacheEntry(tmdb_id, status, now, kept)

    def sweep(self) -> int:
        """Remove temporary files that killed processes left more than an hour ago; how many."""
        removed = 0
        limit = time.time() - _STALE_TEMPORARY
        for path in self.folder.glob(".*.tmp") if self.folder.is_dir() else ():
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < limit:
                    path.unlink()
                    removed += 1
        return removed

    def _write(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise StoreError(
                f"the TMDB cache can't be written ({error.strerror})",
                where=str(path),
                hint="what was cached before is kept; free space and run again to continue",
            ) from None


def slim(record: dict[str, Any]) -> dict[str, Any]:
    """Keep of the people in a record the top cast, and those who directed or wrote.

    A film credits up to a thousand people; kept whole, 62,000 films would take gigabytes. Any
    part that doesn't have TMDB's shape is left as it is, to be judged by who reads it.

    >>> slim({"id": 1, "credits": {"cast": [], "crew": [{"name": "A", "department": "Sound"}]}})
    {'id': 1, 'credits': {'cast': [], 'crew': []}}
    """
    credit = record.get("credits")
    if not isinstance(credit, dict):
        return record
    cast, crew = credit.get("cast"), credit.get("crew")
    kept = dict(credit)
    if isinstance(cast, list) and all(
        isinstance(p, dict) and isinstance(p.get("order"), int) for p in cast
    ):
        kept["cast"] = sorted(cast, key=lambda p: p["order"])[:_MAX_CAST]
    if isinstance(crew, list) and all(isinstance(p, dict) for p in crew):
        kept["crew"] = [
            p for p in crew if p.get("department") in _DEPARTMENTS or p.get("job") == "Director"
        ]
    return {**record, "credits": kept}


def _parse(content: bytes, tmdb_id: int) -> CacheEntry | None:
    """Return the entry in a file; ``None`` if it isn't what :meth:`TmdbCache.put` wrote."""
    try:
        parsed = orjson.loads(content)
        meta, record = parsed["meta"], parsed["record"]
        intact = (
            meta["format"] == _FORMAT
            and meta["tmdb_id"] == tmdb_id
            and meta["status"] in ("found", "not_found", "another_film")
            and (record is None) == (meta["status"] == "not_found")
            and meta["sha256"] == hashlib.sha256(orjson.dumps(record)).hexdigest()
        )
        fetched_at = datetime.fromisoformat(meta["fetched_at"])
    except (ValueError, TypeError, KeyError, IndexError):
        return None
    if not intact or fetched_at.tzinfo is None:
        return None
    return CacheEntry(tmdb_id, meta["status"], fetched_at, record)
