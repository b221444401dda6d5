"""Attention on a CPU gives what attention over each token's own prompt gives."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.llm.engines.transformers._attention import (
    _one_token,
    attend,
    attend_by_runs,
    mark_runs,
)
from pipelines.llm.engines.transformers._cache import SharedPrefix
from pipelines.llm.engines.transformers._trie import PrefixTrie, sort_key


@given(
    st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=8), min_size=1, max_size=6),
    st.integers(0, 5),
    st.sampled_from([(4, 4), (6, 2), (3, 1)]),
    st.data(),
)
def test_attention_by_runs_is_that_under_the_mask(
    prompts: list[list[int]], base: int, heads: tuple[int, int], data: st.DataObject
) -> None:
    import torch

    trie = PrefixTrie(base)
    for ids in sorted((np.array([9] * base + p, np.int32) for p in prompts), key=sort_key):
        end = trie.add(ids)
        for _ in range(data.draw(st.integers(0, 2))):
            end = trie.append(end, data.draw(st.integers(0, 3)))
    tokens = len(trie.ids)
    draw = torch.Generator().manual_seed(1)
    query = torch.randn(1, heads[0], tokens, 8, generator=draw)
    key, value = (torch.randn(1, heads[1], base + tokens, 8, generator=draw) for _ in range(2))
    seen = torch.cat([torch.ones(tokens, base, dtype=torch.bool), torch.from_numpy(trie.mask())], 1)
    wide = [x.double().repeat_interleave(heads[0] // heads[1], dim=1) for x in (key, value)]
    exact = torch.nn.functional.scaled_dot_product_attention(query.double(), *wide, attn_mask=seen)
    found = attend_by_runs(query, key, value, trie.runs(), None)
    assert found.shape == (1, tokens, heads[0], 8)
    assert (found.double() - exact.transpose(1, 2)).abs().max() < 1e-5


@pytest.mark.parametrize(("lengths", "marked"), [([20, 12], True), ([30, 1], False)])
def test_rows_of_short_runs_are_read_under_the_mask(lengths: list[int], marked: bool) -> None:
    import torch

    trie = PrefixTrie()
    for number, length in enumerate(lengths):
        trie.add(np.array([number] * length, np.int32))
    mask = torch.zeros(1)
    mark_runs(mask, trie.runs())
    assert hasattr(mask, "runs") == marked


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


@pytest.mark.parametrize("room", [0, 5])
@pytest.mark.parametrize("heads", [(4, 4), (6, 2), (3, 1)])
@pytest.mark.parametrize("mask", ["none", "seen", "added"])
def test_attention_of_one_token_in_16_bits_is_that_of_64(
    room: int, heads: tuple[int, int], mask: str
) -> None:
    import torch

    draw = torch.Generator().manual_seed(1)
    query = torch.randn(3, heads[0], 1, 8, generator=draw).bfloat16()
    # A slice of a larger room, as the growing cache holds it: zeros stand behind the tokens.
    keys, values = (torch.zeros(3, heads[1], 9 + room, 8).bfloat16() for _ in range(2))
    for held in (keys, values):
        held[:, :, :9] = torch.randn(3, heads[1], 9, 8, generator=draw)
    key, value = keys[:, :, :9], values[:, :, :9]
    seen = torch.ones(3, 1, 1, 9, dtype=torch.bool)
    if mask != "none":
        seen[1, ..., :4] = False
    given = {"none": None, "seen": seen, "added": torch.where(seen, 0.0, -1e38).bfloat16()}[mask]
    wide = [x.double().repeat_interleave(heads[0] // heads[1], dim=1) for x in (key, value)]
    exact = torch.nn.functional.scaled_dot_product_attention(query.double(), *wide, attn_mask=seen)
    found = _one_token(query, key, value, given, None)
    assert found.shape == (3, 1, heads[0], 8)
    assert (found.double() - exact.transpose(1, 2)).abs().max() < 0.02
