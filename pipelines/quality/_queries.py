"""Views that are queries of ``suites.yaml``, run by DuckDB over a table's files.

A query reads the table under check as ``this``, other tables of the domain by their short names,
and what ``rows`` returned as ``judged``. ``setting('graph.alpha')`` is a number of the settings,
``domain()`` the domain's name and ``noted()`` the facts in the table's manifest (JSON).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from pipelines.quality._spec import Evidence, View

if TYPE_CHECKING:
    import duckdb
    import polars as pl

    from pipelines.store import Snapshot

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
