"""Whether dbt would only build and test again what stands in the warehouse already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.config import Settings
from pipelines.errors import StoreError
from pipelines.warehouse._artefacts import Graph, Json
from pipelines.warehouse._database import last_builds, open_warehouse
from pipelines.warehouse._environment import dbt_vars
from pipelines.warehouse._gate import check_model, check_status
from pipelines.warehouse._layout import WarehouseLayout
from pipelines.warehouse._ledger import Ledger
from pipelines.warehouse._links import linked_sources

__all__ = ["Outcome", "outcomes_on_record", "standing_outcomes"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a model or test that stands came out.

    Attributes
    ----------
    name
        dbt's name.
    status
        ``success`` of a model; ``pass`` or ``warn`` of a test.
    failures
        Rows that a test found (count).
    """

    name: str
    status: str
    failures: int


def standing_outcomes(
    settings: Settings, manifest: Json, nodes: Iterable[str]
) -> dict[str, Outcome] | None:
    """The last outcomes of models and tests, if running them now could change nothing.

    Same code, same variables, same linked sources, the very relations that the ledger knows,
    and no test but those of severity ``warn`` that found anything.

    Parameters
    ----------
    settings
        Whose home and variables.
    manifest
        Content of the project's ``manifest.json`` as it is now.
    nodes
        dbt's unique ids of the models and tests that would be run.

    Returns
    -------
    dict or None
        Outcomes by unique id, parents before children; None if anything has to be run.
    """
    layout = WarehouseLayout(Path(settings.runtime.home).expanduser().absolute())
    if not layout.database.exists():
        return None
    try:
        with open_warehouse(layout, memory_limit_mb=settings.runtime.memory_limit_mb) as connection:
            built = last_builds(connection)
        return outcomes_on_record(
            Ledger.load(layout.home),
            manifest,
            nodes,
            linked=linked_sources(layout.home),
            variables=dbt_vars(settings),
            in_database=built,
        )
    except StoreError:
        # What does not hold together, or can't be read, is for dbt to build or to complain about.
        return None


def outcomes_on_record(
    ledger: Ledger,
    manifest: Json,
    nodes: Iterable[str],
    *,
    linked: Mapping[str, str],
    variables: Mapping[str, Any],
    in_database: Mapping[str, str],
) -> dict[str, Outcome] | None:
    """As :func:`standing_outcomes`, of a ledger; the other arguments are `mart_evidence`'s.

    Raises
    ------
    StoreError
        A model is not what the ledger, the links and the variables say.
    """
    now = Graph(manifest).entries()
    wanted = set(nodes)
    if not all(_same(ledger, now, key) for key in wanted):
        return None
    there = {up for node in wanted for up in ledger.upstream(node)}
    # Tests that are no asset checks (unit tests) belong to what they test all the same.
    wanted |= {
        key
        for key, node in now.items()
        if node["kind"] != "model" and wanted & {*node["parents"]} and there >= {*node["parents"]}
    }
    if not all(_same(ledger, now, key) for key in wanted):
        return None
    for key in there:
        if ledger.nodes[key]["kind"] == "model":
            check_model(ledger, key, linked, variables, in_database)
    found = {}
    # Parents before children.
    ordered = dict.fromkeys(up for node in sorted(wanted) for up in ledger.upstream(node))
    for key in (key for key in ordered if key in wanted):
        node = ledger.nodes[key]
        status = "success"
        if node["kind"] != "model":
            status = check_status(ledger, node, linked, variables)
            if status != "pass" and not (status == "warn" and node["severity"] == "warn"):
                return None
        failures = node["last"].get("failures") or 0
        found[key] = Outcome(node["name"], status, int(failures))
    return found


def _same(ledger: Ledger, now: dict[str, Json], key: str) -> bool:
    """Whether a node and all that it is made from are in the ledger as they are in the project."""
    if key not in ledger.nodes or key not in now:
        return False
    parts = ("code", "parents", "sources", "relation", "severity")
    return all(
        up in now
        and "last" in ledger.nodes[up]
        and ledger.nodes[up]["last"]["code"] == now[up]["code"]
        and all(ledger.nodes[up].get(part) == now[up].get(part) for part in parts)
        for up in ledger.upstream(key)
    )
