"""Lines of a category tree: from text to paths, with the reason if one can't be taken."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pipelines.errors import SourceError
from pipelines.sources._lines import MAX_LINE, numbered_lines
from pipelines.sources._original import Original

__all__ = ["SEPARATOR", "TreeRow", "tree_rows"]

SEPARATOR = " > "
#: Deepest tree and longest name that are taken for one (levels, characters).
MAX_LEVELS, MAX_NAME = 32, 200

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: Google's taxonomy has a variant with the category's number before its path.
_NUMBER = re.compile(r"^\d+ - ")
_LEVEL = re.compile(r"(?:browse |product )?(?:level|category|sub-?category|lvl|l|tier)[ _-]*(\d+)")


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One line: a path, or why there is none.

    Attributes
    ----------
    line
        Its number; the first is 1.
    text
        As it stands in the file, without the line end.
    path
        Names from the top level down; empty if there is a fault or nothing to take.
    fault
        Reason code of a line that can't be taken.
    skipped
        Why a line is no row: ``comment``, ``header`` or ``blank_line``.
    """

    line: int
    text: str
    path: tuple[str, ...] = ()
    fault: str = ""
    skipped: str = ""


def tree_rows(original: Original, *, csv_levels: bool) -> Iterator[TreeRow]:
    """Every line of the file, in order.

    Parameters
    ----------
    original
        The file.
    csv_levels
        Whether it is a CSV with one column per level rather than ``A > B > C`` lines.

    Raises
    ------
    SourceError
        If the file is empty, unreadable or cut short, or a CSV's header does not number the
        levels from 1.
    """
    parse: Callable[[str], tuple[str, ...] | str] | None = None if csv_levels else _path
    number = 0
    for number, line in numbered_lines(original):
        shown = line.decode("utf-8", "replace")
        if parse is None:
            parse = _levels_of(shown, original.name)
            yield TreeRow(number, shown, skipped="header")
            continue
        yield _row(number, line, shown, parse)
    if not number:
        expected = "a header such as level1,level2" if csv_levels else "lines such as A > B > C"
        raise SourceError("the file is empty", where=original.name, hint=f"expected {expected}")


def _row(
    number: int, line: bytes, shown: str, parse: Callable[[str], tuple[str, ...] | str]
) -> TreeRow:
    if len(line) > MAX_LINE:
        return TreeRow(number, shown, fault="too_long")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        return TreeRow(number, shown, fault="invalid_utf8")
    if not text.strip():
        return TreeRow(number, shown, skipped="blank_line")
    if text.startswith("#"):
        return TreeRow(number, shown, skipped="comment")
    if _CONTROL.search(text):
        return TreeRow(number, shown, fault="control_character")
    path = parse(text)
    if isinstance(path, str):
        return TreeRow(number, shown, fault=path)
    if len(path) > MAX_LEVELS:
        return TreeRow(number, shown, fault="too_many_levels")
    if any(len(name) > MAX_NAME for name in path):
        return TreeRow(number, shown, fault="too_long")
    return TreeRow(number, shown, path)


def _path(text: str) -> tuple[str, ...] | str:
    names = tuple(name.strip() for name in _NUMBER.sub("", text).split(">"))
    return names if all(names) else "empty_level"


def _levels_of(header: str, file: str) -> Callable[[str], tuple[str, ...] | str]:
    try:
        cells = next(csv.reader([header]), [])
    except csv.Error:  # a name longer than the reader's limit
        cells = []
    found = [_LEVEL.fullmatch(cell.strip().lower()) for cell in cells]
    numbers = [int(match[1]) for match in found if match]
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
