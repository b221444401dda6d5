"""Publishing: audit exactly what is pinned, then lock it, then move ``latest``."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from typing import Any

from pipelines.errors import ReleaseError
from pipelines.store._checks import CheckRecord, read_checks
from pipelines.store._layout import Layout
from pipelines.store._lineage import builds_of, resolve_lineage
from pipelines.store._manifest import now
from pipelines.store._records import move_pointer, open_snapshot
from pipelines.store._release import Release, check_release_name, find_release, lock_table
from pipelines.store._snapshot import Snapshot
from pipelines.store.files import LocalFiles
from pipelines.store.locks import mutex

__all__ = ["publish"]

#: Reasons shown in the one-line error; all of them are in its details.
_SHOWN = 5
#: How long to wait for another process that publishes under the same name (seconds): it may
#: be reading many gigabytes again.
_PATIENCE = 600.0


def publish(
    files: LocalFiles,
    layout: Layout,
    name: str,
    tables: Mapping[str, Snapshot],
    *,
    world: str,
    required: Mapping[str, Collection[str]],
    card: str,
    settings: Mapping[str, Any],
    run_id: str | None,
) -> Release:
    """See :meth:`Store.publish`."""
    check_release_name(name)
    if not tables:
        raise ReleaseError("a release needs tables", where=name)
    # Opened again by name: what counts is what this store holds, not what the caller holds.
    pinned = {
        short: open_snapshot(files, layout.snapshot(s.dataset, s.version))
        for short, s in tables.items()
    }
    lineage, problems = resolve_lineage(pinned.values(), builds_of(files, layout))
    checks: dict[str, dict[str, CheckRecord]] = {}
    for dataset in sorted({s.dataset for s in pinned.values()} | set(required) | set(lineage)):
        version = lineage.get(dataset)
        wanted = set(required.get(dataset, ()))
        if version is None:
            problems.append(f"{dataset}: checks are required of it, but nothing pinned uses it")
            continue
        if dataset.startswith("file:"):
            continue
        found = read_checks(files, layout, dataset, version)
        problems += [
            f"{dataset}: {c} did not run on {version}" for c in sorted(wanted - set(found))
        ]
        problems += [f"{dataset}: {c.name} failed on {version}" for c in found.values() if c.blocks]
        if found:
            checks[dataset] = found
    if problems:
        more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        raise ReleaseError(
            f"refused: {'; '.join(problems[:_SHOWN])}{more}",
            where=name,
            hint="latest stays where it was; mend the data or the check and run again",
            details={"problems": problems},
        )
    release = Release(
        name=name,
        version="",
        created_at=now(),
        world=world,
        tables={short: lock_table(s) for short, s in pinned.items()},
        lineage=lineage,
        checks=checks,
        settings=dict(settings),
        card_sha256=hashlib.sha256(card.encode()).hexdigest(),
        run_id=run_id,
    ).with_version()
    lock_file = layout.release(name, release.version)
    with mutex(layout.lock(f"release-{name}"), timeout=_PATIENCE):
        if files.read(lock_file) is None:
            for snapshot in pinned.values():
                snapshot.verify()
            # Card, lock, pointer: whoever sees one of them finds what it speaks of.
            files.put(layout.card(name, release.version), card.encode())
            files.put_new(lock_file, release.to_json())
        published = find_release(layout.home, lock_file)
        move_pointer(files, layout.latest(name), name, published.version)
    return published
