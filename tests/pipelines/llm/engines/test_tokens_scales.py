"""Tokens of rating scales under real tokenizers, and loading them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines.tokens import (
    SentencePieceTokenizer,
    encode,
    encode_on,
    load_tokenizer,
    read_scale,
)

FIVE = tuple(str(n) for n in range(1, 6))
TEN = tuple(str(n) for n in range(1, 11))
REAL = {
    "qwen2.5": "tokenizers/qwen2.5",
    "smollm2": "tokenizers/smollm2",
    "llama2": "tokenizers/llama2-spm",
    "mistral-v1": "tokenizers/mistral/tokenizer.model.v1",
    "mistral-v3": "tokenizers/mistral/mistral_instruct_tokenizer_240323.model.v3",
    "stories": "models/stories260K",
}


@pytest.mark.shared_data
@pytest.mark.parametrize("name", sorted(REAL))
@pytest.mark.parametrize("context", ["Rating: ", "Rating:", "How many stars?\n"])
def test_stars_to_five_are_one_token_each_and_ten_is_two(
    shared_data: Path, name: str, context: str
) -> None:
    tokenizer = load_tokenizer(shared_data / REAL[name])
    five, ten = read_scale(tokenizer, FIVE, context), read_scale(tokenizer, TEN, context)
    assert five.way == "tokens"
    assert five.describe() == "each answer is one token"
    assert five.adds_up
    assert ten.way == "sequences"
    assert ten.answers[0].begins == ("10",)
    assert ten.answers[9].tokens[0] == ten.answers[0].tokens[0]
    assert ten.describe() == 'read as sequences: "10" is 2 tokens; "1" begins "10"'


@pytest.mark.shared_data
def test_known_token_ids_of_qwen(shared_data: Path) -> None:
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "qwen2.5")
    reading = read_scale(tokenizer, ("1", "10"), "Rating: ")
    # In Qwen's vocab.json "0" is 15 and "1" is 16.
    assert [a.tokens for a in reading.answers] == [(16,), (16, 15)]
    assert reading.metadata() == {
        "way": "sequences",
        "adds_up": True,
        "answers": {"1": [16], "10": [16, 15]},
        "begin_others": {"1": ["10"]},
    }


@pytest.mark.shared_data
def test_a_sentencepiece_answer_goes_on_without_a_space(shared_data: Path) -> None:
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "llama2-spm")
    assert isinstance(tokenizer, SentencePieceTokenizer)
    # 29871 is the lone space that SentencePiece puts before a text, 29945 is "5".
    assert encode(tokenizer, "5") == [29871, 29945]
    assert encode_on(tokenizer, "5") == [29945]
    assert encode(tokenizer, "Rating:5") == [*encode(tokenizer, "Rating:"), 29945]
    joined = encode(tokenizer, "Rating:") + encode_on(tokenizer, "5")
    assert joined == encode(tokenizer, "Rating:5")
    assert tokenizer.encode("5") == [tokenizer.bos_token_id, 29871, 29945]
    assert tokenizer.decode([29871, 29945]) == "5"
    assert len(tokenizer) == 32_000


@pytest.mark.shared_data
def test_words_that_merge_with_what_stands_before_are_told(shared_data: Path) -> None:
    tokenizer = load_tokenizer(shared_data / "tokenizers" / "qwen2.5")
    # Byte-level BPE joins a space to the word behind it, not to a digit.
    words = read_scale(tokenizer, ("yes", "no"), "Liked: ")
    assert not words.adds_up
    assert '"yes" changes the tokens before it' in words.describe()
    assert read_scale(tokenizer, (" yes", " no"), "Liked:").adds_up


def test_the_tiny_tokenizer_reads_scales_as_qwen_does(tiny_model: Path) -> None:
    tokenizer = load_tokenizer(tiny_model)
    assert read_scale(tokenizer, FIVE, "Rating: ").way == "tokens"
    assert read_scale(tokenizer, TEN, "Rating: ").answers[0].begins == ("10",)
    text = "A quiet film about the long river. ☃ 😀"
    assert tokenizer.decode(encode(tokenizer, text)) == text
    assert load_tokenizer(tiny_model / "tokenizer.json").encode(text) == tokenizer.encode(text)


def test_answers_without_a_token_are_refused(tiny_model: Path) -> None:
    with pytest.raises(EngineError, match="no token for an answer"):
        read_scale(load_tokenizer(tiny_model), ("1", ""), "Rating: ")


def test_what_is_no_tokenizer_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    with pytest.raises(ConfigError, match="no tokenizer there"):
        load_tokenizer(tmp_path / "none")
    with pytest.raises(ConfigError, match="no tokenizer there"):
        load_tokenizer(tmp_path)
    broken = tmp_path / "tokenizer.model"
    broken.write_bytes(b"not a model")
    with pytest.raises(ConfigError, match="SentencePiece model can't be read"):
        load_tokenizer(broken)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(ConfigError, match="can't be loaded"):
        load_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").unlink()
    (tmp_path / "tokenizer.model.v2").write_bytes(b"")
    with pytest.raises(ConfigError, match="several SentencePiece models"):
        load_tokenizer(tmp_path)


def test_a_scale_of_a_hundred_answers_is_described_in_one_short_line(tiny_model: Path) -> None:
    scale = [str(n) for n in range(101)]
    line = read_scale(load_tokenizer(tiny_model), scale, "Rating: ").describe()
    assert len(line) < 200
    assert '"10" is 2 tokens (91 answers are several tokens)' in line
