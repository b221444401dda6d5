"""The answer key of a sample world, and the files that it describes while they are written."""

from __future__ import annotations

import gzip
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
from pydantic import BaseModel, ConfigDict

from pipelines.config import SampleSettings

#: The answer key's name in the world's folder.
KEY_FILE = "sample_world.json"
#: Rows a file must have for every row in it that is to be rejected (0.77 % of the file), so that
#: small worlds don't exceed a loader's limit.
ROWS_PER_FAULT = 130


@dataclass(frozen=True, slots=True)
class BrokenRow:
    """A row that is wrong on purpose.

    ``file`` is relative to the world's folder, with ``/``; ``line`` counts from 1, in the unpacked
    text. A loader has to leave a ``rejected`` row out for ``reason``; others are repaired or kept
    by a later step. ``text`` is cut to 500 characters.
    """

    file: str
    line: int
    reason: str
    rejected: bool
    text: str


class SampleWorld(BaseModel):
    """The answer key of a sample world: its settings, broken rows, and files with their bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code_version: str
    settings: SampleSettings
    broken_rows: bool
    broken: tuple[BrokenRow, ...]
    files: dict[str, int]

    @property
    def rejected(self) -> tuple[BrokenRow, ...]:
        """The broken rows that a loader has to leave out."""
        return tuple(row for row in self.broken if row.rejected)

    @classmethod
    def read(cls, folder: Path) -> SampleWorld | None:
        """Read the answer key in ``folder``; None if files are lost or of other sizes."""
        try:
            world = cls.model_validate_json((folder / KEY_FILE).read_bytes())
            complete = all((folder / n).stat().st_size == size for n, size in world.files.items())
        except (OSError, ValueError):
            return None
        return world if complete else None


@dataclass
class SourceFiles:
    """Lines of a source's files by name and their broken rows, before they are written."""

    lines: dict[str, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    broken: list[BrokenRow] = field(default_factory=list)

    def add(self, name: str, record: Mapping[str, Any]) -> None:
        """Add a record as a line of JSON."""
        # A copy has its own length, while orjson's bytes hold on to its buffer of some KiB.
        self.lines[name].append(bytes(memoryview(orjson.dumps(record))))

    def spoil(self, name: str, at: int, reason: str, line: bytes) -> None:
        """Put a wrong line before line ``at`` (from 0, ascending) if the file has rows enough."""
        before = sum(row.file == name for row in self.broken)
        if len(self.lines[name]) - before >= (before + 1) * ROWS_PER_FAULT:
            self.lines[name].insert(at, line)
            shown = line.decode("utf-8", "replace")[:500]
            self.broken.append(BrokenRow(name, at + 1, reason, True, shown))


def within(value: int, low: int, high: int) -> int:
    """The value, or the bound that it exceeds."""
    return max(low, min(value, high))


@dataclass
class WorldFolder:
    """Files below a folder, with lines and size (bytes) of each, and their broken rows."""

    path: Path
    lines: Counter[str] = field(default_factory=Counter)
    sizes: dict[str, int] = field(default_factory=dict)
    broken: list[BrokenRow] = field(default_factory=list)

    @contextmanager
    def open(self, name: str) -> Iterator[Callable[[bytes], None]]:
        """Open a new file, packed if its name ends with ``.gz``; gives what writes bytes to it."""

        def write(data: bytes) -> None:
            target.write(data)
            self.lines[name] += data.count(b"\n")

        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            # No name and no time in the header: the same content gives the same bytes.
            packed = gzip.GzipFile("", "wb", 6, file, mtime=0) if name.endswith(".gz") else None
            with packed or nullcontext(file) as target:
                yield write
        self.sizes[name] = path.stat().st_size

    def fault(self, *row: Any) -> None:
        """List a broken row: file, line, reason, whether it is rejected, and text."""
        self.broken.append(BrokenRow(*row))

    def write(self, files: SourceFiles) -> None:
        """Write a source's files."""
        for name, lines in files.lines.items():
            with self.open(name) as write:
                write(b"".join(line + b"\n" for line in lines))
        self.broken += files.broken
