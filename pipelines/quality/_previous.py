"""The world a store holds, and what was last published of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.errors import StoreError

if TYPE_CHECKING:
    from pipelines.store import Snapshot, Store

__all__ = ["previous_snapshot", "world_of"]

_INVENTORY = "raw.world_files"
#: Where files come from that a generator wrote (``pipelines.sources.GENERATED``).
_GENERATED = "generated"


def world_of(store: Store) -> str:
    """Name of the world that the store's current tables come from.

    Raises
    ------
    StoreError
        If no world was taken in yet.
    """
    manifest = store.current(_INVENTORY).manifest
    world = manifest.stats.get("world") or manifest.config.get("world")
    if not isinstance(world, str) or not world:
        raise StoreError(
            "the inventory of original files names no world",
            where=f"{_INVENTORY}@{manifest.version}",
            hint="take the files in again: understudy run",
        )
    return world


def previous_snapshot(store: Store, dataset: str, release: str) -> Snapshot | None:
    """The dataset's snapshot in the last release of the current world.

    Files that a generator wrote are a world of their own for each size and seed: a smaller
    sample world is not a loss of rows.

    Parameters
    ----------
    store
        Where the releases are.
    dataset
        Such as ``movies.items``.
    release
        Name of the release.

    Returns
    -------
    Snapshot or None
        None if nothing of this world was released, or its tables are no longer there.

    Raises
    ------
    StoreError
        If no world was taken in yet.
    """
    world, generated = world_of(store), _generated_files(store)
    for published in reversed(store.releases(release)):
        if published.world != world:
            continue
        if any(published.lineage.get(file, sha) != sha for file, sha in generated.items()):
            continue
        for lock in published.tables.values():
            if lock.dataset == dataset:
                try:
                    return store.get(dataset, lock.version)
                except StoreError:
                    break  # removed or damaged: an older release may still have its tables
    return None


def _generated_files(store: Store) -> dict[str, str]:
    """Generated original files by lineage name with their hashes."""
    frame = store.current(_INVENTORY).read(["file", "sha256", "origin"])
    return {f"file:{file}": sha for file, sha, origin in frame.iter_rows() if origin == _GENERATED}
