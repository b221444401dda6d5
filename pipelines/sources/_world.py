"""Worlds: the folder of original files that a run starts from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.config import Settings, identity_hash
from pipelines.domains import DOMAINS
from pipelines.errors import ConfigError, LockedError, SourceError, StoreError
from pipelines.sources._download import fetch
from pipelines.sources._folders import entries, has_folder, unread
from pipelines.sources._protocol import Progress, no_progress
from pipelines.sources._registry import SOURCES, open_source

__all__ = ["GENERATED", "GIVEN", "World", "prepare_world"]

GENERATED = "generated"
GIVEN = "given"
#: Where GroupLens publishes.
MOVIELENS_URL = "https://files.grouplens.org"
#: Seconds to wait for another process that generates the same world.
_PATIENCE = 600.0
#: Names that an error text shows.
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class World:
    """A set of original files.

    Attributes
    ----------
    name
        What releases call it: the MovieLens variant found, or ``sample``.
    folder
        The data folder, with one folder per source in it.
    origin
        ``generated``, ``given``, or the address it was downloaded from.
    files
        Original files by source; nothing for a source without files here.
    domains
        Domains that there are files for.
    unread
        Names in a given data folder that no source reads; folders end with ``/``.
    unused
        For files that feed no domain although others do: what they lack, as text.
    """

    name: str
    folder: Path
    origin: str
    files: Mapping[str, tuple[Path, ...]]
    domains: frozenset[str]
    unread: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    def has(self, source: str) -> bool:
        """Whether there are files of this source."""
        return bool(self.files.get(source))

    def relative(self, path: Path) -> str:
        """Return a file's name relative to the data folder, with ``/``.

        A file that the settings name and that lies elsewhere is known by its name alone.
        """
        if path.is_relative_to(self.folder):
            return path.relative_to(self.folder).as_posix()
        return path.name


def prepare_world(
    settings: Settings,
    *,
    progress: Progress | None = None,
    base_url: str = MOVIELENS_URL,
) -> World:
    """Have the configured original files on disk.

    A given folder is used as it is. The sample world is generated once per size, seed and
    generator version into ``<home>/worlds``; a published archive is downloaded, resumed and
    verified into ``<home>/downloads``.

    Parameters
    ----------
    settings
        ``world`` says which; ``runtime.home`` says where to.
    progress
        Called with (stage, done, total or None).
    base_url
        The publisher's address.

    Raises
    ------
    SourceError
        If files are missing, or (:class:`SourceUnavailableError`) can't be downloaded.
    StoreError
        If the home can't be written.
    """
    report = progress or no_progress
    world = settings.world
    if world.folder is not None:
        return _open(_given(world.folder), GIVEN, settings, report)
    if world.source == "sample":
        return _open(_sample(settings, report), GENERATED, settings, report)
    return _open(*_downloaded(settings, report, base_url), settings, report)


def _open(folder: Path, origin: str, settings: Settings, progress: Progress) -> World:
    sources = {name: open_source(name, settings, progress=progress) for name in SOURCES}
    files = {
        name: tuple(source.files(folder)) if source.present(folder) else ()
        for name, source in sources.items()
    }
    lacks = [lack for source in sources.values() if (lack := source.lacks(folder))]
    fed = frozenset().union(*(source.feeds(folder) for source in sources.values()))
    domains = frozenset(d for d in fed if all(files[s] for s in DOMAINS[d].sources))
    folders = [source.folder_name for source in sources.values()]
    given = [path for paths in files.values() for path in paths]
    left = tuple(unread(folder, given, folders)) if origin == GIVEN else ()
    if not domains and lacks:
        raise lacks[0]
    if not domains:
        found = [name for name in files if files[name]]
        raise SourceError(
            f"files of {', '.join(found)} alone make no domain"
            if found
            else "there are no files of any source here",
            where=str(folder),
            hint=f"expected folders such as {', '.join(f'{name}/' for name in folders)}; "
            + (f"not read: {', '.join(left[:_SHOWN])}; " if left else "")
            + "see docs/data.md",
        )
    name = _name(folder, origin, domains, settings)
    return World(name, folder, origin, files, domains, left, tuple(map(str, lacks)))


def _name(folder: Path, origin: str, domains: frozenset[str], settings: Settings) -> str:
    """The MovieLens variant if there is one, else what the folder is called."""
    from pipelines.sources.movielens import find_layout

    if "movies" in domains:
        variant = settings.world.variant if settings.world.folder else "auto"
        return find_layout(folder, variant).variant
    return folder.name if origin == GIVEN else origin


def _given(folder: Path) -> Path:
    folder = folder.expanduser().absolute()
    expected = "a data folder as described in docs/data.md"
    if not has_folder(folder, expected):
        raise SourceError("there is no such folder", where=str(folder), hint=f"expected {expected}")
    entries(folder, expected)
    return folder


def _sample(settings: Settings, progress: Progress) -> Path:
    import filelock

    from pipelines.sample_world import CODE_VERSION, SampleWorld, write_sample_world

    sample = settings.world.sample
    digest = identity_hash({"settings": sample.model_dump(mode="json"), "code": CODE_VERSION})
    worlds = settings.runtime.home.expanduser().absolute() / "worlds"
    target = worlds / f"sample-{digest[:12]}"
    if SampleWorld.read(target) is not None:
        return target
    making = worlds / f"{target.name}.making"
    try:
        worlds.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(worlds / f"{target.name}.lock", timeout=_PATIENCE):
            if SampleWorld.read(target) is None:
                # What a killed run left, or someone damaged; the lock says that nobody is
                # writing it.
                shutil.rmtree(making, ignore_errors=True)
                shutil.rmtree(target, ignore_errors=True)
                making.mkdir()
                write_sample_world(making, sample, progress=progress)
                _sync(making)
                making.rename(target)
    except filelock.Timeout:
        raise LockedError("another process is generating this world", where=str(target)) from None
    except OSError as error:
        shutil.rmtree(making, ignore_errors=True)
        raise StoreError(
            f"the sample world can't be written ({error.strerror or type(error).__name__})",
            where=str(worlds),
            hint="check the disk's free space and the folder's permissions",
        ) from None
    return target


def _sync(folder: Path) -> None:
    """Have the bytes on disk before the name that promises them."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def _downloaded(settings: Settings, progress: Progress, base_url: str) -> tuple[Path, str]:
    from pipelines.sources.movielens import ARCHIVES

    name = settings.world.source
    if name not in ARCHIVES:
        known = ", ".join(("sample", *ARCHIVES))
        raise ConfigError(f"unknown dataset {name}", where="world.source", hint=f"known: {known}")
    download = ARCHIVES[name]
    # A folder each, so that one world never sees the archive of another.
    folder = settings.runtime.home.expanduser().absolute() / "downloads" / name
    fetch(download, folder / "movielens", base_url=base_url, progress=progress)
    return folder, f"{base_url.rstrip('/')}/{download.path}"
