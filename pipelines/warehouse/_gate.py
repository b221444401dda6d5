"""Whether a mart may leave the warehouse: it is what the ledger says, and its tests passed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import ContractError, StoreError
from pipelines.warehouse._artefacts import Json
from pipelines.warehouse._ledger import Ledger, model_state
from pipelines.warehouse._links import linked_sources

if TYPE_CHECKING:
    from pipelines.store import Severity

__all__ = ["MartEvidence", "MartTest", "mart_evidence", "mart_tests"]


@dataclass(frozen=True, slots=True)
class MartTest:
    """The last outcome of a dbt test that says something about a mart.

    Attributes
    ----------
    name, description, severity
        As declared; a failing test of severity ``error`` keeps the mart in the warehouse.
    kind
        ``test`` (on data) or ``unit_test`` (on code).
    status
        dbt's word: ``pass``, ``fail``, ``warn``, ``error``, ``skipped``; ``never run``; or
        ``out of date`` if what it tested has been built again or changed since.
    failures
        Failing rows (count); None if unknown.
    relation
        Table with the failing rows, if they were stored.
    direct
        Whether it tests the mart itself, rather than something the mart is made from.
    checked_at
        When it ran (ISO 8601, UTC); "" if never.
    """

    name: str
    description: str
    severity: Severity
    kind: str
    status: str
    failures: int | None
    relation: str | None
    direct: bool
    checked_at: str

    @property
    def passed(self) -> bool:
        """Whether it ran on what is there now, and found nothing."""
        return self.status == "pass"

    @property
    def blocks(self) -> bool:
        """Whether it keeps the mart in the warehouse: failed, or not known to have passed."""
        return self.severity == "error" and not self.passed


@dataclass(frozen=True, slots=True)
class MartEvidence:
    """How a mart came about, from the ledger.

    Attributes
    ----------
    relation
        Its quoted name in the warehouse.
    code
        Hash of its code and that of everything it is made from.
    variables
        The dbt variables in that code, with the values it was built with.
    sources
        Raw dataset to version: exactly what it was built from.
    tests
        All tests that say something about it.
    """

    relation: str
    code: str
    variables: dict[str, Any]
    sources: dict[str, str]
    tests: tuple[MartTest, ...]


def mart_tests(home: Path | str, model: str) -> list[MartTest]:
    """The tests of a mart and of everything it is made from, with their last outcomes.

    Parameters
    ----------
    home
        The store's folder.
    model
        dbt's name of the mart, such as ``movies_items``.

    Returns
    -------
    list
        By name. Those with ``severity == "error"`` must pass before the mart can be exported.

    Raises
    ------
    StoreError
        dbt has not built such a model yet.
    """
    ledger = Ledger.load(Path(home).expanduser().absolute())
    return _tests(ledger, _key(ledger, model), linked_sources(home))


def mart_evidence(
    ledger: Ledger,
    model: str,
    *,
    linked: Mapping[str, str],
    variables: Mapping[str, Any],
    in_database: Mapping[str, str],
) -> MartEvidence:
    """What is known of a mart, if all of it holds together and every blocking test passed.

    Parameters
    ----------
    ledger, model
        Whose ledger, and dbt's name of the mart.
    linked
        What the sources are linked to now.
    variables
        dbt's variables as the settings have them now.
    in_database
        The invocation that last built each model, from the database's own log.

    Raises
    ------
    StoreError
        The mart is not (or no longer) what the ledger, the links and the settings say.
    ContractError
        A blocking test failed, or did not run on what is there now; lists all of them.
    """
    key = _key(ledger, model)
    upstream = ledger.upstream(key)
    for node in upstream:
        check_model(ledger, node, linked, variables, in_database)
    tests = tuple(_tests(ledger, key, linked))
    stopping = [t for t in tests if t.blocks]
    if stopping:
        listed = ", ".join(_describe(t) for t in stopping[:5])
        more = f" and {len(stopping) - 5} more" if len(stopping) > 5 else ""
        raise ContractError(
            f"{len(stopping)} blocking tests did not pass: {listed}{more}",
            where=model,
            hint="mend what they found and run dbt build; failing_rows(home, test) has the rows",
            details={"tests": [{"name": t.name, "status": t.status} for t in stopping]},
        )
    made = [ledger.nodes[node]["last"] for node in upstream]
    return MartEvidence(
        relation=str(ledger.nodes[key]["relation"]),
        code=model_state("", {}, {n: last["code"] for n, last in zip(upstream, made, strict=True)}),
        variables=_variables(ledger, key),
        sources=dict(ledger.nodes[key]["last"]["sources"]),
        tests=tests,
    )


def _key(ledger: Ledger, model: str) -> str:
    key = ledger.model(model)
    if key is None or "last" not in ledger.nodes[key]:
        raise StoreError("dbt has not built this mart", where=model, hint="run dbt build")
    return key


def check_model(
    ledger: Ledger,
    key: str,
    linked: Mapping[str, str],
    variables: Mapping[str, Any],
    in_database: Mapping[str, str],
) -> None:
    """A StoreError unless a model is what the ledger, the links and the variables say."""
    node = ledger.nodes[key]
    name = node["name"]
    last = node.get("last")
    if last is None:
        raise StoreError("dbt has not built this model", where=name, hint="run dbt build")
    if in_database.get(key) != last["invocation"]:
        raise StoreError(
            "the warehouse holds another build of this model than the one on record",
            where=name,
            hint="the run that made it was killed or not recorded; run dbt build again",
        )
    for parent, state in last["parents"].items():
        if ledger.nodes.get(parent, {}).get("last", {}).get("state") != state:
            raise StoreError(
                f"{name} was built before {ledger.nodes[parent]['name']} changed",
                where=name,
                hint="run dbt build on it again",
            )
    for variable in node["variables"]:
        if variable not in last["vars"] or last["vars"][variable] != variables.get(variable):
            raise StoreError(
                f"built with {variable} = {last['vars'].get(variable, 'the default')}, "
                f"the settings say {variables.get(variable)}",
                where=name,
                hint="run dbt build with the variables of dbt_vars(settings)",
            )
    # A view reads the links when it is read; only a table can hold older rows.
    datasets = ledger.datasets(key) if node["table"] else []
    for dataset in datasets:
        if dataset not in linked or last["sources"].get(dataset) != linked[dataset]:
            raise StoreError(
                f"built from {dataset}@{last['sources'].get(dataset, 'an unknown version')}, "
                f"but {linked.get(dataset, 'nothing')} is linked now",
                where=name,
                hint="run dbt build again",
            )


def _tests(ledger: Ledger, key: str, linked: Mapping[str, str]) -> list[MartTest]:
    upstream = set(ledger.upstream(key))
    made_with = _variables(ledger, key)
    found = [
        MartTest(
            name=test["name"],
            description=test["description"],
            severity="warn" if test["severity"] == "warn" else "error",
            kind=test["kind"],
            status=check_status(ledger, test, linked, made_with),
            failures=test.get("last", {}).get("failures"),
            relation=test["relation"],
            direct=key in test["parents"],
            checked_at=test.get("last", {}).get("completed_at") or "",
        )
        for _, test in ledger.tests()
        if upstream & set(test["parents"])
    ]
    return sorted(found, key=lambda t: t.name)


def _variables(ledger: Ledger, key: str) -> dict[str, Any]:
    """The dbt variables that a model and everything it is made from were built with."""
    made = [ledger.nodes[node].get("last", {}).get("vars", {}) for node in ledger.upstream(key)]
    return {name: value for values in made for name, value in sorted(values.items())}


def check_status(
    ledger: Ledger, test: Json, linked: Mapping[str, str], made_with: Mapping[str, Any]
) -> str:
    last = test.get("last")
    if last is None:
        return "never run"
    if last["status"] in ("pass", "warn") and not _current(ledger, test, linked, made_with):
        return "out of date"
    return str(last["status"])


def _current(
    ledger: Ledger, test: Json, linked: Mapping[str, str], made_with: Mapping[str, Any]
) -> bool:
    """Whether the test, as it is now, ran on what is there now."""
    last = test["last"]
    if last["code"] != test["code"]:
        return False
    if any(made_with.get(name, value) != value for name, value in last["vars"].items()):
        return False
    for parent in test["parents"]:
        node = ledger.nodes[parent]
        built = node.get("last")
        if built is None:
            return False
        if test["kind"] == "unit_test":
            # Unit tests read no data; what counts is that they ran on the code that was built.
            if last["parents"].get(parent) != built["code"]:
                return False
            continue
        rebuilt = node["table"] and last["started_at"] < built["completed_at"]
        if rebuilt or last["parents"].get(parent) != built["state"]:
            return False
    return all(linked.get(d) == version for d, version in last["sources"].items())


def _describe(test: MartTest) -> str:
    count = f", {test.failures:,} rows" if test.failures else ""
    return f"{test.name} ({test.status}{count})"
