"""Writing one version of a table: rows in, checked; a whole snapshot or nothing out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from pipelines.errors import ContractError, IntegrityError, StoreError
from pipelines.store._layout import Layout
from pipelines.store._manifest import (
    MANIFEST,
    Manifest,
    build_key,
    canonical_json,
    content_version,
    now,
    pretty_json,
)
from pipelines.store._parquet import PartWriter, row_group_rows
from pipelines.store._records import move_pointer, open_snapshot, read_version
from pipelines.store._rows import RowGroups, check_order, to_polars
from pipelines.store._snapshot import Snapshot
from pipelines.store.files import LocalFiles, Staging, storage_errors, sync_folder
from pipelines.store.locks import holder_record, mutex

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from pipelines.contracts import Contract

__all__ = ["Provenance", "SnapshotWriter", "commit_together", "contract_of"]


@dataclass(frozen=True, slots=True)
class Provenance:
    """What a snapshot is made by and from."""

    code_version: str
    config: dict[str, Any]
    inputs: dict[str, str]
    run_id: str | None

    @property
    def key(self) -> str:
        """The build key."""
        return build_key(self.code_version, self.config, self.inputs)


def contract_of(dataset: str) -> Contract:
    """The contract that is declared for a dataset.

    Raises
    ------
    StoreError
        There is none.
    """
    # Here, not at the top: contracts bring pandera, which readers don't need.
    from pipelines.contracts import CONTRACTS

    contract = CONTRACTS.get(dataset)
    if contract is None:
        raise StoreError(
            "no contract for this dataset",
            where=dataset,
            hint="declare it in pipelines/contracts",
        )
    return contract


class SnapshotWriter:
    """Writes one snapshot; a context manager. Made by ``Store.write`` and ``Transaction.write``.

    Leaving the ``with`` block commits (in a transaction: prepares); leaving it with an
    exception leaves nothing behind. Without a ``with`` block: ``append`` …, then ``commit`` or
    ``abort``, or ``prepare`` and :meth:`Store.commit_together`.
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
        deferred: bool = False,
    ) -> None:
        self.dataset = dataset
        self.contract = contract
        self._files = files
        self._layout = layout
        self._provenance = provenance
        self._build_key = provenance.key
        self._allow_empty = allow_empty
        self._deferred = deferred
        # A total order even where the contract's is not: the key tells rows apart.
        self._order = [*contract.order, *(c for c in contract.key if c not in contract.order)]
        self._schema = contract.arrow_schema().remove_metadata()
        self._stats: dict[str, Any] = {}
        self._last: pl.DataFrame | None = None
        self._groups = RowGroups(row_group_rows(self._schema))
        self._staging: Staging | None = None
        self._parts: PartWriter | None = None
        self._manifest: Manifest | None = None
        self._snapshot: Snapshot | None = None
        self._closed = False

    # -- rows ------------------------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Rows taken so far (count)."""
        return self._groups.waiting + (self._parts.rows if self._parts else 0)

    def append(self, rows: pl.DataFrame | pa.Table | pa.RecordBatch) -> None:
        """Check rows against the contract and write them.

        Parameters
        ----------
        rows
            Any number of rows, in the contract's order and after those appended before.

        Raises
        ------
        ContractError
            Rows break the contract, share a key, or are out of order.
        StoreError
            The disk is full or can't be written.
        """
        self._check_open()
        # Rows that strictly ascend by no more than the key can't share one: looked for once.
        ordered = set(self._order) == set(self.contract.key)
        frame = self.contract.validate(to_polars(rows), dataset=self.dataset, keyed=not ordered)
        if frame.height:
            self._last = check_order(self._last, frame, self._order, self.dataset)
            self._take(frame)

    def append_unordered(self, rows: pl.DataFrame | pa.Table) -> None:
        """Check and write a whole table whose rows may come in any order."""
        self._check_open()
        frame = self.contract.validate(to_polars(rows), dataset=self.dataset)
        self._take(frame.sort(self._order))

    def note(self, **stats: Any) -> None:
        """Add facts to the manifest's ``stats`` (JSON values)."""
        canonical_json(stats)
        self._stats.update(stats)

    # -- life ------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Finish and sync the files and the manifest, without making them visible.

        Raises
        ------
        ContractError
            There are no rows and ``allow_empty`` was not given.
        """
        if self._manifest is not None:
            return
        if not self.rows and not self._allow_empty:
            raise ContractError(
                "no rows",
                where=self.dataset,
                hint="an empty table is an error unless the step allows it",
            )
        parts = self._open()
        if self._groups.waiting:
            self._write(parts, self._groups.rest())
        entries = parts.finish()
        names = {c.name: c.nullable for c in self.contract.columns()}
        schema = tuple(
            {"name": f.name, "type": str(f.type), "nullable": names[f.name]} for f in self._schema
        )
        made = self._provenance
        manifest = Manifest(
            dataset=self.dataset,
            version=content_version(self.dataset, schema, entries),
            rows=sum(e.rows for e in entries),
            bytes=sum(e.bytes for e in entries),
            files=entries,
            schema=schema,
            code_version=made.code_version,
            config=made.config,
            inputs=made.inputs,
            build_key=self._build_key,
            created_at=now(),
            run_id=made.run_id,
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
        """The committed snapshot.

        Raises
        ------
        StoreError
            Nothing was committed (yet).
        """
        if self._snapshot is None:
            raise StoreError("not committed", where=self.dataset)
        return self._snapshot

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        done = False
        try:
            if kind is None:
                self.prepare() if self._deferred else self.commit()
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
        made = self._provenance
        record = {
            "dataset": self.dataset,
            "version": self.snapshot.version,
            "build_key": self._build_key,
            "code_version": made.code_version,
            "config": made.config,
            "inputs": made.inputs,
            "run_id": made.run_id,
            "created_at": now(),
            "stats": self._stats,
        }
        try:
            known = read_version(self._files, path)
        except IntegrityError:
            known = None  # a damaged record is replaced
        if known != self.snapshot.version:
            self._files.put(path, pretty_json(record))

    def _point(self) -> None:
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
        parts = self._open()
        for group in self._groups.add(frame):
            self._write(parts, group)

    def _write(self, parts: PartWriter, frame: pl.DataFrame) -> None:
        parts.write(frame.to_arrow().cast(self._schema))


def commit_together(writers: Sequence[SnapshotWriter]) -> list[Snapshot]:
    """Finish all, then give all their names, then record all builds, then move all pointers."""
    try:
        for writer in writers:
            writer.prepare()
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
