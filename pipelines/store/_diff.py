"""Changes between two releases, table by table, without holding a table in memory."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pipelines.errors import ReleaseError
from pipelines.paths import ObjectPath
from pipelines.store._release import Release
from pipelines.store._shifts import ColumnShift, causes, column_shifts, quoted
from pipelines.store._snapshot import Snapshot

if TYPE_CHECKING:
    import duckdb

#: Keys shown per kind of change.
_SAMPLES = 5
_KINDS = ("added", "removed", "changed")


@dataclass(frozen=True, slots=True)
class TableDiff:
    """Changes of one table."""

    table: str
    #: ``same`` (the very version), ``changed``, ``added`` or ``removed``.
    status: str
    #: Versions; None where the table is absent.
    before: str | None
    after: str | None
    #: Rows (count).
    rows_before: int
    rows_after: int
    #: Column names.
    columns_added: tuple[str, ...] = ()
    columns_removed: tuple[str, ...] = ()
    columns_retyped: tuple[str, ...] = ()
    #: Rows (count) by key: only after, only before, in both with another value in a column that
    #: both have with the same type. None if the table has no key, or another key.
    rows_added: int | None = None
    rows_removed: int | None = None
    rows_changed: int | None = None
    #: Up to five keys per kind (``added``, ``removed``, ``changed``), smallest first.
    samples: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    #: Change of the distribution of each column that both have with the same type, and that is no
    #: key, largest first.
    shifts: tuple[ColumnShift, ...] = ()
    #: Changes furthest upstream that explain the other version.
    causes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ReleaseDiff:
    """Changes from release ``a`` to release ``b``, by short table name."""

    a: str
    b: str
    tables: dict[str, TableDiff]

    @property
    def same(self) -> bool:
        """Whether all tables are the very same versions."""
        return all(t.status == "same" for t in self.tables.values())


def diff_releases(
    a: Release, b: Release, *, memory_limit_mb: int = 2048, force: bool = False
) -> ReleaseDiff:
    """See :meth:`Store.diff`."""
    if remote := [r for r in (a, b) if isinstance(r.home, ObjectPath)]:
        raise ReleaseError(
            "releases on an object store can't be compared",
            where=str(remote[0].path),
            hint="compare them in the home that they were pushed from",
        )
    domains = [{lock.dataset.partition(".")[0] for lock in r.tables.values()} for r in (a, b)]
    if not force and domains[0].isdisjoint(domains[1]):
        raise ReleaseError(
            "the releases are of different domains",
            where=f"{a} and {b}",
            hint="--force compares them anyway",
        )
    reasons = causes(a, b)
    tables = {}
    for name in sorted({*a.tables, *b.tables}):
        diff = _diff_table(name, a, b, memory_limit_mb)
        if diff.status == "changed":
            locks = (*a.tables[name].snapshots, *b.tables[name].snapshots)
            given = [reason for lock in locks for reason in reasons.get(lock.dataset, ())]
            diff = replace(diff, causes=tuple(dict.fromkeys(given)))
        tables[name] = diff
    return ReleaseDiff(str(a), str(b), tables)


def _diff_table(name: str, a: Release, b: Release, memory_limit_mb: int) -> TableDiff:
    import duckdb

    before, after = a.tables.get(name), b.tables.get(name)
    diff = TableDiff(
        table=name,
        status="changed",
        before=before.version if before else None,
        after=after.version if after else None,
        rows_before=before.rows if before else 0,
        rows_after=after.rows if after else 0,
    )
    if before is None or after is None:
        return replace(diff, status="added" if before is None else "removed")
    if (before.dataset, before.version) == (after.dataset, after.version):
        return replace(diff, status="same", rows_added=0, rows_removed=0, rows_changed=0)
    old, new = a.snapshot(name), b.snapshot(name)
    old_types, new_types = _types(old), _types(new)
    shared = [c for c in old_types if old_types[c] == new_types.get(c)]
    diff = replace(
        diff,
        columns_added=tuple(c for c in new_types if c not in old_types),
        columns_removed=tuple(c for c in old_types if c not in new_types),
        columns_retyped=tuple(c for c in old_types if c in new_types and c not in shared),
    )
    key = new.manifest.key
    comparable = bool(key) and key == old.manifest.key and set(key) <= set(shared)
    with tempfile.TemporaryDirectory(prefix="understudy-diff-") as scratch:
        connection = duckdb.connect(
            config={"memory_limit": f"{memory_limit_mb}MB", "temp_directory": scratch}
        )
        with connection:
            columns = {c: new_types[c] for c in shared if c not in key}
            diff = replace(diff, shifts=column_shifts(connection, old, new, columns))
            if comparable:
                counts, samples = _diff_rows(connection, old, new, key, shared)
                changes: dict[str, Any] = {f"rows_{kind}": counts[kind] for kind in _KINDS}
                diff = replace(diff, **changes, samples=samples)
    return diff


def _types(snapshot: Snapshot) -> dict[str, str]:
    return {c["name"]: c["type"] for c in snapshot.manifest.schema}


def _diff_rows(
    connection: duckdb.DuckDBPyConnection,
    old: Snapshot,
    new: Snapshot,
    key: Sequence[str],
    columns: Sequence[str],
) -> tuple[dict[str, int], dict[str, list[dict[str, Any]]]]:
    """Counts and sample keys of rows added, removed and changed; joins spill to disk."""
    names = ", ".join(quoted(c) for c in key)
    # A 64-bit hash of the other columns stands for them, so that wide rows needn't be joined.
    values = ", ".join(quoted(c) for c in columns)
    join = f"FROM old FULL JOIN new USING ({names})"
    kind = (
        "CASE WHEN old.digest IS NULL THEN 'added' WHEN new.digest IS NULL THEN 'removed' "
        "WHEN old.digest <> new.digest THEN 'changed' END"
    )
    for view, snapshot in (("old", old), ("new", new)):
        _view(connection, view, snapshot, f"{names}, hash({values}) AS digest")
    groups = connection.execute(f"SELECT {kind} AS kind, count(*) {join} GROUP BY kind").fetchall()
    counts = {**dict.fromkeys(_KINDS, 0), **{k: n for k, n in groups if k}}
    samples = {}
    for change in _KINDS:
        if counts[change]:
            rows = connection.execute(
                f"SELECT {names} {join} WHERE {kind} = ? ORDER BY {names} LIMIT {_SAMPLES}",
                [change],
            ).fetchall()
            samples[change] = [dict(zip(key, row, strict=True)) for row in rows]
    return counts, samples


def _view(
    connection: duckdb.DuckDBPyConnection, name: str, snapshot: Snapshot, columns: str
) -> None:
    files = ", ".join("'" + str(f).replace("'", "''") + "'" for f in snapshot.files())
    connection.execute(
        f"CREATE TEMP VIEW {name} AS SELECT {columns} FROM read_parquet([{files}])"  # noqa: S608
    )
