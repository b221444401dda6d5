"""Packed rows give what a forward pass per prompt gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.llm.engines import Request
from pipelines.llm.engines.transformers._model import Model
from pipelines.llm.engines.transformers._packing import BatchPacker, PrefixCache
from pipelines.llm.engines.transformers._requests import PreparedRequest
from pipelines.llm.engines.transformers._trie import (
    MIN_BASE,
    PrefixTrie,
    common_prefix,
    plan_rows,
    sort_key,
)

Ids = npt.NDArray[np.int32]


def ids(*tokens: int) -> Ids:
    return np.array(tokens, dtype=np.int32)


@st.composite
def groups(draw: st.DrawFn, *, tokens: int = 30, longest: int = 90) -> list[Ids]:
    """Prompts of several users, who share beginnings of any length, with repeats."""
    dice = np.random.default_rng(draw(st.integers(0, 2**32)))
    prompts: list[Ids] = []
    system = dice.integers(tokens, size=draw(st.integers(0, longest // 2)))
    for _ in range(draw(st.integers(1, 3))):
        user = dice.integers(tokens, size=draw(st.integers(0, longest // 2)))
        for _ in range(draw(st.integers(1, 4))):
            item = dice.integers(tokens, size=draw(st.integers(1, 12)))
            prompts.append(np.concatenate([system, user, item]).astype(np.int32))
    if draw(st.booleans()):
        prompts.append(prompts[0])
    return prompts


def log_softmax(logits: Any) -> npt.NDArray[np.float64]:
    import torch

    return torch.log_softmax(logits.double(), dim=-1).numpy()


def plain(model: Any, prompts: list[Ids]) -> npt.NDArray[np.float64]:
    """The model called as its documentation says, one prompt at a time."""
    import torch

    with torch.inference_mode():
        rows = [model(input_ids=torch.tensor([p.tolist()])).logits[0, -1] for p in prompts]
    return log_softmax(torch.stack(rows))


def packed(packer: BatchPacker, prompts: list[Ids]) -> npt.NDArray[np.float64]:
    requests = [PreparedRequest(Request(), p) for p in prompts]
    found: dict[int, Any] = {}
    for row in packer.rows(requests, [0] * len(requests)):
        logits = row.run([end for _, end in row.ends]).logits
        found |= {number: logits[n] for n, (number, _) in enumerate(row.ends)}
    import torch

    assert sorted(found) == list(range(len(prompts)))
    return log_softmax(torch.stack([found[n] for n in range(len(prompts))]))


def agree(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> None:
    """Log-probabilities are equal but for single precision."""
    np.testing.assert_allclose(one, other, atol=1e-5, rtol=1e-6)


@pytest.fixture(scope="module")
def tiny(tiny_model: Path, one_thread: None) -> Any:
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(tiny_model).eval()


def test_a_token_sees_its_own_prompt_and_no_other() -> None:
    trie = PrefixTrie()
    assert [trie.add(ids(1, 2, 3)), trie.add(ids(1, 2, 4)), trie.add(ids(5))] == [2, 3, 4]
    assert trie.append(3, 9) == 5
    assert trie.append(3, 9) == 5  # stands once
    assert trie.append(5, 8) == 6
    assert trie.ids == [1, 2, 3, 4, 5, 9, 8]
    assert trie.positions == [0, 1, 2, 2, 0, 3, 4]
    seen = [np.flatnonzero(row).tolist() for row in trie.mask()]
    assert seen == [[0], [0, 1], [0, 1, 2], [0, 1, 3], [4], [0, 1, 3, 5], [0, 1, 3, 5, 6]]


def test_positions_go_on_behind_the_base() -> None:
    trie = PrefixTrie(base=2)
    trie.add(ids(1, 2, 3))
    trie.add(ids(1, 2, 4, 5))
    assert trie.ids == [3, 4, 5]
    assert trie.positions == [2, 2, 3]
    assert trie.path().tolist() == [1, 2]


@given(groups(tokens=4, longest=60), st.integers(20, 80), st.integers(1, 6))
def test_rows_hold_each_prompt_once_within_their_limits(
    prompts: list[Ids], row_tokens: int, row_reads: int
) -> None:
    prompts = sorted(prompts, key=sort_key)
    rows = plan_rows(prompts, [0] * len(prompts), row_tokens=row_tokens, row_reads=row_reads)
    assert [n for row in rows for n in range(row.start, row.stop)] == list(range(len(prompts)))
    for row in rows:
        held = prompts[row.start : row.stop]
        assert all(len(p) > row.base for p in held)
        assert all(common_prefix(held[0], p) >= row.base for p in held)
        assert row.base == 0 or row.base >= MIN_BASE
        trie = PrefixTrie(row.base)
        for prompt in held:
            trie.add(prompt)
        assert len(held) <= row_reads
        assert len(trie.ids) <= row_tokens or len(held) == 1


def test_a_long_shared_prefix_is_computed_once_for_all_its_rows() -> None:
    prompts = [np.concatenate([np.full(100, 7), [n, 1]]).astype(np.int32) for n in range(40)]
    rows = plan_rows(prompts, [0] * 40, row_tokens=60, row_reads=1000)
    # Two tokens each behind the base: 30 prompts to a row of 60.
    assert [(r.start, r.stop, r.base) for r in rows] == [(0, 30, 100), (30, 40, 100)]


def test_bases_of_one_length_and_other_tokens_never_share_a_row() -> None:
    system = np.full(20, 9)
    ann = [np.concatenate([system, np.full(51, 3)])]
    bob = [np.concatenate([system, np.full(50, 4), [n]]) for n in range(5)]
    prompts = [p.astype(np.int32) for p in (*ann, *bob)]
    rows = plan_rows(prompts, [0] * 6, row_tokens=60, row_reads=1000)
    # By their lengths alone both would fit one row: 1 + 50 + 5 tokens behind 70.
    assert [(r.start, r.stop, r.base) for r in rows] == [(0, 1, 70), (1, 6, 70)]


@settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(prompts=groups(tokens=1900), row_tokens=st.sampled_from([40, 64, 512]))
def test_packed_rows_agree_with_plain_passes(
    tiny: Any, prompts: list[Ids], row_tokens: int
) -> None:
    packer = BatchPacker(Model(tiny, 1024), row_tokens, 400)
    expected = plain(tiny, prompts)
    agree(packed(packer, prompts), expected)
    # Once more, with what was kept of the prefixes.
    agree(packed(packer, prompts[::-1])[::-1], expected)


@pytest.mark.shared_data
def test_packed_rows_agree_with_plain_passes_on_a_trained_model(
    shared_data: Path, one_thread: None
) -> None:
    from transformers import AutoModelForCausalLM

    trained = AutoModelForCausalLM.from_pretrained(shared_data / "models" / "stories260K").eval()
    dice = np.random.default_rng(5)
    start = dice.integers(3, 512, size=120)
    prompts = [
        np.concatenate([start, dice.integers(3, 512, size=n)]).astype(np.int32)
        for n in range(1, 20)
    ]
    for row_tokens in (64, 512):
        packer = BatchPacker(Model(trained, 512), row_tokens, 400)
        agree(packed(packer, prompts), plain(trained, prompts))


def _tiny_shape(**more: Any) -> dict[str, Any]:
    return {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        **more,
    }


ARCHITECTURES = {
    "Qwen2": _tiny_shape(),
    "Qwen3": _tiny_shape(head_dim=8),
    "Mistral": _tiny_shape(sliding_window=None),
    "Gemma2": _tiny_shape(head_dim=8, sliding_window=256),
    "Phi3": _tiny_shape(pad_token_id=0),
    "GPT2": {"vocab_size": 97, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 256},
}


@pytest.mark.parametrize("name", sorted(ARCHITECTURES))
def test_other_architectures_can_be_packed(name: str, one_thread: None) -> None:
    import torch
    import transformers

    config = getattr(transformers, f"{name}Config")(**ARCHITECTURES[name])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        model = transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="sdpa"
        ).eval()
    dice = np.random.default_rng(1)
    start = dice.integers(97, size=50)
    prompts = [
        np.concatenate([start, dice.integers(97, size=n)]).astype(np.int32) for n in range(1, 8)
    ]
    packer = BatchPacker(Model(model, 256), 48, 200)
    agree(packed(packer, prompts), plain(model, prompts))


def test_cached_tokens_are_those_that_were_not_computed(tiny: Any) -> None:
    packer = BatchPacker(Model(tiny, 1024), 512, 400)
    start = np.arange(100, 150)
    prompts = [np.concatenate([start, [n, n + 1]]).astype(np.int32) for n in (5, 6, 6)]
    requests = [PreparedRequest(Request(), p) for p in prompts]
    for row in packer.rows(requests, [0] * 3):
        row.run([end for _, end in row.ends])
    # The first pays for all 52, the second for its own two, the third is the second again.
    assert [prepared.cached for prepared in requests] == [0, 50, 52]


def test_prefixes_are_kept_within_their_budget_and_go_on_from_what_is_known(tiny: Any) -> None:
    import torch

    model = Model(tiny, 1024)
    prefixes = PrefixCache(model, budget=100)
    system = np.arange(200, 240, dtype=np.int32)
    ann = np.concatenate([system, np.arange(10, 30)]).astype(np.int32)
    bob = np.concatenate([system, np.arange(50, 90)]).astype(np.int32)
    assert prefixes.get(ann)[1] == 0
    assert prefixes.longest(bob) == 40
    kv, known = prefixes.get(bob)
    assert known == 40
    for (k, v), (fresh_k, fresh_v) in zip(kv, model.extend(None, bob), strict=True):
        torch.testing.assert_close(k, fresh_k, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(v, fresh_v, atol=1e-5, rtol=1e-5)
    # 60 and 80 tokens are more than 100: the older one is gone, the newer one is there.
    assert prefixes.tokens == 80
    assert prefixes.longest(ann) == 40
    assert prefixes.get(bob)[1] == 80
    # What repeats three quarters of a prefix takes its place, within the budget.
    later = np.concatenate([bob[:70], np.arange(100, 130)]).astype(np.int32)
    assert prefixes.get(later)[1] == 70
    assert prefixes.tokens == 100
    assert prefixes.longest(bob) == 70
    # A request longer than the budget is kept until another comes.
    long = np.arange(300, 500, dtype=np.int32)
    assert prefixes.get(long)[1] == 0
    assert prefixes.get(long)[1] == 200
    assert prefixes.tokens == 200
    assert prefixes.get(ann)[1] == 0
    assert prefixes.tokens == 60


def test_compared_logits_are_not_rounded_to_16_bits(tiny_model: Path, one_thread: None) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16).eval()
    trie = PrefixTrie()
    end = trie.add(ids(*range(1, 40)))
    tokens = list(range(model.config.vocab_size))
    rounded = Model(model, 64).row(None, trie, [end]).logits[0]
    fine = Model(model, 64).row(None, trie, [end], tokens=[tokens]).logits[0]
    assert len(set(fine.tolist())) > 1.5 * len(set(rounded.tolist()))
    assert torch.equal(fine.bfloat16().float(), rounded)

    class Capped(torch.nn.Module):
        """A model that changes its logits afterwards."""

        def __init__(self) -> None:
            super().__init__()
            self.config, self.device, self.dtype = model.config, model.device, model.dtype
            self.get_output_embeddings = model.get_output_embeddings
            self.get_input_embeddings = model.get_input_embeddings

        def forward(self, logits_to_keep: Any = 0, **inputs: Any) -> Any:
            output = model(logits_to_keep=logits_to_keep, **inputs)
            output.logits = 30 * torch.tanh(output.logits / 2)
            return output

    capped = Model(Capped(), 64)
    assert torch.equal(
        capped.row(None, trie, [end], tokens=[tokens]).logits, capped.row(None, trie, [end]).logits
    )
