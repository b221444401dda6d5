"""Index of keys: arrays in memory, 45 bytes per stored row.

Keys are SHA-256, so their first eight bytes are as good as random numbers. A run of n rows is
one sorted array of 64-bit words: the first bits of the key, and in the last log2(n) bits the
number of the row. Sorting it needs no index, and bisecting it finds the few rows whose keys
begin alike. Of those, sixteen bytes of the key are compared; that any two of 10^10 different
keys agree in sixteen bytes has a probability below 10^-18.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.llm.answers._record import STATUS_CODE
from pipelines.llm.answers._rules import LARGEST_BUDGET

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

    Array = NDArray[Any]


def key_words(data: bytes | memoryview) -> tuple[Array, Array]:
    """First and second eight bytes of keys that lie one after the other (32 bytes each)."""
    words = np.frombuffer(data, dtype=">u8").reshape(-1, 4)
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


@dataclass(frozen=True, slots=True)
class Entries:
    """Rows of the index; all arrays have one length.

    ``high`` and ``low`` are the first and second eight bytes of the key, ``part`` and ``row`` the
    number of the part and the row in it, ``made`` the budget (tokens), ``stored_at`` the moment
    (microseconds since 1970).
    """

    high: Array
    low: Array
    part: Array
    row: Array
    status: Array
    made: Array
    stored_at: Array

    def __len__(self) -> int:
        return len(self.high)

    def numbered(self, part: int) -> Entries:
        """The same entries, of a part with this number."""
        return replace(self, part=np.full(len(self), part, np.uint32))

    def take(self, which: Array) -> Entries:
        """Some rows, by number or by mask."""
        return Entries(*(getattr(self, f.name)[which] for f in fields(self)))

    @staticmethod
    def join(pieces: Sequence[Entries]) -> Entries:
        """Rows of all pieces, in order."""
        if len(pieces) == 1:
            return pieces[0]
        return Entries(
            *(np.concatenate([getattr(p, f.name) for p in pieces]) for f in fields(Entries))
        )

    @staticmethod
    def of(table: pa.Table) -> Entries:
        """Entries of a part that has no number yet, from its index columns."""
        import pyarrow as pa

        rows = table.num_rows
        high, low = np.empty(rows, np.uint64), np.empty(rows, np.uint64)
        at = 0
        for chunk in table.column("key").chunks:
            data = chunk.buffers()[1]
            piece = memoryview(data)[chunk.offset * 32 : (chunk.offset + len(chunk)) * 32]
            words = key_words(piece)
            high[at : at + len(chunk)], low[at : at + len(chunk)] = words
            at += len(chunk)
        status = np.empty(rows, np.uint8)
        at = 0
        for chunk in table.column("status").chunks:
            coded = chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode()
            names = coded.dictionary.to_pylist()
            unknown = [n for n in names if n not in STATUS_CODE]
            if unknown:
                raise ValueError(f"unknown status {unknown[0]!r}")
            codes = np.array([STATUS_CODE[n] for n in names], np.uint8)
            status[at : at + len(coded)] = codes[coded.indices.to_numpy()]
            at += len(coded)
        made = table.column("max_tokens").to_numpy().clip(0, LARGEST_BUDGET).astype(np.uint32)
        stored = table.column("stored_at").cast(pa.int64()).to_numpy()
        return Entries(
            high,
            low,
            np.zeros(rows, np.uint32),
            np.arange(rows, dtype=np.uint32),
            status,
            made,
            stored,
        )


class _Run:
    """Entries with a sorted array over them."""

    def __init__(self, entries: Entries) -> None:
        self.entries = entries
        self.mask = np.uint64((1 << max(len(entries) - 1, 1).bit_length()) - 1)
        self.words = (entries.high & ~self.mask) | np.arange(len(entries), dtype=np.uint64)
        self.words.sort()

    def find(self, high: Array, low: Array) -> tuple[Array, Entries]:
        """Positions of the keys found, and their entries; the keys are best in order."""
        first = np.searchsorted(self.words, high & ~self.mask, side="left")
        last = np.searchsorted(self.words, high | self.mask, side="right")
        count = last - first
        hits = np.flatnonzero(count)
        count = count[hits]
        # Rows with equal prefixes lie at first, first + 1 ...
        start = np.repeat(first[hits] - np.cumsum(count) + count, count)
        place = (self.words[start + np.arange(len(start))] & self.mask).astype(np.int64)
        position = np.repeat(hits, count)
        same = (self.entries.high[place] == high[position]) & (
            self.entries.low[place] == low[position]
        )
        return position[same], self.entries.take(place[same])


class Index:
    """Runs of entries, merged as they grow, so that there are few."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []

    def __len__(self) -> int:
        return sum(len(run.entries) for run in self._runs)

    def add(self, pieces: Sequence[Entries]) -> None:
        """Take entries of new parts."""
        pieces = [p for p in pieces if len(p)]
        if not pieces:
            return
        while self._runs and 2 * sum(map(len, pieces)) >= len(self._runs[-1].entries):
            pieces = [self._runs.pop().entries, *pieces]
        self._runs.append(_Run(Entries.join(pieces)))

    def drop(self, parts: Collection[int]) -> None:
        """Forget the entries of parts."""
        gone = np.fromiter(parts, np.uint32, len(parts))
        kept = []
        for run in self._runs:
            mask = np.isin(run.entries.part, gone, invert=True)
            if mask.all():
                kept.append(run)
            elif mask.any():
                kept.append(_Run(run.entries.take(mask)))
        self._runs = kept

    def find(self, high: Array, low: Array) -> tuple[Array, Entries]:
        """All entries of some keys, and for each the position of its key among those asked for."""
        order = np.argsort(high)
        high, low = high[order], low[order]
        found = [run.find(high, low) for run in self._runs]
        if not found:
            return np.empty(0, np.int64), _empty()
        positions = order[np.concatenate([position for position, _ in found])]
        return positions, Entries.join([entries for _, entries in found])

    def all(self) -> Entries:
        """Every entry."""
        return Entries.join([run.entries for run in self._runs]) if self._runs else _empty()


def _empty() -> Entries:
    return Entries(
        *(
            np.empty(0, dtype)
            for dtype in (np.uint64, np.uint64, np.uint32, np.uint32, np.uint8, np.uint32, np.int64)
        )
    )
