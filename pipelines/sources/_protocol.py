"""What a source is: original files in, typed raw tables and listed rejections out.

A source knows the original format of one publisher. It never repairs: a row comes out as it
was published, or it is rejected with its file, line and reason. ``ingest`` drives it, counts
what goes in and out, and commits all of its tables together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pipelines.config import Settings
from pipelines.downloads import Progress, no_progress
from pipelines.errors import ConfigError, SourceError
from pipelines.licences import Licence
from pipelines.plugins import LazyClasses
from pipelines.sources._folders import has_folder
from pipelines.sources._rejects import RejectLog
from pipelines.sources.formats.files import Original, UnpackLimits, any_file

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Progress", "RawTable", "Source", "Workspace", "no_progress", "unpack_limits"]


def _nothing_filtered() -> Mapping[str, int]:
    return {}


def _no_stats() -> Mapping[str, Any]:
    return {}


@dataclass(slots=True)
class RawTable:
    """One table being read; its batches are consumed once, in order.

    Attributes
    ----------
    dataset
        Name of the raw dataset, such as ``raw.movielens_ratings``.
    batches
        Frames with exactly the contract's columns, types and order of rows.
    file
        Name of the original file (or ``api``) as it stands in rejections; ``None`` for a
        table that is derived and has no rows of its own to account for.
    rows_read
        Data rows of ``file``; asked after the last batch.
    filtered
        Rows left out on purpose, by reason (not faults); asked after the last batch.
        ``rows_read = rows out + rejections of file + filtered`` is checked.
    stats
        Further JSON-ready facts for the snapshot's manifest; asked after the last batch.
    allow_empty
        Whether the table may come out without rows; an empty table is an error otherwise.
    files
        For a table of several files: data rows read of each, asked after the last batch.
        ``file`` then only names them together, and each file has its own limit of rejections.
    """

    dataset: str
    batches: Iterator[pl.DataFrame]
    file: str | None
    rows_read: Callable[[], int]
    filtered: Callable[[], Mapping[str, int]] = _nothing_filtered
    stats: Callable[[], Mapping[str, Any]] = _no_stats
    allow_empty: bool = False
    files: Callable[[], Mapping[str, int]] | None = None


@dataclass(slots=True)
class Workspace:
    """What a source may use while it reads.

    Attributes
    ----------
    scratch
        An empty folder on the store's disk; removed afterwards.
    settings
        The settings tree.
    rejects
        Where rejected rows go; see :meth:`reject` and :meth:`reject_frame`.
    progress
        Called with (stage, done, total or None).
    wanted_tmdb
        Films to find in TMDB: ``movie_id`` (int64), ``tmdb_id`` (int64, null if unknown),
        ``imdb_id`` (string, null if unknown). Only for sources that need
        ``raw.movielens_links``.
    """

    scratch: Path
    settings: Settings
    rejects: RejectLog
    progress: Progress = field(default=no_progress)
    wanted_tmdb: pl.DataFrame | None = None

    def original(self, path: Path, name: str) -> Original:
        """Open a file, plain or gzip, within the configured limits of unpacking.

        Raises
        ------
        SourceError
            If it is missing, unreadable or not a regular file.
        """
        return any_file(path, name, unpack_limits(self.settings))

    def reject(self, file: str, line: int, reason: str, text: str) -> None:
        """Reject one row: file name relative to the data folder, 1-based line, reason code."""
        self.rejects.add(file, line, reason, text)

    def reject_frame(self, frame: pl.DataFrame) -> None:
        """Reject many rows: columns ``file``, ``line``, ``reason``, ``text``."""
        self.rejects.extend(frame)


def unpack_limits(settings: Settings) -> UnpackLimits:
    """Limits of compressed files, from the settings."""
    data = settings.data
    return UnpackLimits(data.max_unpack_ratio, round(data.max_unpacked_gb * 1e9))


class Source(ABC):
    """One publisher's files.

    Parameters
    ----------
    settings
        The settings tree; a source reads its own part.
    progress
        Called with (stage, done, total or None) while files that the settings name by their
        address are downloaded.

    Attributes
    ----------
    name
        Name in the registry, such as ``movielens``.
    folder_name
        Its folder in a data folder; the source's name unless stated.
    expected
        Names of its files, for error texts.
    licence
        Terms of the files.
    datasets
        Raw datasets it makes, the rejected one last.
    needs
        Datasets in the store that it reads besides its files.
    domains
        Domains whose items its files can hold.
    code_version
        Raised when the same files would give other rows.
    """

    name: ClassVar[str]
    folder_name: ClassVar[str]
    expected: ClassVar[str]
    licence: ClassVar[Licence]
    datasets: ClassVar[tuple[str, ...]]
    needs: ClassVar[tuple[str, ...]] = ()
    domains: ClassVar[frozenset[str]] = frozenset()
    code_version: ClassVar[str]

    def __init_subclass__(cls) -> None:
        if "folder_name" not in cls.__dict__:
            cls.folder_name = cls.name

    def __init__(self, settings: Settings, *, progress: Progress = no_progress) -> None:
        self.settings = settings
        self.progress = progress

    @property
    def rejected_dataset(self) -> str:
        """The dataset of rejected rows; written by ``ingest`` from the workspace."""
        return self.datasets[-1]

    @abstractmethod
    def files(self, folder: Path) -> list[Path]:
        """Original files in ``folder`` that this source reads, in a fixed order.

        Empty if the source can do without files and has none.

        Raises
        ------
        SourceError
            If a required file is missing, naming what was expected and where.
        """

    @abstractmethod
    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Tables in the order of ``datasets`` (without the rejected one), streaming.

        Each table's batches are exhausted before the next table is asked for.

        Raises
        ------
        SourceError
            If a file is corrupt, or has another header than expected.
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


#: In the order of ingest: a source comes after those whose tables it needs.
SOURCES: Mapping[str, type[Source]] = LazyClasses(
    {
        "movielens": "pipelines.sources.movielens:MovielensSource",
        "tmdb": "pipelines.sources.tmdb:TmdbSource",
        "steam": "pipelines.sources.steam:SteamSource",
        "amazon": "pipelines.sources.amazon:AmazonSource",
        "taxonomy": "pipelines.sources.taxonomy:TaxonomySource",
        "persona_files": "pipelines.sources.persona_files:PersonaFilesSource",
    }
)


def open_source(name: str, settings: Settings, *, progress: Progress = no_progress) -> Source:
    """Return the source of this name; downloads of its files report to ``progress``.

    Raises
    ------
    ConfigError
        If there is none, listing the known ones.
    """
    if name not in SOURCES:
        raise ConfigError(f"unknown source {name}", hint=f"known: {', '.join(SOURCES)}")
    return SOURCES[name](settings, progress=progress)
