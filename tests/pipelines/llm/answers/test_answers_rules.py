"""Which stored row serves a call, which of several is taken, and which are useless."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.llm.answers import serves
from pipelines.llm.answers._record import STATUS_CODE
from pipelines.llm.answers._rules import budget, first_of_each, keep, preference, serving
from pipelines.llm.engines import STATUSES, Status

#: Key, status, budget, moment.
Row = tuple[int, Status, int, int]


@pytest.mark.parametrize(
    ("status", "smaller", "same", "larger"),
    [
        ("ok", True, True, True),
        ("refused", True, True, True),
        ("truncated", True, True, False),
        ("invalid", False, True, True),
        ("engine_error", False, False, False),
    ],
)
def test_which_answers_serve_when_the_budget_changes(
    status: Status, smaller: bool, same: bool, larger: bool
) -> None:
    assert serves(status, 100, 99) is smaller
    assert serves(status, 100, 100) is same
    assert serves(status, 100, 101) is larger


def test_budgets_beyond_32_bits_are_as_good_as_the_largest() -> None:
    assert serves("truncated", 2**40, 2**50)
    assert not serves("truncated", 2**20, 2**50)
    assert (budget(-5), budget(2**80)) == (0, 2**32 - 1)


def arrays(rows: Sequence[Row]) -> tuple[np.ndarray, ...]:
    keys, statuses, budgets, moments = zip(*rows, strict=True) if rows else ((), (), (), ())
    return (
        np.array(keys, np.int64),
        np.array([STATUS_CODE[s] for s in statuses], np.uint8),
        np.array(budgets, np.uint32),
        np.array(moments, np.int64),
        np.arange(len(rows), dtype=np.uint64),
    )


def best(rows: Sequence[Row]) -> list[int]:
    columns = arrays(rows)
    return first_of_each(columns[0], preference(*columns)).tolist()


@pytest.mark.parametrize(
    ("rows", "taken"),
    [
        ([(1, "truncated", 50, 1), (1, "ok", 90, 2)], 1),
        ([(1, "ok", 90, 5), (1, "ok", 90, 2)], 1),
        ([(1, "ok", 90, 2), (1, "ok", 90, 2)], 0),
        ([(1, "truncated", 50, 1), (1, "truncated", 90, 2)], 1),
        ([(1, "refused", 50, 1), (1, "truncated", 50, 9)], 1),
        ([(1, "invalid", 50, 1), (1, "refused", 50, 9)], 1),
        ([(1, "engine_error", 50, 1), (1, "invalid", 50, 9)], 1),
    ],
)
def test_which_of_several_rows_is_taken(rows: list[Row], taken: int) -> None:
    assert best(rows) == [taken]


rows_of_few_keys = st.lists(
    st.tuples(st.integers(0, 3), st.sampled_from(STATUSES), st.integers(0, 4), st.integers(0, 3)),
    max_size=14,
)


def served(rows: Sequence[Row], key: int, wanted: int) -> Row | None:
    """Row that serves a call, by reading the rules row by row."""
    fitting = [r for r in rows if r[0] == key and serves(r[1], r[2], wanted)]
    order = {"ok": 0, "truncated": 1, "refused": 2, "invalid": 3}
    longest = {"truncated": -1, "invalid": 1}
    return min(
        fitting, key=lambda r: (order[r[1]], longest.get(r[1], 0) * r[2], r[3]), default=None
    )


@settings(max_examples=100, deadline=None)
@given(rows_of_few_keys, st.integers(0, 3), st.integers(0, 5))
def test_a_call_gets_the_best_row_that_serves_it(rows: list[Row], key: int, wanted: int) -> None:
    columns = arrays(rows)
    mask = serving(columns[1], columns[2], np.full(len(rows), wanted)) & (columns[0] == key)
    picked = tuple(column[mask] for column in columns)
    found = first_of_each(picked[0], preference(*picked))
    row = rows[int(np.flatnonzero(mask)[found[0]])] if len(found) else None
    assert row == served(rows, key, wanted)


@settings(max_examples=100, deadline=None)
@given(rows_of_few_keys)
def test_dropping_useless_rows_changes_no_answer_and_leaves_nothing_useless(
    rows: list[Row],
) -> None:
    mask = keep(*arrays(rows))
    kept = [row for row, good in zip(rows, mask, strict=True) if good]
    calls = [(key, wanted) for key in range(4) for wanted in range(6)]
    for key, wanted in calls:
        assert served(kept, key, wanted) == served(rows, key, wanted)
    assert keep(*arrays(kept)).all()
    assert all(status != "engine_error" for _, status, _, _ in kept)
    for key in {row[0] for row in kept}:
        statuses = [row[1] for row in kept if row[0] == key]
        assert len(set(statuses)) == len(statuses)
        assert "ok" not in statuses or statuses == ["ok"]
