"""Sources: original files in, typed raw tables and listed rejections out.

A source knows the original format of one publisher. It never repairs: a row is returned as it
was published, or it is rejected with its file, line and reason. ``ingest`` drives it, counts
what goes in and out, and commits all of its tables together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.seams import PUBLISHERS, SOURCES
from pipelines.sources._folders import has_folder
from pipelines.sources._tables import RawTable, Workspace


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
