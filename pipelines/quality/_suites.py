"""Suites: what each published table must look like as a whole, read from ``suites.yaml``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import polars as pl
import yaml

from pipelines.errors import StoreError
from pipelines.quality._spec import Evidence, Expectation, Fact, Setting, View, ViewFunction
from pipelines.quality._stats import total_variation, tv_allowance

if TYPE_CHECKING:
    import duckdb

    from pipelines.store import Snapshot, Store

_READ = re.compile(r"\b(?:FROM|JOIN)\s+(\w+)")
_SETTING = re.compile(r"setting\('([\w.]+)'\)")


@dataclass(frozen=True, slots=True)
class Query:
    """A view as SQL."""

    #: The rows to judge.
    rows: str
    #: One row of numbers, by their names.
    facts: str = ""
    #: Rows to show when a check fails.
    examples: str = ""
    #: A single text: why the checks do not apply; NULL if they do.
    skip: str = ""

    @classmethod
    def of(cls, declared: str | Mapping[str, str]) -> Query:
        """The query that the suites declare."""
        return cls(declared) if isinstance(declared, str) else cls(**declared)

    def __call__(self, evidence: Evidence) -> View:
        """Run it.

        Raises :class:`~pipelines.quality._spec.MissingTableError` if it reads a table that has no
        snapshot.
        """
        connection = evidence.database
        text = "\n".join((self.rows, self.facts, self.examples, self.skip))
        for name in dict.fromkeys(_READ.findall(text)):
            if name == "this" or evidence.is_table(name):
                dataset = evidence.sibling_name(name)
                _view(
                    connection, name,
                    evidence.snapshot if name == "this" else evidence.needed(dataset),
                )  # fmt: skip

        def answer(text: str) -> pl.DataFrame:
            return connection.execute(_filled(text, evidence)).pl()

        judged = answer(self.rows)
        if self.skip or self.facts or self.examples:
            connection.register("judged", judged)
        reason = answer(self.skip).item() if self.skip else None
        if reason is not None:
            return View.skip(reason)
        facts = answer(self.facts).row(0, named=True) if self.facts else {}
        return View(
            judged,
            {name: _plain(value) for name, value in facts.items()},
            answer(self.examples) if self.examples else None,
        )


def _view(connection: duckdb.DuckDBPyConnection, name: str, snapshot: Snapshot) -> None:
    files = ", ".join("'" + str(file).replace("'", "''") + "'" for file in snapshot.files())
    connection.execute(f"CREATE OR REPLACE VIEW {name} AS SELECT * FROM read_parquet([{files}])")  # noqa: S608


def _filled(text: str, evidence: Evidence) -> str:
    """A text with the numbers of the settings."""

    def number(match: re.Match[str]) -> str:
        value: Any = evidence.settings
        for part in match[1].split("."):
            value = value[int(part)] if part.isdigit() else getattr(value, part)
        return repr(float(value)) + "::DOUBLE"

    return _SETTING.sub(number, text)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, Decimal) else value


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


#: Name of the record of a version that passed its pandera contract.
CONTRACT_CHECK = "contract"

_COLUMN_KIND, _TABLE_KIND = "ExpectColumnValuesToBeBetween", "ExpectTableRowCountToBeBetween"


_DECLARED = yaml.safe_load(Path(__file__).with_name("suites.yaml").read_text("utf-8"))


def queries(table: str) -> dict[str, Query]:
    """Views of a table that are queries, by name."""
    declared = _DECLARED["checks"][table].get("views", {})
    return {name: Query.of(query) for name, query in declared.items()}


def _suites() -> dict[str, tuple[Expectation, ...]]:
    """Expectations of every dataset, those against the last release included."""
    suites = {}
    for domain, tables in _DECLARED["domains"].items():
        for table in tables:
            expectations = _of_domain(_DECLARED["checks"][table], domain, _DECLARED["groups"])
            dataset = f"{domain}.{table}"
            suites[dataset] = (*expectations, *drift_expectations(dataset))
    return suites


def _of_domain(
    checks: Mapping[str, Mapping[str, Any]], domain: str, groups: Mapping[str, list[str]]
) -> Iterator[Expectation]:
    """Expectations of a table in one domain."""
    member = {domain, *(group for group, domains in groups.items() if domain in domains)}
    for name, declared in checks.items():
        if name == "views":
            continue
        fields = {k: v for k, v in declared.items() if k not in groups}
        for group in member & set(declared):
            fields |= declared[group]
        if fields.pop("only", domain) in member:
            yield _expectation(name, fields)


def _expectation(name: str, fields: dict[str, Any]) -> Expectation:
    kind = fields.pop("kind", _COLUMN_KIND if "column" in fields else _TABLE_KIND)
    counted = fields.pop("applies_from", None)
    return Expectation(
        name=name,
        severity=fields.pop("severity", "error"),
        view=fields.pop("view"),
        kind=kind,
        because=fields.pop("because"),
        remedy=fields.pop("remedy", None),
        applies_from=next(iter(counted.items())) if counted else None,
        arguments={key: _bound(value) for key, value in fields.items()},
    )


def _bound(value: Any) -> Any:
    if isinstance(value, dict):
        ((source, name),) = value.items()
        return {"setting": Setting, "fact": Fact}[source](name)
    return value


#: Expectations by dataset.
SUITES: Mapping[str, tuple[Expectation, ...]] = _suites()


def required_checks(dataset: str) -> frozenset[str]:
    """Names of the checks that publishing demands of a version of a dataset.

    The contract's record and every expectation of severity ``error``. What dbt adds for its
    marts is not in it.

    >>> sorted(required_checks("movies.score_plan"))
    ['contract', 'personas_planned', 'plan_balance']
    >>> required_checks("raw.movielens_movies")
    frozenset({'contract'})
    """
    return frozenset(
        {CONTRACT_CHECK, *(e.name for e in SUITES.get(dataset, ()) if e.severity == "error")}
    )
