"""The versioned store: immutable, content-addressed snapshots of tables, and releases of them.

>>> from pipelines.store import build_key
>>> len(build_key("1", {}, {}))
32
"""

from pipelines.store._diff import ColumnShift, ReleaseDiff, TableDiff
from pipelines.store._lineage import COHORT_LINEAGE
from pipelines.store._maintenance import Backup, Garbage, restore
from pipelines.store._manifest import (
    OF_COHORT,
    FileEntry,
    Manifest,
    build_key,
    cohort_dataset,
    split_cohort,
)
from pipelines.store._push import Pushed
from pipelines.store._records import (
    CheckKind,
    CheckOutcome,
    CheckRecord,
    CheckStatus,
    Severity,
    count_outcomes,
)
from pipelines.store._release import Release, TableLock
from pipelines.store._snapshot import Snapshot
from pipelines.store._store import Build, Store, Table
from pipelines.store._verify import VerifyReport, verify_release
from pipelines.store._writer import SnapshotWriter
from pipelines.store.locks import RunLock

__all__ = [
    "COHORT_LINEAGE",
    "OF_COHORT",
    "Backup",
    "Build",
    "CheckKind",
    "CheckOutcome",
    "CheckRecord",
    "CheckStatus",
    "ColumnShift",
    "FileEntry",
    "Garbage",
    "Manifest",
    "Pushed",
    "Release",
    "ReleaseDiff",
    "RunLock",
    "Severity",
    "Snapshot",
    "SnapshotWriter",
    "Store",
    "Table",
    "TableDiff",
    "TableLock",
    "VerifyReport",
    "build_key",
    "cohort_dataset",
    "count_outcomes",
    "restore",
    "split_cohort",
    "verify_release",
]
