"""Worlds on disk: given folders, downloaded archives and the generated sample world."""

from __future__ import annotations

from pathlib import Path

from pipelines.config import Settings, identity_hash
from pipelines.sources import (
    GENERATED,
    GIVEN,
    MOVIELENS_URL,
    World,
    download_folder,
    given_folder,
    open_world,
)

__all__ = ["files_fingerprint", "prepare_world"]


def prepare_world(settings: Settings, *, base_url: str = MOVIELENS_URL) -> World:
    """Have the configured original files on disk.

    A given folder is used as it is. The sample world is generated once per size, seed and
    generator version into ``<home>/worlds``; a published archive is downloaded, resumed and
    verified into ``<home>/downloads``.

    Parameters
    ----------
    settings
        ``world`` selects the files, ``runtime.home`` the folder.
    base_url
        The publisher's address.

    Raises
    ------
    SourceError
        If files are missing, or (:class:`SourceUnavailableError`) can't be downloaded.
    StoreError
        If the home can't be written.
    """
    world = settings.world
    if settings.data.own.named:
        return open_world(world.folder or Path.cwd(), GIVEN, settings)
    if world.folder is not None:
        return open_world(given_folder(world.folder), GIVEN, settings)
    if world.source == "sample":
        return open_world(_sample(settings), GENERATED, settings)
    return open_world(*download_folder(settings, base_url), settings)


def _sample(settings: Settings) -> Path:
    from pipelines.sample_world import CODE_VERSION, write_sample_world

    sample = settings.world.sample
    digest = identity_hash({"settings": sample.model_dump(mode="json"), "code": CODE_VERSION})
    worlds = settings.runtime.folder / "worlds"
    target = worlds / f"sample-{digest[:12]}"
    write_sample_world(target, sample)
    return target


def files_fingerprint(settings: Settings) -> str:
    """Fingerprint of the original files: names, sizes and times of change, without reading them.

    Generated and downloaded files are decided by the settings alone.
    """
    world, given = settings.world, settings.data.own
    if given.named:
        stamps = [(p, p.stat()) for p in map(Path, given.named) if p.is_file()]
        files = [[str(p), s.st_size, s.st_mtime_ns] for p, s in stamps]
        return identity_hash({"own": given.model_dump(mode="json"), "files": files})[:16]
    if world.folder is None:
        return identity_hash(world.identity_values())[:16]
    folder = given_folder(world.folder)
    stamps = [(path, path.stat()) for path in sorted(folder.rglob("*")) if path.is_file()]
    listed = [[str(p.relative_to(folder)), s.st_size, s.st_mtime_ns] for p, s in stamps]
    return identity_hash({"folder": str(folder), "files": listed})[:16]
