"""Parquet files whose bytes depend on the rows alone, not on how they arrived.

Fixed: rows per row group, row groups per file, zstd, no metadata but the Arrow schema. Rows
are gathered into whole row groups, each copied into one contiguous chunk, because page and
dictionary boundaries follow chunks. Which columns have dictionaries follows from a file's first
rows: one of values that hardly repeat costs more time than all else, and makes the file larger.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.store._manifest import FileEntry
from pipelines.store.files import storage_errors

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

__all__ = ["PartWriter", "row_group_rows"]

#: Rows of a row group (count); fewer where a row holds a list, such as a vector of 384 floats.
ROW_GROUP = 131_072
ROW_GROUP_NESTED = 16_384
#: Row groups of a file (count).
GROUPS_PER_FILE = 32

_BUFFER = 1 << 20
#: A column has a dictionary if, of this many first rows of a file,
_SAMPLE = 8192
#: each value stands in this many, on average.
_REPEATED = 8


def row_group_rows(schema: pa.Schema) -> int:
    """Rows per row group (count) of tables with this schema."""
    import pyarrow as pa

    nested = any(pa.types.is_nested(field.type) for field in schema)
    return ROW_GROUP_NESTED if nested else ROW_GROUP


class PartWriter:
    """Writes a stream of Arrow tables as ``part-00000.parquet`` and so on.

    Parameters
    ----------
    folder
        An existing, empty folder.
    schema
        Arrow schema of every table that will come.

    Raises
    ------
    StoreError
        From every method, when the disk is full or can't be written.
    """

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.folder = folder
        self.schema = schema.remove_metadata()
        self.rows = 0
        self._entries: list[FileEntry] = []
        self._group = row_group_rows(self.schema)
        self._pending: list[pa.Table] = []
        self._waiting = 0
        self._part: _Part | None = None

    def write(self, table: pa.Table) -> None:
        """Take rows; whole row groups go to the file."""
        self.rows += table.num_rows
        start = 0
        while start < table.num_rows:
            piece = table.slice(start, self._group - self._waiting)
            self._pending.append(piece)
            self._waiting += piece.num_rows
            start += piece.num_rows
            if self._waiting == self._group:
                self._flush()
        if self._pending and table.num_rows > self._group:
            # A slice keeps the whole table it was cut from in memory.
            self._pending = [_copy(self._pending[0])]

    def finish(self) -> tuple[FileEntry, ...]:
        """Write what is left, close and sync; the files in row order."""
        if self._waiting or not (self._entries or self._part):
            self._flush()
        self._close_part()
        return tuple(self._entries)

    def abort(self) -> None:
        """Close what is open without completing it."""
        if self._part is not None:
            self._part.abort()
            self._part = None
        self._pending = []

    def _flush(self) -> None:
        import pyarrow as pa

        table = self.schema.empty_table()
        if self._pending:
            table = pa.concat_tables(self._pending).combine_chunks()
        self._pending, self._waiting = [], 0
        if self._part is None:
            name = f"part-{len(self._entries):05d}.parquet"
            self._part = _Part(self.folder / name, self.schema, _repeating(table))
        self._part.write(table, self._group)
        if self._part.groups == GROUPS_PER_FILE:
            self._close_part()

    def _close_part(self) -> None:
        if self._part is not None:
            part, self._part = self._part, None
            self._entries.append(part.close())


def _copy(table: pa.Table) -> pa.Table:
    import numpy as np

    return table.take(np.arange(table.num_rows))


def _repeating(table: pa.Table) -> list[str]:
    """Columns that a dictionary makes smaller, by their paths in the file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names: list[str] = []
    for field, column in zip(table.schema, table.slice(0, _SAMPLE).columns, strict=True):
        if pa.types.is_nested(field.type):
            names += _nested_text(field)
        elif pc.count_distinct(column, mode="all").as_py() * _REPEATED <= len(column):
            names.append(field.name)
    return names


def _nested_text(field: pa.Field, above: str = "") -> list[str]:
    """Text inside a column, such as ``words.list.element``: genres and the like repeat."""
    import pyarrow as pa

    kind, path = field.type, above + field.name
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        element = kind.value_field.with_name("element")
        return _nested_text(element, f"{path}.list.")
    if pa.types.is_struct(kind):
        return [name for inner in kind for name in _nested_text(inner, f"{path}.")]
    return [path] if pa.types.is_string(kind) or pa.types.is_large_string(kind) else []


class _Part:
    """One Parquet file, hashed while it is written."""

    def __init__(self, path: Path, schema: pa.Schema, dictionaries: list[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        self.rows = 0
        self.groups = 0
        with storage_errors(path):
            self._sink = _HashingSink(path)
            self._writer: pq.ParquetWriter = pq.ParquetWriter(
                pa.PythonFile(self._sink, mode="w"),
                schema,
                version="2.6",
                compression="zstd",
                compression_level=3,
                use_dictionary=dictionaries,
                write_statistics=True,
                data_page_version="1.0",
                store_schema=True,
            )

    def write(self, table: pa.Table, group: int) -> None:
        with storage_errors(self.path, needed=table.nbytes):
            try:
                self._writer.write_table(table, row_group_size=group)
            except BaseException:
                self.abort()
                raise
        self.rows += table.num_rows
        self.groups += 1

    def close(self) -> FileEntry:
        try:
            with storage_errors(self.path):
                self._writer.close()
            with storage_errors(self.path, needed=self._sink.size):
                digest = self._sink.finish()
        except BaseException:
            self.abort()
            raise
        return FileEntry(self.path.name, digest, self._sink.size, self.rows)

    def abort(self) -> None:
        # The writer insists on a footer when it is closed or collected: let it have none.
        self._sink.discard()
        self._writer.close()


class _HashingSink:
    """A write-only file that hashes and counts what passes through."""

    def __init__(self, path: Path) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._file = os.fdopen(descriptor, "wb", buffering=_BUFFER)
        self._hash = hashlib.sha256()
        self.size = 0
        self._discarding = False
        self.closed = False

    def write(self, data: bytes) -> int:
        if not self._discarding:
            self._file.write(data)
            self._hash.update(data)
            self.size += len(data)
        return len(data)

    def flush(self) -> None:
        """Nothing to do before `finish`."""

    def close(self) -> None:
        """Called by Arrow when the Parquet footer is out; `finish` closes the file."""

    def finish(self) -> str:
        self._file.flush()
        os.fchmod(self._file.fileno(), 0o444)
        os.fsync(self._file.fileno())
        self._file.close()
        self.closed = True
        return self._hash.hexdigest()

    def discard(self) -> None:
        self._discarding = True
        # What is buffered may not fit on the disk either.
        with contextlib.suppress(OSError):
            self._file.close()
