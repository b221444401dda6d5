"""Stored answers: the parts on disk, the index over them, and reading from them."""

from __future__ import annotations

import fcntl
import logging
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from pipelines.errors import StoreError
from pipelines.llm.answers._index import Entries, Index
from pipelines.llm.answers._parts import CorruptPartError, Part, read_entries
from pipelines.llm.answers._places import PartFiles, Scope
from pipelines.llm.answers._record import schema
from pipelines.llm.answers._rules import first_of_each, preference, serving

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_log = logging.getLogger(__name__)
#: Parts are merged while others read: how often a look-up starts again before it gives up.
_TRIES = 50
#: Threads that read parts (count): Arrow decodes outside of Python's lock.
_READERS = 2


@dataclass(frozen=True, slots=True)
class Problem:
    """A file of the store's folder that was left out, and why it can't be read, in one line."""

    part: str
    reason: str
    path: Path = field(repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Found:
    """Rows of a look-up, in the order in which they are stored.

    ``positions`` holds, for each row, the position of its key among those asked for.
    """

    positions: NDArray[np.int64]
    table: pa.Table


class Catalogue:
    """Parts of a scope (None: all) of one store, as this process last read them."""

    def __init__(self, home: Path, scope: Scope | None = None) -> None:
        self.files = PartFiles(home)
        self.scope = scope
        self.index = Index()
        self.parts: dict[int, Part] = {}
        self.problems: dict[str, Problem] = {}
        self.replaced: set[str] = set()
        self._numbers: dict[str, int] = {}
        self._next = 0

    @property
    def folder(self) -> Path:
        """Folder of new parts."""
        return self.files.folder_of(self.scope)

    def swapping(self) -> AbstractContextManager[object]:
        """Lock to hold while parts take the place of others."""
        return self.files.lock("answers-swap")

    def merging(self, timeout: float) -> AbstractContextManager[object]:
        """Lock of the one process that merges parts; LockedError after ``timeout`` (s)."""
        return self.files.lock("answers-compact", timeout=timeout)

    def ordered(self) -> list[tuple[int, Part]]:
        """Parts by age."""
        return sorted(self.parts.items(), key=lambda item: item[1].name)

    # -- what is there -----------------------------------------------------------------------

    def refresh(self) -> None:
        """Take in what other processes have written or compacted since."""
        for _ in range(_TRIES):
            if self._refresh():
                return
        raise self._too_fast()

    def open_all(self) -> list[tuple[Part, BinaryIO]]:
        """Parts by age, opened: what merging removes can still be read."""
        for _ in range(_TRIES):
            self.refresh()
            with ExitStack() as opened:
                try:
                    files: list[tuple[Part, BinaryIO]] = [
                        (part, opened.enter_context(part.path.open("rb")))
                        for _, part in self.ordered()
                    ]
                except FileNotFoundError:
                    continue
                opened.pop_all()
                return files
        raise self._too_fast()

    def _refresh(self) -> bool:
        """List the parts once; False if one was removed before it could be opened."""
        with self._no_swap():
            there = self.files.listed(self.scope)
        self._drop(self._numbers.keys() - there.keys())
        self.problems = {n: p for n, p in self.problems.items() if n in there}
        self.replaced &= there.keys()
        new = sorted(there.keys() - self._numbers.keys() - self.problems.keys() - self.replaced)
        pieces: list[Entries] = []
        complete = True
        with ThreadPoolExecutor(_READERS) as pool:
            opened = pool.map(self._open, (there[name] for name in new))
            for name, found in zip(new, opened, strict=True):
                if isinstance(found, CorruptPartError):
                    self.report(there[name], found)
                elif found is None:
                    complete = False
                else:
                    part, entries = found
                    pieces.append(entries.numbered(self._next))
                    self._take(part)
        self.index.add(pieces)
        self.replaced |= {n for p in self.parts.values() for n in p.replaces if n in there}
        self._drop(self.replaced & self._numbers.keys())
        return complete

    def _open(self, path: Path) -> tuple[Part, Entries] | CorruptPartError | None:
        try:
            return read_entries(path)
        except FileNotFoundError:
            return None  # merged since it was listed
        except CorruptPartError as error:
            return error

    def take_own(self, part: Part, entries: Entries) -> None:
        """Take in a part that this process has just committed, without reading it again."""
        self.index.add([entries.numbered(self._next)])
        self._take(part)

    def report(self, path: Path, error: Exception) -> None:
        """Leave a part out and say so."""
        reason = " ".join(str(error).split())
        self.problems[path.name] = Problem(path.name, reason, path)
        _log.warning("corrupt part of the answer store ignored: %s (%s)", path, reason)
        self._drop({path.name} & self._numbers.keys())

    def _too_fast(self) -> StoreError:
        return StoreError(
            "the parts of the answer store change faster than they can be read",
            where=str(self.files.folder),
            hint="check for processes that write to or delete them",
        )

    def _take(self, part: Part) -> None:
        self.parts[self._next] = part
        self._numbers[part.name] = self._next
        self._next += 1

    def _drop(self, names: set[str]) -> None:
        if names:
            numbers = [self._numbers.pop(name) for name in names]
            self.index.drop(numbers)
            for number in numbers:
                del self.parts[number]

    @contextmanager
    def _no_swap(self) -> Iterator[None]:
        """Keep others from swapping parts: a listing must not fall between new and old names."""
        lock = self.files.local.root / "_locks" / "answers-swap.lock"
        try:
            descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield  # never merged before
            return
        except OSError as error:
            raise StoreError(f"can't be read ({error.strerror})", where=str(lock)) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
            yield
        finally:
            os.close(descriptor)

    # -- looking up --------------------------------------------------------------------------

    def find(
        self,
        words: tuple[NDArray[Any], NDArray[Any]],
        wanted: NDArray[Any] | None,
        columns: Sequence[str],
        pending: tuple[NDArray[Any], Entries, pa.Table] | None = None,
    ) -> Found:
        """The row to take for each key that has one.

        ``words`` are the first and second eight bytes of the keys; ``wanted`` is the budget of each
        call (tokens): rows that don't serve it are passed over (None takes the best row whatever it
        is). ``pending`` are rows that are not committed yet: positions, entries and the rows
        themselves.
        """
        for _ in range(_TRIES):
            positions, entries = self.index.find(*words)
            if pending is not None:
                # They are a part too, one that does not exist yet.
                positions = np.concatenate([positions, pending[0]])
                entries = Entries.join([entries, pending[1].numbered(self._next)])
            if wanted is not None:
                mask = serving(entries.status, entries.made, wanted[positions])
                positions, entries = positions[mask], entries.take(mask)
            best = self._best(positions, entries)
            # In the order in which they lie on the disk.
            best = best[np.argsort(_address(entries.part[best], entries.row[best]))]
            table = self._read(entries.take(best), columns, None if pending is None else pending[2])
            if table is not None:
                return Found(positions[best].astype(np.int64), table)
            self.refresh()
        raise self._too_fast()

    def _read(
        self, chosen: Entries, columns: Sequence[str], pending: pa.Table | None
    ) -> pa.Table | None:
        """Rows that are sorted by part and row; None if a part has gone or is corrupt."""
        import pyarrow as pa

        want = pa.schema([schema().field(name) for name in columns])
        numbers, starts = np.unique(chosen.part, return_index=True)
        pieces = np.split(chosen.row.astype(np.int64), starts[1:])

        def read(
            number: int, rows: NDArray[Any]
        ) -> pa.Table | FileNotFoundError | CorruptPartError:
            if pending is not None and number == self._next:
                return pending.select(list(columns)).take(rows)
            try:
                return self.parts[number].read(rows, columns).cast(want)
            except (FileNotFoundError, CorruptPartError) as error:
                return error

        with ThreadPoolExecutor(_READERS) as pool:
            tables = list(pool.map(read, numbers.tolist(), pieces))
        faults = [
            (number, found)
            for number, found in zip(numbers.tolist(), tables, strict=True)
            if isinstance(found, Exception)
        ]
        for number, fault in faults:
            if isinstance(fault, CorruptPartError):
                self.report(self.parts[number].path, fault)
        if faults:
            return None
        return pa.concat_tables(tables) if tables else want.empty_table()

    def _best(self, positions: NDArray[Any], entries: Entries) -> NDArray[Any]:
        """Numbers of the rows to take: one per position."""
        if len(positions) == 0 or np.bincount(positions).max() == 1:
            return np.arange(len(positions))
        # Remaining ties are broken by the part's name: the same in every process.
        rank = np.full(self._next + 1, self._next, np.uint64)
        for place, (number, _) in enumerate(self.ordered()):
            rank[number] = place
        address = _address(rank[entries.part], entries.row)
        order = preference(positions, entries.status, entries.made, entries.stored_at, address)
        return first_of_each(positions, order)


def _address(part: NDArray[Any], row: NDArray[Any]) -> NDArray[np.uint64]:
    """Number that sorts by part, then row."""
    return (part.astype(np.uint64) << np.uint64(32)) | row.astype(np.uint64)
