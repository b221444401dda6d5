"""Repetition within descriptions."""

from __future__ import annotations

import polars as pl
import pytest
from support.texts import distinct_pairs, repeated_sentences, sentences

from pipelines.config import PersonaSettings
from pipelines.personas import generate


def test_figures_of_texts_counted_by_hand():
    texts = ["The cat sat. The dog ran.", "The cat sat.", "The cat sat."]
    # Pairs: the-cat, cat-sat, sat-the, the-dog, dog-ran of 9.
    assert distinct_pairs(texts) == 5 / 9
    assert repeated_sentences(texts) == 3 / 4
    assert len(sentences("Ana is from St. Louis. 9-year-old Bo is, too! He plays.")) == 3


@pytest.mark.pipeline
@pytest.mark.parametrize("domain", ["movies", "books", "games", "products"])
def test_ten_thousand_descriptions_differ_and_hardly_a_sentence_comes_back(domain):
    texts = generate(PersonaSettings(count=10_000), cohort=domain)["description"]
    assert texts.n_unique() == 10_000
    assert repeated_sentences(texts) < 0.05
    assert distinct_pairs(texts) > 0.018
    assert texts.str.len_chars().is_between(250, 1900).all()
    assert not texts.is_in(pl.Series([""]).implode()).any()
