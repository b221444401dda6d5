"""Texts that a tokenizer can't encode, or that do not fit, are found before a model is asked."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
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


@pytest.mark.parametrize("seed", [1, 2])
def test_no_legal_walk_through_a_real_vocabulary_is_longer(tiny_model: Path, seed: int) -> None:
    from llguidance import LLMatcher
    from llguidance.hf import from_tokenizer
    from transformers import AutoTokenizer

    tokenizer = from_tokenizer(AutoTokenizer.from_pretrained(tiny_model))
    sizes = [len(tokenizer.decode_bytes([t])) for t in range(tokenizer.vocab_size)]
    longest, rng = RECORD.longest(tokenizer), random.Random(seed)
    for _ in range(4):
        matcher, taken = LLMatcher(tokenizer, RECORD.ll_grammar()), 0
        while not matcher.is_accepting():
            bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
            legal = np.flatnonzero(np.unpackbits(bits, bitorder="little")[: len(sizes)])
            least = min(sizes[t] for t in legal)
            taken += 1
            assert taken < longest
            assert matcher.consume_token(int(rng.choice([t for t in legal if sizes[t] == least])))


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        RECORD.check(tmp_path)
    with pytest.raises(ConfigError):
        RECORD.check(tmp_path / "absent")


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
