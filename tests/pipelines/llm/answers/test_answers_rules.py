"""Which stored answer serves a call."""

from __future__ import annotations

import pytest

from pipelines.llm.answers import serves
from pipelines.llm.answers._rules import budget
from pipelines.llm.engines import Status


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
