"""Category trees: ``A > B > C`` lines or a CSV of levels, as one raw table of paths."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.sources._folders import check_file, given_files, pick_files, relative_name
from pipelines.sources._protocol import RawTable, Source, Workspace
from pipelines.sources.formats.lines import MAX_LINE, numbered_lines

if TYPE_CHECKING:
    import polars as pl

__all__ = ["TaxonomySource"]


SEPARATOR = " > "
#: Deepest tree and longest name that are taken for one (levels, characters).
MAX_LEVELS, MAX_NAME = 32, 200

#: Lines that are left out without being rejected.
_SKIPPED = frozenset(("blank_line", "comment"))
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: Google's taxonomy has a variant with the category's number before its path.
_NUMBER = re.compile(r"^\d+ - ")
_LEVEL = re.compile(r"(?:browse |product )?(?:level|category|sub-?category|lvl|l|tier)[ _-]*(\d+)")


def checked_path(
    line: bytes, parse: Callable[[str], tuple[str, ...] | str]
) -> tuple[str, ...] | str:
    """Names of a line's path from the top level down, or why it can't be taken.

    ``blank_line`` and ``comment`` are no faults.
    """
    if len(line) > MAX_LINE:
        return "too_long"
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return "invalid_utf8"
    if not text.strip():
        return "blank_line"
    if text.startswith("#"):
        return "comment"
    if _CONTROL.search(text):
        return "control_character"
    path = parse(text)
    if isinstance(path, str):
        return path
    if len(path) > MAX_LEVELS:
        return "too_many_levels"
    return "too_long" if any(len(name) > MAX_NAME for name in path) else path


def _path(text: str) -> tuple[str, ...] | str:
    names = tuple(name.strip() for name in _NUMBER.sub("", text).split(">"))
    return names if all(names) else "empty_level"


def _levels_of(header: str, file: str) -> Callable[[str], tuple[str, ...] | str]:
    try:
        cells = next(csv.reader([header]), [])
    except csv.Error:  # a name longer than the reader's limit
        cells = []
    matches = [_LEVEL.fullmatch(cell.strip().lower()) for cell in cells]
    numbers = [int(match[1]) for match in matches if match]
    if not cells or numbers != list(range(1, len(cells) + 1)):
        raise SourceError(
            f"the header is not the expected one: found {header[:200]}",
            where=f"{file}:1",
            hint="expected one column per level, numbered from 1, such as level1,level2,level3",
            details={"expected": "level1,level2,...", "found": header[:500]},
        )

    def parse(text: str) -> tuple[str, ...] | str:
        try:
            fields = next(csv.reader([text], strict=True))
        except csv.Error:
            return "bad_quotes"
        if len(fields) != len(cells):
            return "wrong_columns"
        names = [field.strip() for field in fields]
        while names and not names[-1]:
            names.pop()
        # A name with the separator in it would be two levels in the path.
        if any(SEPARATOR in name for name in names):
            return "separator_in_name"
        return tuple(names) if names and all(names) else "empty_level"

    return parse


_SUFFIXES = (".txt", ".csv", ".txt.gz", ".csv.gz")
#: A tree of more categories is no tree of shops (Amazon's has some 30,000).
_MAX_CATEGORIES = 1_000_000


class TaxonomySource(Source):
    """A category tree: ``A > B > C`` lines, or a CSV with one column per level.

    Lines may begin with a number (``3237 - Animals > Live Animals``), as in Google's taxonomy;
    lines that begin with ``#`` are comments. A CSV's header numbers the levels from 1
    (``level1,level2,level3``); levels that a path does not have are empty at its end. Paths
    come out as published, by path. Rejected are, by reason:

    =======================  ===============================================================
    ``invalid_utf8``         bytes that are not UTF-8
    ``control_character``    tabs and other control characters
    ``empty_level``          a level without a name, at the start or between two others
    ``too_many_levels``      more than 32 levels
    ``too_long``             a name of more than 200 characters, a line of more than 1 MiB
    ``wrong_columns``        (CSV) more or fewer fields than the header
    ``bad_quotes``           (CSV) a quoted field that does not end, or text after its end
    ``separator_in_name``    (CSV) `` > `` within a name
    ``duplicate_key``        a path that was listed before
    =======================  ===============================================================
    """

    name: ClassVar[str] = "taxonomy"
    expected: ClassVar[str] = f"one file that ends in {', '.join(_SUFFIXES)}"
    domains: ClassVar[frozenset[str]] = frozenset({"products"})
    code_version: ClassVar[str] = "taxonomy-1"
    datasets: ClassVar[tuple[str, ...]] = ("raw.taxonomy_categories", "raw.taxonomy_rejected")
    licence: ClassVar[Licence] = Licence(
        name="Terms of the tree's publisher",
        url="",
        terms="A file given by the user; its publisher's terms hold.",
    )

    def present(self, folder: Path) -> bool:  # noqa: ARG002 - no tree is an empty table
        """Return True: without a tree the table has no rows and there are no choice sets."""
        return True

    def feeds(self, folder: Path) -> frozenset[str]:  # noqa: ARG002
        """Return no domain: a tree only groups the products of another source."""
        return frozenset()

    def files(self, folder: Path) -> list[Path]:
        """Return the tree's file, or nothing.

        Raises :class:`SourceError` if several lie in the folder and the settings name none, or it
        is not a regular file.
        """
        named = self.settings.data.taxonomy.file
        paths = (
            given_files((named,), self.settings)
            if named
            else pick_files(folder / self.folder_name, _is_name, self.expected)
        )
        if len(paths) > 1:
            raise SourceError(
                f"{len(paths)} category trees",
                where=", ".join(str(path) for path in paths),
                hint="name one in data.taxonomy.file",
            )
        return [check_file(path, self.expected) for path in paths]

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Read the paths; no rows without a tree."""
        paths = self.files(folder)
        if not paths:
            yield RawTable("raw.taxonomy_categories", iter(()), None, rows_read=lambda: 0)
            return
        path = paths[0]
        reading = _Reading(path, relative_name(path, folder), work)
        yield RawTable(
            "raw.taxonomy_categories",
            reading.batches(),
            reading.file,
            rows_read=lambda: reading.rows,
            filtered=lambda: dict(sorted(reading.skipped.items())),
            stats=reading.stats,
        )


def _is_name(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES)


class _Reading:
    """A pass over the file, and its counts."""

    def __init__(self, path: Path, file: str, work: Workspace) -> None:
        self.file = file
        self.rows = 0
        self.skipped: Counter[str] = Counter()
        self._path = path
        self._work = work
        self._depths: Counter[int] = Counter()

    def batches(self) -> Iterator[pl.DataFrame]:
        """All paths in one frame, in order."""
        import polars as pl

        csv_levels = self._path.name.lower().removesuffix(".gz").endswith(".csv")
        parse: Callable[[str], tuple[str, ...] | str] | None = None if csv_levels else _path
        taken: dict[str, tuple[str, int]] = {}
        line = 0
        for line, content in numbered_lines(self._work.original(self._path, self.file)):
            text = content.decode("utf-8", "replace")
            if parse is None:
                parse = _levels_of(text, self.file)
                continue
            self.rows += 1
            levels = checked_path(content, parse)
            if levels in _SKIPPED:
                self.skipped[str(levels)] += 1
                continue
            path = SEPARATOR.join(levels)
            if isinstance(levels, str) or path in taken:
                fault = levels if isinstance(levels, str) else "duplicate_key"
                self._work.reject(self.file, line, fault, text)
                continue
            taken[path] = (levels[-1], len(levels))
            if len(taken) > _MAX_CATEGORIES:
                raise SourceError(
                    f"more than {_MAX_CATEGORIES:,} categories",
                    where=f"{self.file}:{line}",
                    hint="is this a category tree?",
                )
        if not line:
            expected = "a header such as level1,level2" if csv_levels else "lines such as A > B > C"
            raise SourceError("the file is empty", where=self.file, hint=f"expected {expected}")
        self._depths.update(depth for _, depth in taken.values())
        if taken:
            paths = sorted(taken)
            yield pl.DataFrame(
                {
                    "path": paths,
                    "name": [taken[p][0] for p in paths],
                    "depth": [taken[p][1] for p in paths],
                }
            )

    def stats(self) -> dict[str, Any]:
        """Categories by level."""
        return {"categories_by_level": {str(d): n for d, n in sorted(self._depths.items())}}
