"""Files of the answer store: by scope, in a folder or on an object store.

A scope is what is asked together: a table's cohort, or a range of its personas. Its parts have a
folder of their own, ``answers/tables/<table>:<cohort>/<first>,<end>/``, so that a worker indexes
the answers of its personas and no others. What is asked outside of tables is directly below
``answers/``, which every scope reads too.

Parts of an object store are read from copies on this machine, which appear whole.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote, unquote

from pipelines.paths import home_path
from pipelines.store.files import LocalFiles, storage_errors, sync_folder
from pipelines.store.locks import holder_record
from pipelines.store.objects import open_files

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
    """The parts below ``<home>/answers``, and their copies on this machine."""

    def __init__(self, home: Path | str) -> None:
        self._files = open_files(home_path(home))
        self.local = LocalFiles(self._files.scratch)
        self.folder = self.local.root / "answers"

    @property
    def shared(self) -> bool:
        """True if the home is on an object store."""
        return self._files.scratch != self._files.root

    @property
    def place(self) -> Path:
        """Place of the parts, for people."""
        return self._files.root / "answers"

    def folder_of(self, scope: Scope | None) -> Path:
        """Folder of this machine that a scope's new parts get their names in."""
        return self.folder if scope is None else self.folder / _TABLES / scope.path

    def listed(self, scope: Scope | None) -> dict[str, Path]:
        """Path on this machine of each part by name; without a scope, of all."""
        found = {}
        for folder in (self.folder, *self._folders(scope)):
            for name in self._files.names(self._of(folder)):
                if name.startswith(_PREFIX) and name.endswith(_SUFFIX):
                    found[name] = folder / name
        return found

    def _folders(self, scope: Scope | None) -> Iterator[Path]:
        tables = self.folder / _TABLES
        names = self._files.names(self._of(tables)) if scope is None else [scope.name]
        for name in names:
            for folder in self._files.names(self._of(tables / name)):
                if scope is None or scope.meets(folder):
                    yield tables / name / folder

    def fetch(self, path: Path) -> None:
        """Copy a part to this machine unless it is there; FileNotFoundError if it was removed."""
        if not self.shared or path.exists():
            return
        staging = self.local.stage(holder_record())
        try:
            made = staging.path / path.name
            if self._files.copy(self._of(path), made) is None:
                raise FileNotFoundError(path)
            self.local.place_file(made, path, replace=True)
        finally:
            staging.drop()

    def add(self, path: Path, data: bytes) -> None:
        """Write a part, whole or not at all."""
        if self.shared:
            self._files.put_new(self._of(path), data)
        self.local.put_new(path, data)

    def place_merged(self, made: Path, path: Path) -> None:
        """Give a finished file of this machine the name of a part."""
        if self.shared:
            self._files.place_file(made, self._of(path))
        else:
            self.local.place(made, path)

    def remove(self, paths: Collection[Path]) -> None:
        """Delete parts."""
        if self.shared:
            for path in paths:
                self._files.remove(self._of(path))
        self.forget(paths)

    def forget(self, paths: Collection[Path]) -> None:
        """Delete files of this machine: all of a folder's store, copies of an object store's."""
        for path in paths:
            with storage_errors(path):
                path.unlink(missing_ok=True)
        for folder in {path.parent for path in paths}:
            with storage_errors(folder), suppress(FileNotFoundError):
                sync_folder(folder)

    def set_aside(self, path: Path) -> None:
        """Move a part to ``answers/corrupt`` on this machine: it may be repaired."""
        aside = self.folder / "corrupt"
        self.local.make_folder(aside)
        with storage_errors(aside):
            path.rename(aside / path.name)
            sync_folder(aside)
            sync_folder(path.parent)
        if self.shared:
            self._files.remove(self._of(path))

    def lock(self, name: str, *, timeout: float = 60.0) -> AbstractContextManager[object]:
        """Mutual exclusion of all processes that use the home."""
        return self._files.lock(self._files.root / "_locks" / f"{name}.lock", timeout=timeout)

    def _of(self, path: Path) -> Path:
        return self._files.root / path.relative_to(self.local.root)
