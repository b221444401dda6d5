"""Removing versions that nothing needs, and copies of a home."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines import progress
from pipelines.errors import IntegrityError, StoreError
from pipelines.store._layout import Layout
from pipelines.store._lineage import builds_of
from pipelines.store._manifest import split_cohort
from pipelines.store._records import check_format, open_snapshot, read_record, read_version
from pipelines.store._release import find_release
from pipelines.store.files import (
    LocalFiles,
    full_disk_error,
    placed,
    storage_errors,
    whole_file,
)
from pipelines.store.locks import PATIENCE, RunLock, holder_record, mutex

if TYPE_CHECKING:
    import tarfile

#: Tables and cohorts (``""``: without cohorts) that versions have rows of.
Cohorts = set[tuple[str, str]]
#: Called with those of versions that are kept, and of those to be removed.
BeforeRemoval = Callable[[Cohorts, Cohorts], object]

#: How long a version that lost its last user is kept: longer than a step takes.
GRACE = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Garbage:
    """Versions that nothing needs: (dataset, version, bytes), and what is kept (count, bytes)."""

    versions: tuple[tuple[str, str, int], ...]
    kept: int
    kept_bytes: int
    removed: bool

    @property
    def bytes(self) -> int:
        """Size of the versions that nothing needs (bytes)."""
        return sum(size for _, _, size in self.versions)


@dataclass(frozen=True, slots=True)
class Backup:
    """Contents of a backup: numbers of releases, versions and files, and bytes."""

    releases: int
    versions: int
    files: int
    bytes: int


def _versions(files: LocalFiles, layout: Layout) -> Iterator[tuple[str, str]]:
    for dataset in files.names(layout.data):
        for version in files.names(layout.data / dataset):
            if (layout.data / dataset / version).is_dir():
                yield dataset, version


def _needed(files: LocalFiles, layout: Layout) -> set[tuple[str, str]]:
    """Versions that are pinned or current, and all that they were made from.

    IntegrityError if a lock file or a pointer can't be read.
    """
    waiting: list[tuple[str, str]] = []
    for name in files.names(layout.releases):
        if name.endswith(".json"):
            release = find_release(layout.home, layout.releases / name)
            waiting += release.lineage.items()
            locks = [lock for table in release.tables.values() for lock in table.snapshots]
            waiting += [(lock.dataset, lock.version) for lock in locks]
    for name in files.names(layout.refs):
        path = layout.refs / name
        if path.is_file() and (version := read_version(files, path)) is not None:
            waiting.append((name.removesuffix(".json"), version))
    alternatives, needed = builds_of(files, layout), set()
    while waiting:
        pair = waiting.pop()
        if pair not in needed:
            needed.add(pair)
            # All builds that gave this content: a later release may be explained by any of them.
            waiting += [i for inputs in alternatives(*pair) for i in inputs.items()]
    return needed


def collect_garbage(
    files: LocalFiles,
    layout: Layout,
    *,
    grace: timedelta,
    dry_run: bool,
    before_removal: BeforeRemoval | None = None,
) -> Garbage:
    """See :meth:`Store.collect_garbage <pipelines.store.Store.collect_garbage>`."""
    if not layout.data.is_dir():
        # A home of answers alone: no table of it was removed.
        if before_removal is not None:
            before_removal(set(), set())
        return Garbage((), 0, 0, removed=not dry_run)
    with (
        RunLock(layout.lock("run")),
        mutex(layout.lock("gc"), timeout=5.0),
        mutex(layout.versions_lock, timeout=5.0),
    ):
        needed = _needed(files, layout)
        before = datetime.now(UTC) - grace
        versions: dict[bool, list[tuple[str, str]]] = {True: [], False: []}
        cohorts: dict[bool, Cohorts] = {True: set(), False: set()}
        for dataset, version in _versions(files, layout):
            folder = layout.snapshot(dataset, version)
            keep = (dataset, version) in needed or _recent(files, layout, dataset, folder, before)
            if before_removal is not None:
                table, cohort = split_cohort(dataset)
                named = {cohort} if cohort else _cohorts(files, folder, needed=keep)
                cohorts[keep] |= {(table, name) for name in named}
            versions[keep].append((dataset, version))
        kept_bytes = sum(_bytes(layout.snapshot(*pair)) for pair in versions[True])
        unneeded = [(*pair, _bytes(layout.snapshot(*pair))) for pair in versions[False]]
        if before_removal is not None:
            before_removal(cohorts[True], cohorts[False])
        if not dry_run and unneeded:
            staging = files.stage(holder_record())
            try:
                for dataset, version, _ in unneeded:
                    # The records first: no reader may find a build whose rows are gone.
                    for name in files.names(layout.builds(dataset)):
                        path = layout.builds(dataset) / name
                        if (read_record(files, path) or {}).get("version") == version:
                            files.remove(path)
                    files.set_aside(layout.snapshot(dataset, version), staging)
                    files.remove(layout.checks(dataset, version))
            finally:
                staging.drop()
    return Garbage(tuple(unneeded), len(versions[True]), kept_bytes, removed=not dry_run)


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())


def _cohorts(files: LocalFiles, folder: Path, *, needed: bool) -> set[str]:
    """Cohorts of a version from before they were snapshots; ``""`` is a table without any.

    Those of a damaged one that is kept must be known.
    """
    try:
        return {entry.cohort or "" for entry in open_snapshot(files, folder).manifest.files}
    except IntegrityError:
        if needed:
            raise
        return set()


def _recent(
    files: LocalFiles, layout: Layout, dataset: str, folder: Path, before: datetime
) -> bool:
    """Return True if a version was written, or may have been current, after a time."""
    pointer = read_record(files, layout.ref(dataset)) or {}
    moved = pointer.get("moved_at")
    times = [datetime.fromtimestamp(folder.stat().st_mtime, UTC)]
    times += [datetime.fromisoformat(moved)] if isinstance(moved, str) else []
    return max(times) > before


def backup(files: LocalFiles, layout: Layout, target: Path) -> Backup:
    """See :meth:`Store.backup <pipelines.store.Store.backup>`."""
    import tarfile

    home = layout.home
    count = size = 0
    # No version is removed meanwhile.
    with (
        mutex(layout.lock("gc"), timeout=PATIENCE, shared=True),
        _tar(target) as archive,
        progress.counting(f"writing {target}"),
    ):

        def add(path: Path, data: bytes) -> None:
            nonlocal count, size
            member = tarfile.TarInfo(str(path.relative_to(home)))
            member.size, member.mtime = len(data), int(datetime.now(UTC).timestamp())
            archive.addfile(member, io.BytesIO(data))
            count, size = count + 1, size + len(data)
            progress.add(len(data))

        def add_file(path: Path, name: Path | None = None) -> None:
            nonlocal count, size
            # A file that an earlier member holds already, of older versions, becomes a link to it.
            member = archive.gettarinfo(path, str((name or path).relative_to(home)))
            with path.open("rb") as file:
                archive.addfile(member, file)
            count, size = count + 1, size + member.size
            progress.add(member.size)

        # Pointers and lock files of one moment: whatever they name is already there.
        with mutex(layout.versions_lock, timeout=PATIENCE):
            small = [layout.format, *_files(layout.refs), *_files(layout.releases)]
            read = {path: path.read_bytes() for path in small if path.exists()}
            needed = {pair for pair in _needed(files, layout) if layout.snapshot(*pair).is_dir()}
        for dataset, version in sorted(needed):
            for path in _files(layout.snapshot(dataset, version)):
                add_file(path)
        # All of them: those of a union are of no folder.
        for path in _files(home / "checks"):
            add_file(path)
        for dataset in sorted({dataset for dataset, _ in needed}):
            for path in _files(layout.builds(dataset)):
                if (dataset, (read_record(files, path) or {}).get("version")) in needed:
                    add_file(path)
        for path in _files(home / "answers"):
            if path.suffix == ".sqlite":
                with _moment_of(files, path) as copy:
                    add_file(copy, path)
            elif not path.name.endswith(("-wal", "-shm")):
                add_file(path)
        for path, data in read.items():
            add(path, data)
    releases = sum(path.parent == layout.releases and path.suffix == ".json" for path in read)
    return Backup(releases, len(needed), count, size)


@contextmanager
def _moment_of(files: LocalFiles, path: Path) -> Iterator[Path]:
    """A copy of a SQLite file as of one moment; others may write to it."""
    import sqlite3
    from contextlib import closing

    staging = files.stage(holder_record())
    copy = staging.path / path.name
    try:
        with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        yield copy
    except sqlite3.Error as error:
        raise full_disk_error(error, files.root) or IntegrityError(
            f"can't be copied ({error})", where=str(path), hint="try: understudy answers gc"
        ) from error
    finally:
        staging.drop()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@contextmanager
def _tar(target: Path) -> Iterator[tarfile.TarFile]:
    """A new tar file that takes its name when the block ends without an error."""
    import tarfile

    if target.exists():
        raise StoreError("already exists", where=str(target), hint="choose another file")
    with (
        storage_errors(target),
        whole_file(target) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        yield archive


def restore(archive: Path, home: Path) -> Backup:
    """Unpack a backup into a home that is empty or does not exist, and check every byte.

    The home appears whole or not at all.

    Raises
    ------
    StoreError
        The home is not empty, the file is no backup, or it can't be unpacked.
    IntegrityError
        A version, release or record in it is not what was committed.
    """
    import tarfile

    if home.exists() and (not home.is_dir() or any(home.iterdir())):
        raise StoreError(
            "the home is not empty", where=str(home), hint="restore into another --home"
        )
    with placed(home, "the home") as folder, progress.counting(f"checking {home}"):
        folder.mkdir()
        count = size = 0
        try:
            with tarfile.open(archive, "r:") as file:
                for member in file:
                    if not (member.isreg() or member.islnk()):
                        raise StoreError(
                            "not a backup of a home", where=f"{archive}: {member.name}"
                        )
                    file.extract(member, folder, filter="data")
                    count, size = count + 1, size + member.size
        except (tarfile.TarError, EOFError) as error:
            raise StoreError(f"not a backup of a home ({error})", where=str(archive)) from error
        files, layout = LocalFiles(folder), Layout(folder)
        if not layout.format.exists():
            raise StoreError("not a backup of a home", where=str(archive))
        check_format(files)
        versions = list(_versions(files, layout))
        for dataset, version in versions:
            snapshot = open_snapshot(files, layout.snapshot(dataset, version))
            snapshot.verify()
            for path in snapshot.path.iterdir():
                path.chmod(0o444)
            progress.add(snapshot.bytes)
        needed = {pair for pair in _needed(files, layout) if not pair[0].startswith("file:")}
        if missing := sorted(needed - set(versions)):
            raise IntegrityError(
                f"the backup lacks {len(missing)} versions, such as {'@'.join(missing[0])}",
                where=str(archive),
                hint="use another backup",
            )
        releases = [name for name in files.names(layout.releases) if name.endswith(".json")]
        for name in releases:
            find_release(folder, layout.releases / name).card()
    return Backup(len(releases), len(versions), count, size)
