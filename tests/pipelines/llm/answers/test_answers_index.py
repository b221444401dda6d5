"""The index finds exactly the rows of the keys that are asked for."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.llm.answers._index import Entries, Index, key_words

#: Keys that agree in many of their first bits, so that bisecting alone can't tell them apart.
alike = st.builds(
    lambda head, middle, tail: (
        head.to_bytes(1) + b"\0" * 5 + middle.to_bytes(2) + tail * 8 + b"x" * 16
    ),
    st.integers(0, 2),
    st.integers(0, 3),
    st.sampled_from([b"a", b"b"]),
)
keys = alike | st.binary(min_size=32, max_size=32)
parts = st.lists(st.lists(keys, max_size=12), max_size=6)


def entries(part: int, members: list[bytes]) -> Entries:
    high, low = key_words(b"".join(members))
    rows = len(members)
    return Entries(
        high,
        low,
        np.full(rows, part, np.uint32),
        np.arange(rows, dtype=np.uint32),
        np.zeros(rows, np.uint8),
        np.full(rows, 256, np.uint32),
        np.arange(rows, dtype=np.int64),
    )


def found(index: Index, asked: list[bytes]) -> dict[int, set[tuple[int, int]]]:
    positions, rows = index.find(*key_words(b"".join(asked)))
    out = defaultdict(set)
    pairs = zip(rows.part.tolist(), rows.row.tolist(), strict=True)
    for position, place in zip(positions.tolist(), pairs, strict=True):
        assert place not in out[position], "one row twice"
        out[position].add(place)
    return out


@settings(max_examples=100, deadline=None)
@given(parts, st.lists(keys, max_size=8), st.sets(st.integers(0, 5)))
def test_it_finds_what_a_dictionary_finds(
    stored: list[list[bytes]], strangers: list[bytes], gone: set[int]
) -> None:
    index = Index()
    for part, members in enumerate(stored):
        index.add([entries(part, members)])
    index.drop(gone)
    known: dict[bytes, set[tuple[int, int]]] = defaultdict(set)
    for part, members in enumerate(stored):
        for row, key in enumerate(members):
            if part not in gone:
                known[key].add((part, row))
    asked = [*strangers, *(key for members in stored for key in members), *strangers]
    got = found(index, asked)
    assert {p: got.get(p, set()) for p in range(len(asked))} == {
        p: known.get(key, set()) for p, key in enumerate(asked)
    }
    everything = index.all()
    assert len(index) == len(everything) == sum(map(len, known.values()))


def test_adding_many_parts_leaves_few_runs() -> None:
    index = Index()
    dice = np.random.default_rng(1)
    for part in range(300):
        index.add([entries(part, [dice.bytes(32) for _ in range(10)])])
    assert len(index) == 3000
    assert len(index._runs) <= np.log2(3000)
