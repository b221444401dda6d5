"""GGUF files made from small checkpoints, as llama.cpp's converter would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["write_gguf"]

_LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
_WHOLE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm"}


def write_gguf(checkpoint: Path, target: Path, *, quantised: bool = False) -> Path:
    """Write a Llama checkpoint as a GGUF file, in float32 or with 8-bit matrices."""
    from gguf import GGMLQuantizationType, GGUFWriter
    from gguf.quants import quantize
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(str(checkpoint))
    tokenizer = AutoTokenizer.from_pretrained(str(checkpoint))
    config = model.config
    writer = GGUFWriter(str(target), "llama")
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    _add_tokenizer(writer, tokenizer)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":
            continue
        array = tensor.float().numpy()
        if "q_proj" in name or "k_proj" in name:
            heads = config.num_attention_heads if "q_proj" in name else config.num_key_value_heads
            array = _interleaved(array, heads)
        kind = GGMLQuantizationType.F32
        if quantised and array.ndim == 2 and array.shape[-1] % 32 == 0:
            kind = GGMLQuantizationType.Q8_0
        writer.add_tensor(_name(name), quantize(np.ascontiguousarray(array), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _add_tokenizer(writer: Any, tokenizer: Any) -> None:
    import json

    from gguf import TokenType

    model = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    special = set(tokenizer.all_special_ids)
    special |= {i for i, t in tokenizer.added_tokens_decoder.items() if t.special}
    tokens = sorted(tokenizer.get_vocab().items(), key=lambda pair: pair[1])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([text for text, _ in tokens])
    writer.add_token_types(
        [TokenType.CONTROL if i in special else TokenType.NORMAL for _, i in tokens]
    )
    writer.add_token_merges([" ".join(pair) for pair in model["merges"]])
    writer.add_bos_token_id(tokenizer.bos_token_id)
    writer.add_eos_token_id(tokenizer.eos_token_id)
    writer.add_pad_token_id(tokenizer.pad_token_id)
    writer.add_add_bos_token(False)
    writer.add_chat_template(tokenizer.chat_template)


def _name(name: str) -> str:
    stem, _, suffix = name.rpartition(".")
    if stem in _WHOLE:
        return f"{_WHOLE[stem]}.{suffix}"
    _, _, rest = stem.partition("layers.")
    layer, _, part = rest.partition(".")
    return f"blk.{layer}.{_LAYER[part]}.{suffix}"


def _interleaved(array: np.ndarray, heads: int) -> np.ndarray:
    """Rotary halves interleaved, as llama.cpp stores queries and keys."""
    shape = array.shape
    return array.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)
