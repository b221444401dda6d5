"""Prompts that are continued together: runs with a common prefix."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pipelines.llm.engines.transformers._cache import shared_spans

PROMPTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(1, 900), st.integers(1, 30)),
    min_size=1,
    max_size=12,
)


def prompt(shelf: int, person: int, length: int, own: int) -> list[int]:
    return [9] * 40 + [shelf] * length + [person] * own


@given(PROMPTS)
def test_runs_are_a_partition_whose_prompts_begin_alike(parts: list[tuple[int, ...]]) -> None:
    prompts = [np.array(p, np.int32) for p in sorted(prompt(*part) for part in parts)]
    spans = shared_spans(prompts)
    assert [start for start, _, _ in spans] == [0, *(stop for _, stop, _ in spans[:-1])]
    assert spans[-1][1] == len(prompts)
    for start, stop, tokens in spans:
        assert len({tuple(p[:tokens]) for p in prompts[start:stop]}) == 1
        assert all(len(p) >= tokens for p in prompts[start:stop])


def test_prompts_of_two_shelves_make_two_runs() -> None:
    shelves = [[1] * 1_000, [2] * 800]
    prompts = [np.array([*shelf, n, n], np.int32) for shelf in shelves for n in range(4)]
    assert shared_spans(prompts) == [(0, 4, 1_000), (4, 8, 800)]


def test_a_long_prompt_does_not_pad_the_others() -> None:
    # By itself it is all prefix; beside the others it would give each 2,000 tokens of its own.
    others = [np.array([1] * 700 + [n] * 3, np.int32) for n in range(4)]
    long = np.array([1] * 700 + [9] * 2_000, np.int32)
    assert shared_spans([*others, long]) == [(0, 4, 700), (4, 5, 2_700)]
