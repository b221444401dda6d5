"""Opening a release: its tables, lazily, in the form a consumer likes."""

from __future__ import annotations

import difflib
import hashlib
import html
import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pipelines.forks  # noqa: F401 - watches forks from here on
from pipelines.errors import IntegrityError, ReleaseError, UnknownTableError
from pipelines.extras import missing_package
from pipelines.paths import ObjectPath

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    import torch

    from pipelines.store import Release as StoredRelease
    from pipelines.store import Snapshot


class Table:
    """A table of a release, read lazily.

    Attributes
    ----------
    name
        Short name within the release, such as ``items``.
    dataset
        Full name, such as ``movies.items``.
    """

    def __init__(self, name: str, snapshot: Snapshot) -> None:
        self.name = name
        self._snapshot = snapshot

    @property
    def dataset(self) -> str:
        """Full name of the dataset, such as ``movies.items``."""
        return self._snapshot.dataset

    @property
    def version(self) -> str:
        """Version of the snapshot: the hash of its content (16 hex digits)."""
        return self._snapshot.version

    @property
    def path(self) -> Path:
        """Folder of the snapshot's Parquet files, or their address. Read-only by convention."""
        return self._snapshot.path

    @property
    def files(self) -> list[Path]:
        """The Parquet files, in row order."""
        return list(self._snapshot.files())

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self._snapshot.rows)

    @property
    def bytes(self) -> int:
        """Size on disk (bytes)."""
        return int(self._snapshot.bytes)

    @property
    def schema(self) -> dict[str, str]:
        """Column name → type, in the written order."""
        return {c["name"]: c["type"] for c in self._snapshot.manifest.schema}

    @property
    def columns(self) -> list[str]:
        """Column names, in the written order."""
        return list(self.schema)

    def __len__(self) -> int:
        return self.rows

    def lazy(self) -> pl.LazyFrame:
        """A polars lazy frame over the files: filters and columns are pushed into the scan."""
        return self._snapshot.scan()

    def polars(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows as a polars frame.

        Parameters
        ----------
        columns
            Columns to read; default all.

        Raises
        ------
        ReleaseError
            If a column is not in the table, naming the nearest.
        """
        return self._snapshot.read(self._known(columns))

    def arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows as an Arrow table. Parameters and errors as for :meth:`polars`."""
        return self._snapshot.arrow(self._known(columns))

    def pandas(self, columns: Sequence[str] | None = None, *, arrow: bool = True) -> pd.DataFrame:
        """The rows as a pandas frame.

        Errors as of :meth:`polars`.

        Parameters
        ----------
        columns
            Columns to read; default all.
        arrow
            Arrow-backed types, so that nulls stay nulls and integers integers; else NumPy's,
            which libraries of pandas 2 expect: null numbers are NaN.

        Raises
        ------
        MissingPackageError
            If pandas is not installed (extra ``env``).
        """
        with _optional("Table.pandas"):
            import pandas as pd

        return self.arrow(columns).to_pandas(types_mapper=pd.ArrowDtype if arrow else None)

    def numpy(self, column: str) -> np.ndarray:
        """One column as an array of shape (rows,), or (rows, length) of a column of lists.

        Null numbers, and numbers of null lists, are NaN.

        Raises
        ------
        ReleaseError
            If the column is not in the table, or its lists differ in length.
        """
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        # Not with Polars, so that forked workers can call it.
        values = self.arrow([column])[column]
        if not (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)):
            return np.asarray(values.to_numpy())
        lengths = pc.list_value_length(values).drop_null().unique().to_pylist()
        if len(lengths) != 1:
            raise ReleaseError(
                f"the lists of {column} differ in length" if lengths else f"{column} has no list",
                where=f"table {self.name}",
                hint="use polars or arrow",
            )
        filled = pc.list_flatten(values).to_numpy().reshape(-1, lengths[0])
        if not values.null_count:
            return np.asarray(filled)
        rows = np.full((len(values), lengths[0]), np.nan, np.result_type(filled, np.float32))
        rows[values.is_valid().to_numpy()] = filled
        return rows

    def torch(self, column: str) -> torch.Tensor:
        """One column of numbers as a tensor of its own memory; shapes and errors as of `numpy`.

        Raises
        ------
        MissingPackageError
            If torch is not installed (extra ``train``).
        ReleaseError
            If the column does not hold numbers.
        """
        with _optional("Table.torch", extra="train"):
            import torch

        values = self.numpy(column)
        if values.dtype == object:
            raise ReleaseError(
                f"{column} does not hold numbers",
                where=f"table {self.name}",
                hint=f"it is {self.schema[column]}",
            )
        return torch.tensor(values)

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        """A DuckDB relation over the files; DuckDB reads them when it is evaluated.

        Parameters
        ----------
        connection
            Connection the relation belongs to; default a new in-memory database, which lives
            as long as the relation.

        Raises
        ------
        MissingPackageError
            If DuckDB is not installed (extra ``env``).
        """
        with _optional("Table.duckdb"):
            import duckdb

        connection = connection or duckdb.connect()
        if isinstance(self.path, ObjectPath):
            return connection.from_arrow(self._snapshot.arrow_dataset())
        return connection.read_parquet([str(path) for path in self.files])

    def _known(self, columns: Sequence[str] | None) -> list[str] | None:
        if columns is None:
            return None
        for column in columns:
            if column not in self.schema:
                near = difflib.get_close_matches(column, self.columns, n=3)
                raise ReleaseError(
                    f"no column {column!r}",
                    where=f"table {self.name}",
                    hint=f"nearest: {', '.join(near)}" if near else f"it has {_list(self.columns)}",
                )
        return list(columns)

    def __repr__(self) -> str:
        width = max((len(name) for name in self.schema), default=0)
        lines = [f"<Table {self.name}: {self.rows:,} rows, version {self.version}>"]
        lines += [f"  {name:<{width}}  {kind}" for name, kind in self.schema.items()]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = f"{self.name}: {self.rows:,} rows, version {self.version}"
        rows = "".join(f"<tr>{_cell(n)}{_cell(t)}</tr>" for n, t in self.schema.items())
        return (
            f"<table><caption>{html.escape(head)}</caption>"
            f"<thead><tr><th>column</th><th>type</th></tr></thead><tbody>{rows}</tbody></table>"
        )


class _FrameTable(Table):
    """A table of a release that is a frame in memory."""

    def __init__(self, name: str, dataset: str, frame: pl.DataFrame) -> None:
        self.name, self._dataset, self._frame = name, dataset, frame

    @property
    def dataset(self) -> str:
        return self._dataset

    @property
    def version(self) -> str:
        data = io.BytesIO()
        self._frame.write_ipc(data)
        return hashlib.sha256(data.getvalue()).hexdigest()[:16]

    @property
    def rows(self) -> int:
        return self._frame.height

    @property
    def schema(self) -> dict[str, str]:
        return {name: str(kind) for name, kind in self._frame.schema.items()}

    def lazy(self) -> pl.LazyFrame:
        return self._frame.lazy()

    def polars(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        return self._frame.select(self._known(columns) or self._frame.columns)

    def arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        return self.polars(columns).to_arrow()

    def duckdb(
        self, connection: duckdb.DuckDBPyConnection | None = None
    ) -> duckdb.DuckDBPyRelation:
        import duckdb

        return (connection or duckdb.connect()).from_arrow(self.arrow())


class Release(Mapping[str, Table]):
    """A published dataset: a mapping of short table names to :class:`Table`.

    Opened with :func:`open_release`. It pins exact versions, so what it gives never changes.
    """

    def __init__(self, stored: StoredRelease) -> None:
        self._stored = stored
        self._open: dict[str, Table] = {}

    @property
    def name(self) -> str:
        """Name of the release, such as ``movies``."""
        return self._stored.name

    @property
    def domain(self) -> str:
        """Kind of items, such as ``movies``: the family of the dataset ``items``.

        Raises
        ------
        ReleaseError
            If it has no items.
        """
        self.require("items")
        return self["items"].dataset.rpartition(".")[0]

    @property
    def version(self) -> str:
        """Version: the hash of what it pins (16 hex digits)."""
        return self._stored.version

    @property
    def ref(self) -> str:
        """The reference that always means exactly this release, ``name@version``."""
        return f"{self.name}@{self.version}"

    @property
    def world(self) -> str:
        """The set of sources it was made from, such as ``sample``."""
        return self._stored.world

    @property
    def created_at(self) -> str:
        """Time of publishing (ISO 8601, UTC)."""
        return self._stored.created_at

    @property
    def path(self) -> Path:
        """The lock file."""
        return self._stored.path

    @property
    def home(self) -> Path:
        """Folder of the store that holds it, or the address that it was pushed to."""
        return self._stored.home

    @property
    def settings(self) -> dict[str, Any]:
        """Identity settings it was made with."""
        return dict(self._stored.settings)

    @property
    def card(self) -> str:
        """The dataset card (Markdown): contents, sources, licences, checks."""
        return self._stored.card()

    @property
    def tables(self) -> dict[str, Table]:
        """All tables by short name."""
        return {name: self[name] for name in self}

    def __getitem__(self, name: str) -> Table:
        table = self._open.get(name)
        if table is None:
            if name not in self._stored.tables:
                raise self._unknown(name)
            table = self._open[name] = Table(name, self._stored.snapshot(name))
        return table

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored.tables)

    def __len__(self) -> int:
        return len(self._stored.tables)

    def __eq__(self, other: object) -> bool:
        # The version is a hash of all that is pinned; Mapping's own comparison would not see it.
        return self.ref == other.ref if isinstance(other, Release) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.ref)

    def __contains__(self, name: object) -> bool:
        return name in self._stored.tables

    def get(self, name: str, default: Any = None) -> Any:
        """The table, or ``default`` if the release has none of that name."""
        # Mapping's own catches KeyError only.
        if name not in self:
            return default
        return self[name]

    def split(self, name: str) -> pl.LazyFrame:
        """People's interactions in a part of the per-user split by time, as a lazy frame.

        Parameters
        ----------
        name
            ``train``, ``validation`` or ``test``.

        Raises
        ------
        ReleaseError
            If the release has no interactions, or its split no such part.
        """
        import polars as pl

        self.require("interactions", "splits")
        parts = self["splits"].lazy()
        names = parts.select(pl.col("split").unique().sort()).collect()["split"].to_list()
        if name not in names:
            raise ReleaseError(f"no split {name!r}", where=self.ref, hint=f"it has {_list(names)}")
        selected = parts.filter(pl.col("split") == name)
        keys = ["user_id", "item_id"]
        rows = self["interactions"].lazy()
        return rows.join(selected, on=keys, how="semi", maintain_order="left")

    def verify(self, *, lineage: bool = False) -> None:
        """Read every file again and compare its hash with the one that was published.

        Parameters
        ----------
        lineage
            Also read every snapshot that the tables were made from, raw ones included.

        Raises
        ------
        IntegrityError
            Stored bytes are not those that were committed; all problems are in its details.
        """
        from pipelines.store import verify_release

        report = verify_release(self._stored, lineage=lineage)
        if not report.ok:
            raise IntegrityError(
                f"{self.ref} is not as published: {report.problems[0]}",
                hint="`understudy release verify` lists everything",
                details={"problems": list(report.problems)},
            )

    def require(self, *names: str) -> None:
        """Make sure that tables are there.

        Raises
        ------
        ReleaseError
            Naming every table that is missing.
        """
        missing = [name for name in names if name not in self]
        if missing:
            raise ReleaseError(
                f"the release lacks {'tables' if len(missing) > 1 else 'the table'} "
                f"{_list(missing)}",
                where=self.ref,
                hint=f"it has {_list(self)}",
                details={"missing": missing, "present": list(self)},
            )

    def _unknown(self, name: str) -> UnknownTableError:
        near = difflib.get_close_matches(str(name), list(self), n=3, cutoff=0.4)
        return UnknownTableError(
            f"no table {name!r}",
            where=self.ref,
            hint=f"nearest: {', '.join(near)}" if near else f"it has {_list(self)}",
            details={"present": list(self)},
        )

    def __repr__(self) -> str:
        width = max((len(name) for name in self), default=0)
        lines = [f"<Release {self.ref} (world {self.world}, {self.created_at})>"]
        lines += [
            f"  {name:<{width}}  {lock.rows:>12,} rows  {lock.version}"
            for name, lock in self._stored.tables.items()
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = f"{self.ref} (world {self.world}, {self.created_at})"
        rows = "".join(
            f"<tr>{_cell(name)}{_cell(f'{lock.rows:,}')}{_cell(lock.version)}</tr>"
            for name, lock in self._stored.tables.items()
        )
        return (
            f"<table><caption>{html.escape(head)}</caption><thead><tr><th>table</th>"
            f"<th>rows</th><th>version</th></tr></thead><tbody>{rows}</tbody></table>"
        )


class _ReleaseView(Release):
    def __init__(self, base: Release, frames: Mapping[str, pl.DataFrame]) -> None:
        super().__init__(base._stored)
        self._open |= base._open
        for name, frame in frames.items():
            self._open[name] = _FrameTable(name, f"{base.domain}.{name}", frame)

    def __iter__(self) -> Iterator[str]:
        return iter({**self._stored.tables, **self._open})

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self._open or super().__contains__(name)

    def __eq__(self, other: object) -> bool:
        return self is other

    def __hash__(self) -> int:
        return id(self)


def release_view(release: Release, frames: Mapping[str, pl.DataFrame]) -> Release:
    """The release with tables of its domain replaced, or added, by frames in memory.

    Its reference is that of the release: what is stored under it names the frames' versions too.
    """
    return _ReleaseView(release, frames)


@contextmanager
def _optional(where: str, extra: str | None = None) -> Iterator[None]:
    """Name the extra of a package that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise missing_package(error, where=where, extra=extra) from error


def open_release(
    ref: str | Path = "latest", *, home: Path | str | None = None, verify: bool = False
) -> Release:
    """Open a published release.

    At opening, only the lock file is checked, against its own digest; and each table, when it is
    first used: its manifest against the hash in the lock file, and its files' presence and sizes.
    Not checked are

    - the content of the Parquet files, and the dataset card before it is read: ``verify``;
    - the snapshots that the tables were made from: ``Release.verify(lineage=True)``, or
      ``understudy release verify --lineage``;
    - whether the release is the newest content: ``latest`` is the one published last, also when
      that was an older state of the data;
    - who wrote it: hashes show damage and accidental change, they are not a signature.

    Parameters
    ----------
    ref
        ``"movies@latest"``, ``"movies@<version>"`` (or the start of one), ``"movies"``,
        ``"latest"`` (the newest of the configured release name), the path of a lock file, or an
        address such as ``"s3://bucket/prefix/movies@latest"`` of a release that was pushed to an
        object store, whose columns are read in ranges (extra ``s3``).
    home
        The store's folder; default the settings' (``UNDERSTUDY_HOME``, else ``.understudy``). If
        none is set and ``.understudy`` holds no tables, ``movies`` and ``products`` are small
        releases of a generated world that come with the package; a line is logged then.
    verify
        Call :meth:`Release.verify` first: every file of the tables is read once.

    Raises
    ------
    ReleaseError
        If there is no such release.
    IntegrityError
        If ``verify`` finds that stored bytes are not those that were committed.
    """
    from pipelines.config import load_settings
    from pipelines.packaged import open_stored

    settings = load_settings(overrides={"runtime": {"home": str(home)}} if home else None)
    release = Release(open_stored(ref, settings))
    if verify:
        release.verify()
    return release


def _list(names: Any) -> str:
    return ", ".join(names)


def _cell(text: str) -> str:
    return f"<td>{html.escape(text)}</td>"
