"""Sources: original files in, typed raw tables and listed rejections out.

A source knows the original format of one publisher. It never repairs: a row is returned as it
was published, or it is rejected with its file, line and reason. ``ingest`` drives it, counts
what goes in and out, and commits all of its tables together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.seams import PUBLISHERS, SOURCES
from pipelines.sources._folders import has_folder
from pipelines.sources._rejects import Fault, RejectLog, first_fault
from pipelines.sources.formats.files import Original, UnpackLimits, any_file
from pipelines.sources.formats.ordered import OrderedRows

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "FIRST",
    "Batch",
    "RawTable",
    "Source",
    "Workspace",
    "in_batches",
    "unpack_limits",
]

#: The first row in the file stays among those of a key: last in descending order of lines.
FIRST = (("line", True),)


def _nothing_filtered() -> Mapping[str, int]:
    return {}


def _no_stats() -> Mapping[str, Any]:
    return {}


@dataclass(slots=True)
class RawTable:
    """A table being read; its batches are consumed once, in order."""

    #: Name of the raw dataset, such as ``raw.movielens_ratings``.
    dataset: str
    #: Frames with exactly the contract's columns, types and order of rows.
    batches: Iterator[pl.DataFrame]
    #: Name of the original file (or ``api``) as it stands in rejections; ``None`` for a table that
    #: is derived and has no rows of its own to account for.
    file: str | None
    #: Data rows of ``file``; asked after the last batch.
    rows_read: Callable[[], int]
    #: Rows left out on purpose, by reason (not faults); asked after the last batch. ``rows_read =
    #: rows out + rejections of file + filtered`` is checked.
    filtered: Callable[[], Mapping[str, int]] = _nothing_filtered
    #: Further JSON-ready facts for the snapshot's manifest; asked after the last batch.
    stats: Callable[[], Mapping[str, Any]] = _no_stats
    #: Whether the table may come out without rows; an empty table is an error otherwise.
    allow_empty: bool = False
    #: For a table of several files: data rows read of each, asked after the last batch. ``file``
    #: then only names them together, and each file has its own limit of rejections.
    files: Callable[[], Mapping[str, int]] | None = None


def in_batches(frames: Iterable[pl.DataFrame], rows: int) -> Iterator[pl.DataFrame]:
    """The same rows in frames of at least ``rows``: the store writes large ones faster."""
    import polars as pl

    held: list[pl.DataFrame] = []
    for frame in frames:
        held.append(frame)
        if sum(f.height for f in held) >= rows:
            yield pl.concat(held)
            held = []
    if held:
        yield pl.concat(held)


class Batch(Protocol):
    """Rows of a reader, with ``line``, the fields' names and the text as they stand in the file."""

    @property
    def frame(self) -> pl.DataFrame: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def texts(self, mask: pl.Series) -> pl.Series: ...


@dataclass(slots=True)
class Workspace:
    """Resources of a source while it reads."""

    #: An empty folder on the store's disk; removed afterwards.
    scratch: Path
    #: The settings tree.
    settings: Settings
    #: Log of rejected rows; see :meth:`reject` and :meth:`reject_frame`.
    rejects: RejectLog
    #: Films to find in TMDB: ``movie_id`` (int64), ``tmdb_id`` (int64, null if unknown),
    #: ``imdb_id`` (string, null if unknown). Only for sources that need ``raw.movielens_links``.
    wanted_tmdb: pl.DataFrame | None = None

    def original(self, path: Path, name: str) -> Original:
        """Open a file, plain or gzip, within the configured limits of unpacking.

        Raises SourceError if it is missing, unreadable or not a regular file.
        """
        return any_file(path, name, unpack_limits(self.settings))

    def reject(
        self,
        file: str,
        line: int,
        reason: str,
        text: str,
        field: str | None = None,
        value: str | None = None,
    ) -> None:
        """Reject one row.

        ``file`` is its name relative to the data folder, ``line`` counts from 1, ``reason`` is a
        code, ``field`` and ``value`` are those at fault, if the row is rejected for one field.
        """
        self.rejects.add(file, line, reason, text, field, value)

    def reject_frame(self, frame: pl.DataFrame) -> None:
        """Reject many rows: columns as the parameters of :meth:`reject`."""
        self.rejects.extend(frame)

    def sound(self, batch: Batch, faults: Sequence[Fault], file: str) -> pl.DataFrame:
        """The rows of a batch without any of the faults; the others are rejected."""
        import polars as pl

        if not faults:
            return batch.frame
        is_faulty = pl.any_horizontal(f.condition for f in faults).fill_null(value=False)
        bad = batch.frame.select(bad=is_faulty)["bad"]
        if not bad.any():
            return batch.frame
        rows = batch.frame.filter(bad).select("line", fault=first_fault(*faults)).unnest("fault")
        self.reject_frame(
            rows.with_columns(
                file=pl.lit(file),
                text=batch.texts(bad),
                field=pl.col("column").replace(batch.headers),
            )
        )
        return batch.frame.filter(~bad)

    def ordered(
        self, name: str, key: Sequence[str], prefer: Sequence[tuple[str, bool]] = FIRST
    ) -> OrderedRows:
        """Rows to be put in the order of ``key`` in a scratch folder; see :class:`OrderedRows`."""
        runtime = self.settings.runtime
        return OrderedRows(
            self.scratch / name,
            key,
            prefer,
            memory_limit_mb=runtime.memory_limit_mb,
            threads=runtime.threads,
        )


def unpack_limits(settings: Settings) -> UnpackLimits:
    """Limits of compressed files, from the settings."""
    data = settings.data
    return UnpackLimits(data.max_unpack_ratio, round(data.max_unpacked_gb * 1e9))


class Source(ABC):
    """Files of a publisher."""

    #: Name in the registry, such as ``movielens``.
    name: ClassVar[str]
    #: Its folder in a data folder; the source's name unless stated.
    folder_name: ClassVar[str]
    #: Names of its files, for error texts.
    expected: ClassVar[str]
    #: Terms of the files.
    licence: ClassVar[Licence]
    #: Raw datasets it makes, the rejected one last.
    datasets: ClassVar[tuple[str, ...]]
    #: Datasets in the store that it reads besides its files.
    needs: ClassVar[tuple[str, ...]] = ()
    #: Domains whose items its files can hold.
    domains: ClassVar[frozenset[str]] = frozenset()
    #: Raised when the same files would give other rows.
    code_version: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if "folder_name" not in cls.__dict__:
            cls.folder_name = cls.name

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def rejected_dataset(self) -> str:
        """The dataset of rejected rows; written by ``ingest`` from the workspace."""
        return self.datasets[-1]

    @abstractmethod
    def files(self, folder: Path) -> list[Path]:
        """Original files in ``folder`` that this source reads, in a fixed order.

        Empty if the source can do without files and has none.

        Raises SourceError if a required file is missing, naming what was expected and where.
        """

    @abstractmethod
    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Tables in the order of ``datasets`` (without the rejected one), streaming.

        Each table's batches are exhausted before the next table is asked for.

        Raises SourceError if a file is corrupt, or has another header than expected.
        """

    def present(self, folder: Path) -> bool:
        """Whether ``folder`` holds files of this source."""
        return has_folder(folder / self.folder_name, self.expected)

    def feeds(self, folder: Path) -> frozenset[str]:
        """Domains whose items the files in ``folder`` do hold."""
        return self.domains if self.present(folder) else frozenset()

    def lacks(self, folder: Path) -> SourceError | None:  # noqa: ARG002
        """Error that names what its files need to be of use, if that is missing."""
        return None

    def identity(self, folder: Path) -> Mapping[str, Any]:  # noqa: ARG002
        """JSON-ready settings that change what is read; part of the build key."""
        return {}

    def reusable(self, folder: Path) -> bool:  # noqa: ARG002
        """Whether equal files, inputs and identity always give the same rows.

        ``False`` for what is fetched from a live service: ``ingest`` then never skips.
        """
        return True


def open_source(name: str, settings: Settings) -> Source:
    """Return the source of this name.

    Raises ConfigError if there is none, listing the known ones.
    """
    declared = settings.data.own.source if name == "own" else None
    source: Source = (PUBLISHERS[declared] if declared else SOURCES[name])(settings)
    return source
