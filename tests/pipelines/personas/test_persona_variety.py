"""Measures of repetition within descriptions."""

from __future__ import annotations

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.config import PersonaSettings
from pipelines.personas import generate, sentences, text_variety


def test_figures_of_texts_counted_by_hand():
    found = text_variety(["The cat sat. The dog ran.", "The cat sat.", "The cat sat."])
    assert (found.texts, found.sentences, found.words) == (3, 4, 12)
    # Words: the, cat, sat, dog, ran. Pairs: the-cat, cat-sat, sat-the, the-dog, dog-ran of 9.
    assert found.distinct_1 == 5 / 12
    assert found.distinct_2 == 5 / 9
    assert found.repeated_sentences == 3 / 4
    assert found.duplicates == 1


def test_nothing_has_no_variety_and_is_no_error():
    assert text_variety([]).sentences == 0
    assert text_variety([""]).distinct_2 == 0.0


def test_towns_with_a_period_do_not_end_a_sentence():
    assert len(sentences("Ana is from St. Louis. 9-year-old Bo is, too! He plays.")) == 3


@given(st.lists(st.text(alphabet="ab .", max_size=30), max_size=8))
def test_shares_lie_between_zero_and_one_and_order_does_not_matter(texts):
    found = text_variety(texts)
    assert found == text_variety(reversed(texts))
    for share in (found.distinct_1, found.distinct_2, found.repeated_sentences):
        assert 0 <= share <= 1


@pytest.mark.parametrize("domain", ["movies", "books", "games", "products"])
def test_ten_thousand_descriptions_differ_and_hardly_a_sentence_comes_back(domain):
    texts = generate(PersonaSettings(count=10_000), cohort=domain)["description"]
    found = text_variety(texts)
    assert found.duplicates == 0
    assert found.repeated_sentences < 0.05
    assert found.distinct_2 > 0.018
    assert texts.str.len_chars().is_between(250, 1900).all()
    assert not texts.is_in(pl.Series([""]).implode()).any()
