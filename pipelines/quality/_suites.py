"""Suites: what each published table must look like as a whole, read from ``suites.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from pipelines.quality._drift import drift_expectations
from pipelines.quality._queries import Query
from pipelines.quality._spec import Expectation, Fact, Setting

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
