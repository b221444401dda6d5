"""Hand-made test personas: the design of the suites, and texts that say what they test."""

from __future__ import annotations

import re

import polars as pl
import pytest

from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError
from pipelines.personas import (
    SUITE_GENRES,
    genre_phrase,
    handmade_personas,
    handmade_suite,
    load_lists,
)

domains = pytest.mark.parametrize("domain", ["movies", "books"])


@domains
def test_they_keep_the_contract_and_are_nobody_twice(domain):
    frame = handmade_personas(domain)
    assert CONTRACTS["movies.personas"].validate(frame).equals(frame)
    assert frame["origin"].unique().to_list() == ["handmade"]
    assert frame["domain"].unique().to_list() == [domain]
    assert frame["name"].n_unique() == frame["description"].n_unique() == 40


@domains
def test_each_group_has_a_young_and_an_old_woman_and_man(domain):
    frame = handmade_personas(domain).join(handmade_suite(domain), on="persona_id")
    kinds = frame.group_by("suite", "group").agg(
        n=pl.len(), kinds=pl.struct("gender", pl.col("age") > 60).n_unique()
    )
    assert kinds.filter(suite="genres")["group"].sort().to_list() == sorted(SUITE_GENRES[domain])
    assert kinds.filter(suite="raters")["group"].sort().to_list() == ["high", "low"]
    assert kinds["n"].to_list() == kinds["kinds"].to_list() == [4] * 10


@domains
def test_the_text_says_which_genre_is_rated_highly_and_that_the_rest_is_not(domain):
    frame = handmade_personas(domain).join(handmade_suite(domain), on="persona_id")
    for row in frame.filter(suite="genres").iter_rows(named=True):
        text = row["description"].lower()
        stem = row["group"].split(" ")[0].lower().removesuffix("y").removesuffix("e")
        assert stem in text or genre_phrase(row["group"], domain) in text, text
        assert row["likes"] == [row["group"]]
        assert row["group"] not in row["dislikes"]
        assert re.search(r"highest mark|top mark|best mark|full marks|high|very top", text), text
        assert re.search(r"\blow\b|poor|bottom|bad mark|marks? (it|them) down", text), text


@domains
def test_raters_state_their_level_and_no_genre(domain):
    frame = handmade_personas(domain).join(handmade_suite(domain), on="persona_id")
    raters = frame.filter(suite="raters")
    assert raters["likes"].list.len().sum() == raters["dislikes"].list.len().sum() == 0
    high = raters.filter(group="high")["description"]
    low = raters.filter(group="low")["description"]
    assert high.str.contains(r"highest mark|top|best mark|best possible mark|full marks").all()
    assert low.str.contains(r"lowest mark|bottom|worst marks").all()


@domains
def test_texts_name_no_scale_and_pronouns_fit(domain):
    frame = handmade_personas(domain)
    assert not frame["description"].str.replace(r"^\w+, \d+,", "").str.contains(r"\d").any()
    for gender, wrong in (("female", r"\b(he|his|him)\b"), ("male", r"\b(she|hers?)\b")):
        texts = frame.filter(gender=gender)["description"]
        subjects = texts.str.split(". ").explode()
        assert subjects.str.contains(r"(?i)^" + wrong).sum() == 0
    lists = load_lists(domain)
    assert set(frame["job"]) <= {*lists.jobs, "retired"}
    assert set(frame["hobby"]) <= set(lists.hobbies)


def test_a_domain_without_test_personas_is_refused():
    with pytest.raises(ConfigError, match="no hand-made personas"):
        handmade_personas("games")
