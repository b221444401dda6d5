"""Picking rows for people to read."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import numpy as np

from pipelines.errors import ConfigError
from pipelines.llm.answers._index import key_words
from pipelines.llm.answers._record import StoredAnswer, stored_of
from pipelines.llm.engines import Status

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["select"]

_START = re.compile(r"[0-9a-f]{0,64}")
#: Digits of a key that the first eight bytes hold.
_DIGITS = 16


def select(
    tables: Iterable[pa.Table], *, key: str, statuses: Collection[Status], model: str, limit: int
) -> list[StoredAnswer]:
    """The first rows that fit.

    Parameters
    ----------
    tables
        Rows with all columns, in the order they are wanted.
    key
        Start of the key (hexadecimal digits), or empty.
    statuses
        Statuses to take; none takes all.
    model
        Part of the model's name, or empty.
    limit
        Most rows (count).

    Raises
    ------
    ConfigError
        If the key is not hexadecimal.
    """
    if not _START.fullmatch(key):
        raise ConfigError(
            "not the start of a key", where=key, hint="up to 64 digits of 0-9 and a-f"
        )
    out: list[StoredAnswer] = []
    for table in tables:
        fitting = _fitting(table, key, statuses, model)
        rows = stored_of(fitting.slice(max(0, fitting.num_rows - (limit - len(out)))))
        out += reversed(rows)
        if len(out) >= limit:
            break
    return out


def _fitting(table: pa.Table, key: str, statuses: Collection[Status], model: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    if key:
        raw = b"".join(table.column("key").to_pylist())
        words = key_words(raw)[0]
        low = np.uint64(int(key[:_DIGITS].ljust(_DIGITS, "0"), 16))
        high = np.uint64(int(key[:_DIGITS].ljust(_DIGITS, "f"), 16))
        table = table.filter(pa.array((words >= low) & (words <= high)))
        whole = [k.hex().startswith(key) for k in table.column("key").to_pylist()]
        table = table.filter(pa.array(whole, pa.bool_()))
    if statuses:
        named = pc.cast(table.column("status"), pa.string())
        table = table.filter(pc.is_in(named, pa.array(list(statuses))))
    if model:
        table = table.filter(pc.match_substring(table.column("model"), model))
    return table
