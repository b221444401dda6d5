"""Stable paths to raw snapshots, for dbt to read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import StoreError
from pipelines.paths import home_path
from pipelines.warehouse._layout import WarehouseLayout, read_record, write_record

if TYPE_CHECKING:
    from pipelines.store import Store

#: The raw datasets that dbt reads; each is the dbt source ``raw.<table>``.
SOURCES: tuple[str, ...] = (
    "raw.movielens_movies",
    "raw.movielens_ratings",
    "raw.movielens_links",
    "raw.movielens_tags",
    "raw.movielens_users",
    "raw.tmdb_movies",
    "raw.tmdb_missing",
    "raw.steam_games",
    "raw.steam_reviews",
    "raw.steam_playtime",
    "raw.amazon_reviews_2018",
    "raw.amazon_meta_2018",
    "raw.amazon_reviews_2023",
    "raw.amazon_meta_2023",
    "raw.own_items",
    "raw.own_ratings",
    "raw.own_users",
)


def link_sources(
    store: Store, versions: Mapping[str, str] | None = None, *, required: Iterable[str] = ()
) -> dict[str, str]:
    """Point ``<home>/warehouse/sources/<table>`` at the snapshot of each raw dataset.

    Sources are optional: a dataset that the store does not have is not linked, and the models of
    its domain can't be built (a domain is built by its dbt tag).

    Every link is replaced by one system call, so that a reader sees the old version or the new
    one. What is linked is recorded in ``<home>/warehouse/sources.json``; linking the same
    versions again changes nothing. Call it under :func:`warehouse_lock`.

    Datasets that ``versions`` does not name are linked at their current versions; those
    ``required``, such as the ones of a domain that is to be built, must be there. Returns the
    version of every dataset of :data:`SOURCES` that the store has.

    Raises
    ------
    StoreError
        A dataset is unknown to dbt, required and not there, has no such version, none is there,
        or the links can't be made. Then the links are as they were, or (disk faults only) partly
        new and not in the record: building from them is refused until linking succeeds.
    """
    versions = versions or {}
    needed = {*required, *versions}
    unknown = sorted(needed - set(SOURCES))
    if unknown:
        raise StoreError(
            f"dbt has no source {unknown[0]}", hint=f"its sources are {', '.join(SOURCES)}"
        )
    snapshots = {
        name: store.get(name, versions[name]) if name in versions else store.current(name)
        for name in SOURCES
        if name in needed or store.has(name)
    }
    if not snapshots:
        raise StoreError(
            "no raw dataset in this store", where=str(store.home), hint="ingest a source first"
        )
    linked = {name: snapshot.version for name, snapshot in snapshots.items()}
    layout = WarehouseLayout(store.home)
    folders = {name: snapshot.path for name, snapshot in snapshots.items()}
    if linked_sources(store.home) == linked and all(
        _points_at(_link(layout, name), folder) for name, folder in folders.items()
    ):
        return linked
    try:
        # Without a record nothing can be exported, even if the process dies before its end.
        layout.linked.unlink(missing_ok=True)
        layout.sources.mkdir(parents=True, exist_ok=True)
        for name, folder in folders.items():
            _replace(_link(layout, name), folder)
        for name in set(SOURCES) - set(snapshots):
            _link(layout, name).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(
            f"the sources can't be linked ({error.strerror or error})",
            where=str(layout.sources),
            hint="a file system with symbolic links is needed",
        ) from error
    write_record(
        layout.linked,
        {"linked_at": datetime.now(UTC).isoformat(timespec="microseconds"), "sources": linked},
    )
    return linked


def linked_sources(home: Path | str) -> dict[str, str]:
    """Linked versions by dataset; empty if nothing was linked."""
    return dict(read_links(WarehouseLayout(home_path(home)))["sources"])


def read_links(layout: WarehouseLayout) -> dict[str, Any]:
    """The record of the links: ``linked_at`` (ISO 8601, UTC; "" if there are none), ``sources``."""
    return read_record(layout.linked) or {"linked_at": "", "sources": {}}


def _link(layout: WarehouseLayout, dataset: str) -> Path:
    return layout.sources / dataset.removeprefix("raw.")


def _points_at(link: Path, folder: Path) -> bool:
    return link.is_symlink() and link.resolve() == folder.resolve()


def _replace(link: Path, folder: Path) -> None:
    # Relative, so that a home can be moved or mounted elsewhere as a whole.
    target = os.path.relpath(folder.resolve(), link.parent.resolve())
    temporary = link.with_name(f".{link.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target, target_is_directory=True)
    temporary.replace(link)
