"""Which answers belong together: those of one table's cohort, or those of no table."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

_lock = threading.Lock()
_open: list[tuple[Path, Scope]] = []


@dataclass(frozen=True, slots=True)
class Scope:
    """A table's cohort (``""``: of a table without cohorts), whose answers have a file together.

    >>> Scope("movies.preference_scores", "late night").file
    'movies.preference_scores:late%20night.sqlite'
    >>> Scope.of_file(_) == Scope("movies.preference_scores", "late night")
    True
    """

    table: str
    cohort: str = ""

    @property
    def file(self) -> str:
        """Name of its file below ``answers/``."""
        return f"{quote(self.table, safe='')}:{quote(self.cohort, safe='')}.sqlite"

    @staticmethod
    def of_file(name: str) -> Scope | None:
        """The scope of a file; None: that of no table."""
        table, colon, cohort = name.removesuffix(".sqlite").partition(":")
        return Scope(unquote(table), unquote(cohort)) if colon else None


@contextmanager
def answers_of(home: Path, table: str, cohort: str = "") -> Iterator[None]:
    """Let every answer store that this process opens in the block begin with this scope."""
    entry = (home, Scope(table, cohort))
    with _lock:
        _open.append(entry)
    try:
        yield
    finally:
        with _lock:
            _open.remove(entry)


def open_scope(home: Path) -> Scope | None:
    """The scope of the block that was entered last for a home."""
    with _lock:
        return next((scope for place, scope in reversed(_open) if place == home), None)
