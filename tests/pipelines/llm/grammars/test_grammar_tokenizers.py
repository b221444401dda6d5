"""Texts that a tokenizer can't encode, or that do not fit, are found before a model is asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import ConfigError
from pipelines.llm.grammars import Grammar, TextLimits, closed_choice, persona_record

SHORT = TextLimits((1, 2), (4, 12))
RECORD = persona_record("movies", ["Drama", "Sci-Fi"], portrait=SHORT, taste=SHORT)


def trained(characters: str, *, byte_fallback: bool = False) -> Any:
    """A fast tokenizer that knows these characters, and some pairs of them."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    pieces = ["<unk>", "<end>", *sorted(set(characters))]
    if byte_fallback:
        pieces += [f"<0x{byte:02X}>" for byte in range(256)]
    model = models.BPE(
        vocab={piece: n for n, piece in enumerate(pieces)},
        merges=[],
        unk_token="<unk>",
        byte_fallback=byte_fallback,
    )
    built = Tokenizer(model)
    built.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=built, unk_token="<unk>", eos_token="<end>"
    )
    tokenizer.name_or_path = "/models/of/somebody/narrow-model"
    return tokenizer


def spelled(grammar: Grammar) -> str:
    """Characters that are enough to spell some sentence of a grammar."""
    return "".join(grammar.sample(seed) for seed in range(300))


def test_a_tokenizer_without_the_grammars_characters_is_named_with_them() -> None:
    tokenizer = trained(spelled(RECORD).replace("{", "").replace('"', ""))
    with pytest.raises(ConfigError) as caught:
        RECORD.check(tokenizer)
    message = str(caught.value)
    assert "can't encode the grammar" in message
    assert "tokenizer narrow-model, grammar persona/movies" in message
    assert message.endswith("""(it has no tokens for '"' '{')""")
    assert "/models/of/somebody" not in message


def test_a_class_of_which_no_character_can_be_spelled_is_found() -> None:
    text = spelled(RECORD)
    RECORD.check(trained(text))
    # A single full stop of three is enough; none is not.
    RECORD.check(trained(text.replace("!", "").replace("?", "")))
    for mark in ".!?":
        text = text.replace(mark, "")
    with pytest.raises(ConfigError, match=r"no tokens for '!' '\.' '\?'"):
        RECORD.check(trained(text))


def test_bytes_spell_what_no_token_is_for() -> None:
    grammar = closed_choice(["日本", "no"])
    with pytest.raises(ConfigError, match="'日' '本'"):
        grammar.check(trained("no"))
    grammar.check(trained("no", byte_fallback=True))


def test_a_character_costs_as_many_tokens_as_it_can_be_cut_into() -> None:
    grammar = closed_choice(["日本", "no"])
    assert grammar.longest(trained("no日本")) == 2 + 1
    assert grammar.longest(trained("no日本", byte_fallback=True)) == 6 + 1
    assert grammar.longest() == 6 + 1


def test_a_reply_that_might_not_fit_is_refused_with_both_numbers() -> None:
    longest = RECORD.longest()
    RECORD.check(None, max_tokens=longest)
    with pytest.raises(ConfigError, match=f"max_tokens is {longest - 1}, .* needs {longest}: "):
        RECORD.check(None, max_tokens=longest - 1)


def test_the_tiny_models_tokenizer_spells_everything(tiny_model: Path) -> None:
    RECORD.check(tiny_model, max_tokens=512)


@pytest.mark.shared_data
@pytest.mark.parametrize(
    "place",
    [
        "models/stories260K",
        "tokenizers/llama2-spm",
        "tokenizers/mistral/tokenizer.model.v1",
    ],
)
def test_published_tokenizers_spell_the_persona_record(shared_data: Path, place: str) -> None:
    RECORD.check(shared_data / place, max_tokens=RECORD.longest())
