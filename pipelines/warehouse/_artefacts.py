"""dbt's artefacts, cut down to what the build records need.

Only documented fields are read: ``manifest.json`` schema v12 and ``run_results.json`` schema v6
(docs.getdbt.com, artefacts).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from pipelines.domains import DOMAINS
from pipelines.errors import StoreError

__all__ = ["Graph", "Json", "read_artefact"]

Json = dict[str, Any]

#: ``var('name'`` in a model's or macro's code.
_VARIABLE = re.compile(r"""\bvar\(\s*['"](\w+)['"]""")
_KINDS = {"model", "test", "unit_test"}


def read_artefact(folder: Path, name: str) -> Json:
    """One of dbt's JSON artefacts.

    Raises
    ------
    StoreError
        It is missing or not JSON.
    """
    path = folder / name
    try:
        content = orjson.loads(path.read_bytes())
        content["metadata"]["invocation_id"]
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
        raise StoreError(
            "dbt left no readable artefact",
            where=str(path),
            hint="dbt did not come so far as to run; its log says why",
        ) from None
    return dict(content)


class Graph:
    """The models and tests of a manifest, and how they hang together.

    Parameters
    ----------
    manifest
        Content of ``manifest.json``.
    """

    def __init__(self, manifest: Json) -> None:
        nodes = {**manifest["nodes"], **manifest.get("unit_tests", {})}
        self._nodes: dict[str, Json] = {
            key: node for key, node in nodes.items() if node["resource_type"] in _KINDS
        }
        self._sources: dict[str, Json] = manifest["sources"]
        self._macros: dict[str, Json] = manifest["macros"]
        self._project = str(manifest["metadata"]["project_name"])

    def entries(self) -> dict[str, Json]:
        """Facts of each node by dbt's unique id.

        Returns
        -------
        dict
            ``kind``, ``name``, ``description``, ``parents`` (models and tests only),
            ``sources`` (datasets read directly), ``code`` (hash of what dbt runs, without its
            parents), ``variables`` (names of the dbt variables in that code), ``domain`` (of a
            model that several domains are made from: their names with ``+``); for a model
            ``relation`` and ``table`` (whether it holds rows itself), for a test ``severity``
            and ``relation`` (of its stored failures).
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
            # Unit tests have their cases in place of SQL; generic tests have arguments.
            "given": node.get("given"),
            "expect": node.get("expect"),
            "overrides": node.get("overrides"),
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
