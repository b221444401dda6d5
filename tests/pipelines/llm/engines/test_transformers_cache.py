"""Prompts that are continued together: runs with a common prefix, and attention over them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.llm.engines.transformers._cache import SharedPrefix, attend, shared_spans

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


@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("bfloat16", 0.02)])
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)])
def test_attention_in_two_parts_is_that_over_all_tokens(
    heads: tuple[int, int], dtype: str, error: float
) -> None:
    import torch

    draw = torch.Generator().manual_seed(1)

    def numbers(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw).to(getattr(torch, dtype))

    query = numbers(4, heads[0], 1, 8)
    own = [numbers(4, heads[1], 5, 8) for _ in range(2)]
    # Rows 0 and 1 share seven tokens, row 2 has eleven as its own prefix, row 3 has none.
    shared = [
        SharedPrefix(0, 2, numbers(heads[1], 7, 8), numbers(heads[1], 7, 8)),
        SharedPrefix(2, 3, numbers(heads[1], 11, 8), numbers(heads[1], 11, 8)),
    ]
    layer = SimpleNamespace(prefixes=shared, pads=torch.tensor([0, 3, 4, 1]))
    found = attend(query, *own, layer, None)
    assert found.shape == (4, 1, heads[0], 8)
    for row in range(4):
        pad = int(layer.pads[row])
        before = [(p.keys, p.values) for p in shared if p.start <= row < p.stop]
        whole = [
            torch.cat([*(part[half] for part in before), own[half][row, :, pad:]], dim=1)
            for half in (0, 1)
        ]
        wide = [x.double().repeat_interleave(heads[0] // heads[1], dim=0) for x in whole]
        exact = torch.nn.functional.scaled_dot_product_attention(query[row].double(), *wide)
        assert (found[row, 0].double() - exact[:, 0]).abs().max() < error
