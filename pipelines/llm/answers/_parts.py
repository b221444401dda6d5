"""A part of the store: an immutable Parquet file."""

from __future__ import annotations

import base64
import errno
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import orjson

from pipelines.errors import StoreError
from pipelines.llm.answers._index import Entries
from pipelines.llm.answers._record import INDEX_COLUMNS, schema
from pipelines.store.files import HashingSink, storage_errors

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from numpy.typing import NDArray

FORMAT = 1
_NOTE = b"understudy.answers"
#: A row group ends at this many rows or bytes. Small ones make a rerun cheap, which reads the
#: few groups that its neighbours lie in; large ones make scans cheap.
GROUP_ROWS = 16_384
GROUP_BYTES = 32 * 2**20


class CorruptPartError(Exception):
    """A part that can't be read: never shown, but turned into a reported problem."""


@dataclass(frozen=True, slots=True)
class Part:
    """A readable part.

    ``offsets`` holds the first row of each row group, and the number of rows; ``replaces`` the
    names of parts whose rows are in this one: where one of them is still there, it is to be
    ignored.
    """

    path: Path
    size: int
    offsets: tuple[int, ...]
    replaces: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the file; names sort by the time of their oldest row."""
        return self.path.name

    @property
    def rows(self) -> int:
        """Rows (count)."""
        return self.offsets[-1]

    def read(self, rows: NDArray[Any], columns: Sequence[str]) -> pa.Table:
        """Some rows, by their numbers: ascending, and any of them as often as wanted.

        Raises CorruptPartError, or FileNotFoundError if the part has been merged into another.
        """
        import pyarrow as pa

        pieces = []
        with _opened(self.path) as file:
            group = np.searchsorted(self.offsets, rows, side="right") - 1
            for number in np.unique(group):
                table = _read_group(file, int(number), columns)
                wanted = rows[group == number] - self.offsets[number]
                # A copy, so that a few wanted rows don't keep the group in memory.
                whole = np.array_equal(wanted, np.arange(table.num_rows))
                pieces.append(table if whole else table.take(wanted))
        return pa.concat_tables(pieces)

    def groups(
        self, columns: Sequence[str], *, backwards: bool = False, opened: BinaryIO | None = None
    ) -> Iterator[pa.Table]:
        """All rows, one row group at a time, the last first if asked; raises as :meth:`read`."""
        with _opened(self.path if opened is None else opened) as file:
            numbers = range(file.num_row_groups)
            for number in reversed(numbers) if backwards else numbers:
                yield _read_group(file, number, columns)


def read_entries(path: Path) -> tuple[Part, Entries]:
    """Open a part and read what the index needs.

    Raises CorruptPartError or FileNotFoundError, or StoreError if a later version of Understudy
    wrote it or this user may not read it.
    """
    import pyarrow as pa

    with _opened(path) as file:
        note = _read_note(file)
        if note["format"] > FORMAT:
            raise StoreError(
                f"this part has format {note['format']}, known is {FORMAT}",
                where=str(path),
                hint="use the version of Understudy that wrote it, or a later one",
            )
        _check_schema(file)
        counts = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
        if sum(counts) != file.metadata.num_rows:
            raise CorruptPartError("the footer is inconsistent about the number of rows")
        table = pa.concat_tables(
            [_read_group(file, n, INDEX_COLUMNS) for n in range(len(counts))]
            or [schema().empty_table().select(list(INDEX_COLUMNS))]
        )
        entries = Entries.of(table)
    offsets = (0, *np.cumsum(counts, dtype=np.int64).tolist())
    return Part(path, path.stat().st_size, offsets, tuple(note["replaces"])), entries


@contextmanager
def _opened(path: Path | BinaryIO) -> Iterator[pq.ParquetFile]:
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(
            path, page_checksum_verification=True, read_dictionary=["status"]
        ) as file:
            yield file
    except (FileNotFoundError, StoreError, CorruptPartError):
        raise
    except OSError as error:
        # Arrow uses the same class for a page whose checksum is wrong, with no number.
        if error.errno in {errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE}:
            raise StoreError(f"can't be read ({error.strerror})", where=str(path)) from error
        raise CorruptPartError(str(error)) from error
    except Exception as error:
        # A flipped bit in a footer makes the reader raise nearly anything.
        raise CorruptPartError(str(error) or type(error).__name__) from error


def _read_note(file: pq.ParquetFile) -> dict[str, Any]:
    """Format and replaced parts. Both copies of the footer must agree on them."""
    import pyarrow as pa

    metadata = file.metadata.metadata or {}
    note = metadata.get(_NOTE)
    if note is None:
        raise CorruptPartError("not a part of an answer store")
    copy = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(metadata[b"ARROW:schema"])))
    if (copy.metadata or {}).get(_NOTE) != note:
        raise CorruptPartError("the footer contradicts itself")
    parsed: dict[str, Any] = orjson.loads(note)
    return parsed


def _check_schema(file: pq.ParquetFile) -> None:
    """Footers have no checksum: a flipped bit may rename a column or change how it is read."""
    for found, want in zip_longest(file.schema_arrow, schema()):
        kind = getattr(found, "type", None)
        kind = (
            getattr(kind, "value_type", kind)
            if want is not None and want.name == "status"
            else kind
        )
        same = want is not None and found is not None and kind == want.type
        if not (same and (found.name, found.nullable) == (want.name, want.nullable)):
            raise CorruptPartError(f"the column {found} is not {want}")


def _read_group(file: pq.ParquetFile, number: int, columns: Sequence[str]) -> pa.Table:
    """Some columns of a row group, checked as far as checksums of pages don't."""
    table = file.read_row_group(number, columns=list(columns)).select(list(columns))
    table.validate(full=True)
    if table.num_rows != file.metadata.row_group(number).num_rows:
        raise CorruptPartError("a row group's length differs from the footer")
    for field in schema():
        if field.name in columns and not field.nullable and table.column(field.name).null_count:
            raise CorruptPartError(f"the column {field.name} has missing values")
    return table


def encode(table: pa.Table, replaces: Sequence[str] = ()) -> bytes:
    """A whole part in memory."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with _writer(sink, replaces) as writer:
        writer.write_table(table, row_group_size=GROUP_ROWS)
    return bytes(sink.getvalue())


class PartFile:
    """Writes a part that is too large for memory, from tables as they come.

    ``replaces`` names the parts that its rows come from. Every method raises :class:`StoreError` if
    the disk is full or can't be written.
    """

    def __init__(self, path: Path, replaces: Sequence[str]) -> None:
        import pyarrow as pa

        self.path = path
        self._pending: list[pa.Table] = []
        self._rows = self._bytes = 0
        with storage_errors(path):
            self._sink = HashingSink(path)
            self._writer = _writer(pa.PythonFile(self._sink, mode="w"), replaces)

    def write(self, table: pa.Table) -> None:
        """Take rows."""
        self._pending.append(table)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        if self._rows >= GROUP_ROWS or self._bytes >= GROUP_BYTES:
            self._flush()

    def close(self) -> None:
        """Write what is left and sync."""
        self._flush()
        with storage_errors(self.path):
            self._writer.close()
            self._sink.finish()

    def abort(self) -> None:
        """Close without completing it."""
        self._sink.discard()
        self._writer.close()

    def _flush(self) -> None:
        import pyarrow as pa

        if not self._rows:
            return
        table = pa.concat_tables(self._pending)
        self._pending, self._rows, self._bytes = [], 0, 0
        with storage_errors(self.path, needed=table.nbytes):
            self._writer.write_table(table, row_group_size=GROUP_ROWS)


def _writer(sink: Any, replaces: Sequence[str]) -> pq.ParquetWriter:
    import pyarrow.parquet as pq

    wanted = schema()
    note = orjson.dumps({"format": FORMAT, "replaces": list(replaces)})
    return pq.ParquetWriter(
        sink,
        wanted.with_metadata({_NOTE: note}),
        version="2.6",
        # Keys are random bytes: neither a dictionary nor compression does anything for them.
        compression={f.name: "NONE" if f.name == "key" else "ZSTD" for f in wanted},
        use_dictionary=[
            *("status", "max_tokens", "text", "finish_reason", "detail"),
            *("engine", "model", "identity"),
        ],
        write_statistics=["status", "stored_at"],
        write_page_checksum=True,
        store_schema=True,
    )
