"""The few file operations the store is built from, and what makes each of them atomic.

A reader sees a file or folder of the store whole or not at all. In :class:`LocalFiles` everything
is written under ``_staging/``, flushed to the disk, and then given its name by one system call
(``rename`` or ``link``). :class:`Files` is the part that reading a release needs, which
`pipelines.store.remote` has too.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import resource
import shutil
import stat
import uuid
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Protocol

import orjson

from pipelines.errors import StoreError, UnderstudyError

if TYPE_CHECKING:
    import polars as pl
    import pyarrow.dataset as pads

    from pipelines.store._manifest import FileEntry

__all__ = [
    "Files",
    "HashingSink",
    "LocalFiles",
    "Staging",
    "full_disk_error",
    "full_disk_errors",
    "full_disk_now",
    "known_sha256",
    "placed",
    "sha256_of",
    "storage_errors",
    "sync_folder",
    "whole_file",
]

_FULL = {
    errno.ENOSPC: (
        "no space left on the disk",
        "free some space, or set UNDERSTUDY_HOME to a larger disk",
    ),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or ask for a larger quota"),
    errno.EFBIG: ("the file size limit is reached", "raise it: ulimit -f unlimited"),
    errno.EIO: ("the disk reports an error", "check it, or set UNDERSTUDY_HOME to another disk"),
}
#: Less free space than this makes a failed write a full disk (bytes).
_NEARLY_FULL = 4 * 2**20
#: Messages of SQLite, DuckDB and dbt for a full disk; the system's own texts are added.
_FULL_TEXTS = {
    **{os.strerror(number): number for number in _FULL},
    "database or disk is full": errno.ENOSPC,
}
#: SQLite's text for any write that failed.
_FAILED_WRITE = "disk I/O error"
#: Reasons why a file can't get a second name: too many of them, another user's file, or a file
#: system without links.
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_OWNER = "_owner.json"
#: Names this module gives to what it puts into ``_staging/``; anything else there is not ours.
_OURS = re.compile(r"[0-9a-f]{32}(\.tmp)?")


@contextmanager
def storage_errors(where: Path, *, needed: int | None = None) -> Iterator[None]:
    """Turn an OSError of a write of ``needed`` bytes to a path into a :class:`StoreError`."""
    try:
        yield
    except OSError as error:
        details = {"path": str(where), "errno": error.errno, "needed_bytes": needed}
        if error.errno in _FULL:
            raise _full(error.errno, where, needed) from error
        if error.errno in _FORBIDDEN:
            what = f"not allowed to write ({error.strerror})"
            hint = "check the owner and mode of the store's folder"
        else:
            what = f"the store can't be written ({error.strerror or error})"
            hint = "check that UNDERSTUDY_HOME is a folder on a working disk"
        raise StoreError(what, where=str(where), hint=hint, details=details) from error


@contextmanager
def full_disk_errors(where: Path) -> Iterator[None]:
    """Turn a full disk, quota or file size limit that any library met into a :class:`StoreError`.

    For blocks in which libraries write files of their own (SQLite, DuckDB, dbt) below ``where``.
    Other exceptions pass as they are.
    """
    try:
        yield
    except UnderstudyError:
        raise
    except Exception as error:
        full = full_disk_error(error, where)
        if full is None:
            raise
        raise full from error


def full_disk_error(fault: BaseException | str, where: Path) -> StoreError | None:
    """The error of a full disk, quota or file size limit behind a fault; None if it is another.

    The fault is an exception, searched with its causes, or the text of one; ``where`` the folder
    that was written to.

    >>> str(full_disk_error("(sqlite3.OperationalError) database or disk is full", Path("/")))
    'no space left on the disk: / (... bytes are free; free some space, or set UNDERSTUDY_HOME ...)'
    """
    number: int | None = None
    if isinstance(fault, str):
        number = next((n for text, n in _FULL_TEXTS.items() if text in fault), None)
        if number is None and _FAILED_WRITE in fault:
            number = _failed_write(where)
    elif isinstance(fault, OSError):
        number = fault.errno if fault.errno in _FULL else None
    else:
        by_text = full_disk_error(str(fault), where)
        cause = fault.__cause__ or fault.__context__
        return by_text or (full_disk_error(cause, where) if cause else None)
    return None if number is None else _full(number, where)


def full_disk_now(where: Path) -> StoreError | None:
    """The likely error behind a failed write whose reason was lost; None if there is space."""
    number = _failed_write(where)
    return None if number == errno.EIO else _full(number, where)


def _failed_write(where: Path) -> int:
    """The likely reason of a failed write that was reported without one."""
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return errno.EFBIG
    free = _free_bytes(where)
    return errno.ENOSPC if free is not None and free < _NEARLY_FULL else errno.EIO


def _full(number: int, where: Path, needed: int | None = None) -> StoreError:
    what, hint = _FULL[number]
    return StoreError(
        what + (f" for up to {needed:,} bytes" if needed else ""),
        where=str(where),
        hint=f"{_free(where)}; {hint}",
        details={"path": str(where), "errno": number, "needed_bytes": needed},
    )


def _free(where: Path) -> str:
    free = _free_bytes(where)
    return "free space unknown" if free is None else f"{free:,} bytes are free"


def _free_bytes(where: Path) -> int | None:
    """Free space of the nearest existing folder."""
    for folder in (where, *where.parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None


class Staging:
    """A folder under ``_staging/`` that belongs to a living process.

    Its owner holds a ``flock`` on ``_owner.json`` in it for as long as it lives; the record
    in that file (pid, host, process start) is for people.
    """

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self._owner = os.getpid()

    def folder(self, name: str) -> Path:
        """Create a folder in it."""
        path = self.path / name
        with storage_errors(path):
            path.mkdir()
        return path

    def drop(self) -> None:
        """Remove it with everything in it; a second call does nothing."""
        # A forked child has a copy of this object, and must not take its parent's folder away.
        if self._descriptor is None or self._owner != os.getpid():
            return
        descriptor, self._descriptor = self._descriptor, None
        try:
            with storage_errors(self.path):
                _remove_tree(self.path)
        finally:
            os.close(descriptor)

    def __del__(self) -> None:
        if getattr(self, "_descriptor", None) is not None:
            self.drop()


class Files(Protocol):
    """Reads of versions and releases, on a folder or an object store.

    Paths are absolute, below ``root``. Every method raises StoreError if the place can't be read.
    """

    root: Path

    def read(self, path: Path) -> bytes | None:
        """Content of a small file, or None if there is none."""

    def put(self, path: Path, data: bytes) -> None:
        """Give a small file this content, replacing any other, atomically and durably."""

    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder; none if it does not exist."""

    def sizes(self, folder: Path) -> dict[str, int]:
        """Size (bytes) of each file in a folder by name; empty if it does not exist."""

    def digest(self, path: Path) -> str | None:
        """SHA-256 (hex) of a file, or None if there is none."""

    def part(self, folder: Path, entry: FileEntry) -> Path:
        """Place of a file of the version whose folder is given."""

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        """A lazy frame over Parquet files, in this order."""

    def dataset(self, paths: Sequence[Path]) -> pads.Dataset:
        """An Arrow dataset over Parquet files, in this order."""

    def reading(self, folder: Path) -> AbstractContextManager[None]:
        """Around a read of a version's rows: StoreError if the place can't be reached."""


class LocalFiles:
    """File operations below one folder (created by the first write) of a POSIX file system."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.staging_root = root / "_staging"

    # -- reading ---------------------------------------------------------------------------

    def read(self, path: Path) -> bytes | None:
        """Content of a small file, or None if there is none; StoreError if it can't be read."""
        try:
            return path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise StoreError(f"can't be read ({error.strerror})", where=str(path)) from error

    def names(self, folder: Path) -> list[str]:
        """Sorted names in a folder; none if it does not exist."""
        try:
            return sorted(os.listdir(folder))  # noqa: PTH208 - names are what is wanted
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise StoreError(f"can't be listed ({error.strerror})", where=str(folder)) from error

    def sizes(self, folder: Path) -> dict[str, int]:
        """Size (bytes) of each file in a folder by name; empty if it does not exist."""
        sizes = {}
        for name in self.names(folder):
            # It may be removed in between, or be a dangling link.
            with suppress(OSError):
                status = (folder / name).stat()
                if stat.S_ISREG(status.st_mode):
                    sizes[name] = status.st_size
        return sizes

    def digest(self, path: Path) -> str | None:
        """SHA-256 (hex) of a file, or None if there is none; StoreError if it can't be read."""
        try:
            return sha256_of(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"it can't be read ({error.strerror})", where=str(path)) from error

    def part(self, folder: Path, entry: FileEntry) -> Path:
        """Place of a file of the version whose folder is given: in that folder."""
        return folder / entry.name

    def scan(self, paths: Sequence[Path]) -> pl.LazyFrame:
        """A lazy frame over Parquet files, in this order."""
        import polars as pl

        return pl.scan_parquet(list(paths), hive_partitioning=False, glob=False)

    def dataset(self, paths: Sequence[Path]) -> pads.Dataset:
        """An Arrow dataset over Parquet files, in this order."""
        import pyarrow.dataset as pads

        return pads.dataset([str(path) for path in paths], format="parquet")

    def reading(self, folder: Path) -> AbstractContextManager[None]:  # noqa: ARG002
        """Do nothing: the libraries' errors name the file."""
        return nullcontext()

    # -- writing ---------------------------------------------------------------------------

    def put(self, path: Path, data: bytes) -> None:
        """Give a small file this content, replacing any other, atomically and durably."""
        with self._written(path, data) as (temporary, _):
            temporary.replace(path)
            sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        """Delete a small file durably; nothing happens if it does not exist."""
        with storage_errors(path):
            path.unlink(missing_ok=True)
            if path.parent.exists():
                sync_folder(path.parent)

    def put_new(self, path: Path, data: bytes) -> bool:
        """Create a small read-only file unless it exists; whether this call created it."""
        with self._written(path, data) as (temporary, descriptor):
            os.fchmod(descriptor, 0o444)
            try:
                # Unlike rename, link refuses to replace: the first writer wins.
                os.link(temporary, path)
            except FileExistsError:
                return False
            sync_folder(path.parent)
            return True

    def write_staged(self, path: Path, data: bytes) -> None:
        """Write a read-only file into a staging folder and sync it."""
        with storage_errors(path, needed=len(data)):
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def place(self, staged: Path, target: Path) -> bool:
        """Give a written, synced folder its name unless that exists; whether it was given."""
        with storage_errors(target):
            self.make_folder(target.parent)
            try:
                staged.rename(target)
            except OSError as error:
                if error.errno in {errno.ENOTEMPTY, errno.EEXIST}:
                    return False
                raise
            sync_folder(target.parent)
        return True

    def set_aside(self, folder: Path, staging: Staging) -> None:
        """Move a broken folder out of the way, into a staging that will be dropped."""
        with storage_errors(folder):
            folder.rename(staging.path / f"broken-{uuid.uuid4().hex}")
            sync_folder(folder.parent)

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, durably."""
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        with storage_errors(folder):
            folder.mkdir(exist_ok=True)
            sync_folder(folder.parent)

    @contextmanager
    def _written(self, path: Path, data: bytes) -> Iterator[tuple[Path, int]]:
        """A synced temporary file with this content, gone afterwards."""
        with storage_errors(path, needed=len(data)):
            self.make_folder(self.staging_root)
            self.make_folder(path.parent)
            temporary, descriptor = self._claim_file()
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
                yield temporary, descriptor
            finally:
                temporary.unlink(missing_ok=True)
                os.close(descriptor)

    # -- staging ---------------------------------------------------------------------------

    def stage(self, owner: dict[str, object]) -> Staging:
        """A new staging folder of this process; removes those of dead processes first."""
        self.sweep()
        with storage_errors(self.staging_root):
            self.make_folder(self.staging_root)
            while True:
                path = self.staging_root / uuid.uuid4().hex
                path.mkdir()
                try:
                    descriptor = _open_locked(path / _OWNER, os.O_RDWR | os.O_CREAT)
                except FileNotFoundError:
                    descriptor = None  # a sweeper took the folder before it had an owner
                if descriptor is None:
                    continue
                try:
                    os.write(descriptor, orjson.dumps(owner))
                except BaseException:
                    Staging(path, descriptor).drop()
                    raise
                return Staging(path, descriptor)

    def sweep(self) -> int:
        """Remove what dead processes left in ``_staging/``; how many things were removed.

        A living process is never disturbed: it holds a lock on what it owns from before the
        first byte is written, and a process that can take that lock knows that the owner is gone.
        """
        removed = 0
        for name in self.names(self.staging_root):
            if _OURS.fullmatch(name):
                removed += self._sweep(self.staging_root / name)
        return removed

    def _sweep(self, path: Path) -> int:
        folder = path.is_dir()
        try:
            descriptor = (
                _open_locked(path / _OWNER, os.O_RDWR | os.O_CREAT)
                if folder
                else _open_locked(path, os.O_RDONLY)
            )
        except OSError:
            return 0  # gone in the meantime, or another user's
        if descriptor is None:
            return 0
        try:
            with storage_errors(path):
                if folder:
                    # A process that has just made this folder and not yet locked it would
                    # otherwise put a fresh owner record into what is being removed.
                    deleted = self.staging_root / uuid.uuid4().hex
                    path.rename(deleted)
                    _remove_tree(deleted)
                else:
                    path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)
        return 1

    def _claim_file(self) -> tuple[Path, int]:
        while True:
            path = self.staging_root / f"{uuid.uuid4().hex}.tmp"
            descriptor = _open_locked(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            if descriptor is not None:
                return path, descriptor


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _open_locked(path: Path, flags: int) -> int | None:
    """Open a file and take its lock; None if another process has it or removed the file."""
    descriptor = os.open(path, os.O_CLOEXEC | flags, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between opening and locking a sweeper may have unlinked it: then the lock is on
        # an unlinked file, which protects nothing.
        if os.path.samestat(os.fstat(descriptor), path.stat()):
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


def _remove_tree(path: Path) -> None:
    """Remove a staging folder, its owner record last: what a kill leaves is still recognised."""
    for entry in path.iterdir():
        if entry.name == _OWNER:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()
    (path / _OWNER).unlink(missing_ok=True)
    try:
        path.rmdir()
    except OSError as error:
        # Without its record the folder is anybody's to sweep: then the sweeper finishes.
        if error.errno not in {errno.ENOENT, errno.ENOTEMPTY}:
            raise


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A binary file that takes its name, synced, when the block ends without an error.

    Until then another file of that name stays as it is. Errors of the disk pass as they are.
    """
    staged = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with staged.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
    finally:
        staged.unlink(missing_ok=True)


@contextmanager
def placed(target: Path, what: str) -> Iterator[Path]:
    """A path beside ``target`` for a new file or folder, which takes that name in one step.

    Everything is flushed to the disk first. StoreError, saying that ``what`` can't be written, if
    the disk refuses; whatever is raised, nothing is left behind.
    """
    staged = target.parent / f".{target.name}.{uuid.uuid4().hex}.tmp"
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield staged
        for path in (staged, *staged.rglob("*")):
            sync_folder(path)
        staged.rename(target)
        sync_folder(target.parent)
    except OSError as error:
        raise StoreError(
            f"{what} can't be written ({error.strerror or error})",
            where=str(target),
            hint="check the folder, its owner and the free space",
        ) from error
    finally:
        if staged.is_dir():
            shutil.rmtree(staged, ignore_errors=True)
        elif staged.exists():
            staged.unlink()


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class HashingSink:
    """A new, read-only file for Arrow's writers that hashes and counts what passes through."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 20)
        self._hash = hashlib.sha256()
        self.size = 0
        self._discarding = False
        self.closed = False

    def write(self, data: bytes) -> int:
        """Append bytes; how many."""
        if not self._discarding:
            self._file.write(data)
            self._hash.update(data)
            self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Do nothing: `finish` flushes."""

    def close(self) -> None:
        """Called by Arrow when the Parquet footer is out; `finish` closes the file."""

    def finish(self) -> str:
        """Flush, sync and close the file; its SHA-256 (hex)."""
        self._file.flush()
        os.fchmod(self._file.fileno(), 0o444)
        os.fsync(self._file.fileno())
        self._file.close()
        self.closed = True
        return self._hash.hexdigest()

    def discard(self) -> None:
        """Close the file and ignore further writes: Arrow insists on a footer."""
        self._discarding = True
        # Flushing the buffer may fail on a full disk as well.
        with suppress(OSError):
            self._file.close()


def sha256_of(path: Path) -> str:
    """SHA-256 (hex) of a file, read in pieces."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def known_sha256(path: Path) -> str:
    """SHA-256 (hex) of a large file, computed once as long as its size and time stay."""
    status = path.stat()
    return _known_sha256(path, status.st_size, status.st_mtime_ns)


@lru_cache(maxsize=512)
def _known_sha256(path: Path, size: int, modified: int) -> str:  # noqa: ARG001 (cache keys)
    return sha256_of(path)
