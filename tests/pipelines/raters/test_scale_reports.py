"""Scales as texts, how real tokenizers read them, and temperature applied afterwards."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pipelines.errors import ConfigError
from pipelines.llm.engines.tokens import load_tokenizer, read_scale
from pipelines.raters import SCALES, at_temperature, scale_report, to_answers, total_variation

FOLDERS = {
    "qwen2.5": "tokenizers/qwen2.5",
    "smollm2": "tokenizers/smollm2",
    "llama2": "tokenizers/llama2-spm",
    "mistral": "tokenizers/mistral/mistral_instruct_tokenizer_240323.model.v3",
}
#: Answers of several tokens by scale: the same for all four, which cut numbers into digits.
LONGER = {"1-5": 0, "0-9": 0, "1-10": 1, "one-ten": 0, "0-100": 91}


def test_each_scale_declares_its_answers_as_texts():
    assert SCALES["1-10"].texts == (*"123456789", "10")
    assert SCALES["0-100"].texts[::50] == ("0", "50", "100")
    assert SCALES["one-ten"].texts[0::9] == ("one", "ten")
    for scale in SCALES.values():
        assert len(scale.texts) == len(set(scale.texts)) == len(scale) == len(scale.answers)
        texts = [scale.text_of(answer) for answer in scale.answers]
        assert texts == list(scale.texts)


def test_words_are_converted_as_numbers_are():
    stars = SCALES["0.5-5"]
    assert to_answers([4.5], stars, SCALES["one-ten"]).tolist() == [9.0]
    assert to_answers([4.5], stars, SCALES["0-100"]).tolist() == [89.0]
    assert SCALES["one-ten"].text_of(0.2) == "one"


@pytest.mark.shared_data
@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("scale", LONGER)
def test_reports_on_real_tokenizers(shared_data, name, scale):
    report = scale_report(load_tokenizer(shared_data / FOLDERS[name]), SCALES[scale])
    longer = [a.answer for a in report.answers if not a.one_token]
    assert len(longer) == LONGER[scale]
    assert report.way == ("sequences" if longer else "tokens")
    assert report.adds_up, "an answer behind the prompt is read as in running text"
    if scale == "1-10":
        assert longer == ["10"]
        assert report.answers[0].begins == ("10",)
    if scale == "0-100":
        assert "100" in report.answers[1].begins


@pytest.mark.shared_data
def test_words_without_their_space_would_not_add_up(shared_data):
    """Why words bring their space: behind one that is there they are read otherwise."""
    for name in FOLDERS:
        tokenizer = load_tokenizer(shared_data / FOLDERS[name])
        assert not read_scale(tokenizer, SCALES["one-ten"].texts, "Rating: ").adds_up


def test_temperature_sharpens_and_flattens():
    p = np.array([[0.64, 0.32, 0.04]])
    # Squares 0.4096, 0.1024, 0.0016 of sum 0.5136.
    np.testing.assert_allclose(at_temperature(p, 0.5), [[0.79751, 0.19938, 0.00312]], atol=1e-5)
    # Roots 0.8, 0.5657, 0.2 of sum 1.5657.
    np.testing.assert_allclose(at_temperature(p, 2), [[0.51096, 0.36131, 0.12774]], atol=1e-4)
    assert at_temperature(np.array([[0.3, 0.4, 0.3]]), 0).tolist() == [[0.0, 1.0, 0.0]]


def test_failed_rows_stay_failed_and_sure_ones_sure():
    p = np.array([[np.nan, np.nan], [1.0, 0.0]])
    for temperature in (0, 0.01, 1, 100):
        out = at_temperature(p, temperature)
        assert np.isnan(out[0]).all()
        assert out[1].tolist() == [1.0, 0.0]
    assert at_temperature(np.zeros((0, 5)), 0.5).shape == (0, 5)


@pytest.mark.parametrize("wrong", [-0.1, float("nan")])
def test_no_temperature_below_nought(wrong):
    with pytest.raises(ConfigError, match="temperature"):
        at_temperature(np.ones((1, 1)), wrong)


@given(
    hnp.arrays(float, (3, 10), elements=st.floats(1e-12, 1.0)),
    st.floats(0.02, 50),
    st.floats(0.1, 10),
)
def test_temperatures_are_distributions_keep_the_order_and_compose(weights, first, second):
    p = weights / weights.sum(axis=1, keepdims=True)
    out = at_temperature(p, first)
    np.testing.assert_allclose(out.sum(axis=1), 1)
    for row, before in zip(out, p, strict=True):
        order = np.argsort(before, kind="stable")
        assert (np.diff(row[order]) >= -1e-12).all()
    np.testing.assert_allclose(at_temperature(p, 1), p)
    if first > 0.5:
        np.testing.assert_allclose(
            at_temperature(out, second), at_temperature(p, first * second), atol=1e-6
        )


def test_total_variation_is_half_the_difference():
    assert total_variation(np.array([[1.0, 0], [0.5, 0.5]]), np.array([0.0, 1])).tolist() == [
        1,
        0.5,
    ]
