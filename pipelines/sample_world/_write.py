"""Writing a sample world: every file in a folder aside, which then takes its name at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.config import SampleSettings
from pipelines.errors import SourceError
from pipelines.sample_world._generate import Generator, Progress
from pipelines.sample_world._world import KEY_FILE, SampleWorld
from pipelines.store.files import storage_errors

__all__ = ["CODE_VERSION", "write_sample_world"]

#: Bumped whenever the same settings give other bytes.
CODE_VERSION = "3"


def write_sample_world(
    folder: Path,
    settings: SampleSettings,
    *,
    broken_rows: bool = True,
    progress: Progress | None = None,
) -> SampleWorld:
    """Generate a world of original files: MovieLens CSV, TMDB records, Amazon reviews.

    Writes ``movielens/sample/{movies,ratings,links,tags}.csv`` and ``README.txt``,
    ``tmdb/movies.jsonl.gz``, ``amazon/{2018,2023}/*.gz``, and the answer key
    ``sample_world.json``. The same settings give the same bytes. A complete world of the same
    settings is left as it is; everything is written aside and takes its name at the end, so that
    no half world is ever at ``folder``.

    Memory does not grow with the number of ratings (they are generated and written block by
    block), only with films and users: below 500 MB for 25 million ratings, 62,000 films and 162,000
    users.

    Parameters
    ----------
    folder
        Where to; must be absent, empty, or hold a world that this function wrote.
    settings
        Films, users and valid ratings (exact counts) and the seed.
    broken_rows
        Whether a few rows are broken on purpose; see :class:`BrokenRow`.
    progress
        Called with a stage's name, the units done and their total.

    Returns
    -------
    SampleWorld
        The answer key.

    Raises
    ------
    ConfigError
        If there are more ratings than pairs of a user and a film.
    SourceError
        If ``folder`` holds anything else.
    StoreError
        If it can't be written (full disk, permissions).

    Examples
    --------
    >>> import tempfile
    >>> from pipelines.config import SampleSettings
    >>> with tempfile.TemporaryDirectory() as home:
    ...     world = write_sample_world(
    ...         Path(home) / "world", SampleSettings(films=40, users=10, ratings=300)
    ...     )
    >>> world.films, world.users, world.ratings
    (40, 10, 300)
    """
    report = progress or (lambda _stage, _done, _total: None)
    folder = Path(folder)
    found = SampleWorld.read(folder)
    if found is not None and _is_same(found, settings, broken_rows):
        return found
    if found is None and folder.exists() and not _is_replaceable(folder):
        raise SourceError(
            "the folder holds something else than a sample world",
            where=str(folder),
            hint="choose an absent or empty folder",
        )
    with storage_errors(folder), _aside(folder) as partial:
        world = Generator(settings, broken_rows, report, CODE_VERSION).write(partial)
        (partial / KEY_FILE).write_bytes(world.to_json())
        _sync(partial)
        _take_name(partial, folder, settings, broken_rows)
    return world


def _is_same(found: SampleWorld, settings: SampleSettings, broken_rows: bool) -> bool:
    return (found.code_version, found.settings, found.broken_rows) == (
        CODE_VERSION,
        settings,
        broken_rows,
    )


def _is_replaceable(folder: Path) -> bool:
    """Whether the folder is empty or was written by us, whole or not."""
    return folder.is_dir() and (not any(folder.iterdir()) or (folder / KEY_FILE).is_file())


@contextmanager
def _aside(folder: Path) -> Iterator[Path]:
    """A folder beside ``folder`` to write in; gone afterwards unless it was renamed.

    It is locked while in use: one that isn't is what a killed process left, and is removed.
    """
    parent = folder.absolute().parent
    parent.mkdir(parents=True, exist_ok=True)
    for left in parent.glob(f".{folder.name}.*.partial"):
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            stack.callback(os.close, _locked(left))
            shutil.rmtree(left)
    with contextlib.ExitStack() as stack:
        partial = _new_locked(folder, stack)
        try:
            yield partial
        finally:
            shutil.rmtree(partial, ignore_errors=True)


def _new_locked(folder: Path, stack: contextlib.ExitStack) -> Path:
    while True:
        partial = _beside(folder)
        partial.mkdir()
        # Between these two lines a cleaning process may take the new folder for a left one.
        with contextlib.suppress(FileNotFoundError, BlockingIOError):
            stack.callback(os.close, _locked(partial))
            if partial.is_dir():
                return partial


def _beside(folder: Path) -> Path:
    return folder.absolute().with_name(f".{folder.name}.{uuid.uuid4().hex}.partial")


def _locked(folder: Path) -> int:
    """An open descriptor that holds the folder's lock; BlockingIOError if another does."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


def _take_name(partial: Path, folder: Path, settings: SampleSettings, broken_rows: bool) -> None:
    """Rename ``partial`` to ``folder``; an older world there is moved away first.

    If somebody else was quicker with the same world, theirs stays: the bytes are the same.
    """

    def done() -> bool:
        found = SampleWorld.read(folder)
        return found is not None and _is_same(found, settings, broken_rows)

    if done():
        return
    if folder.is_dir() and any(folder.iterdir()):
        old = _beside(folder)
        folder.rename(old)
        shutil.rmtree(old, ignore_errors=True)
    try:
        partial.rename(folder)
    except OSError:
        if not done():
            raise
    _sync_folder(folder.absolute().parent)


def _sync(folder: Path) -> None:
    """Have everything below ``folder`` on disk."""
    for path in [*folder.rglob("*"), folder]:
        if path.is_dir():
            _sync_folder(path)
        else:
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
