"""The ledger: what dbt last built and tested, by which code, from which sources.

dbt's artefacts describe one invocation and are overwritten by the next, which may run a part of
the project only. The ledger merges them, so that it can be said of any mart at any time how it
came about and which of its tests passed on it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from pipelines.errors import StoreError
from pipelines.warehouse._artefacts import Graph, Json, read_artefact
from pipelines.warehouse._layout import WarehouseLayout, read_record, write_record
from pipelines.warehouse._links import read_links

__all__ = ["Ledger", "model_state", "record_dbt_run"]

_FORMAT = 1


class Ledger:
    """The ledger's nodes, by dbt's unique id; see ``Graph.entries`` for their static part.

    ``last`` is the last outcome of a node: ``status``, ``invocation``, ``started_at`` and
    ``completed_at`` (ISO 8601, UTC), ``code``, ``vars`` (those its code uses), ``sources``
    (what was linked), ``parents`` (state of each parent at that time), for a model ``state``,
    for a test ``failures`` (count) and ``message``.
    """

    def __init__(self, nodes: dict[str, Json]) -> None:
        self.nodes = nodes

    @classmethod
    def load(cls, home: Path) -> Ledger:
        """The ledger of a home; an empty one if dbt never ran.

        Raises
        ------
        IntegrityError
            It is damaged.
        """
        record = read_record(WarehouseLayout(home).ledger)
        known = record is not None and record.get("format") == _FORMAT
        return cls(dict(record["nodes"]) if record and known else {})

    def model(self, name: str) -> str | None:
        """Unique id of the model of this name."""
        return next(
            (k for k, n in self.nodes.items() if n["kind"] == "model" and n["name"] == name), None
        )

    def tests(self) -> Iterator[tuple[str, Json]]:
        """Every test and unit test."""
        return ((k, n) for k, n in self.nodes.items() if n["kind"] != "model")

    def upstream(self, key: str) -> list[str]:
        """The node and everything that it is made from, parents before children."""
        found: dict[str, None] = {}

        def visit(node: str) -> None:
            if node not in found:
                for parent in self.nodes[node]["parents"]:
                    visit(parent)
                found[node] = None

        visit(key)
        return list(found)

    def datasets(self, key: str) -> list[str]:
        """The raw datasets that a node reads, directly or not."""
        upstream = self.upstream(key)
        return sorted({d for node in upstream for d in self.nodes[node]["sources"]})


def model_state(code: str, variables: Mapping[str, Any], parents: Mapping[str, str]) -> str:
    """What a model was built by: its code, the variables in it, and its parents' states."""
    content = {"code": code, "vars": dict(variables), "parents": dict(parents)}
    return hashlib.sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()[:16]


def record_dbt_run(home: Path | str, target_dir: Path | str | None = None) -> None:
    """Merge the artefacts of one dbt invocation into ``<home>/warehouse/ledger.json``.

    Call it after every invocation that runs models or tests, also when some of them failed,
    under the same :func:`warehouse_lock`. Recording the same invocation twice changes nothing.

    Parameters
    ----------
    home
        The store's folder.
    target_dir
        Folder with ``run_results.json`` and ``manifest.json``; default: the one of
        :func:`dbt_environment`.

    Raises
    ------
    StoreError
        The artefacts are missing or of two different invocations, or the sources were linked
        anew after dbt had started. Then nothing is recorded.
    """
    layout = WarehouseLayout(Path(home).expanduser().absolute())
    folder = Path(target_dir) if target_dir else layout.target
    results = read_artefact(folder, "run_results.json")
    manifest = read_artefact(folder, "manifest.json")
    invocation = results["metadata"]["invocation_id"]
    if manifest["metadata"]["invocation_id"] != invocation:
        raise StoreError(
            "dbt's artefacts are of two invocations",
            where=str(folder),
            hint="its last invocation ran nothing; run dbt build again",
        )
    links = read_links(layout)
    started = min((s for s in map(_started, results["results"]) if s), default="")
    if started and not links["linked_at"] < _utc(started):
        raise StoreError(
            "the sources were linked after dbt had started",
            where=str(layout.linked),
            hint="link, build and record under one warehouse_lock; run dbt build again",
        )
    ledger = Ledger.load(layout.home)
    old = ledger.nodes
    ledger.nodes = Graph(manifest).entries()
    for key, node in ledger.nodes.items():
        if "last" in old.get(key, {}):
            node["last"] = old[key]["last"]
    given = results.get("args", {}).get("vars") or {}
    outcomes = {r["unique_id"]: r for r in results["results"] if r["unique_id"] in ledger.nodes}

    def order(key: str) -> tuple[bool, int]:
        # Parents before children, because states build on each other; tests last.
        return ledger.nodes[key]["kind"] != "model", len(ledger.upstream(key))

    for key in sorted(outcomes, key=order):
        _merge(ledger, key, outcomes[key], invocation, links["sources"], given)
    write_record(
        layout.ledger,
        {
            "format": _FORMAT,
            "recorded_at": datetime.now(UTC).isoformat(timespec="microseconds"),
            "nodes": ledger.nodes,
        },
    )
    _keep_parsed(folder, layout.target)


def _keep_parsed(made: Path, kept: Path) -> None:
    """Leave the parsed project where the next invocation starts from it instead of from SQL.

    dbt itself sees whether it still fits (files, variables, profile), and parses anew if not.
    """
    parsed = made / "partial_parse.msgpack"
    if made != kept and parsed.exists():
        partial = kept / f".{parsed.name}.{os.getpid()}"
        shutil.copyfile(parsed, partial)
        partial.replace(kept / parsed.name)


def _merge(
    ledger: Ledger,
    key: str,
    result: Json,
    invocation: str,
    sources: Mapping[str, str],
    given: Mapping[str, Any],
) -> None:
    node = ledger.nodes[key]
    if node["kind"] == "model" and result["status"] != "success":
        return  # dbt rolled back or skipped it: what was there before still is
    last: Json = {
        "status": result["status"],
        "invocation": invocation,
        "started_at": _started(result) and _utc(_started(result)),
        "completed_at": _completed(result) and _utc(_completed(result)),
        "code": node["code"],
        "vars": {name: given[name] for name in node["variables"] if name in given},
        "sources": {d: sources[d] for d in ledger.datasets(key) if d in sources},
        "parents": {parent: _state_for(node, ledger.nodes[parent]) for parent in node["parents"]},
    }
    if node["kind"] == "model":
        last["state"] = model_state(node["code"], last["vars"], last["parents"])
    else:
        last["failures"] = result.get("failures")
        last["message"] = result.get("message")
    node["last"] = last


def _state_for(node: Json, parent: Json) -> str:
    """What a node saw of its parent: for a unit test its code, for others what is built."""
    if node["kind"] == "unit_test":
        return str(parent["code"])
    return str(parent.get("last", {}).get("state", ""))


def _started(result: Json) -> str:
    return next((t["started_at"] for t in result["timing"] if t["name"] == "execute"), "")


def _completed(result: Json) -> str:
    return next((t["completed_at"] for t in result["timing"] if t["name"] == "execute"), "")


def _utc(stamp: str) -> str:
    """Time stamps of dbt in the spelling of ours, so that they compare as text."""
    moment = datetime.fromisoformat(stamp)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
