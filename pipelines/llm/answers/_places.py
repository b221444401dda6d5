"""Files of the answer store, by scope.

A scope is what is asked together: a table's cohort, or a range of its personas. Its parts have a
folder of their own, ``answers/tables/<table>:<cohort>/<first>,<end>/``, so that a worker indexes
the answers of its personas and no others. What is asked outside of tables is directly below
``answers/``, which every scope reads too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote

from pipelines.paths import home_path
from pipelines.store.files import LocalFiles, storage_errors, sync_folder
from pipelines.store.locks import mutex

_PREFIX, _SUFFIX = "part-", ".parquet"
_TABLES = "tables"


@dataclass(frozen=True, slots=True)
class Scope:
    """Answers of one table's cohort, of personas from one id up to another (None: open).

    >>> Scope.of("movies.preference_scores", "default").between("p3", None).path.as_posix()
    'movies.preference_scores:default/p3,'
    """

    #: Name of the folder.
    name: str
    first: str | None = None
    end: str | None = None

    @classmethod
    def of(cls, table: str, cohort: str = "") -> Scope:
        """The scope of a table's cohort."""
        return cls(quote(f"{table}:{cohort}", safe=":"))

    def between(self, first: str | None, end: str | None) -> Scope:
        """The same of some personas."""
        return replace(self, first=first, end=end)

    @property
    def path(self) -> Path:
        """Folder below ``answers/tables``."""
        ends = (quote(end or "", safe=":") for end in (self.first, self.end))
        return Path(self.name, ",".join(ends))

    def meets(self, folder: str) -> bool:
        """Return True if the range of persona ids that a folder is named by overlaps this one."""
        first, _, end = map(unquote, folder.partition(","))
        return (not end or (self.first or "") < end) and (self.end is None or first < self.end)


class PartFiles:
    """The parts below ``<home>/answers``."""

    def __init__(self, home: Path | str) -> None:
        self.local = LocalFiles(home_path(home))
        self.folder = self.local.root / "answers"

    def folder_of(self, scope: Scope | None) -> Path:
        """Folder that a scope's new parts get their names in."""
        return self.folder if scope is None else self.folder / _TABLES / scope.path

    def listed(self, scope: Scope | None) -> dict[str, Path]:
        """Path of each part by name; without a scope, of all."""
        found = {}
        for folder in (self.folder, *self._folders(scope)):
            for name in self.local.names(folder):
                if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                    found[name] = folder / name
        return found

    def _folders(self, scope: Scope | None) -> Iterator[Path]:
        tables = self.folder / _TABLES
        names = self.local.names(tables) if scope is None else [scope.name]
        for name in names:
            for folder in self.local.names(tables / name):
                if scope is None or scope.meets(folder):
                    yield tables / name / folder

    def remove(self, paths: Collection[Path]) -> None:
        """Delete parts."""
        for path in paths:
            with storage_errors(path):
                path.unlink(missing_ok=True)
        for folder in {path.parent for path in paths}:
            with storage_errors(folder), suppress(FileNotFoundError):
                sync_folder(folder)

    def set_aside(self, path: Path) -> None:
        """Move a part to ``answers/corrupt``: it may be repaired."""
        aside = self.folder / "corrupt"
        self.local.make_folder(aside)
        with storage_errors(aside):
            path.rename(aside / path.name)
            sync_folder(aside)
            sync_folder(path.parent)

    def lock(self, name: str, *, timeout: float = 60.0) -> AbstractContextManager[object]:
        """Mutual exclusion of all processes that use the home."""
        return mutex(self.local.root / "_locks" / f"{name}.lock", timeout=timeout)
