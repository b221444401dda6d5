"""One CSV record: split into fields and converted, with the reason if it can't be."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    import polars as pl
    import pyarrow

__all__ = [
    "BROKEN",
    "OPEN",
    "SPLIT",
    "Column",
    "Kind",
    "RowFault",
    "convert",
    "integer",
    "number",
    "split_record",
    "text",
]


class _Fault(Enum):
    OPEN = "a quoted field does not end"
    BROKEN = "text after a closing quote"
    SPLIT = "a carriage return in an unquoted field"


OPEN: Final = _Fault.OPEN
BROKEN: Final = _Fault.BROKEN
SPLIT: Final = _Fault.SPLIT


@dataclass(frozen=True, slots=True)
class RowFault:
    """Why a row can't be taken: a short code such as ``bad_rating``."""

    reason: str


@dataclass(frozen=True, slots=True)
class Kind:
    """What a column holds.

    Attributes
    ----------
    plain
        Regular expression (Rust syntax) of the form that Arrow parses to the same value as
        ``parse`` does.
    parse
        Value of a field, or :class:`RowFault`.
    optional
        Whether an empty field is a null rather than a fault.
    text
        Whether it holds free text.
    """

    plain: str
    parse: Callable[[str], Any]
    optional: bool
    text: bool
    type_name: Literal["int64", "float64", "string"]

    def polars(self) -> pl.DataType:
        """The column's polars type."""
        import polars as pl

        kinds = {"int64": pl.Int64(), "float64": pl.Float64(), "string": pl.String()}
        return kinds[self.type_name]

    def arrow(self) -> pyarrow.DataType:
        """The column's Arrow type."""
        import pyarrow as pa

        kinds = {"int64": pa.int64(), "float64": pa.float64(), "string": pa.string()}
        return kinds[self.type_name]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the file: its header, the name it gets, and what it holds."""

    header: str
    name: str
    kind: Kind


_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)


def integer(reason: str, *, optional: bool = False) -> Kind:
    """Whole numbers that fit 64 bits; anything else is rejected for ``reason``."""

    def parse(field: str) -> int | RowFault | None:
        if optional and not field:
            return None
        if not _INTEGER.fullmatch(field) or len(field) > 40 or abs(int(field)) >= 1 << 63:
            return RowFault(reason)
        return int(field)

    return Kind("[0-9]{0,18}" if optional else "[0-9]{1,18}", parse, optional, False, "int64")


def number(reason: str) -> Kind:
    """Decimal numbers; anything else is rejected for ``reason``."""

    def parse(field: str) -> float | RowFault:
        return float(field) if _NUMBER.fullmatch(field) else RowFault(reason)

    return Kind(r"[0-9]{1,9}\.?[0-9]{0,9}|\.[0-9]{1,9}", parse, False, False, "float64")


def text() -> Kind:
    """Free text, quoted or not, kept as it is."""
    plain = r'[^",\r\n]*|"(?:[^"\r\n]|"")*"'
    return Kind(plain, lambda field: field, False, True, "string")


def split_record(record: str) -> list[str] | _Fault:
    """Split by RFC 4180; a quote inside an unquoted field is a plain character.

    >>> split_record('7,"Good, Bad","a ""b"" c"')
    ['7', 'Good, Bad', 'a "b" c']
    >>> split_record('7,5" disk,')
    ['7', '5" disk', '']
    >>> split_record('7,"never closed').name
    'OPEN'
    >>> split_record('7,"closed"early').name
    'BROKEN'
    """
    fields: list[str] = []
    position, end = 0, len(record)
    while True:
        if position < end and record[position] == '"':
            parts = []
            position += 1
            while True:
                quote = record.find('"', position)
                if quote < 0:
                    return OPEN
                doubled = record.startswith('"', quote + 1)
                parts.append(record[position : quote + doubled])
                position = quote + 1 + doubled
                if not doubled:
                    break
            if position < end and record[position] != ",":
                return BROKEN
            fields.append("".join(parts))
        else:
            comma = record.find(",", position)
            comma = end if comma < 0 else comma
            field = record[position:comma]
            if "\n" in field or "\r" in field:
                return SPLIT
            fields.append(field)
            position = comma
        if position >= end:
            return fields
        position += 1


def convert(fields: Sequence[str], columns: Sequence[Column]) -> tuple[Any, ...] | RowFault:
    """Values of a row, or why it can't be taken (the first reason, from the left)."""
    if len(fields) == 1 and not fields[0].strip():
        return RowFault("blank_line")
    if len(fields) != len(columns):
        return RowFault("wrong_columns")
    values = []
    for field, column in zip(fields, columns, strict=True):
        value = column.kind.parse(field)
        if isinstance(value, RowFault):
            return value
        values.append(value)
    return tuple(values)
