"""Distributions over closed answers are exact, for options of any spelling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import AnswerError, EngineError
from pipelines.llm.engines import Choice, Message, Regex, Request
from pipelines.llm.engines.chat import render
from pipelines.llm.engines.choices import OptionTree
from pipelines.llm.engines.tokens import encode_on
from pipelines.llm.engines.transformers import TransformersEngine
from pipelines.llm.engines.transformers._requests import Vocabulary

TO_TEN = tuple(str(n) for n in range(1, 11))


def test_ten_is_one_then_nought_and_one_is_what_is_left_of_it() -> None:
    # p(1) = 0.5, p(2) = 0.3, p(0 | 1) = 0.2.
    tree = OptionTree.of([(1,), (2,), (1, 0)])
    shares, mass = tree.distribution([{1: math.log(0.5), 2: math.log(0.3)}, {0: math.log(0.2)}])
    # "10" = 0.5 x 0.2 = 0.1; "1" = 0.5 x 0.8 = 0.4; "2" = 0.3; together 0.8.
    assert mass == pytest.approx(0.8)
    assert shares == pytest.approx([0.5, 0.375, 0.125])


def test_an_option_gives_way_to_longer_ones_through_a_token_that_ends_none() -> None:
    # Options a and abc: p(a) = 0.6, p(b | a) = 0.5, p(c | ab) = 0.4.
    tree = OptionTree.of([(1,), (1, 2, 3)])
    shares, mass = tree.distribution([{1: math.log(0.6)}, {2: math.log(0.5)}, {3: math.log(0.4)}])
    # abc = 0.6 x 0.5 x 0.4 = 0.12; a = 0.6 x (1 - 0.2) = 0.48.
    assert mass == pytest.approx(0.6)
    assert shares == pytest.approx([0.8, 0.2])


@st.composite
def _worlds(draw: st.DrawFn) -> tuple[list[tuple[int, ...]], dict[tuple[int, ...], list[float]]]:
    """Some options over three tokens, and a model of all texts of up to three tokens."""
    texts = [t for n in (1, 2, 3) for t in product(range(3), repeat=n)]
    options = draw(st.lists(st.sampled_from(texts), min_size=1, max_size=6, unique=True))
    places = [t for n in (0, 1, 2) for t in product(range(3), repeat=n)]
    share = st.floats(0.01, 1.0)
    model = {}
    for place in places:
        weights = [draw(share) for _ in range(3)]
        model[place] = [w / sum(weights) for w in weights]
    return options, model


@given(_worlds())
def test_an_option_is_the_longest_option_that_a_text_begins_with(
    world: tuple[list[tuple[int, ...]], dict[tuple[int, ...], list[float]]],
) -> None:
    options, model = world
    expected = dict.fromkeys(options, 0.0)
    for text in product(range(3), repeat=3):
        chance = math.prod(model[text[:n]][text[n]] for n in range(3))
        begun = [o for o in options if text[: len(o)] == o]
        if begun:
            expected[max(begun, key=len)] += chance
    tree = OptionTree.of(options)
    steps = [
        {t: math.log(model[node][t]) for t in step}
        for node, step in zip(tree.nodes, tree.steps, strict=True)
    ]
    shares, mass = tree.distribution(steps)
    assert mass == pytest.approx(sum(expected.values()))
    assert shares * mass == pytest.approx([expected[o] for o in options])


def test_options_too_improbable_for_a_float_keep_their_ratio() -> None:
    tree = OptionTree.of([(1,), (2,)])
    shares, mass = tree.distribution([{1: -2000.0, 2: -2000.0 + math.log(3.0)}])
    assert shares == pytest.approx([0.25, 0.75])
    assert mass == 0.0


@pytest.mark.parametrize("options", [[()], [(1,), (1,)], [(1, 2), ()]])
def test_options_that_cannot_be_told_apart_are_refused(options: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError):
        OptionTree.of(options)


def _by_hand(model: Any, prompt: list[int], options: Sequence[list[int]]) -> list[float]:
    """Probability of each option's tokens, one pass of the model for each."""
    import torch

    found = []
    for option in options:
        with torch.inference_mode():
            logits = model(input_ids=torch.tensor([prompt + option])).logits[0].double()
        steps = torch.log_softmax(logits, dim=-1)[len(prompt) - 1 : -1]
        found.append(float(sum(steps[n, t] for n, t in enumerate(option)).exp()))
    return found


def test_a_scale_to_ten_is_read_as_sequences(
    tiny_engine: TransformersEngine, tiny_model: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    messages = (Message("user", "How many of ten stars?"), Message("assistant", "Stars: "))
    request = Request(messages, constraint=Choice(TO_TEN))
    [answer] = tiny_engine.submit([request])
    options = [encode_on(tokenizer, o) for o in TO_TEN]
    assert len(options[9]) == 2
    assert options[9][:1] == options[0]
    model = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    begins = _by_hand(model, render(tokenizer, messages), options)
    begins[0] -= begins[9]
    assert answer.mass == pytest.approx(sum(begins), rel=1e-4)
    assert answer.probabilities == pytest.approx([p / sum(begins) for p in begins], abs=1e-5)
    assert answer.prompt_tokens == len(render(tokenizer, messages))


def test_words_are_scored_over_all_their_tokens(
    tiny_engine: TransformersEngine, tiny_model: Path
) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = ("strongly disagree", "disagree", "agree", "strongly agree")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    options = [encode_on(tokenizer, w) for w in words]
    assert all(len(o) > 1 for o in options)
    model = AutoModelForCausalLM.from_pretrained(tiny_model).eval()
    asked = [
        Request((Message("user", f"A long film about person {n}."),), constraint=Choice(words))
        for n in range(5)
    ]
    for answer in tiny_engine.submit(asked):
        begins = _by_hand(model, render(tokenizer, answer.request.messages), options)
        assert answer.probabilities == pytest.approx([p / sum(begins) for p in begins], abs=1e-5)


@pytest.mark.parametrize(
    # Torch's layers sum in one order whatever the number of rows, oneDNN's do not.
    ("packed_layers", "bound"),
    [(False, 1e-6), (True, 1e-5)],
    ids=["torch", "oneDNN"],
)
def test_packed_and_plain_engines_agree_also_when_options_fill_several_rows(
    tiny_model: Path,
    one_thread: None,
    packed_layers: bool,
    bound: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pipelines.llm.engines.transformers import _linear

    if not packed_layers:
        monkeypatch.setattr(_linear, "can_pack", lambda _: False)
    many = tuple(f"{a} {b}" for a in ("seven", "twelve", "ninety") for b in range(100, 140))
    asked = [
        Request((Message("user", f"A number for {name}?"),), constraint=Choice(many))
        for name in ("Ann", "Bob")
    ]
    chosen = EngineSettings(kind="transformers", model=str(tiny_model))
    found = []
    fields: dict[str, Any]
    for fields in ({"prefix_reuse": False}, {"window": 32}, {"batch_tokens": 64}):
        engine = TransformersEngine.open(chosen, ServingSettings(device="cpu", **fields))
        found.append(list(engine.submit(asked)))
        engine.close()
    for answers in zip(*(sorted(f, key=lambda a: str(a.request)) for f in found), strict=True):
        for answer in answers[1:]:
            assert answer.probabilities == pytest.approx(answers[0].probabilities, abs=bound)
            assert answer.mass == pytest.approx(answers[0].mass, rel=1e-4)


@pytest.mark.shared_data
def test_a_sign_outside_the_vocabulary_is_spelled_in_bytes(
    shared_data: Path, one_thread: None
) -> None:
    engine = TransformersEngine.open(
        EngineSettings(kind="transformers", model=str(shared_data / "models" / "stories260K")),
        ServingSettings(device="cpu"),
    )
    [snow, five] = engine.submit(
        Request((Message("user", "?"),), constraint=Choice(options))
        for options in (("☃", "☄"), ("5", "6"))
    )
    assert (snow.completion_tokens, five.completion_tokens) == (3, 1)
    assert sum(snow.probabilities or ()) == pytest.approx(1.0)
    assert engine.metadata()["chat_template"] == "plain"


def _letters(decoder: bool = True) -> Any:
    """A tokenizer that has the letters a and b, and no others."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    built = Tokenizer(models.BPE({"</s>": 0, "a": 1, "b": 2}, []))
    built.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if decoder:
        built.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=built, eos_token="</s>")


def test_what_the_tokenizer_cannot_spell_is_refused() -> None:
    vocabulary = Vocabulary(_letters(), 3, [0])
    assert vocabulary.tree(("a", "ba")).options == ((1,), (2, 1))
    with pytest.raises(AnswerError, match="can't encode the option 'abc'"):
        vocabulary.tree(("a", "abc"))
    with pytest.raises(AnswerError, match="can't encode what the constraint requires"):
        vocabulary.matcher(Regex("[0-9]"))
    assert vocabulary.allowed([vocabulary.matcher(Regex("b+"))]).tolist() == [[False, False, True]]
    # A grammar that can be begun and not gone on with is no end of the answer.
    dead = vocabulary.matcher(Regex("a[0-9]b"))
    assert vocabulary.allowed([dead]).tolist() == [[False, True, False]]
    dead.consume_token(1)
    assert not vocabulary.allowed([dead]).any()


@pytest.mark.parametrize(
    ("tokenizer", "size", "ends", "message"),
    [
        (_letters, 2, [0], "does not belong to the model"),
        (_letters, 3, [], "which token ends an answer"),
        (lambda: _letters(decoder=False), 3, [0], "llguidance can't read the tokenizer"),
    ],
)
def test_a_tokenizer_that_does_not_fit_ends_the_run(
    tokenizer: Any, size: int, ends: list[int], message: str
) -> None:
    with pytest.raises(EngineError, match=message):
        Vocabulary(tokenizer(), size, ends)
