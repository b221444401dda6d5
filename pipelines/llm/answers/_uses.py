"""Records of the keys that each table asked for, so that answers go with the tables made of them.

Every look-up is recorded before it is made: 16 bytes per key, in a file of the build that asks
(``answers/uses/<table and cohort>/``) or, outside of builds, of the process
(``answers/uses/elsewhere/``). A committed table names its files in its manifest. An answer can be
removed when all files with its key are named by removed tables only, and when it was stored after
records began.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson

from pipelines.errors import IntegrityError, StoreError
from pipelines.llm.answers._places import Scope
from pipelines.store.files import LocalFiles, storage_errors, sync_folder
from pipelines.store.locks import PATIENCE, mutex

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Entry of a manifest's facts: files of recorded keys by cohort (``""`` for a table without).
USES = "answer_uses"

_ELSEWHERE = "elsewhere"
#: Suffixes of the file of a build that goes on or died, and of one that ended.
_OPEN, _ENDED = ".open", ".keys"
_BYTES = 16
#: Name of this process's file outside of builds.
_OWN = uuid.uuid4().hex

_lock = threading.Lock()
_active: list[Uses] = []


@dataclass
class Uses:
    """The files of keys that one build asks for."""

    home: Path
    folder: Path
    names: list[str] = field(default_factory=list)
    _name: str = field(default_factory=lambda: uuid.uuid4().hex)

    def end(self) -> list[str]:
        """Names of the files so far, with those of builds of the same table that died."""
        with _lock:
            if self.folder.is_dir():
                with storage_errors(self.folder):
                    for path in sorted(self.folder.glob(f"*{_OPEN}")):
                        ended = path.with_suffix(_ENDED)
                        with suppress(FileNotFoundError):
                            path.rename(ended)
                        with ended.open("rb") as file:
                            os.fsync(file.fileno())
                        self.names.append(f"{self.folder.name}/{ended.name}")
                    sync_folder(self.folder)
            self._name = uuid.uuid4().hex
            return list(self.names)

    def add(self, data: bytes) -> None:
        try:
            _append(self.folder / f"{self._name}{_OPEN}", data)
        except StoreError:
            # Reading stops at a truncated record: go on in a new file.
            self._name = uuid.uuid4().hex
            raise


@contextmanager
def recorded_uses(home: Path, table: str, cohort: str = "") -> Iterator[Uses]:
    """Record what is asked in this block, in any thread, as asked for a table."""
    uses = Uses(home, _folder(home) / Scope.of(table, cohort).name)
    with _lock:
        _active.append(uses)
    try:
        yield uses
    finally:
        with _lock:
            _active.remove(uses)


def active_scope(home: Path) -> Scope | None:
    """The scope of the table that is being built in this process, if one is."""
    with _lock:
        names = [uses.folder.name for uses in _active if uses.home == home]
    return Scope(names[-1]) if names else None


@contextmanager
def looked_up(home: Path, keys: Sequence[str]) -> Iterator[None]:
    """Record keys, and keep their answers from being removed while they are looked up."""
    data = b"".join(bytes.fromhex(key[: 2 * _BYTES]) for key in keys)
    with ExitStack() as stack:
        try:
            stack.enter_context(mutex(_swap(home), timeout=PATIENCE, shared=True))
            _record(home, data)
        except StoreError as error:
            cause = error.__cause__
            # Nothing is committed to a home that can't be written.
            if not isinstance(cause, OSError) or cause.errno not in (errno.EROFS, errno.EACCES):
                raise
        yield


def _record(home: Path, data: bytes) -> None:
    with _lock:
        users = [uses for uses in _active if uses.home == home]
        for uses in users:
            uses.add(data)
        if data and not users:
            _append(_folder(home) / _ELSEWHERE / f"{_OWN}{_ENDED}", data)


@dataclass(frozen=True, slots=True)
class UnusedReport:
    """Answers (count) that only removed tables had asked for, and those that are kept."""

    #: Dropped, or in a dry run to be dropped.
    removed: int
    #: Kept, because a kept table asked for them.
    attributed: int
    #: Kept, because they may be needed: asked for outside of the tables' steps
    #: or before such records began.
    unattributed: int


@dataclass(frozen=True, slots=True)
class Unused:
    """Keys that only removed tables asked for, and those that kept tables did."""

    unused: NDArray[Any]
    attributed: NDArray[Any]
    since: datetime | None


@contextmanager
def unused_keys(
    home: Path, kept: Iterable[str], removed: Iterable[str], *, forget: bool
) -> Iterator[Unused]:
    """Keys of files that only removed tables name; no lookup may run meanwhile.

    With ``forget`` the files that only removed tables name are deleted when the block ends.
    """
    folder = _folder(home)
    since = _since(folder)
    if since is None:
        nothing = np.empty(0, f"S{_BYTES}")
        yield Unused(nothing, nothing, None)
        return
    with mutex(_swap(home), timeout=PATIENCE):
        named = set(kept)
        gone = set(removed) - named
        files = {f"{p.parent.name}/{p.name}": p for p in sorted(folder.glob("*/*"))}
        others = _keys(path for name, path in files.items() if name not in gone)
        mine = _keys(path for name, path in files.items() if name in gone)
        attributed = _keys(path for name, path in files.items() if name in named)
        yield Unused(np.setdiff1d(mine, others, assume_unique=True), attributed, since)
        if forget:
            with storage_errors(folder):
                for name in gone & files.keys():
                    files[name].unlink(missing_ok=True)
            _merge_elsewhere(folder / _ELSEWHERE)


def files_named(stats: Mapping[str, Any]) -> list[str]:
    """Files of keys that a manifest's facts name."""
    return [str(name) for names in stats.get(USES, {}).values() for name in names]


def words(high: NDArray[Any], low: NDArray[Any]) -> NDArray[Any]:
    """Keys of the index as they are recorded."""
    both = np.stack([high, low], axis=1).astype(">u8")
    return np.ascontiguousarray(both).view(f"S{_BYTES}").reshape(-1)


def _folder(home: Path) -> Path:
    return home / "answers" / "uses"


def _swap(home: Path) -> Path:
    return home / "_locks" / "answers-uses.lock"


def _since(folder: Path) -> datetime | None:
    """Time of the first record in a home."""
    try:
        return datetime.fromisoformat(orjson.loads((folder / "since.json").read_bytes())["since"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise IntegrityError("can't be read", where=str(folder / "since.json")) from error


def _append(path: Path, data: bytes) -> None:
    folder = path.parent
    with storage_errors(path):
        if not folder.is_dir():
            files = LocalFiles(folder.parents[2])
            files.make_folder(folder)
            now = datetime.now(UTC).isoformat()
            files.put_new(folder.parent / "since.json", orjson.dumps({"since": now}))
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            written = os.write(descriptor, data)
        finally:
            os.close(descriptor)
        if written != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _keys(paths: Iterable[Path]) -> NDArray[Any]:
    """Distinct keys of some files, ascending."""
    found = []
    for path in paths:
        with storage_errors(path):
            data = path.read_bytes()
        found.append(np.frombuffer(data[: len(data) // _BYTES * _BYTES], f"S{_BYTES}"))
    return np.unique(np.concatenate([np.empty(0, f"S{_BYTES}"), *found]))


def _merge_elsewhere(folder: Path) -> None:
    """Put the files of processes that ended into one; a running one begins another."""
    paths = sorted(folder.glob(f"*{_ENDED}"))
    if len(paths) < 2:
        return
    data = _keys(paths).astype(f"S{_BYTES}").tobytes()
    LocalFiles(folder.parents[2]).put(folder / f"{uuid.uuid4().hex}{_ENDED}", data)
    with storage_errors(folder):
        for path in paths:
            path.unlink(missing_ok=True)
