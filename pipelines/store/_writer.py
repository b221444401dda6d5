"""Write one version of a table: rows are checked, and a whole snapshot or nothing is committed.

The bytes of a Parquet file depend on the rows alone, not on how they were passed. Fixed: rows per
row group, row groups per file, zstd, no metadata but the Arrow schema. Rows are gathered into
whole row groups, each copied into one contiguous chunk, because page and dictionary boundaries
follow chunks. Dictionary columns are chosen from a file's first rows: a dictionary of values that
hardly repeat costs more time than all else and makes the file larger.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pipelines.errors import ContractError, IntegrityError, StoreError
from pipelines.store._layout import Layout
from pipelines.store._manifest import (
    MANIFEST,
    WITHHELD,
    FileEntry,
    Manifest,
    build_key,
    canonical_json,
    content_version,
    now,
    pretty_json,
    split_cohort,
)
from pipelines.store._records import move_pointer, open_snapshot, read_version
from pipelines.store._snapshot import Snapshot
from pipelines.store.files import HashingSink, LocalFiles, Staging, storage_errors, sync_folder
from pipelines.store.locks import PATIENCE, holder_record, mutex

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipelines.contracts import Contract


def to_polars(rows: pl.DataFrame | pa.Table | pa.RecordBatch) -> pl.DataFrame:
    """Rows as a polars frame, without a copy where that is possible."""
    import polars as pl

    return rows if isinstance(rows, pl.DataFrame) else pl.DataFrame(rows)


def check_order(
    last: pl.DataFrame | None, frame: pl.DataFrame, order: Sequence[str], dataset: str
) -> pl.DataFrame:
    """Check that rows strictly ascend by ``order``; nulls come first, text by its UTF-8 bytes.

    ``last`` is what this function returned for the rows before (None: there are none), the last
    row's order columns. ContractError names the first pair of rows with the same key or out of
    order.
    """
    import polars as pl

    keys = frame.select(order)
    if last is not None:
        keys = pl.concat([last, keys])
    ascends, same = pl.lit(False), pl.lit(True)
    for column in reversed(order):
        value, before = pl.col(column), pl.col(column).shift(1)
        above = (value > before).fill_null(value.is_not_null() & before.is_null())
        equal = value.eq_missing(before)
        ascends, same = above | (equal & ascends), same & equal
    # The first row has no predecessor.
    wrong = keys.select(ascends=ascends, same=same).with_row_index().slice(1)
    wrong = wrong.filter(~pl.col("ascends"))
    if wrong.height:
        at, same_key = wrong["index"][0], wrong["same"][0]
        pair = [
            {name: str(value)[:200] for name, value in row.items()}
            for row in keys.slice(at - 1, 2).to_dicts()
        ]
        raise ContractError(
            f"{int(wrong['same'].sum())} rows share a key ({', '.join(order)})"
            if same_key
            else f"rows are out of order: {pair[1]} comes after {pair[0]}",
            where=dataset,
            hint=None if same_key else f"append rows sorted by {', '.join(order)}",
            details={"rows": pair, "columns": list(order)},
        )
    # Built anew: a slice would keep the whole frame in memory.
    return pl.DataFrame(keys.tail(1).to_dicts(), schema=keys.schema)


#: Rows of a row group (count); fewer where a row holds a list, such as a vector of 384 floats.
ROW_GROUP = 131_072
ROW_GROUP_NESTED = 16_384
#: Row groups of a file (count).
GROUPS_PER_FILE = 32

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
    """Writes Arrow tables of one schema as ``part-00000.parquet`` and so on, in an empty folder.

    Every method raises StoreError when the disk is full or can't be written.
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
    """A Parquet file, hashed while it is written."""

    def __init__(self, path: Path, schema: pa.Schema, dictionaries: list[str]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.path = path
        self.rows = 0
        self.groups = 0
        with storage_errors(path):
            self._sink = HashingSink(path)
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
        self._sink.discard()
        self._writer.close()


@dataclass(frozen=True, slots=True)
class Provenance:
    """Code, settings, inputs and run of a snapshot."""

    code_version: str
    config: dict[str, Any]
    inputs: dict[str, str]
    run_id: str | None

    @property
    def key(self) -> str:
        """The build key."""
        return build_key(self.code_version, self.config, self.inputs)


def contract_of(dataset: str) -> Contract:
    """The contract that is declared for a dataset; StoreError if there is none."""
    # Here, not at the top: contracts bring pandera, which readers don't need.
    from pipelines.contracts import CONTRACTS

    contract = CONTRACTS.get(split_cohort(dataset)[0])
    if contract is None:
        raise StoreError(
            "no contract for this dataset", where=dataset, hint="declare it in pipelines/contracts"
        )
    return contract


class SnapshotWriter:
    """Writes one snapshot; a context manager, made by ``Store.write``.

    Leaving the ``with`` block commits; leaving it with an exception leaves nothing behind. Without
    a ``with`` block: ``append`` …, then ``commit`` or ``abort``, or ``prepare`` and
    :meth:`Store.commit_together`.
    """

    def __init__(
        self,
        files: LocalFiles,
        layout: Layout,
        dataset: str,
        contract: Contract,
        provenance: Provenance,
        *,
        allow_empty: bool = False,
    ) -> None:
        self.dataset = dataset
        self.contract = contract
        self._files = files
        self._layout = layout
        self._provenance = provenance
        self._build_key = provenance.key
        self._allow_empty = allow_empty
        # A total order even where the contract's is not: the key is unique.
        self._order = [*contract.order, *(c for c in contract.key if c not in contract.order)]
        self._schema = contract.arrow_schema().remove_metadata()
        self._stats: dict[str, Any] = {}
        self._attached: list[FileEntry] = []
        self._last: pl.DataFrame | None = None
        self._staging: Staging | None = None
        self._parts: PartWriter | None = None
        self._manifest: Manifest | None = None
        self._snapshot: Snapshot | None = None
        self._closed = False

    # -- rows ------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows taken so far (count)."""
        return self._parts.rows if self._parts else 0

    def append(self, rows: pl.DataFrame | pa.Table | pa.RecordBatch) -> None:
        """Check rows against the contract and write them.

        They are in the contract's order and after those appended before; ContractError if not, or
        if they break the contract or share a key.
        """
        self._check_open()
        # Rows that strictly ascend by no more than the key can't share one: looked for once.
        ordered = set(self._order) == set(self.contract.key)
        frame = self.contract.validate(to_polars(rows), dataset=self.dataset, keyed=not ordered)
        if frame.height:
            self._last = check_order(self._last, frame, self._order, self.dataset)
            self._take(frame)

    def append_unordered(self, rows: pl.DataFrame | pa.Table | pa.RecordBatch) -> None:
        """Check and write a whole table whose rows may come in any order."""
        self._check_open()
        frame = self.contract.validate(to_polars(rows), dataset=self.dataset)
        self._take(frame.sort(self._order))

    def attach(self, file: Path) -> None:
        """Copy a plain file into the snapshot, under its name."""
        self._open()
        target = self._folder / file.name
        with storage_errors(target, needed=file.stat().st_size):
            sink = HashingSink(target)
            try:
                with file.open("rb") as source:
                    shutil.copyfileobj(source, sink, 1 << 20)
                digest = sink.finish()
            except BaseException:
                sink.discard()
                raise
        self._attached.append(FileEntry(file.name, digest, sink.size, 0))

    def note(self, **stats: Any) -> None:
        """Add facts to the manifest's ``stats`` (JSON values)."""
        canonical_json(stats)
        self._stats.update(stats)

    # -- life ------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Finish and sync the files and the manifest, without making them visible.

        ContractError if there are no rows and ``allow_empty`` was not given.
        """
        if self._manifest is not None:
            return
        if not self.rows and not self._allow_empty:
            raise ContractError(
                "no rows",
                where=self.dataset,
                hint="an empty table is an error unless the step allows it",
            )
        entries = (*self._open().finish(), *sorted(self._attached, key=lambda e: e.name))
        schema = self._described()
        provenance = self._provenance
        manifest = Manifest(
            dataset=self.dataset,
            version=content_version(self.dataset, schema, entries),
            rows=sum(e.rows for e in entries),
            bytes=sum(e.bytes for e in entries),
            files=entries,
            schema=schema,
            code_version=provenance.code_version,
            config=provenance.config,
            inputs=provenance.inputs,
            build_key=self._build_key,
            created_at=now(),
            run_id=provenance.run_id,
            stats=dict(self._stats),
            key=tuple(self.contract.key),
        )
        # The manifest comes last: a folder with one is whole.
        self._files.write_staged(self._folder / MANIFEST, manifest.to_json())
        with storage_errors(self._folder):
            sync_folder(self._folder)
        self._manifest = manifest

    def commit(self) -> Snapshot:
        """Prepare if need be, then make the snapshot visible and current."""
        return commit_together([self])[0]

    def abort(self) -> None:
        """Remove everything written so far; does nothing after a commit."""
        self._closed = True
        if self._parts is not None:
            self._parts.abort()
        if self._staging is not None:
            self._staging.drop()

    @property
    def snapshot(self) -> Snapshot:
        """The committed snapshot; StoreError before that."""
        if self._snapshot is None:
            raise StoreError("not committed", where=self.dataset)
        return self._snapshot

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        done = False
        try:
            if kind is None:
                self.commit()
                done = True
        finally:
            if not done:
                self.abort()

    # -- steps of a commit, in order over all tables of it -----------------------------------

    def _place(self) -> None:
        manifest = self._manifest
        if manifest is None or self._staging is None:
            raise StoreError("not prepared", where=self.dataset)
        target = self._layout.snapshot(self.dataset, manifest.version)
        if not self._files.place(self._folder, target):
            with mutex(self._layout.lock(f"data-{self.dataset}")):
                try:
                    self._snapshot = open_snapshot(self._files, target)
                    return
                except IntegrityError:
                    # Someone damaged what is there; these are the bytes its name promises.
                    self._files.set_aside(target, self._staging)
                    self._files.place(self._folder, target)
        self._snapshot = open_snapshot(self._files, target)

    def _record_build(self) -> None:
        path = self._layout.build(self.dataset, self._build_key)
        provenance = self._provenance
        record = {
            "dataset": self.dataset,
            "version": self.snapshot.version,
            "build_key": self._build_key,
            "code_version": provenance.code_version,
            "config": provenance.config,
            "inputs": provenance.inputs,
            "run_id": provenance.run_id,
            "created_at": now(),
            "stats": self._stats,
        }
        try:
            recorded = read_version(self._files, path)
        except IntegrityError:
            recorded = None  # a damaged record is replaced
        if recorded != self.snapshot.version:
            self._files.put(path, pretty_json(record))

    def _point(self) -> None:
        if WITHHELD in self._stats:
            return
        path = self._layout.ref(self.dataset)
        move_pointer(self._files, path, self.dataset, self.snapshot.version)

    # -- inside ------------------------------------------------------------------------------

    @property
    def _folder(self) -> Path:
        assert self._staging is not None
        return self._staging.path / "table"

    def _check_open(self) -> None:
        if self._closed or self._manifest is not None:
            raise StoreError("this writer is closed", where=self.dataset)

    def _open(self) -> PartWriter:
        self._check_open()
        if self._parts is None:
            self._staging = self._files.stage(holder_record())
            self._parts = PartWriter(self._staging.folder("table"), self._schema)
        return self._parts

    def _take(self, frame: pl.DataFrame) -> None:
        from pipelines.cohorts import in_cohort

        cohort = split_cohort(self.dataset)[1]
        if cohort and not frame.select(in_cohort(cohort).all()).item():
            raise ContractError("rows of another cohort", where=self.dataset)
        self._open().write(frame.to_arrow().cast(self._schema))

    def _described(self) -> tuple[dict[str, Any], ...]:
        names = {c.name: c.nullable for c in self.contract.columns()}
        return tuple(
            {"name": f.name, "type": str(f.type), "nullable": names[f.name]} for f in self._schema
        )


def commit_together(writers: Sequence[SnapshotWriter]) -> list[Snapshot]:
    """Finish all, then give all their names, then record all builds, then move all pointers."""
    try:
        for writer in writers:
            writer.prepare()
        with ExitStack() as held:
            for lock in {w._layout.versions_lock for w in writers}:
                held.enter_context(mutex(lock, timeout=PATIENCE, shared=True))
            for writer in writers:
                writer._place()
            for writer in writers:
                writer._record_build()
            for writer in writers:
                writer._point()
    finally:
        for writer in writers:
            writer.abort()
    return [w.snapshot for w in writers]
