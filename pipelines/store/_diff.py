"""Changes between two releases, table by table, without holding a table in memory."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pipelines.errors import IntegrityError, ReleaseError
from pipelines.paths import ObjectPath
from pipelines.store._layout import Layout
from pipelines.store._lineage import builds_of
from pipelines.store._manifest import split_cohort
from pipelines.store._records import open_snapshot
from pipelines.store._release import Release
from pipelines.store._snapshot import Snapshot
from pipelines.store.files import LocalFiles

if TYPE_CHECKING:
    import duckdb

#: Bins of a number's column (deciles of the earlier version), and categories at most.
_BINS, _CATEGORIES = 10, 50
#: Share that an empty bin counts as, so that the index stays finite.
_LEAST = 1e-4
#: Steps of the quantile functions that the Wasserstein distance is taken between.
_STEPS = 1000
_NUMBERS = ("int", "uint", "double", "float", "decimal", "halffloat")


@dataclass(frozen=True, slots=True)
class ColumnShift:
    """Change of a column's distribution."""

    column: str
    #: Population stability index: sum over bins of ``(after - before) * ln(after / before)`` of
    #: their shares. Below 0.1 little, above 0.25 large, by convention. Bins are the deciles of the
    #: earlier version, or values; nulls are one.
    psi: float
    #: Mean absolute difference of the quantile functions, in the column's unit; None of text.
    wasserstein: float | None
    #: Means of a numeric column; None for text.
    mean_before: float | None
    mean_after: float | None
    #: Name of each bin.
    bins: tuple[str, ...]
    #: Share of the rows (of the elements, of lists) in each bin.
    before: tuple[float, ...]
    after: tuple[float, ...]


def column_shifts(
    connection: duckdb.DuckDBPyConnection, old: Snapshot, new: Snapshot, columns: Mapping[str, str]
) -> tuple[ColumnShift, ...]:
    """Shifts of columns (name to Arrow type), the largest index first.

    Columns of numbers, truth values, and texts or lists of texts with few values; others are
    left out.
    """
    shifts = []
    for column, kind in columns.items():
        if kind.startswith(_NUMBERS):
            shift = _of_numbers(connection, old, new, column)
        elif kind in {"string", "large_string", "bool"} or "string>" in kind or "string," in kind:
            shift = _of_values(connection, old, new, column, each="list" in kind)
        else:
            shift = None
        if shift is not None:
            shifts.append(shift)
    return tuple(sorted(shifts, key=lambda s: (-s.psi, s.column)))


def stability_index(before: Sequence[float], after: Sequence[float]) -> float:
    """Population stability index of two lists of shares.

    >>> round(stability_index([0.5, 0.5], [0.25, 0.75]), 4)
    0.2747
    """
    pairs = ((max(p, _LEAST), max(q, _LEAST)) for p, q in zip(before, after, strict=True))
    return sum((q - p) * math.log(q / p) for p, q in pairs)


def _source(snapshot: Snapshot) -> str:
    files = ", ".join("'" + str(f).replace("'", "''") + "'" for f in snapshot.files())
    return f"read_parquet([{files}])"


def quoted(column: str) -> str:
    """A column's name in SQL."""
    return '"' + column.replace('"', '""') + '"'


def _of_numbers(
    connection: duckdb.DuckDBPyConnection, old: Snapshot, new: Snapshot, column: str
) -> ColumnShift | None:
    name = quoted(column)
    points = ", ".join(str((i + 0.5) / _STEPS) for i in range(_STEPS))
    curves, means = [], []
    for snapshot in (old, new):
        row = connection.execute(
            f"SELECT approx_quantile({name}::DOUBLE, [{points}]), avg({name}::DOUBLE) "  # noqa: S608
            f"FROM {_source(snapshot)} WHERE isfinite({name}::DOUBLE)"
        ).fetchone()
        if row is None or row[0] is None:
            return None
        curves.append(row[0])
        means.append(row[1])
    edges = sorted({curves[0][_STEPS * i // _BINS] for i in range(1, _BINS)})
    chain = " ".join(f"WHEN {name} < {edge!r} THEN {i}" for i, edge in enumerate(edges))
    bin_of = f"CASE WHEN {name} IS NULL THEN -1 {chain} ELSE {len(edges)} END"
    counts = [_counts(connection, snapshot, bin_of) for snapshot in (old, new)]
    bins = sorted(set(counts[0]) | set(counts[1]))
    texts = [f"{edge:.4g}" for edge in edges]

    def named(number: int) -> str:
        if number < 0:
            return "null"
        if not texts:
            return "all"
        if number == 0:
            return f"< {texts[0]}"
        return (
            f"≥ {texts[-1]}" if number == len(texts) else f"{texts[number - 1]} to {texts[number]}"
        )

    before, after = (_shares(c, bins) for c in counts)
    distance = sum(abs(p - q) for p, q in zip(*curves, strict=True)) / _STEPS
    return ColumnShift(
        column, stability_index(before, after), distance, means[0], means[1],
        tuple(named(b) for b in bins), before, after,
    )  # fmt: skip


def _of_values(
    connection: duckdb.DuckDBPyConnection, old: Snapshot, new: Snapshot, column: str, *, each: bool
) -> ColumnShift | None:
    name = quoted(column)
    value = f"unnest({name})" if each else name
    counts = []
    for snapshot in (old, new):
        few = connection.execute(
            f"SELECT approx_count_distinct(v) FROM (SELECT {value} AS v FROM {_source(snapshot)})"  # noqa: S608
        ).fetchone()
        # The count is approximate: somewhat above is still looked at.
        if few is None or few[0] > 1.2 * _CATEGORIES:
            return None
        counts.append(_counts(connection, snapshot, f"{value}::VARCHAR"))
    bins = sorted(set(counts[0]) | set(counts[1]), key=lambda v: (v is None, v or ""))
    if not bins or len(bins) > _CATEGORIES:
        return None
    before, after = (_shares(c, bins) for c in counts)
    names = tuple("null" if b is None else str(b) for b in bins)
    return ColumnShift(
        column, stability_index(before, after), None, None, None, names, before, after
    )


def _counts(
    connection: duckdb.DuckDBPyConnection, snapshot: Snapshot, expression: str
) -> dict[Any, int]:
    rows = connection.execute(
        f"SELECT b, count(*) FROM (SELECT {expression} AS b FROM {_source(snapshot)}) GROUP BY b"  # noqa: S608
    ).fetchall()
    return dict(rows)


def _shares(counts: Mapping[Any, int], bins: Sequence[Any]) -> tuple[float, ...]:
    total = max(1, sum(counts.values()))
    return tuple(counts.get(b, 0) / total for b in bins)


def causes(a: Release, b: Release) -> dict[str, tuple[str, ...]]:
    """For every dataset whose version differs: the changes furthest upstream that explain it.

    A change is an original file, a table's code version, a setting of its build, or an input that
    only one of the releases has.
    """
    sides = [
        (release, builds_of(LocalFiles(release.home), Layout(release.home))) for release in (a, b)
    ]
    traced: dict[str, tuple[str, ...]] = {}

    def inputs_of(side: int, dataset: str) -> dict[str, str]:
        release, alternatives = sides[side]
        for inputs in alternatives(dataset, release.lineage[dataset]):
            if all(release.lineage.get(name) == version for name, version in inputs.items()):
                return inputs
        return {}

    def trace(dataset: str) -> tuple[str, ...]:
        if dataset in traced:
            return traced[dataset]
        traced[dataset] = ()  # inputs have no cycles; this ends a damaged record's
        old, new = a.lineage.get(dataset), b.lineage.get(dataset)
        if old is None or new is None:
            table, cohort = split_cohort(dataset)
            named = f"{table}: cohort {cohort}" if cohort else table
            reasons = [f"{named} is {'new' if old is None else 'gone'}"]
        elif dataset.startswith("file:"):
            reasons = [f"{dataset} {old[:16]} → {new[:16]}"]
        else:
            names = sorted({**inputs_of(0, dataset), **inputs_of(1, dataset)})
            changed = [n for n in names if a.lineage.get(n) != b.lineage.get(n)]
            reasons = [reason for name in changed for reason in trace(name)]
            reasons += _own_changes(dataset, a, b)
            if not reasons:
                reasons = [f"{dataset} {old} → {new} (no change of its inputs is recorded)"]
        traced[dataset] = tuple(dict.fromkeys(reasons))
        return traced[dataset]

    differing = [n for n in {**a.lineage, **b.lineage} if a.lineage.get(n) != b.lineage.get(n)]
    return {dataset: trace(dataset) for dataset in sorted(differing)}


def _own_changes(dataset: str, a: Release, b: Release) -> list[str]:
    """Code and settings of a dataset's build that differ, as they stand in its manifests."""
    try:
        old, new = (
            open_snapshot(
                LocalFiles(release.home),
                Layout(release.home).snapshot(dataset, release.lineage[dataset]),
            ).manifest
            for release in (a, b)
        )
    except IntegrityError:
        return []
    changes = []
    if old.code_version != new.code_version:
        changes.append(f"{dataset}: code {old.code_version} → {new.code_version}")
    before, after = (_flat(side.config) for side in (old, new))
    return changes + [
        f"{dataset}: {key} {_short(before.get(key))} → {_short(after.get(key))}"
        for key in sorted({**before, **after})
        if before.get(key) != after.get(key)
    ]


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    out: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            out |= _flat(inner, f"{prefix}{key}.")
        else:
            out[f"{prefix}{key}"] = inner
    return out


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 40 else text[:39] + "…"


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
        """True if all tables are the very same versions."""
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
