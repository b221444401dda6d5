"""Which Amazon files there are: edition, kind and category, from folder and file names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipelines.config import AmazonData
from pipelines.errors import SourceError
from pipelines.sources._folders import check_file, pick_files

__all__ = [
    "BOOK_CATEGORIES",
    "EDITIONS",
    "EXPECTED",
    "AmazonFile",
    "Edition",
    "Kind",
    "find_files",
]

Edition = Literal["2018", "2023"]
Kind = Literal["reviews", "meta"]

EDITIONS: tuple[Edition, ...] = ("2018", "2023")
#: Categories, by file name, that the domain of books is made from.
BOOK_CATEGORIES = frozenset({"Books", "Kindle_Store"})

_FOLDER = "amazon"
#: `meta_Books.json.gz`, `Books_5.json.gz` (users and items with five reviews), `Books.jsonl`.
_NAME = re.compile(r"(?P<meta>meta_)?(?P<category>[A-Za-z0-9_]+?)(?P<core>_5)?\.jsonl?(?:\.gz)?")
_RESEMBLES = re.compile(r".*\.jsonl?(?:\.gz)?", re.IGNORECASE)
#: The names of files, for error texts.
EXPECTED = (
    "amazon/2018/<Category>.json.gz and meta_<Category>.json.gz, or "
    "amazon/2023/<Category>.jsonl.gz and meta_<Category>.jsonl.gz"
)


@dataclass(frozen=True, slots=True)
class AmazonFile:
    """One file.

    Attributes
    ----------
    path, name
        Where it is, and its name relative to the data folder.
    edition, kind
        Which format it has.
    category
        As published in its name, such as ``Books``.
    """

    path: Path
    name: str
    edition: Edition
    kind: Kind
    category: str


def find_files(
    folder: Path, settings: AmazonData, given: Mapping[Kind, Sequence[Path]] | None = None
) -> list[AmazonFile]:
    """Find the Amazon files of a data folder, or sort out the given ones.

    Parameters
    ----------
    folder
        The data folder; its ``amazon/2018`` and ``amazon/2023`` (or ``amazon`` itself, where
        ``.json`` is 2018 and ``.jsonl`` is 2023) are looked at.
    settings
        Edition and categories to take.
    given
        Files of a kind to take instead of those in the folder.

    Returns
    -------
    list
        By name; empty if there are none and none were asked for.

    Raises
    ------
    SourceError
        If the folder can't be read, a given file has no name of a known form, two files have
        the same edition, kind and category, or a category that was asked for is not there.
    """
    given = {kind: paths for kind, paths in (given or {}).items() if paths}
    named = [_sorted_out(path, kind, settings) for kind, paths in given.items() for path in paths]
    lying = [f for f in _in_folder(folder) if f.kind not in given]
    if settings.edition != "auto":
        lying = [f for f in lying if f.edition == settings.edition]
    found: dict[tuple[str, str, str], AmazonFile] = {}
    for file in (*named, *lying):
        key = (file.edition, file.kind, file.category)
        if key in found:
            raise SourceError(
                f"two files of {file.category} ({file.kind}, {file.edition})",
                where=f"{found[key].name} and {file.name}",
                hint="keep one of them",
            )
        found[key] = file
    known = sorted({f.category for f in found.values()})
    absent = [c for c in settings.categories if c not in known]
    if absent:
        raise SourceError(
            f"no files of {', '.join(absent)}",
            where=str(folder / _FOLDER),
            hint=f"data.amazon.categories names them; found: {', '.join(known) or 'none'}",
        )
    wanted = settings.categories or known
    return sorted((f for f in found.values() if f.category in wanted), key=lambda f: f.name)


def _sorted_out(path: Path, kind: Kind, settings: AmazonData) -> AmazonFile:
    """A file that the settings name."""
    file = _named(path, path.name, None if settings.edition == "auto" else settings.edition)
    if file is None or file.kind != kind:
        raise SourceError(
            f"not the name of a file of {kind}",
            where=str(path),
            hint=f"data.amazon.{kind} names it; expected {EXPECTED}",
        )
    check_file(path, EXPECTED)
    return file


def _in_folder(folder: Path) -> Iterator[AmazonFile]:
    here = folder / _FOLDER
    places: list[tuple[Path, Edition | None]] = [(here, None), *((here / e, e) for e in EDITIONS)]
    for place, edition in places:
        for path in pick_files(place, _is_name, EXPECTED, resembles=_resembles):
            file = _named(path, path.relative_to(folder).as_posix(), edition)
            if file is not None:
                yield file


def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def _resembles(name: str) -> bool:
    return _RESEMBLES.fullmatch(name) is not None


def _named(path: Path, name: str, edition: Edition | None) -> AmazonFile | None:
    """A file by what it is called; None if it is called otherwise."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return None
    if edition is None:
        edition = "2023" if ".jsonl" in path.name else "2018"
    kind: Kind = "meta" if match["meta"] else "reviews"
    return AmazonFile(path, name, edition, kind, match["category"])
