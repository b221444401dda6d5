"""Build records: one per domain, of what dbt last built and tested from what.

dbt's artefacts describe one invocation and are overwritten by the next, which may run a part of a
domain only. A record holds the outcomes of a domain's models and tests under one key: versions of
the raw tables, hash of the code, variables. Invocations under the same key add up; under another
key, outcomes of nodes whose own sources, code and variables are still the same are kept. A model
enters it only if all that it is made from is in it, so that nothing built on older tables counts.
That the DuckDB file holds these very builds is seen from its own log.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from pipelines.domains import DOMAINS
from pipelines.errors import ContractError, StoreError
from pipelines.paths import home_path
from pipelines.warehouse._database import last_builds, moved_views, open_warehouse
from pipelines.warehouse._environment import dbt_vars, sql_glob
from pipelines.warehouse._layout import WarehouseLayout, read_record, write_record
from pipelines.warehouse._links import linked_sources, read_links

if TYPE_CHECKING:
    from pipelines.config import Settings
    from pipelines.store import Severity

Json = dict[str, Any]

#: ``var('name'`` in a model's or macro's code.
_VARIABLE = re.compile(r"""\bvar\(\s*['"](\w+)['"]""")
#: Unit tests judge code and read none of the rows: CI runs them, and no build depends on them.
_KINDS = {"model", "test"}


def read_artefact(folder: Path, name: str) -> Json:
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


class Graph:
    """The models and tests of a manifest, and how they hang together."""

    def __init__(self, manifest: Json) -> None:
        self._nodes: dict[str, Json] = {
            key: node for key, node in manifest["nodes"].items() if node["resource_type"] in _KINDS
        }
        self._sources: dict[str, Json] = manifest["sources"]
        self._macros: dict[str, Json] = manifest["macros"]
        self._project = str(manifest["metadata"]["project_name"])

    def entries(self) -> dict[str, Json]:
        """Facts of each node by dbt's unique id.

        ``kind``, ``name``, ``description``, ``parents`` (models and tests only), ``sources``
        (datasets read directly), ``code`` (hash of what dbt runs, without its parents),
        ``variables`` (names of the dbt variables in that code), ``domain`` (of a model that several
        domains are made from: their names with ``+``); for a model ``relation`` and ``table``
        (whether it holds rows itself), for a test ``severity`` and ``relation`` (of its stored
        failures).
        """
        return {key: self._entry(key, node) for key, node in sorted(self._nodes.items())}

    def _entry(self, key: str, node: Json) -> Json:
        config = node.get("config", {})
        needs = node["depends_on"].get("nodes", [])
        entry = {
            "kind": node["resource_type"],
            "name": node["name"],
            "description": node.get("description") or "",
            "parents": sorted(n for n in needs if n in self._nodes),
            "sources": sorted(self._dataset(n) for n in needs if n in self._sources),
            "code": self._code(key),
            "variables": sorted(set(self._variables(key))),
            "domain": self._domain(key),
        }
        if node["resource_type"] == "model":
            entry["relation"] = node["relation_name"]
            entry["table"] = config.get("materialized") != "view"
        else:
            entry["severity"] = str(config.get("severity", "error")).lower()
            entry["relation"] = node.get("relation_name")
        return entry

    def _domain(self, key: str) -> str:
        """The domains that a model is tagged with; of a test, those of its most special parent."""
        node = self._nodes[key]
        if node["resource_type"] == "model":
            return "+".join(sorted({*node.get("tags", ())} & {*DOMAINS}))
        parents = [n for n in node["depends_on"].get("nodes", []) if n in self._nodes]
        return min((self._domain(n) for n in parents), key=lambda d: (d.count("+"), d), default="")

    def _dataset(self, source: str) -> str:
        node = self._sources[source]
        return f"{node['source_name']}.{node['name']}"

    def _code(self, key: str) -> str:
        """Hash of a node's SQL, the configuration that shapes its rows, and its macros.

        Descriptions and tests are left out: they change no row.
        """
        node = self._nodes[key]
        config = node.get("config", {})
        parts = {
            "sql": node.get("raw_code") or "",
            "macros": {name: self._macros[name]["macro_sql"] for name in self._own_macros(node)},
            "config": {
                name: config.get(name)
                for name in ("materialized", "severity", "where", "limit", "warn_if", "error_if")
            },
            "columns": [
                [name, column.get("data_type")] for name, column in node.get("columns", {}).items()
            ],
            "arguments": (node.get("test_metadata") or {}).get("kwargs"),
        }
        return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]

    def _variables(self, key: str) -> Iterator[str]:
        node = self._nodes[key]
        yield from _VARIABLE.findall(node.get("raw_code") or "")
        for name in self._own_macros(node):
            yield from _VARIABLE.findall(self._macros[name]["macro_sql"])

    def _own_macros(self, node: Json) -> list[str]:
        """The macros of this project that a node uses, directly or not.

        dbt's and the adapter's own are left out: their versions are pinned.
        """
        found: set[str] = set()
        todo = list(node["depends_on"].get("macros", []))
        while todo:
            name = todo.pop()
            macro: Mapping[str, Any] | None = self._macros.get(name)
            if macro is None or macro["package_name"] != self._project or name in found:
                continue
            found.add(name)
            todo += macro["depends_on"].get("macros", [])
        return sorted(found)


_FORMAT = 1


@dataclass(frozen=True, slots=True)
class MartTest:
    """Last outcome of a dbt test of a mart or of something that it is made from."""

    #: Test name as declared; a failing test of severity ``error`` keeps the mart in the warehouse.
    name: str
    description: str
    severity: Severity
    #: dbt's word: ``pass``, ``fail``, ``warn``, ``error``, ``skipped``; ``never run``; or ``out of
    #: date`` if what it tested has been built again since.
    status: str
    #: Failing rows (count); None if unknown.
    failures: int | None
    #: Table with the failing rows, if they were stored.
    relation: str | None
    #: Whether it tests the mart itself, rather than something the mart is made from.
    direct: bool
    #: Time of the last run (ISO 8601, UTC); "" if never.
    checked_at: str

    @property
    def passed(self) -> bool:
        """Whether it ran on the present build, and found nothing."""
        return self.status == "pass"

    @property
    def blocks(self) -> bool:
        """Whether it keeps the mart in the warehouse: failed, or not known to have passed."""
        return self.severity == "error" and not self.passed


@dataclass(frozen=True, slots=True)
class MartEvidence:
    """Evidence of how a mart was built and tested."""

    #: Its quoted name in the warehouse.
    relation: str
    #: Hash of its code and that of everything it is made from.
    code: str
    #: The dbt variables in that code, with the values it was built with.
    variables: dict[str, Any]
    #: Raw dataset to version: exactly what it was built from.
    sources: dict[str, str]
    #: All tests of it and of what it is made from.
    tests: tuple[MartTest, ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a model or test that is up to date."""

    #: dbt's name.
    name: str
    #: ``success`` of a model; ``pass`` or ``warn`` of a test.
    status: str
    #: Rows that a test found (count).
    failures: int


class BuildRecords:
    """The build records of a home.

    ``nodes`` are models and tests of the project by dbt's unique id, see ``Graph.entries``.
    ``records`` have by domain ``code`` (hash), ``vars`` and ``inputs`` (raw dataset to version),
    which are its key, and ``outcomes`` by unique id: ``status``, ``invocation``, ``completed_at``
    (ISO 8601, UTC), ``made_from`` (hash of what decides the node), of a test also ``failures``
    (count) and ``message``.
    """

    def __init__(self, nodes: dict[str, Json], records: dict[str, Json]) -> None:
        self.nodes = nodes
        self.records = records

    @classmethod
    def load(cls, home: Path) -> BuildRecords:
        """The records of a home; none if dbt never ran.

        Raises :class:`IntegrityError` if they are damaged.
        """
        content = read_record(WarehouseLayout(home).builds) or {}
        if content.get("format") != _FORMAT:
            return cls({}, {})
        return cls(dict(content["nodes"]), dict(content["records"]))

    def save(self, home: Path) -> None:
        """Write the records, whole or not at all."""
        write_record(
            WarehouseLayout(home).builds,
            {"format": _FORMAT, "nodes": self.nodes, "records": self.records},
        )

    def model(self, name: str) -> str | None:
        """Unique id of the model of this name."""
        return next(
            (k for k, n in self.nodes.items() if n["kind"] == "model" and n["name"] == name), None
        )

    def tests(self) -> Iterator[tuple[str, Json]]:
        """Every test."""
        return ((k, n) for k, n in self.nodes.items() if n["kind"] != "model")

    def outcome(self, key: str) -> Json | None:
        """The recorded outcome of a node."""
        record = self.records.get(self.nodes[key]["domain"], {})
        found: Json | None = record.get("outcomes", {}).get(key)
        return found

    def upstream(self, *keys: str) -> list[str]:
        """The nodes and everything that they are made from, parents before children."""
        found: dict[str, None] = {}

        def visit(node: str) -> None:
            if node not in found:
                for parent in self.nodes[node]["parents"]:
                    visit(parent)
                found[node] = None

        for key in keys:
            visit(key)
        return list(found)

    def domains(self, keys: Iterable[str]) -> list[str]:
        """Domains of these nodes."""
        return sorted({self.nodes[key]["domain"] for key in keys})

    def identity(
        self, keys: Iterable[str], linked: Mapping[str, str], variables: Mapping[str, Any]
    ) -> Json:
        """Determinants of the rows of nodes and of their parents."""
        nodes = {key: self.nodes[key] for key in self.upstream(*keys)}
        names = {name for node in nodes.values() for name in node["variables"]}
        datasets = {name for node in nodes.values() for name in node["sources"]}
        return {
            "code": _digest({key: node["code"] for key, node in nodes.items()}),
            "vars": {name: variables[name] for name in sorted(names) if name in variables},
            "inputs": {name: linked[name] for name in sorted(datasets) if name in linked},
        }

    def made_from(self, key: str, linked: Mapping[str, str], variables: Mapping[str, Any]) -> str:
        """Hash of the determinants of one node."""
        return _digest(self.identity([key], linked, variables))

    def key(self, domain: str, linked: Mapping[str, str], variables: Mapping[str, Any]) -> Json:
        """The key under which a domain would be recorded now."""
        members = sorted(key for key, node in self.nodes.items() if node["domain"] == domain)
        return self.identity(members, linked, variables)

    def check(self, domain: str, linked: Mapping[str, str], variables: Mapping[str, Any]) -> None:
        """Check that a domain's record has the key of now.

        Raises StoreError if there is none, or it differs: names the first variable or source.
        """
        record = self.records.get(domain)
        hint = "run dbt build with the variables of dbt_vars(settings)"
        if record is None:
            raise StoreError("dbt has not built this domain", where=domain, hint=hint)
        now = self.key(domain, linked, variables)
        for name in sorted({*record["vars"], *now["vars"]}):
            built, wanted = (part["vars"].get(name, "the default") for part in (record, now))
            if built != wanted:
                raise StoreError(
                    f"built with {name} = {built}, the settings say {wanted}",
                    where=domain,
                    hint=hint,
                )
        for name in sorted({*record["inputs"], *now["inputs"]}):
            built, wanted = (part["inputs"].get(name, "nothing") for part in (record, now))
            if built != wanted:
                raise StoreError(
                    f"built from {name}@{built}, but {wanted} is linked now",
                    where=domain,
                    hint=hint,
                )
        if record["code"] != now["code"]:
            raise StoreError("a model or test changed after the build", where=domain, hint=hint)

    def check_models(self, keys: Iterable[str], in_database: Mapping[str, str]) -> None:
        """Check that models are recorded, and that the warehouse holds these builds.

        Raises :class:`StoreError` if one is not.
        """
        for key in keys:
            name, built = self.nodes[key]["name"], self.outcome(key)
            if self.nodes[key]["kind"] != "model":
                continue
            if built is None:
                raise StoreError(
                    "dbt has not built this model from the present sources and code",
                    where=name,
                    hint="run dbt build",
                )
            if in_database.get(key) != built["invocation"]:
                raise StoreError(
                    "the warehouse holds another build of this model than the one on record",
                    where=name,
                    hint="the run that made it was killed or not recorded; run dbt build again",
                )


def record_dbt_run(
    home: Path | str, target_dir: Path | str | None = None, manifest: Json | None = None
) -> None:
    """Merge the artefacts of one dbt invocation into the build records.

    Call it after every invocation that runs models or tests, also when some of them failed, under
    the same :func:`warehouse_lock`. Recording the same invocation twice changes nothing.
    ``target_dir`` has ``run_results.json`` (default: that of :func:`dbt_environment`); ``manifest``
    is the project as dbt built it (default: ``manifest.json`` beside the results).

    Raises
    ------
    StoreError
        The artefacts are missing or of two different invocations, or the sources were linked
        anew after dbt had started. Then nothing is recorded.
    """
    layout = WarehouseLayout(home_path(home))
    folder = Path(target_dir) if target_dir else layout.target
    results = read_artefact(folder, "run_results.json")
    invocation = results["metadata"]["invocation_id"]
    if manifest is None:
        manifest = read_artefact(folder, "manifest.json")
        if manifest["metadata"]["invocation_id"] != invocation:
            raise StoreError(
                "dbt's artefacts are of two invocations",
                where=str(folder),
                hint="its last invocation ran nothing; run dbt build again",
            )
    links = read_links(layout)
    started = min((s for r in results["results"] if (s := _time(r, "started_at"))), default="")
    if started and not links["linked_at"] < started:
        raise StoreError(
            "the sources were linked after dbt had started",
            where=str(layout.linked),
            hint="link, build and record under one warehouse_lock; run dbt build again",
        )
    known = BuildRecords.load(layout.home)
    records = BuildRecords(Graph(manifest).entries(), known.records)
    ran = {r["unique_id"]: r for r in results["results"] if r["unique_id"] in records.nodes}
    given = results.get("args", {}).get("vars") or {}
    for domain in records.domains(ran):
        key = records.key(domain, links["sources"], given)
        before = records.records.get(domain, {})
        if {name: before.get(name) for name in key} != key:
            kept = {
                node: outcome
                for node, outcome in before.get("outcomes", {}).items()
                if node in records.nodes
                and outcome.get("made_from") == records.made_from(node, links["sources"], given)
            }
            records.records[domain] = {**key, "outcomes": kept}
    _merge(records, ran, invocation, lambda node: records.made_from(node, links["sources"], given))
    records.save(layout.home)


def _merge(
    records: BuildRecords, ran: Mapping[str, Json], invocation: str, made_from: Callable[[str], str]
) -> None:
    """Enter the outcomes of an invocation: models first, parents before children."""
    ordered = [key for key in records.upstream(*sorted(ran)) if key in ran]
    for key in sorted(ordered, key=lambda key: records.nodes[key]["kind"] != "model"):
        node, result = records.nodes[key], ran[key]
        outcomes = records.records[node["domain"]]["outcomes"]
        is_model = node["kind"] == "model"
        if is_model and result["status"] != "success":
            continue  # dbt rolled back or skipped it: what was there before still is
        outcome = {
            "status": result["status"],
            "invocation": invocation,
            "completed_at": _time(result, "completed_at"),
            "made_from": made_from(key),
        }
        if not is_model:
            outcome |= {"failures": result.get("failures"), "message": result.get("message")}
        on_record = all(records.outcome(parent) for parent in node["parents"])
        # A failed test stays failed until it is run again.
        failed = not is_model and result["status"] not in ("pass", "warn")
        rebuilt = is_model and (node["table"] or key not in outcomes)
        if on_record or failed:
            outcomes[key] = outcome
        else:
            outcomes.pop(key, None)
        for name, test in records.tests() if rebuilt else ():
            found = records.outcome(name) if key in test["parents"] and name not in ran else None
            if found and found["status"] in ("pass", "warn"):
                found["status"] = "out of date"


def _time(result: Json, name: str) -> str:
    """A time of a node's execution in our spelling (ISO 8601, UTC); "" if it did not run."""
    stamp = next((t[name] for t in result["timing"] if t["name"] == "execute"), "")
    if not stamp:
        return ""
    moment = datetime.fromisoformat(stamp)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def up_to_date_outcomes(
    settings: Settings, manifest: Json, nodes: Iterable[str]
) -> dict[str, Outcome] | None:
    """The recorded outcomes of models and tests, if running them now could change nothing.

    Same place, code, variables and linked sources, the very relations on record, and no test but
    those of severity ``warn`` that found anything. ``manifest`` is the project's as it is now,
    ``nodes`` are dbt's unique ids of the models and tests that would be run. Outcomes come by
    unique id, parents before children; None if anything has to be run.
    """
    layout = WarehouseLayout(settings.runtime.folder)
    if not layout.database.exists():
        return None
    try:
        with open_warehouse(layout, memory_limit_mb=settings.runtime.memory_limit_mb) as connection:
            built = last_builds(connection)
            moved = moved_views(connection, sql_glob(layout.sources))
        found = outcomes_on_record(
            BuildRecords.load(layout.home),
            manifest,
            nodes,
            linked=linked_sources(layout.home),
            variables=dbt_vars(settings),
            in_database=built,
        )
        now = BuildRecords(Graph(manifest).entries(), {})
        read = {now.nodes[key]["name"] for key in now.upstream(*(found or ()))}
        return None if moved & read else found
    except StoreError:
        # Inconsistent or unreadable records are left to dbt, which rebuilds or reports them.
        return None


def outcomes_on_record(
    records: BuildRecords,
    manifest: Json,
    nodes: Iterable[str],
    *,
    linked: Mapping[str, str],
    variables: Mapping[str, Any],
    in_database: Mapping[str, str],
) -> dict[str, Outcome] | None:
    """As :func:`up_to_date_outcomes`, of given records; for the others see `mart_evidence`.

    Raises :class:`StoreError`: a domain's record has another key, or a model is not the one on
    record.
    """
    now, wanted = BuildRecords(Graph(manifest).entries(), records.records), set(nodes)
    if not wanted <= set(now.nodes):
        return None
    made_from = now.upstream(*sorted(wanted))
    for domain in now.domains(made_from):
        now.check(domain, linked, variables)
    now.check_models(made_from, in_database)
    # Tests belong to what they test, asked for or not.
    wanted |= {
        key
        for key, node in now.tests()
        if wanted & {*node["parents"]} and {*node["parents"]} <= {*made_from}
    }
    found = {}
    for key in (key for key in now.upstream(*sorted(wanted)) if key in wanted):
        node, last = now.nodes[key], now.outcome(key) or {"status": "never run"}
        allowed = ("pass", "warn" if node.get("severity") == "warn" else "pass")
        if node["kind"] != "model" and last["status"] not in allowed:
            return None
        found[key] = Outcome(node["name"], last["status"], int(last.get("failures") or 0))
    return found


def out_of_date_names(settings: Settings, manifest: Json, nodes: Iterable[str]) -> list[str]:
    """Names of models and tests whose last outcome no longer holds, by the order of the data.

    ``nodes`` are dbt's unique ids of the models to look at. Models of raw tables that are not
    there yet are left out; a test is named if it is of a model that is out of date, and if all
    that it reads is among those or up to date.
    """
    layout = WarehouseLayout(settings.runtime.folder)
    known, linked = BuildRecords.load(layout.home), linked_sources(layout.home)
    now, variables = BuildRecords(Graph(manifest).entries(), known.records), dbt_vars(settings)
    built: Mapping[str, str] = {}
    moved: set[str] = set()
    if layout.database.exists():
        with open_warehouse(layout, memory_limit_mb=settings.runtime.memory_limit_mb) as connection:
            built = last_builds(connection)
            moved = moved_views(connection, sql_glob(layout.sources))
    wanted, old, stays = set(nodes), dict[str, None](), set[str]()
    for key in now.upstream(*sorted(wanted)):
        last = now.outcome(key)
        parents, sources = set(now.nodes[key]["parents"]), set(now.nodes[key]["sources"])
        holds = (
            last is not None
            and parents <= stays
            and now.nodes[key]["name"] not in moved
            and last.get("made_from") == now.made_from(key, linked, variables)
            and built.get(key) == last["invocation"]
        )
        if holds:
            stays.add(key)
        elif key in wanted and parents <= {*stays, *old} and linked.keys() >= sources:
            old[key] = None
    tests = (
        key
        for key, test in now.tests()
        if old.keys() & {*test["parents"]} and {*test["parents"]} <= {*stays, *old}
    )
    return [now.nodes[key]["name"] for key in (*old, *tests)]


def code_versions(settings: Settings, manifest: Json) -> dict[str, str]:
    """Hash of the code and variables of each model by dbt's unique id, macros included."""
    variables = dbt_vars(settings)
    return {
        key: _digest(
            {"code": node["code"], "vars": {n: variables.get(n) for n in node["variables"]}}
        )
        for key, node in Graph(manifest).entries().items()
        if node["kind"] == "model"
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
    upstream = records.upstream(key)
    for domain in records.domains(upstream):
        records.check(domain, linked, variables)
    records.check_models(upstream, in_database)
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
    own = records.identity([key], linked, variables)
    relation = str(records.nodes[key]["relation"])
    return MartEvidence(relation, own["code"], own["vars"], own["inputs"], tests)


def _mart(records: BuildRecords, model: str) -> str:
    key = records.model(model)
    if key is None:
        raise StoreError("dbt has not built this mart", where=model, hint="run dbt build")
    return key


def _tests(records: BuildRecords, key: str) -> list[MartTest]:
    upstream = set(records.upstream(key))
    found = []
    for name, test in records.tests():
        if upstream & set(test["parents"]):
            last = records.outcome(name) or {"status": "never run"}
            found.append(
                MartTest(
                    name=test["name"],
                    description=test["description"],
                    severity="warn" if test["severity"] == "warn" else "error",
                    status=str(last["status"]),
                    failures=last.get("failures"),
                    relation=test["relation"],
                    direct=key in test["parents"],
                    checked_at=last.get("completed_at", ""),
                )
            )
    return sorted(found, key=lambda t: t.name)


def _describe(test: MartTest) -> str:
    count = f", {test.failures:,} rows" if test.failures else ""
    return f"{test.name} ({test.status}{count})"
