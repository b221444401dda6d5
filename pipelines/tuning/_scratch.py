"""A small language model from scratch: its tokenizer, its configuration, its chat template."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.prompts import MAX_SURPLUS, surplus_text
from pipelines.scales import RatingScale
from pipelines.tuning._windows import CONTEXT

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

#: Byte-level pieces of the vocabulary (count).
PIECES = 4_096
#: Training ratings from which a title is one token (count).
TITLED = 8
#: Contents without marks. The system message is the same in all prompts and left out.
CHAT_TEMPLATE = (
    "{%- for message in messages if message['role'] != 'system' %}"
    "{{- message['content'] }}"
    "{%- if not loop.last or add_generation_prompt %}{{- ' ' }}{%- endif %}"
    "{%- endfor %}"
)
#: Pieces never reach over a line, a field or an entry of a list.
_SPLIT = r"(?: \| |, )[A-Z][\w'\-]*|\n| ?\p{L}+|\d| ?[^\s\p{L}\d]+|\s+"
#: Padding of rows, which no text contains.
_PAD = "<|pad|>"
#: Phrases of a ledger's line that are one token.
_PHRASES = (
    *(" -> ", "\n", " | mean ", " | TMDB ", " | public "),
    *(f" of {count}" for count in ("one", "few", "some", "many", "very many")),
)


def tokenizer_of(rows: pl.DataFrame, scale: RatingScale) -> PreTrainedTokenizerFast:
    """A tokenizer of the texts of training examples."""
    first = rows.filter(pl.col("window").str.starts_with("0:"))
    titles = first.group_by(title=pl.col("line").str.split(" | ").list.first()).len()
    titled = titles.filter(pl.col("len") >= TITLED)["title"].sort().to_list()
    texts = [*first["line"], *first["description"].unique().sort()]
    return train_tokenizer(texts, titled, scale)


def train_tokenizer(
    texts: Iterable[str], titles: Sequence[str], scale: RatingScale
) -> PreTrainedTokenizerFast:
    """Byte-level BPE of training texts, with titles, means, phrases and answers as tokens.

    Titles are as they stand in lines; means have one decimal.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=PIECES,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[_PAD],
        show_progress=False,
    )
    bpe.train_from_iterator(texts, trainer)
    low, high = round(scale.low * 10), round(scale.high * 10)
    means = [f"{n / 10:.1f}" for n in range(low, high + 1)]
    tenths = range(-round(10 * MAX_SURPLUS), round(10 * MAX_SURPLUS) + 1)
    added = [*_PHRASES, *(surplus_text(n / 10) for n in tenths), *titles]
    bpe.add_tokens(
        [AddedToken(t, normalized=False) for t in dict.fromkeys(added)]
        + [AddedToken(t, normalized=False, single_word=True) for t in (*scale.texts, *means)]
    )
    tokenizer: PreTrainedTokenizerFast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=bpe,
        pad_token=_PAD,
        model_max_length=CONTEXT,
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def make_model(
    tokenizer: PreTrainedTokenizerFast, *, width: int, layers: int, seed: int, dropout: float = 0.0
) -> Any:
    """A Llama with tied embeddings, from random weights, in float32.

    Its attention has no dropout, which would take a path that is four times slower on a CPU; the
    embeddings and the last states have it in training. An answer ends with its line. Embeddings of
    numbers begin near those of their neighbours, so that their order need not be learned from
    ratings alone.
    """
    import torch
    from torch.nn import functional
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    model: Any = LlamaForCausalLM(  # type: ignore[no-untyped-call]
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=layers,
            # Transformers wants a number of heads that divides the width.
            num_attention_heads=max(n for n in range(1, max(1, width // 32) + 1) if width % n == 0),
            head_dim=32,
            max_position_embeddings=CONTEXT,
            tie_word_embeddings=True,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            eos_token_id=tokenizer.encode("\n", add_special_tokens=False)[0],
            initializer_range=width**-0.5,
            dtype="float32",
        )
    )
    # Tied, so no checkpoint holds it: the trainer need not warn that it is missing.
    model._keys_to_ignore_on_save = ["lm_head.weight"]
    embeddings = model.get_input_embeddings().weight.data
    embeddings *= _EMBEDDED / embeddings.std()
    _order_numbers(embeddings, tokenizer)

    def dropped(module: Any, _: Any, out: torch.Tensor) -> torch.Tensor:
        return functional.dropout(out, dropout, module.training)

    if dropout:
        model.get_input_embeddings().register_forward_hook(dropped)
        model.get_decoder().norm.register_forward_hook(dropped)
    return model


#: First standard deviation of embeddings, which are the output's rows, too; matrices have that of
#: their width, since with the usual 0.02 a narrow model attends to all tokens alike for long.
_EMBEDDED = 0.02
#: Distance of numbers at which their first embeddings correlate by exp(-1/2).
_NEAR = 1.0
#: A token that is a number, perhaps behind words.
_NUMBER = re.compile(r"(|.* )([+-]?\d+(?:\.\d)?)")


def _order_numbers(embeddings: Any, tokenizer: PreTrainedTokenizerFast) -> None:
    """Smooth the rows of tokens that are numbers behind the same words, in place."""
    import torch

    groups: dict[str, dict[int, float]] = {}
    for text, index in tokenizer.get_added_vocab().items():
        if match := _NUMBER.fullmatch(text):
            groups.setdefault(match[1], {})[index] = float(match[2])
    scale = embeddings.std()
    for _, numbers in sorted(groups.items()):
        value = torch.tensor(list(numbers.values()))
        levels, place = torch.unique(value, return_inverse=True)
        near = torch.exp(-((levels[:, None] - levels) ** 2) / _NEAR**2)
        near /= near.norm(dim=1, keepdim=True)
        drawn = torch.randn(len(levels), embeddings.shape[1]) * scale
        embeddings[list(numbers)] = (near @ drawn)[place]
