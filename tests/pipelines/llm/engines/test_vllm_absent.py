"""Behaviour of the vllm engine without vLLM: importing it, choosing it, and its own sums."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import AnswerError, ConfigError
from pipelines.llm.engines import GrammarConstraint, Request, load_engine
from pipelines.llm.engines.choices import OptionTree
from pipelines.llm.engines.testing import CONSTRAINTS
from pipelines.llm.engines.vllm import vllm_version
from pipelines.llm.engines.vllm._engine import MAX_IDS, draw_seed, readings, structured


@pytest.mark.skipif(vllm_version() is not None, reason="vLLM is installed here")
def test_choosing_vllm_where_it_is_not_installed_says_what_to_do(tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match="not installed here") as refused:
        load_engine(EngineSettings(kind="vllm", model=str(tiny_model)), ServingSettings())
    assert "docs/engines.md" in (refused.value.hint or "")


@pytest.mark.pipeline
def test_importing_the_engine_imports_neither_vllm_nor_torch() -> None:
    code = (
        "import sys, pipelines.llm.engines.vllm as v; v.vllm_version(); "
        "sys.exit(' '.join({'vllm', 'torch', 'transformers'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


options = st.lists(
    st.lists(st.integers(0, 400), min_size=1, max_size=3).map(tuple),
    min_size=1,
    max_size=300,
    unique=True,
)


@given(options)
def test_every_token_of_every_option_is_read_once_and_at_most_128_at_a_time(
    spelled: list[tuple[int, ...]],
) -> None:
    tree = OptionTree.of(spelled)
    read = [(before, i) for _, before, ids in readings(tree) for i in ids]
    assert len(read) == len(set(read))
    assert set(read) == {(o[:n], o[n]) for o in spelled for n in range(len(o))}
    assert all(len(ids) <= MAX_IDS for _, _, ids in readings(tree))
    assert all(tree.nodes[at] == before for at, before, _ in readings(tree))


@given(st.integers(0, 2**70), st.integers(0, 2**70), st.lists(st.integers(0, 10**6), max_size=5))
def test_a_seed_fits_vllm_and_depends_on_seed_replicate_and_prompt(
    seed: int, replicate: int, prompt: list[int]
) -> None:
    base = draw_seed(Request(seed=seed, replicate=replicate), prompt)
    assert 0 <= base < 2**63
    others = {
        draw_seed(Request(seed=seed + 1, replicate=replicate), prompt),
        draw_seed(Request(seed=seed, replicate=replicate + 1), prompt),
        draw_seed(Request(seed=seed, replicate=replicate), [*prompt, 1]),
    }
    assert base not in others
    assert len(others) == 3


def test_constraints_reach_vllm_as_what_the_other_engines_decode_by() -> None:
    assert structured(CONSTRAINTS["regex"]) == {"grammar": "start: /(red|green|blue) [0-9]{2}/"}
    assert structured(CONSTRAINTS["grammar"])["grammar"].startswith("%llguidance")
    assert '"whitespace_flexible": false' in structured(CONSTRAINTS["json"])["json"]
    parts = [
        {"name": "a", "lark_grammar": "start: @b"},
        {"name": "b", "lark_grammar": "start: /x/"},
    ]
    several = GrammarConstraint(json.dumps({"grammars": parts}))
    with pytest.raises(AnswerError, match="several"):
        structured(several)
