"""Category trees: ``A > B > C`` lines or a CSV of levels, as one raw table of paths."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.sources._folders import check_file, given_files, pick_files, relative_name
from pipelines.sources._protocol import Source
from pipelines.sources._reader import Blocks, RowError, parsed_lines, text_blocks
from pipelines.sources._tables import RawTable, Workspace, raw_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["TaxonomySource"]


SEPARATOR = " > "
#: Deepest tree and longest name that are taken for one (levels, characters).
MAX_LEVELS, MAX_NAME = 32, 200

_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
#: Google's taxonomy has a variant with the category's number before its path.
_NUMBER = re.compile(r"^\d+ - ")
_LEVEL = re.compile(r"(?:browse |product )?(?:level|category|sub-?category|lvl|l|tier)[ _-]*(\d+)")


def checked_path(line: bytes, split: Callable[[str], list[str]]) -> list[str]:
    """Names of a line's path from the top level down.

    Raises :class:`RowError`; ``blank_line`` and ``comment`` are no faults.
    """
    text = line.decode()
    if text.startswith("#"):
        raise RowError("comment")
    if _CONTROL.search(text):
        raise RowError("control_character")
    path = [name.strip() for name in split(text)]
    if not path or not all(path):
        raise RowError("empty_level")
    if len(path) > MAX_LEVELS:
        raise RowError("too_many_levels")
    if any(len(name) > MAX_NAME for name in path):
        raise RowError("too_long")
    return path


def _path(text: str) -> list[str]:
    return _NUMBER.sub("", text).split(">")


def _levels_of(header: str, file: str) -> Callable[[str], list[str]]:
    """The reader of rows below a header of levels."""
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

    def split(text: str) -> list[str]:
        try:
            fields = next(csv.reader([text], strict=True))
        except csv.Error:
            raise RowError("bad_quotes") from None
        if len(fields) != len(cells):
            raise RowError("wrong_columns")
        while fields and not fields[-1].strip():
            fields.pop()
        # A name with the separator in it would be two levels in the path.
        if any(SEPARATOR in field.strip() for field in fields):
            raise RowError("separator_in_name")
        return fields

    return split


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
            yield RawTable("raw.taxonomy_categories")
            return
        yield _table(paths[0], relative_name(paths[0], folder), work)


def _is_name(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES)


def _table(path: Path, name: str, work: Workspace) -> RawTable:
    """The paths of a tree, in order."""
    import polars as pl

    headed = path.name.lower().removesuffix(".gz").endswith(".csv")
    expected = "a header such as level1,level2" if headed else "lines such as A > B > C"
    levels: dict[str, int] = {}
    split: Callable[[str], list[str]] = _path

    def blocks() -> Blocks:
        nonlocal split
        for first, lines in text_blocks(work.original(path, name), expected):
            if first == 1 and headed:
                split = _levels_of(lines.pop(0).decode("utf-8", "replace").rstrip("\r"), name)
                first = 2
            yield first, lines

    def parse(line: bytes) -> dict[str, Any]:
        names = checked_path(line, split)
        return {"path": SEPARATOR.join(names), "name": names[-1], "depth": len(names)}

    def finish(frame: pl.DataFrame) -> pl.DataFrame:
        for depth, count in frame.group_by("depth").len().sort("depth").iter_rows():
            levels[str(depth)] = levels.get(str(depth), 0) + count
        if sum(levels.values()) > _MAX_CATEGORIES:
            raise SourceError(
                f"more than {_MAX_CATEGORIES:,} categories",
                where=name,
                hint="is this a category tree?",
            )
        return frame

    schema = {"path": pl.String, "name": pl.String, "depth": pl.Int64}
    table = raw_table(
        "raw.taxonomy_categories", {name: parsed_lines(blocks(), parse, schema)}, work,
        key=("path",), finish=finish, filtered=("blank_line", "comment"),
    )  # fmt: skip
    table.stats["categories_by_level"] = levels
    return table
