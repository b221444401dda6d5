"""The answer key of a sample world: what its files truly hold."""

from __future__ import annotations

import gzip
import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from pipelines.config import SampleSettings

__all__ = [
    "KEY_FILE",
    "ROWS_PER_FAULT",
    "BrokenRow",
    "FileFacts",
    "SampleWorld",
    "SourceFiles",
    "WorldFolder",
]

#: The answer key's name in the world's folder.
KEY_FILE = "sample_world.json"
#: Rows a file must have for every row in it that is to be rejected (0.77 % of the file), so that
#: small worlds don't exceed a loader's limit.
ROWS_PER_FAULT = 130


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """One row that is wrong on purpose.

    Attributes
    ----------
    file
        Name relative to the world's folder, with ``/``.
    line
        Line in it (of the unpacked text, for a packed file); the first line is 1.
    reason
        Short code. For a rejected row, the code the loaders reject it for.
    rejected
        Whether a loader has to leave the row out; otherwise it is kept, and a later step
        repairs it or lives with it.
    text
        The row, cut to 500 characters.
    truth
        What stood there before it was broken, for rows that can be repaired.
    """

    file: str
    line: int
    reason: str
    rejected: bool
    text: str
    truth: str | None = None


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Size and checksum of a file, and its lines (of the unpacked text, for a packed file)."""

    bytes: int
    lines: int
    sha256: str


@dataclass(frozen=True, slots=True)
class SampleWorld:
    """The answer key of a sample world.

    All counts are of what is left when every row with ``rejected`` is left out.

    Attributes
    ----------
    code_version
        Version of the generator.
    settings
        Size and seed.
    broken_rows
        Whether rows were broken on purpose.
    films, users, ratings, tags
        Films listed, users with ratings, valid ratings and tags (counts).
    rated_films
        Films with at least one rating (count).
    rating_counts
        Ratings by value, keys ``0.5`` … ``5.0`` (count).
    films_linked
        Films with a TMDB id in links.csv (count).
    tmdb_ids
        Different TMDB ids among them (count).
    films_with_record
        Films whose own record is in the TMDB file (count). A film that is linked to the
        record of another film, with another IMDb id, has none.
    films_with_overview, films_with_cast, films_with_director, films_with_release_date,
    films_with_runtime, films_with_keywords, films_with_budget
        Films whose record has that field; a runtime or budget of 0 does not count (count).
    films_in_series, series
        Films that belong to a series (by their record), and series (counts).
    remakes
        Films that share their title with an older one (count).
    films_without_genres, films_without_year
        Films listed without genres, and without a year in the title (counts).
    others
        The same of the files of other sources, by source.
    broken
        Every broken row, by file and line.
    files
        Facts of every file by its name relative to the world's folder.
    """

    code_version: str
    settings: SampleSettings
    broken_rows: bool
    films: int
    users: int
    ratings: int
    tags: int
    rated_films: int
    rating_counts: Mapping[str, int]
    films_linked: int
    tmdb_ids: int
    films_with_record: int
    films_with_overview: int
    films_with_cast: int
    films_with_director: int
    films_with_release_date: int
    films_with_runtime: int
    films_with_keywords: int
    films_with_budget: int
    films_in_series: int
    series: int
    remakes: int
    films_without_genres: int
    films_without_year: int
    others: Mapping[str, Mapping[str, int]]
    broken: tuple[BrokenRow, ...]
    files: Mapping[str, FileFacts]

    @property
    def rejected(self) -> tuple[BrokenRow, ...]:
        """The broken rows that a loader has to leave out."""
        return tuple(row for row in self.broken if row.rejected)

    def to_json(self) -> bytes:
        """The content of ``sample_world.json``."""
        plain = {
            **{name: getattr(self, name) for name in self.__dataclass_fields__},
            "settings": self.settings.model_dump(mode="json"),
            "broken": [asdict(row) for row in self.broken],
            "files": {name: asdict(facts) for name, facts in self.files.items()},
        }
        return orjson.dumps(plain, option=orjson.OPT_INDENT_2) + b"\n"

    @classmethod
    def read(cls, folder: Path) -> SampleWorld | None:
        """The answer key of the complete world in ``folder``; None if there is none.

        A world is complete if its key can be read and all of its files are there with the
        sizes that the key states.
        """
        try:
            plain: dict[str, Any] = orjson.loads((folder / KEY_FILE).read_bytes())
            world = cls(
                **{
                    **plain,
                    "settings": SampleSettings(**plain["settings"]),
                    "broken": tuple(BrokenRow(**row) for row in plain["broken"]),
                    "files": {n: FileFacts(**facts) for n, facts in plain["files"].items()},
                }
            )
            sizes = {name: (folder / name).stat().st_size for name in world.files}
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            # No key, half a key, another version's key, a missing file: no complete world.
            return None
        return world if all(sizes[n] == f.bytes for n, f in world.files.items()) else None


class SourceFiles:
    """Lines of a source's files before they are written.

    Attributes
    ----------
    lines
        By file name relative to the world's folder.
    broken
        Rows that are wrong on purpose.
    counts
        Facts of the files (counts; rejected rows left out).
    """

    def __init__(self) -> None:
        self.lines: dict[str, list[bytes]] = {}
        self.broken: list[BrokenRow] = []
        self.counts: dict[str, Any] = {}

    def count(self, what: str, more: int = 1) -> None:
        """Count something that the files hold."""
        self.counts[what] = self.counts.get(what, 0) + more

    def spoil(self, name: str, at: int, reason: str, line: bytes) -> None:
        """Put a wrong line before line ``at`` (from 0).

        Faults of a file are added from the front on, so that none moves another.
        """
        self.lines[name].insert(at, line)
        shown = line.decode("utf-8", "replace")[:500]
        self.broken.append(BrokenRow(name, at + 1, reason, True, shown))


class WorldFolder:
    """Files below a folder, synced as they are written, with size, lines and checksum of each."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: dict[str, FileFacts] = {}
        self.broken: list[BrokenRow] = []

    @contextmanager
    def open(self, name: str) -> Iterator[LineCounter]:
        """A new file; packed if its name ends with ``.gz``."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file, ExitStack() as stack:
            target: Any = file
            if name.endswith(".gz"):
                # No name and no time in the header: the same content gives the same bytes.
                packed = gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)
                target = stack.enter_context(packed)
            out = LineCounter(target)
            yield out
        with path.open("rb") as file:
            os.fsync(file.fileno())
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.facts[name] = FileFacts(path.stat().st_size, out.lines, digest)

    def write(self, files: SourceFiles) -> None:
        """Write a source's files."""
        for name, lines in files.lines.items():
            with self.open(name) as out:
                out.write(b"".join(line + b"\n" for line in lines))
        self.broken += files.broken


class LineCounter:
    """A binary file being written, and the lines in it so far."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.lines = 0

    def write(self, data: bytes) -> None:
        """Write bytes."""
        self._file.write(data)
        self.lines += data.count(b"\n")
