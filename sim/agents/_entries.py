"""Entries that visits add to the agents' episodic memories (SimUSER, section 3.2.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from sim.agents._protocol import Entry, Ints, Texts

#: Kinds of entries by code.
KINDS = ("action", "reflection")
ACTION, REFLECTION = range(2)


@dataclass(frozen=True)
class _Chunk:
    """Entries that one wave added, by agent; `evidence` of shape (entries, e), -1 for none."""

    rows: Ints
    numbers: Ints
    kind: int
    items: Ints
    texts: Texts
    evidence: Ints


class EntryLog:
    """Entries of some agents, numbered per agent after its training interactions.

    ``lengths`` are the entries of each agent (count), of shape (n,); given are those it begins
    with.
    """

    def __init__(self, lengths: Ints) -> None:
        self.lengths = lengths.copy()
        self._chunks: list[_Chunk] = []

    def add(
        self, rows: Ints, kind: int, items: Ints, texts: Texts, evidence: Ints | None = None
    ) -> None:
        """Add m entries; those of an agent stand together, in their order.

        ``rows`` are the agents of the entries, ascending; ``kind`` is a code of `KINDS`, ``items``
        are item numbers, -1 for none. ``evidence`` has numbers of entries, of shape (m, e), padded
        with -1.
        """
        within = np.arange(len(rows)) - np.searchsorted(rows, rows, side="left")
        numbers = self.lengths[rows] + within
        np.add.at(self.lengths, rows, 1)
        none = np.zeros((len(rows), 0), np.int64)
        self._chunks.append(
            _Chunk(rows, numbers, kind, items, texts, none if evidence is None else evidence)
        )

    def of(self, row: int, ids: Sequence[str]) -> list[Entry]:
        """Entries that one agent's visit added, oldest first."""
        out = []
        for chunk in self._chunks:
            start, end = np.searchsorted(chunk.rows, (row, row + 1))
            for n in range(start, end):
                item = int(chunk.items[n])
                known = tuple(e for e in chunk.evidence[n].tolist() if e >= 0)
                out.append(
                    Entry(
                        int(chunk.numbers[n]),
                        KINDS[chunk.kind],
                        None if item < 0 else ids[item],
                        str(chunk.texts[n]),
                        known,
                    )
                )
        return out

    def frame(self, agents: Ints, ids: Sequence[str]) -> pl.DataFrame:
        """All entries: ``agent, entry, kind, item_id, text, evidence``, by agent and number.

        ``agents`` are their numbers, of shape (n,), ``ids`` the item ids by number.
        """
        names = pl.Series("item_id", list(ids), dtype=pl.String)
        parts = [
            pl.DataFrame(
                {
                    "agent": agents[c.rows],
                    "entry": c.numbers,
                    "kind": np.full(len(c.rows), KINDS[c.kind]),
                    "item_id": _taken(names, c.items),
                    "text": pl.Series(c.texts.tolist(), dtype=pl.String),
                    "evidence": _lists(c.evidence),
                },
                schema=_SCHEMA,
            )
            for c in self._chunks
        ]
        return pl.concat([pl.DataFrame(schema=_SCHEMA), *parts]).sort("agent", "entry")


_SCHEMA: dict[str, Any] = {
    "agent": pl.Int64,
    "entry": pl.Int64,
    "kind": pl.String,
    "item_id": pl.String,
    "text": pl.String,
    "evidence": pl.List(pl.Int64),
}


def _taken(names: pl.Series, items: Ints) -> pl.Series:
    return names.gather(pl.Series(items, dtype=pl.Int64).replace(-1, None))


def _lists(evidence: Ints) -> pl.Series:
    """Rows without their padding."""
    import pyarrow as pa

    there = evidence >= 0
    offsets = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    lists = pa.LargeListArray.from_arrays(offsets, pa.array(evidence[there], pa.int64()))
    return pl.Series("evidence", lists)
