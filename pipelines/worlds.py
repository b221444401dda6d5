"""Worlds on disk: given folders, downloaded archives and the generated sample world."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pipelines.config import Settings, identity_hash
from pipelines.errors import LockedError, StoreError
from pipelines.sources import (
    GENERATED,
    GIVEN,
    MOVIELENS_URL,
    Progress,
    World,
    download_folder,
    given_folder,
    no_progress,
    open_world,
)

__all__ = ["prepare_world"]

#: Seconds to wait for another process that generates the same world.
_PATIENCE = 600.0


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
        return open_world(given_folder(world.folder), GIVEN, settings, report)
    if world.source == "sample":
        return open_world(_sample(settings, report), GENERATED, settings, report)
    return open_world(*download_folder(settings, report, base_url), settings, report)


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
