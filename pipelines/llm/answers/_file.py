"""One SQLite file of stored answers: a row per key, each with a checksum.

Write-ahead log, synced at every commit: a killed process or machine loses nothing that was
committed. Any number of processes of one machine read and write at once.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import orjson

from pipelines.errors import IntegrityError, LockedError, StoreError
from pipelines.statuses import Status
from pipelines.store.files import LocalFiles, full_disk_error, storage_errors, sync_folder
from pipelines.store.locks import holder_record, mutex

#: Version of the layout, as SQLite's `user_version`.
FORMAT = 1
#: How long a writer waits for another (seconds).
PATIENCE = 120.0
#: Most keys of a statement: older versions of SQLite take 999 parameters.
_KEYS = 8192 if sqlite3.sqlite_version_info >= (3, 32) else 999
#: Rows copied at once from a damaged file: those after the last full batch before the damage are
#: read from the other end or lost.
_COPIED = 100
#: Memory for pages of a file (KiB): the upper levels of ten million keys.
_CACHE_KIB = 65_536
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_CLOSED = {sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY}
#: SQLITE_ERROR: there is no such table.
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR}
#: Connections of a process that forked: its child must not close them.
_PARENTS: list[sqlite3.Connection] = []


class Row(NamedTuple):
    """A stored answer, as its columns hold it."""

    #: SHA-256 of the call (32 bytes).
    key: bytes
    #: Doubles of eight bytes, little-endian.
    probabilities: bytes | None
    status: Status
    #: Budget of the call (tokens).
    max_tokens: int
    #: Microseconds since 1970.
    stored_at: int
    text: str | None
    mass: float | None
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    latency: float
    detail: str
    #: Number of the engine's identity: the first eight bytes of the SHA-256 of its JSON.
    identity: int
    #: The question as canonical JSON, where it is kept.
    request: str | None
    #: CRC-32 of the others.
    checksum: int


_COLUMNS = ", ".join(Row._fields)
_SELECT = f"SELECT {_COLUMNS} FROM answers"  # noqa: S608 (names of columns)
_NEWER = ", ".join(f"{name} = excluded.{name}" for name in Row._fields[1:])
_SCHEMA = """
CREATE TABLE identities (identity INTEGER PRIMARY KEY, document TEXT NOT NULL);
CREATE TABLE answers (
    key BLOB NOT NULL PRIMARY KEY, probabilities BLOB,
    status TEXT NOT NULL, max_tokens INTEGER NOT NULL, stored_at INTEGER NOT NULL,
    text TEXT, mass REAL, finish_reason TEXT NOT NULL,
    prompt_tokens INTEGER NOT NULL, completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL, latency REAL NOT NULL, detail TEXT NOT NULL,
    identity INTEGER NOT NULL REFERENCES identities, request TEXT, checksum INTEGER NOT NULL
);
"""
# As `_rules.replaces`.
_STORE = f"""
INSERT INTO answers ({_COLUMNS}) VALUES ({", ".join("?" * len(Row._fields))})
ON CONFLICT (key) DO UPDATE SET {_NEWER} WHERE answers.status = 'engine_error'
OR (answers.status <> 'ok' AND excluded.status <> 'engine_error')
"""  # noqa: S608 (names of columns)


def checksum(row: Sequence[Any]) -> int:
    """The checksum of a row, from its other columns."""
    return zlib.crc32(orjson.dumps(row[2:15]), zlib.crc32(row[1] or b"", zlib.crc32(row[0])))


def _whole_row(fields: tuple[Any, ...]) -> Row | None:
    """The row of these columns; None if it is not what was stored."""
    try:
        return Row._make(fields) if checksum(fields) == fields[15] else None
    except TypeError:
        return None  # a column of another type


def packed(shares: Sequence[float] | None) -> bytes | None:
    """A distribution as the column holds it."""
    return None if shares is None else _doubles(len(shares)).pack(*shares)


def unpacked(data: bytes | None) -> tuple[float, ...] | None:
    """A distribution again."""
    return None if data is None else _doubles(len(data) // 8).unpack(data)


@cache
def _doubles(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}d")


def identity_number(document: str) -> int:
    """Number of an identity's canonical JSON."""
    return int.from_bytes(hashlib.sha256(document.encode()).digest()[:8], signed=True)


class AnswerFile:
    """The answers of one scope. Nothing is created before the first row is stored.

    Methods raise :class:`StoreError` if the file can't be read or written, :class:`LockedError` if
    another process writes for very long, and :class:`IntegrityError` if it is damaged.
    """

    def __init__(self, path: Path, home: Path) -> None:
        self.path = path
        self._files = LocalFiles(home)
        self._connection: sqlite3.Connection | None = None
        self._opened: tuple[int, int, int] | None = None

    # -- writing -----------------------------------------------------------------------------

    def create(self) -> None:
        """Create it unless it exists."""
        if self.path.exists():
            return
        with closing(sqlite3.connect(":memory:")) as empty:
            empty.executescript(f"{_SCHEMA}PRAGMA user_version = {FORMAT};")
            data = bytearray(empty.serialize())
        # Read and write version of the file format: with a write-ahead log, from the beginning.
        data[18:20] = b"\x02\x02"
        with mutex(self._files.root / "_locks" / "answers.lock"):
            if not self.path.exists():
                self._files.put(self.path, bytes(data))

    def store(self, rows: Sequence[Row], identities: Mapping[int, str]) -> None:
        """Commit rows, all or none, and the documents of their identities."""
        self.create()
        with self._transaction() as connection:
            connection.executemany(
                "INSERT OR IGNORE INTO identities VALUES (?, ?)", identities.items()
            )
            connection.executemany(_STORE, rows)

    def remove(self, where: str, values: Sequence[Any]) -> int:
        """Delete rows that meet a condition, and give their space back; how many."""
        with self._transaction() as connection:
            statement = f"DELETE FROM answers WHERE {where}"  # noqa: S608 (code of this package)
            count = connection.execute(statement, values).rowcount
        if count:
            with self._errors(), suppress(sqlite3.OperationalError):
                # Others that read keep it from being made smaller: the next time then.
                self._connected().execute("VACUUM")
        return count

    def drop(self, keys: Sequence[bytes]) -> None:
        """Delete rows that are not what was stored, where the file can be written."""
        if keys:
            with suppress(StoreError), self._transaction() as connection:
                connection.executemany("DELETE FROM answers WHERE key = ?", [(k,) for k in keys])

    def discard(self) -> None:
        """Delete the file."""
        self.close()
        with storage_errors(self.path):
            for path in self._paths():
                path.unlink(missing_ok=True)
            sync_folder(self.path.parent)

    def rebuild(self) -> int:
        """Put the rows that can be read in a new file, and the damaged one in a folder beside it.

        How many rows could be read. ``corrupt/`` has the damaged file: it may be repaired.
        """
        aside = self.path.parent / "corrupt"
        staging = self._files.stage(holder_record())
        try:
            copy = AnswerFile(staging.path / self.path.name, staging.path)
            count = self._copy_to(copy)
            copy.close()
            self.close()
            self._files.make_folder(aside)
            with storage_errors(self.path):
                for path in self._paths():
                    if path.exists():
                        (aside / path.name).unlink(missing_ok=True)
                        os.link(path, aside / path.name)
                sync_folder(aside)
                # A log that is not of the new file must not be there when that takes its name.
                for path in self._paths()[1:]:
                    path.unlink(missing_ok=True)
                copy.path.replace(self.path)
                sync_folder(self.path.parent)
        finally:
            staging.drop()
        return count

    # -- reading -----------------------------------------------------------------------------

    def find(self, keys: Sequence[bytes]) -> tuple[list[Row], list[bytes]]:
        """Rows of some keys, in any order, and the keys of rows that are not what was stored."""
        rows: list[Row] = []
        wrong: list[bytes] = []
        for at in range(0, len(keys), _KEYS):
            some = keys[at : at + _KEYS]
            marks = ",".join("?" * len(some))
            for fields in self.query(f"{_SELECT} WHERE key IN ({marks})", some):
                if (row := _whole_row(fields)) is None:
                    wrong.append(fields[0])
                else:
                    rows.append(row)
        return rows, wrong

    def rows(
        self, words: str = "true", values: Sequence[Any] = ()
    ) -> Iterator[tuple[bytes, Row | None]]:
        """Keys and rows that meet a condition; None for a row that is not what was stored."""
        with self._errors():
            if self.path.exists():
                with closing(
                    self._connected().execute(f"{_SELECT} WHERE {words}", values)
                ) as cursor:
                    for fields in cursor:
                        yield fields[0], _whole_row(fields)

    def query(self, words: str, values: Sequence[Any] = ()) -> list[Any]:
        """All rows of a statement that only reads."""
        with self._errors():
            if not self.path.exists():
                return []
            return self._connected().execute(words, values).fetchall()

    def identities(self) -> dict[int, str]:
        """Documents of identities, by number."""
        return dict(self.query("SELECT identity, document FROM identities"))

    def check(self) -> None:
        """Raise IntegrityError if it is no file of answers."""
        self.query("SELECT count(*) FROM identities, (SELECT 1 FROM answers LIMIT 1)")

    def size(self) -> int:
        """Bytes of the file and its log."""
        sizes = self._files.sizes(self.path.parent)
        return sum(sizes.get(path.name, 0) for path in self._paths()[:2])

    def close(self) -> None:
        """Close it; it opens again when it is used."""
        if self._connection is not None and self._opened:
            if self._opened[0] == os.getpid():
                self._connection.close()
            else:
                _PARENTS.append(self._connection)
        self._connection = None

    # -- inside ------------------------------------------------------------------------------

    def _paths(self) -> tuple[Path, Path, Path]:
        name = self.path.name
        return self.path, self.path.with_name(f"{name}-wal"), self.path.with_name(f"{name}-shm")

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit what is done in the block, or nothing."""
        with self._errors():
            connection = self._connected()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise

    def _connected(self) -> sqlite3.Connection:
        """The connection of this process to the file that has the name now."""
        status = self.path.stat()
        now = (os.getpid(), status.st_dev, status.st_ino)
        if self._opened != now:
            self.close()
        if self._connection is None:
            self._connection = self._connect("rw")
            self._opened = now
        return self._connection

    def _connect(self, mode: str) -> sqlite3.Connection:
        address = f"file:{quote(str(self.path))}?" + (f"mode={mode}" if mode else "immutable=1")
        connection = sqlite3.connect(
            address, timeout=PATIENCE, isolation_level=None, check_same_thread=False, uri=True
        )
        try:
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            [(version,)] = connection.execute("PRAGMA user_version")
            if version > FORMAT:
                raise StoreError(
                    f"these answers have format {version}, known is {FORMAT}",
                    where=str(self.path),
                    hint="use the version of Understudy that wrote them, or a later one",
                )
        except BaseException as error:
            connection.close()
            # A log can't be opened in a folder that can't be written.
            readonly = getattr(error, "sqlite_errorcode", 0) & 0xFF in _CLOSED
            if mode and readonly and not os.access(self.path.parent, os.W_OK):
                return self._connect("")
            raise
        return connection

    def _copy_to(self, target: AnswerFile) -> int:
        """Store the rows of a damaged file in another one, from either end up to the damage."""
        documents: dict[int, str] = {}
        with suppress(IntegrityError):
            documents.update(self.identities())
        target.store([], documents)
        for order in ("", " DESC"):
            with suppress(IntegrityError):
                rows = self.rows(f"true ORDER BY rowid{order}")
                good = (row for _, row in rows if row and row.identity in documents)
                while some := list(islice(good, _COPIED)):
                    target.store(some, {})
                break
        [(count,)] = target.query("SELECT count(*) FROM answers")
        return int(count)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Name what SQLite can't do."""
        try:
            yield
        except sqlite3.Error as error:
            where, reason = str(self.path), " ".join(str(error).split())
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code in _BUSY:
                raise LockedError(
                    f"another process has written answers for {PATIENCE:g} s",
                    where=where,
                    hint="wait for it, then run again",
                ) from error
            if code in _CORRUPT or isinstance(error, sqlite3.DataError):
                raise IntegrityError(
                    f"the stored answers are damaged ({reason})",
                    where=where,
                    hint="`understudy answers gc` keeps those that can be read",
                ) from error
            raise full_disk_error(error, self.path.parent) or StoreError(
                f"can't be written or read ({reason})",
                where=where,
                hint="check the owner and mode of the folder",
            ) from error
        except OSError as error:
            raise StoreError(f"can't be read ({error.strerror})", where=str(self.path)) from error
