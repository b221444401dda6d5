"""Delimited text without quoting, such as MovieLens' ``::`` and tab separated files.

A line is a row, whatever stands in it, so that no row's fault can reach into the next one.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pipelines.errors import SourceError
from pipelines.sources._original import MadeStream, Original, Stream
from pipelines.sources._protocol import Progress, no_progress
from pipelines.sources._record import Column, RowFault, convert
from pipelines.sources._rows import CsvReader, Reject

if TYPE_CHECKING:
    import numpy as np
    import pyarrow

__all__ = ["DelimitedReader", "latin1"]

_BLOCK = 8 << 20
#: Stands for a separator of several characters where one is needed; no text has it.
_UNIT = "\x1f"


def latin1(original: Original) -> Original:
    """The same file as UTF-8: its bytes are ISO-8859-1, in which every byte is a character."""

    def opened() -> Stream:
        return _Latin1(original.open())

    return replace(original, open=opened)


class _Latin1(MadeStream):
    def read(self, size: int) -> bytes:
        data = self._stream.read(size)
        return data if data.isascii() else data.decode("latin-1").encode()


class DelimitedReader(CsvReader):
    """Rows of one file without header and quotes; iterate once per pass.

    Rejected are, by reason: ``wrong_columns``, ``blank_line``, ``bare_return`` (a carriage
    return inside the line), ``invalid_utf8``, and the reason of the first field that is not
    what its column holds.

    Parameters
    ----------
    original
        The file, as UTF-8 (see :func:`latin1`).
    columns
        What each line holds, in order; their headers only name them.
    separator
        What stands between fields, one or more characters.
    reject, progress, block
        As for :class:`CsvReader`.
    """

    def __init__(
        self,
        original: Original,
        columns: tuple[Column, ...],
        separator: str,
        reject: Reject,
        *,
        progress: Progress = no_progress,
        block: int = _BLOCK,
    ) -> None:
        super().__init__(original, columns, reject, progress=progress, block=block)
        self.separator = separator
        # What stands in a field: nothing that could begin a separator, or Arrow's own one.
        text = rf"[^{re.escape(separator[0])}{_UNIT}\r\n]*"
        if len(separator) > 1:
            text = rf"(?:{text}(?:{re.escape(separator[0])}[^{re.escape(separator)}{_UNIT}\r\n])?)*"
        fields = [text if c.kind.text else c.kind.plain for c in columns]
        self._plain = rf"^{re.escape(separator).join(f'(?:{f})' for f in fields)}\r?\n?$"
        self._numerals = f"0123456789.{separator}\r\n".encode()

    def _skip_header(self, body: bytes) -> bytes:
        if not body:
            names = self.separator.join(c.header for c in self.columns)
            raise SourceError(
                "the file is empty", where=self.original.name, hint=f"expected lines of {names}"
            )
        self._line = 1
        return body

    def _parse_record(
        self, body: bytes, offsets: np.ndarray[Any, Any], n: int, *, final: bool
    ) -> tuple[int, tuple[Any, ...] | RowFault]:
        del final
        try:
            text = body[offsets[n] : offsets[n + 1]].decode("utf-8")
        except UnicodeDecodeError:
            return 1, RowFault("invalid_utf8")
        text = text.removesuffix("\n").removesuffix("\r")
        if "\r" in text:
            return 1, RowFault("bare_return")
        return 1, convert(text.split(self.separator), self.columns)

    def _arrow(self, data: bytes | pyarrow.Buffer, piece: int | None = None) -> pyarrow.Table:
        import pyarrow as pa
        from pyarrow import csv

        delimiter = self.separator
        if len(delimiter) > 1:
            data, delimiter = bytes(data).replace(delimiter.encode(), _UNIT.encode()), _UNIT
        return csv.read_csv(
            pa.BufferReader(data),
            read_options=self._reading(piece),
            parse_options=csv.ParseOptions(
                delimiter=delimiter, quote_char=False, double_quote=False, ignore_empty_lines=False
            ),
            convert_options=self._conversion(),
        )
