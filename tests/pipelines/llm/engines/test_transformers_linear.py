"""Linear layers packed for oneDNN give what torch's own layers give."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines.checkpoints import find_checkpoint
from pipelines.llm.engines.transformers._model import load_model

pytestmark = pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"), reason="layers are packed on x86 only"
)


def plain(folder: Path, dtype: str = "float32") -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    chosen = getattr(torch, dtype)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=chosen).eval()


@pytest.mark.parametrize("rows", [1, 2, 7, 64, 700])
@pytest.mark.parametrize("bias", [False, True])
def test_a_packed_layer_gives_the_products_of_the_layer(rows: int, bias: bool) -> None:
    import torch

    from pipelines.llm.engines.transformers._linear import PackedLinear

    draw = torch.Generator().manual_seed(rows)
    layer = torch.nn.Linear(48, 20, bias=bias)
    given = torch.randn(2, rows, 48, generator=draw)
    with torch.inference_mode():
        found = PackedLinear(layer)(given)
        exact = layer.double()(given.double())
    assert found.shape == (2, rows, 20)
    assert (found.double() - exact).abs().max() < 1e-5


def test_a_loaded_model_gives_the_logits_of_its_checkpoint(tiny_model: Path) -> None:
    import torch

    chosen = EngineSettings(kind="transformers", model=str(tiny_model))
    checkpoint = find_checkpoint(chosen.model)
    model, _ = load_model(checkpoint, chosen, ServingSettings(device="cpu"))
    given = torch.arange(40)[None]
    with torch.inference_mode():
        exact = plain(tiny_model)(given).logits
        found = model.causal(given).logits
    assert model.vocabulary == exact.shape[-1]
    assert (found - exact).abs().max() < 1e-4


def test_weights_are_held_once_but_for_those_of_embeddings(tiny_model: Path) -> None:
    from pipelines.llm.engines.transformers._linear import pack_linear_layers

    model = plain(tiny_model)
    pack_linear_layers(model)
    left = {name.rsplit(".", 2)[-2] for name, _ in model.named_parameters()}
    assert left == {"embed_tokens", "input_layernorm", "post_attention_layernorm", "norm"}


def test_a_model_in_another_precision_is_left_as_it_is(tiny_model: Path) -> None:
    from pipelines.llm.engines.transformers._linear import can_pack

    assert can_pack(plain(tiny_model))
    assert not can_pack(plain(tiny_model, "bfloat16"))
