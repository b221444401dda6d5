"""Pushing a release to an object store."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.errors import IntegrityError, ReleaseError
from pipelines.paths import ObjectPath
from pipelines.progress import add, counting
from pipelines.store._layout import Layout
from pipelines.store._manifest import MANIFEST
from pipelines.store._records import check_format, format_record, move_pointer, open_snapshot
from pipelines.store._release import Release, lock_table
from pipelines.store._snapshot import union
from pipelines.store._verify import verify_release
from pipelines.store.remote import RemoteFiles


@dataclass(frozen=True, slots=True)
class Pushed:
    """Outcome of a push."""

    #: Address that opens exactly this release.
    address: str
    #: Files of the release's tables (count, bytes), and those that had to be uploaded.
    files: int
    bytes: int
    uploaded_files: int
    uploaded_bytes: int


def push_release(release: Release, target: ObjectPath) -> Pushed:
    """See :meth:`Store.push`."""
    if isinstance(release.home, ObjectPath):
        raise ReleaseError("only a release of a home can be pushed", where=str(release.path))
    report = verify_release(release)
    if not report.ok:
        raise IntegrityError(
            f"{release} is not as published: {report.problems[0]}",
            hint="nothing was uploaded; `understudy release verify` lists everything",
        )
    remote, layout = RemoteFiles(target), Layout(target)
    check_format(remote)
    remote.put(layout.format, format_record())
    tables, uploaded = {}, []
    # A table's manifest after its files, the lock file after its tables, the pointer last: what a
    # killed push leaves is no release, and the next push uploads what is missing.
    with counting(f"pushing {release}", report.bytes):
        for name in release.tables:
            snapshot, pushed = release.snapshot(name), []
            for part in snapshot.snapshots:
                folder = layout.snapshot(part.dataset, part.version)
                sizes: dict[Path, dict[str, int]] = {}
                for entry in part.manifest.files:
                    path, file = remote.part(folder, entry), part.path / entry.name
                    if path.parent not in sizes:
                        sizes[path.parent] = remote.sizes(path.parent)
                    # A folder's name holds the hash of the content, and an object appears whole.
                    if sizes[path.parent].get(path.name) != entry.bytes:
                        remote.upload(file, path)
                        uploaded.append(entry.bytes)
                    add(entry.bytes)
                remote.put_new(folder / MANIFEST, (part.path / MANIFEST).read_bytes())
                # The manifest of the first push stays. It may hold other times: the lock has its
                # hash.
                pushed.append(open_snapshot(remote, folder))
            table = union(snapshot.dataset, pushed) if snapshot.parts else pushed[0]
            tables[name] = lock_table(table)
    card = remote.put_new(layout.card(release.name, release.version), release.card().encode())
    lock = replace(release, tables=tables, card_sha256=hashlib.sha256(card).hexdigest())
    remote.put_new(layout.release(release.name, release.version), lock.to_json())
    move_pointer(remote, layout.latest(release.name), release.name, release.version)
    return Pushed(
        str(target / str(release)), report.files, report.bytes, len(uploaded), sum(uploaded)
    )
