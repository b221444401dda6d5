"""Build records: one per group of models, of what dbt last built and tested from what.

A group is built as a whole: the models of a domain, or those of sources that several domains
share. Its record holds the key (code, variables, versions of raw tables) and the outcome of every
model and test of one dbt invocation, and replaces the record before it. Under an equal key the
group is not built again, if every blocking test passed and the DuckDB file's own log names the same
invocation for every model.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from pipelines.domains import DOMAINS
from pipelines.errors import ContractError, StoreError
from pipelines.paths import home_path
from pipelines.warehouse._folder import (
    WarehouseLayout,
    dbt_vars,
    last_builds,
    linked_sources,
    open_warehouse,
    read_record,
    sql_glob,
    write_record,
)

if TYPE_CHECKING:
    from pipelines.config import Settings
    from pipelines.store import Severity

Json = dict[str, Any]

#: Groups of models, by the dbt tag of each; a model belongs to the first of its tags. Sources that
#: several domains are made from come first.
GROUPS: tuple[str, ...] = ("amazon", *DOMAINS)
_FORMAT = 2
#: Configuration that shapes a node's rows. Descriptions are left out: they change none.
_CONFIG = ("materialized", "severity", "where", "limit", "warn_if", "error_if")


@dataclass(frozen=True, slots=True)
class MartTest:
    """Last outcome of a dbt test of a mart or of something that it is made from."""

    #: Test name as declared; a failing test of severity ``error`` keeps the mart in the warehouse.
    name: str
    description: str
    severity: Severity
    #: dbt's word: ``pass``, ``fail``, ``warn``, ``error``, ``skipped``; or ``never run``.
    status: str
    #: Failing rows (count); None if unknown.
    failures: int | None
    #: Table with the failing rows, if they were stored.
    relation: str | None
    #: True if it tests the mart itself, rather than something the mart is made from.
    direct: bool
    #: Time of the last run (ISO 8601, UTC); "" if never.
    checked_at: str

    @property
    def passed(self) -> bool:
        """True if it ran on the present build, and found nothing."""
        return self.status == "pass"

    @property
    def blocks(self) -> bool:
        """True if it keeps the mart in the warehouse: failed, or not known to have passed."""
        return self.severity == "error" and not self.passed


@dataclass(frozen=True, slots=True)
class MartEvidence:
    """Evidence of how a mart was built and tested."""

    #: Its quoted name in the warehouse.
    relation: str
    #: Hash of the code of its group.
    code: str
    #: The dbt variables of its group, with the values it was built with.
    variables: dict[str, Any]
    #: Raw dataset to version: exactly what it was built from.
    sources: dict[str, str]
    #: All tests of it and of what it is made from.
    tests: tuple[MartTest, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a model or test that is up to date."""

    #: ``success`` of a model; ``pass`` or ``warn`` of a test.
    status: str
    #: Rows that a test found (count).
    failures: int


class Project:
    """The models and tests of a dbt manifest by group.

    Unit tests are left out: they judge code and read none of the rows.
    """

    def __init__(self, manifest: Json) -> None:
        self._manifest = manifest
        nodes: dict[str, Json] = manifest["nodes"]
        models = {
            key: next(group for group in GROUPS if group in node["tags"])
            for key, node in nodes.items()
            if node["resource_type"] == "model"
        }
        # A test belongs to the latest group that it reads.
        tests = {
            key: max((models[parent] for parent in self._parents(key)), key=GROUPS.index)
            for key, node in nodes.items()
            if node["resource_type"] == "test" and self._parents(key)
        }
        #: Group of each model and test by dbt's unique id.
        self.groups: dict[str, str] = models | tests

    def _parents(self, key: str) -> list[str]:
        """Models that a node reads."""
        needs = self._manifest["nodes"][key]["depends_on"].get("nodes", [])
        return [name for name in needs if name in self._manifest["nodes"]]

    def members(self, group: str) -> list[str]:
        """Models and tests of a group."""
        return sorted(key for key, name in self.groups.items() if name == group)

    def upstream(self, *keys: str) -> list[str]:
        """The nodes and everything that they are made from, sources too; parents first."""
        ordered: dict[str, None] = {}

        def visit(key: str) -> None:
            if key not in ordered:
                node = self._manifest["nodes"].get(key, {"depends_on": {}})
                for parent in node["depends_on"].get("nodes", []):
                    visit(parent)
                ordered[key] = None

        for key in keys:
            visit(key)
        return list(ordered)

    def datasets(self, *keys: str) -> list[str]:
        """Raw datasets that nodes are made from."""
        sources = self._manifest["sources"]
        used = (sources[key] for key in self.upstream(*keys) if key in sources)
        return sorted(f"{source['source_name']}.{source['name']}" for source in used)

    def sources(self, group: str) -> list[str]:
        """Raw datasets that a group is made from."""
        return self.datasets(*self.members(group))

    def code(self, group: str) -> str:
        """Hash of the SQL behind a group, the project's macros, and the programs that run it."""
        metadata, nodes = self._manifest["metadata"], self._manifest["nodes"]
        parts = {
            "programs": [metadata.get("dbt_version"), version("duckdb")],
            "nodes": {
                key: [
                    nodes[key].get("raw_code"),
                    [nodes[key]["config"].get(name) for name in _CONFIG],
                    [[name, c.get("data_type")] for name, c in nodes[key]["columns"].items()],
                    (nodes[key].get("test_metadata") or {}).get("kwargs"),
                ]
                for key in self.upstream(*self.members(group))
                if key in nodes
            },
            "macros": {
                name: macro["macro_sql"]
                for name, macro in self._manifest["macros"].items()
                if macro["package_name"] == metadata["project_name"]
            },
        }
        return _digest(parts)

    def key(self, group: str, linked: Mapping[str, str], variables: Mapping[str, Any]) -> Json:
        """Determinants of a group's rows: ``code``, ``vars``, ``inputs`` (dataset to version)."""
        return {
            "code": self.code(group),
            "vars": _variables(group, variables),
            "inputs": {name: linked[name] for name in self.sources(group) if name in linked},
        }

    def entry(self, key: str, result: Json | None) -> Json:
        """Record of a node and its outcome; without a result it was not run."""
        node = self._manifest["nodes"][key]
        return {
            "kind": node["resource_type"],
            "name": node["name"],
            "description": node.get("description") or "",
            "severity": str(node["config"].get("severity", "error")).lower(),
            "relation": node["relation_name"],
            "parents": sorted(self._parents(key)),
            "upstream": [name for name in self.upstream(key) if name in self.groups],
            "datasets": self.datasets(key),
            "status": result["status"] if result else "never run",
            "failures": result.get("failures") if result else None,
            "completed_at": _completed_at(result) if result else "",
        }


def _variables(group: str, variables: Mapping[str, Any]) -> Json:
    """The dbt variables of a group: the names of others begin with those."""
    others = {*GROUPS} - {group}
    return {n: value for n, value in variables.items() if n.partition("_")[0] not in others}


def _completed_at(result: Json) -> str:
    """End of a node's execution in our spelling (ISO 8601, UTC); "" if it did not run."""
    stamp = next((t["completed_at"] for t in result["timing"] if t["name"] == "execute"), "")
    if not stamp:
        return ""
    moment = datetime.fromisoformat(stamp)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


class BuildRecords:
    """The build records of a home.

    ``groups`` have by name the parts of ``Project.key``, ``place`` (folder of the sources that
    views read), ``invocation`` (dbt's id), and ``nodes``: ``Project.entry`` by dbt's unique id.
    """

    def __init__(self, groups: dict[str, Json]) -> None:
        self.groups = groups
        #: Every model and test on record.
        self.nodes: dict[str, Json] = {
            key: {**node, "invocation": record["invocation"]}
            for record in groups.values()
            for key, node in record["nodes"].items()
        }

    @classmethod
    def load(cls, home: Path) -> BuildRecords:
        """The records of a home; none if dbt never ran.

        Raises :class:`IntegrityError` if they are damaged.
        """
        content = read_record(WarehouseLayout(home).builds) or {}
        return cls(dict(content["groups"]) if content.get("format") == _FORMAT else {})

    def model(self, name: str) -> str | None:
        """Unique id of the model of this name."""
        return next(
            (k for k, n in self.nodes.items() if n["kind"] == "model" and n["name"] == name), None
        )

    def tests(self) -> Iterator[Json]:
        """Every test."""
        return (node for node in self.nodes.values() if node["kind"] == "test")


def record_dbt_run(
    home: Path | str, target_dir: Path | str | None = None, manifest: Json | None = None
) -> None:
    """Write the outcome of one dbt invocation into the build records.

    Call it after every invocation that runs models or tests, also when some of them failed, under
    the :func:`warehouse_lock` that the sources were linked under. The records of the groups that it
    ran nodes of are replaced: what it did not run counts as never run. ``target_dir`` has
    ``run_results.json`` (default: that of :func:`dbt_environment`); ``manifest`` is the project as
    dbt built it (default: ``manifest.json`` beside the results).

    Raises :class:`StoreError`: the artefacts are missing or of two different invocations. Then
    nothing is recorded.
    """
    layout = WarehouseLayout(home_path(home))
    folder = Path(target_dir) if target_dir else layout.target
    results = _read_artefact(folder, "run_results.json")
    invocation = results["metadata"]["invocation_id"]
    if manifest is None:
        manifest = _read_artefact(folder, "manifest.json")
        if manifest["metadata"]["invocation_id"] != invocation:
            raise StoreError(
                "dbt's artefacts are of two invocations",
                where=str(folder),
                hint="its last invocation ran nothing; run dbt build again",
            )
    project, linked = Project(manifest), linked_sources(layout.home)
    ran = {result["unique_id"]: result for result in results["results"]}
    variables = results.get("args", {}).get("vars") or {}
    groups = BuildRecords.load(layout.home).groups
    for group in {name for key, name in project.groups.items() if key in ran}:
        groups[group] = {
            **project.key(group, linked, variables),
            "place": sql_glob(layout.sources),
            "invocation": invocation,
            "nodes": {key: project.entry(key, ran.get(key)) for key in project.members(group)},
        }
    write_record(layout.builds, {"format": _FORMAT, "groups": groups})


def _read_artefact(folder: Path, name: str) -> Json:
    """A JSON artefact of dbt.

    Raises :class:`StoreError`: it is missing or not JSON.
    """
    path = folder / name
    try:
        content = orjson.loads(path.read_bytes())
        content["metadata"]["invocation_id"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        raise StoreError(
            "dbt wrote no readable artefact",
            where=str(path),
            hint="dbt stopped before running anything; see its log",
        ) from None
    return dict(content)


def up_to_date_outcomes(
    settings: Settings, manifest: Json, group: str
) -> dict[str, Outcome] | None:
    """The recorded outcomes of a group's models and tests; None if it has to be built.

    It is up to date with the same place, code, variables and linked sources, the very builds on
    record in the DuckDB file, and no test but those of severity ``warn`` that found anything.
    ``manifest`` is the project's as it is now. Outcomes come by dbt's unique id, parents first.
    """
    layout = WarehouseLayout(settings.runtime.folder)
    if not layout.database.exists():
        return None
    try:
        record = BuildRecords.load(layout.home).groups.get(group, {})
        key = Project(manifest).key(group, linked_sources(layout.home), dbt_vars(settings))
        key["place"] = sql_glob(layout.sources)
        if {name: record.get(name) for name in key} != key:
            return None
        with open_warehouse(layout, memory_limit_mb=settings.runtime.memory_limit_mb) as connection:
            in_database = last_builds(connection)
    except StoreError:
        # Inconsistent or unreadable records are left to dbt, which rebuilds or reports them.
        return None
    nodes = record["nodes"]
    for unique_id, node in nodes.items():
        if node["kind"] == "model":
            built = (node["status"], in_database.get(unique_id))
            holds = built == ("success", record["invocation"])
        else:
            holds = node["status"] in ("pass", "warn" if node["severity"] == "warn" else "pass")
        if not holds:
            return None
    ordered = sorted(nodes, key=lambda key: len(nodes[key]["upstream"]))
    return {k: Outcome(nodes[k]["status"], int(nodes[k]["failures"] or 0)) for k in ordered}


def code_versions(settings: Settings, manifest: Json) -> dict[str, str]:
    """Hash of the code and variables of each model's group, by dbt's unique id of the model."""
    project, variables = Project(manifest), dbt_vars(settings)
    versions = {group: _digest(project.key(group, {}, variables)) for group in GROUPS}
    return {
        key: versions[group]
        for key, group in project.groups.items()
        if manifest["nodes"][key]["resource_type"] == "model"
    }


def mart_tests(home: Path | str, model: str) -> list[MartTest]:
    """The tests of a mart and of everything it is made from, with their last outcomes.

    By name; those with ``severity == "error"`` must pass before the mart can be exported.

    Raises
    ------
    StoreError
        dbt has no such model yet.
    """
    records = BuildRecords.load(home_path(home))
    return _tests(records, _mart(records, model))


def mart_evidence(
    records: BuildRecords,
    model: str,
    *,
    linked: Mapping[str, str],
    variables: Mapping[str, Any],
    in_database: Mapping[str, str],
) -> MartEvidence:
    """Build evidence of a mart, if it is up to date and every blocking test passed.

    ``linked`` and ``variables`` are what the sources are linked to and dbt's variables are now,
    ``in_database`` the invocation that last built each model by the database's own log.

    Raises
    ------
    StoreError
        The mart is not (or no longer) what the records, the links and the settings say.
    ContractError
        A blocking test failed, or did not run on the present build; lists all of them.
    """
    key = _mart(records, model)
    upstream = records.nodes[key]["upstream"]
    used = [g for g, r in records.groups.items() if not r["nodes"].keys().isdisjoint(upstream)]
    for group in used:
        _check_key(group, records.groups[group], linked, variables)
    for name in upstream:
        _check_built(name, records.nodes.get(name), in_database)
    tests = tuple(_tests(records, key))
    stopping = [t for t in tests if t.blocks]
    if stopping:
        listed = ", ".join(_describe(t) for t in stopping[:5])
        more = f" and {len(stopping) - 5} more" if len(stopping) > 5 else ""
        raise ContractError(
            f"{len(stopping)} blocking tests did not pass: {listed}{more}",
            where=model,
            hint="fix what they found and run dbt build; failing_rows(home, test) has the rows",
            details={"tests": [{"name": t.name, "status": t.status} for t in stopping]},
        )
    node = records.nodes[key]
    (build,) = (record for record in records.groups.values() if key in record["nodes"])
    sources = {name: build["inputs"][name] for name in node["datasets"] if name in build["inputs"]}
    return MartEvidence(str(node["relation"]), build["code"], build["vars"], sources, tests)


def _check_key(
    group: str, record: Json, linked: Mapping[str, str], variables: Mapping[str, Any]
) -> None:
    """Check that a group was built with these variables and sources.

    Raises StoreError if not: names the first variable or source that differs.
    """
    hint = "run dbt build with the variables of dbt_vars(settings)"
    now = _variables(group, variables)
    for name in sorted({*record["vars"], *now}):
        built, expected = (part.get(name, "the default") for part in (record["vars"], now))
        if built != expected:
            raise StoreError(
                f"built with {name} = {built}, the settings say {expected}", where=group, hint=hint
            )
    for name in sorted({d for node in record["nodes"].values() for d in node["datasets"]}):
        built, expected = (part.get(name, "nothing") for part in (record["inputs"], linked))
        if built != expected:
            raise StoreError(
                f"built from {name}@{built}, but {expected} is linked now", where=group, hint=hint
            )


def _check_built(key: str, node: Json | None, in_database: Mapping[str, str]) -> None:
    """Check that a model is recorded as built, and that the warehouse holds this build.

    Raises :class:`StoreError` if not.
    """
    if node is None or node["status"] != "success":
        raise StoreError(
            "dbt has not built this model from the present sources and code",
            where=key.rpartition(".")[2],
            hint="run dbt build",
        )
    if in_database.get(key) != node["invocation"]:
        raise StoreError(
            "the warehouse holds another build of this model than the one on record",
            where=node["name"],
            hint="the run that made it was killed or not recorded; run dbt build again",
        )


def _mart(records: BuildRecords, model: str) -> str:
    key = records.model(model)
    if key is None:
        raise StoreError("dbt has not built this mart", where=model, hint="run dbt build")
    return key


def _tests(records: BuildRecords, key: str) -> list[MartTest]:
    upstream = {*records.nodes[key]["upstream"]}
    tests = [
        MartTest(
            name=test["name"],
            description=test["description"],
            severity="warn" if test["severity"] == "warn" else "error",
            status=test["status"],
            failures=test["failures"],
            relation=test["relation"],
            direct=key in test["parents"],
            checked_at=test["completed_at"],
        )
        for test in records.tests()
        if not upstream.isdisjoint(test["parents"])
    ]
    return sorted(tests, key=lambda t: t.name)


def _describe(test: MartTest) -> str:
    count = f", {test.failures:,} rows" if test.failures else ""
    return f"{test.name} ({test.status}{count})"
