"""Drift: comparison with the snapshot of the last release of the same world."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from pipelines.errors import StoreError
from pipelines.quality._spec import Evidence, Expectation, Setting, View, ViewFunction
from pipelines.quality._stats import total_variation, tv_allowance

if TYPE_CHECKING:
    from pipelines.store import Snapshot, Store

NO_PREVIOUS = "no previous"


@dataclass(frozen=True, slots=True)
class _Histogram:
    """A compared column (of lists, if `each`), and whether a large change stops the release.

    ``sampled`` adds what chance alone moves between two samples of these sizes. It applies from
    ``applies_from`` rows of both versions on.
    """

    column: str
    severity: Literal["error", "warn"]
    each: bool = False
    width: int | None = None
    sampled: bool = False
    applies_from: int = 0


_HISTOGRAMS: Mapping[str, _Histogram] = {
    "items": _Histogram("genres", "warn", each=True, applies_from=100),
    "interactions": _Histogram("rating", "error", applies_from=1000),
    "personas": _Histogram("age", "warn", width=10, sampled=True),
    "preference_scores": _Histogram("mode", "warn", applies_from=1000),
    "graph_triples": _Histogram("relation", "warn", applies_from=1000),
    "item_embeddings": _Histogram("model", "warn"),
    "persona_embeddings": _Histogram("model", "warn"),
}

#: Tables whose size follows the sources. The others are as large as the settings ask for.
_SOURCED = frozenset(
    {"items", "interactions", "splits", "item_stats", "human_users", "item_embeddings"}
)


def _rows(evidence: Evidence) -> View:
    """One row: the share of rows lost."""
    if evidence.previous is None:
        return View.skip(NO_PREVIOUS)
    before, now = evidence.previous.rows, evidence.snapshot.rows
    lost = max(0.0, 1 - now / before) if before else 0.0
    return View(pl.DataFrame({"rows_before": [before], "rows_now": [now], "lost": [lost]}))


#: Rows of the last release from which a lost share is judged.
_LEAST_BEFORE = 50


def _schema(evidence: Evidence) -> View:
    """One row per column: whether it has the type it had."""
    if evidence.previous is None:
        return View.skip(NO_PREVIOUS)
    before = {c["name"]: str(c["type"]) for c in evidence.previous.manifest.schema}
    now = {c["name"]: str(c["type"]) for c in evidence.snapshot.manifest.schema}
    return View(
        pl.DataFrame(
            [
                {
                    "column": name,
                    "type_before": before.get(name),
                    "type_now": now.get(name),
                    "same": int(before.get(name) == now.get(name)),
                }
                for name in [*now, *(c for c in before if c not in now)]
            ],
            schema={
                "column": pl.String,
                "type_before": pl.String,
                "type_now": pl.String,
                "same": pl.Int64,
            },
        )
    )


def _histogram(evidence: Evidence) -> View:
    """One row: total variation of the histogram; examples are the values that changed most."""
    if evidence.previous is None:
        return View.skip(NO_PREVIOUS)
    what = _HISTOGRAMS[evidence.dataset.rpartition(".")[2]]
    # A column that either version lacks is the schema check's to report.
    for snapshot in (evidence.previous, evidence.snapshot):
        if what.column not in {c["name"] for c in snapshot.manifest.schema}:
            return View.skip(f"{snapshot.version} has no column {what.column}")
    before, now = (_counts(s.scan(), what) for s in (evidence.previous, evidence.snapshot))
    keys = sorted(set(before) | set(now))
    old, new = max(1, round(sum(before.values()))), max(1, round(sum(now.values())))
    examples = pl.DataFrame(
        {
            what.column: keys,
            "share_before": [before.get(k, 0) / old for k in keys],
            "share_now": [now.get(k, 0) / new for k in keys],
        },
        schema={what.column: pl.String, "share_before": pl.Float64, "share_now": pl.Float64},
    ).sort((pl.col("share_now") - pl.col("share_before")).abs(), descending=True)
    distance = total_variation(before, now)
    if what.sampled:
        pooled = [before.get(k, 0) + now.get(k, 0) for k in keys]
        chance = tv_allowance(pooled, old) + tv_allowance(pooled, new)
        distance = max(0.0, distance - chance)
    rows = min(evidence.previous.rows, evidence.snapshot.rows)
    return View(
        pl.DataFrame({"distance": [distance]}), facts={"rows_of_both": rows}, examples=examples
    )


def _counts(scan: pl.LazyFrame, what: _Histogram) -> dict[str, float]:
    value = pl.col(what.column)
    frame = scan.select(value=value)
    if what.each:
        frame = frame.explode("value").drop_nulls()
    if what.width:
        frame = frame.select(value=pl.col("value") // what.width * what.width)
    counts = (
        frame.group_by(pl.col("value").cast(pl.String))
        .agg(n=pl.len())
        .collect(engine="streaming")
        .sort("value")
    )
    return {str(v): float(n) for v, n in counts.iter_rows()}


def drift_views(dataset: str) -> dict[str, ViewFunction]:
    """The drift views of a dataset by name."""
    views: dict[str, ViewFunction] = {"drift_rows": _rows, "drift_schema": _schema}
    if dataset.rpartition(".")[2] in _HISTOGRAMS:
        views["drift_histogram"] = _histogram
    return views


def drift_expectations(dataset: str) -> tuple[Expectation, ...]:
    """The drift checks of a dataset.

    A loss of rows stops a release of tables whose size follows the sources; the size of the
    others follows the settings and is checked against those.
    """
    table = dataset.rpartition(".")[2]
    checks = [
        Expectation(
            name="row_drop",
            severity="error" if table in _SOURCED else "warn",
            view="drift_rows",
            kind="ExpectColumnValuesToBeBetween",
            arguments={"column": "lost", "max_value": Setting("quality.max_row_drop")},
            because="share of rows lost since the last release of the same world",
            applies_from=("rows_before", _LEAST_BEFORE),
        ),
        Expectation(
            name="schema_unchanged",
            severity="warn",
            view="drift_schema",
            kind="ExpectColumnValuesToBeInSet",
            arguments={"column": "same", "value_set": [1]},
            because="columns with the same type as in the last release",
        ),
    ]
    if table in _HISTOGRAMS:
        what = _HISTOGRAMS[table]
        beyond = ", beyond what chance explains" if what.sampled else ""
        checks.append(
            Expectation(
                name=f"{what.column}_drift",
                severity=what.severity,
                view="drift_histogram",
                kind="ExpectColumnValuesToBeBetween",
                arguments={"column": "distance", "max_value": Setting("quality.max_drift")},
                because=f"total variation of {what.column} since the last release{beyond}",
                applies_from=("rows_of_both", what.applies_from),
            )
        )
    return tuple(checks)


_INVENTORY = "raw.world_files"
#: Publisher of generated files (``pipelines.sources.GENERATED``).
_GENERATED = "generated"


def world_of(store: Store) -> str:
    """Name of the world that the store's current tables come from.

    Raises StoreError if no world was taken in yet.
    """
    manifest = store.current(_INVENTORY).manifest
    world = manifest.stats.get("world") or manifest.config.get("world")
    if not isinstance(world, str) or not world:
        raise StoreError(
            "the inventory of original files names no world",
            where=f"{_INVENTORY}@{manifest.version}",
            hint="ingest the files again: understudy run",
        )
    return world


def previous_snapshot(store: Store, dataset: str, release: str) -> Snapshot | None:
    """The dataset's snapshot in the last release of the current world.

    Files that a generator wrote are a world of their own for each size and seed: a smaller
    sample world is not a loss of rows.

    None if nothing of this world was released, or its tables are no longer there.

    Raises StoreError if no world was taken in yet.
    """
    world, generated = world_of(store), _generated_files(store)
    for published in reversed(store.releases(release)):
        if published.world != world:
            continue
        if any(published.lineage.get(file, sha) != sha for file, sha in generated.items()):
            continue
        for name, lock in published.tables.items():
            if lock.dataset == dataset:
                try:
                    return published.snapshot(name)
                except StoreError:
                    break  # removed or damaged: an older release may still have its tables
    return None


def _generated_files(store: Store) -> dict[str, str]:
    """Generated original files by lineage name with their hashes."""
    frame = store.current(_INVENTORY).read(["file", "sha256", "origin"])
    return {f"file:{file}": sha for file, sha, origin in frame.iter_rows() if origin == _GENERATED}
