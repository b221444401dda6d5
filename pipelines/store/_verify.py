"""Reading a whole release again to see whether it is what was published."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pipelines.errors import IntegrityError, ReleaseError
from pipelines.paths import ObjectPath
from pipelines.progress import counting
from pipelines.store._layout import Layout
from pipelines.store._lineage import COHORT_LINEAGE, builds_of
from pipelines.store._manifest import cohort_dataset
from pipelines.store._records import open_snapshot
from pipelines.store._release import Release
from pipelines.store._snapshot import Snapshot
from pipelines.store.files import LocalFiles


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """Outcome of a verification of the release ``name@version``."""

    release: str
    #: Amount read (count, bytes).
    files: int
    bytes: int
    #: One line for each thing that is not as published, naming its file; empty if all is well.
    problems: tuple[str, ...]
    #: Snapshots that the tables were made from, directly or not, and that were read too (count); 0
    #: without ``lineage``.
    upstream: int = 0
    #: Original files in the lineage (count). They are outside the store: their hashes are part of
    #: the release, but they are not read again.
    originals: int = 0

    @property
    def ok(self) -> bool:
        """True if everything is as published."""
        return not self.problems


def verify_release(release: Release, *, lineage: bool = False) -> VerifyReport:
    """See :meth:`Store.verify`."""
    if lineage and isinstance(release.home, ObjectPath):
        raise ReleaseError(
            "a pushed release has no upstream snapshots",
            where=str(release.path),
            hint="verify the lineage in the home that it was pushed from",
        )
    problems: list[str] = []
    files = size = 0

    def read(opener: Callable[[], Snapshot]) -> None:
        nonlocal files, size
        try:
            snapshot = opener()
        except IntegrityError as error:
            problems.append(str(error))
            return
        problems.extend(str(p) for p in snapshot.problems())
        files += len(snapshot.manifest.files)
        size += snapshot.bytes

    # The size of upstream snapshots is not part of the lock file.
    total = None if lineage else sum(table.bytes for table in release.tables.values())
    upstream = _upstream(release) if lineage else []
    with counting(f"verifying {release}", total):
        for name in sorted(release.tables):
            read(partial(release.snapshot, name))
        for folder in upstream:
            read(partial(open_snapshot, LocalFiles(release.home), folder))
    try:
        release.card()
    except IntegrityError as error:
        problems.append(str(error))
    if not lineage:
        return VerifyReport(str(release), files, size, tuple(problems))
    problems.extend(_unlinked(release))
    originals = sum(name.startswith("file:") for name in release.lineage)
    return VerifyReport(
        str(release), files, size, tuple(problems), upstream=len(upstream), originals=originals
    )


def _upstream(release: Release) -> list[Path]:
    """Folders of the snapshots that a release was made from and does not pin."""
    pinned = {lock.dataset for table in release.tables.values() for lock in table.snapshots}
    layout = Layout(release.home)
    return [
        layout.snapshot(dataset, version)
        for dataset, version in sorted(release.lineage.items())
        if dataset not in pinned and not dataset.startswith("file:")
    ]


def _unlinked(release: Release) -> Iterator[str]:
    """Snapshots of the lineage that no recorded build made from the inputs of the lineage."""
    builds = builds_of(LocalFiles(release.home), Layout(release.home))
    differing = {
        cohort_dataset(dataset, cohort)
        for dataset, checks in release.checks.items()
        if COHORT_LINEAGE in checks
        for cohort in checks[COHORT_LINEAGE].details["cohorts"]
    }
    for dataset, version in sorted(release.lineage.items()):
        exempt = dataset.startswith("file:") or dataset in differing
        recorded = [] if exempt else builds(dataset, version)
        # A snapshot that can't be opened has no builds, and is a problem of its own.
        if recorded and not any(inputs.items() <= release.lineage.items() for inputs in recorded):
            yield (
                f"no recorded build of {dataset}@{version} has the inputs of the release: "
                f"{Layout(release.home).builds(dataset)}"
            )
