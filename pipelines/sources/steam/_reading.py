"""Lines of Steam's files as rows, and rejected ones with the text that stands in the file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from pipelines.sources._json_lines import JsonBatch, JsonField, JsonLinesReader
from pipelines.sources._lines import lines_at
from pipelines.sources._protocol import Workspace
from pipelines.sources.steam._layout import SteamFile
from pipelines.sources.steam._literals import literal_lines

if TYPE_CHECKING:
    import polars as pl

__all__ = ["LiteralReader"]

_BLOCK = 8 << 20
#: A line holds all of a user's games (bytes): of the longest published list about 1 MiB.
_MAX_LINE = 16 << 20


class LiteralReader:
    """Rows of one file of literals; iterate once.

    Parameters
    ----------
    file
        Which.
    fields
        What to take of each record.
    work
        Where rejected lines go, when :meth:`close` is called: only then is their text fetched,
        since what was read is not the line as it stands in the file.

    Attributes
    ----------
    name
        The file's name, for rejections.
    lines
        Lines met so far (count).
    rejected
        Lines rejected so far (count).
    """

    def __init__(self, file: SteamFile, fields: Sequence[JsonField], work: Workspace) -> None:
        self.name = file.name
        self.rejected = 0
        self._original = work.original(file.path, file.name)
        self._work = work
        self._faults: list[pl.DataFrame] = []
        self._reader = JsonLinesReader(
            literal_lines(self._original),
            fields,
            self.reject,
            progress=work.progress,
            threads=work.settings.runtime.threads,
            max_line=_MAX_LINE,
        )

    @property
    def lines(self) -> int:
        """Lines met so far (count)."""
        return self._reader.rows_read

    def __iter__(self) -> Iterator[JsonBatch]:
        """Batches of rows, without the rejected ones."""
        return iter(self._reader)

    def reject(self, faults: pl.DataFrame) -> None:
        """Reject whole lines: ``line``, ``reason``."""
        self.rejected += faults.height
        if faults.height:
            self._faults.append(faults.select("line", "reason"))

    def close(self) -> None:
        """List the rejected lines as they stand in the file."""
        import polars as pl

        if not self._faults:
            return
        faults = pl.concat(self._faults).sort("line")
        texts = [text for _, text in lines_at(self._original, faults["line"].to_numpy(), _BLOCK)]
        self._work.reject_frame(
            faults.with_columns(file=pl.lit(self.name), text=pl.Series(texts, dtype=pl.String))
        )
        self._faults = []
