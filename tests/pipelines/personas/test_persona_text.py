"""The statistical writer: agreement with the fields, grammar, variety."""

import re

import numpy as np
import polars as pl
import pytest
from support.texts import sentences

from pipelines.config import PersonaSettings
from pipelines.errors import ConfigError
from pipelines.personas import (
    StatisticalWriter,
    generate,
    genre_phrase,
    load_lists,
    sample_attributes,
)
from pipelines.personas.testing import check_writer
from pipelines.prompts import DOMAIN_WORDS

DOMAINS = ("movies", "books", "games", "products")


@pytest.fixture(scope="module", params=DOMAINS)
def cohort(request) -> pl.DataFrame:
    return generate(PersonaSettings(count=3_000, min_age=4), cohort=request.param)


def test_statistical_writer_keeps_the_contract():
    check_writer(StatisticalWriter(), size=300)


def test_rows_say_that_no_model_wrote_them(cohort):
    assert cohort["writer"].unique().to_list() == ["statistical"]


def test_description_has_a_sentence_for_every_taste(cohort):
    for row in cohort.iter_rows(named=True):
        tastes = len(row["likes"]) + len(row["dislikes"])
        rates = (row["leniency"] != "average") + (row["manner"] != "average")
        # Introduction, hobby and what is looked for; at most one more on nothing disliked, and one
        # on agreeing with others.
        found = len(sentences(row["description"]))
        assert tastes + rates + 3 <= found <= tastes + rates + 5, row["description"]


def test_every_liked_and_disliked_genre_and_the_hobby_are_in_the_text(cohort):
    for row in cohort.iter_rows(named=True):
        text = row["description"].lower()
        assert row["hobby"].lower() in text
        for genre in (*row["likes"], *row["dislikes"]):
            assert genre_phrase(genre, row["domain"]) in text, (genre, text)


def test_a_genre_without_an_opinion_is_not_named(cohort):
    domain = cohort["domain"][0]
    phrases = {g: genre_phrase(g, domain) for g in load_lists(domain).genres}
    for row in cohort.head(1_000).iter_rows(named=True):
        text = row["description"].lower()
        named = {g for g, p in phrases.items() if re.search(rf"\b{p}\b", text)}
        assert named == {*row["likes"], *row["dislikes"]}


def test_a_sentence_with_a_disliked_genre_names_no_liked_one(cohort):
    for row in cohort.filter(pl.col("dislikes").list.len() > 0).iter_rows(named=True):
        bad = [genre_phrase(g, row["domain"]) for g in row["dislikes"]]
        good = [genre_phrase(g, row["domain"]) for g in row["likes"]]
        averse = [
            s for s in sentences(row["description"].lower().replace(". ", ". X"))
            if any(p in s for p in bad)
        ]  # fmt: skip
        assert len(averse) == len(bad)
        assert all(any(p in s for s in averse) for p in bad)
        assert not any(re.search(rf"\b{p}\b", s) for p in good for s in averse), averse


def test_each_domain_speaks_of_its_own_items(cohort):
    own = {"movies": "watches", "books": "reads", "games": "plays", "products": "buys"}
    domain = cohort["domain"][0]
    texts = cohort["description"]
    assert texts.str.contains(rf"\b{own[domain]}\b|chooses|picks").all()
    last = [sentences(t)[-1] for t in texts]
    for other in set(own) - {domain}:
        words = {"movies": r"films?", "books": r"books?", "games": r"games?"}.get(other, "buys")
        assert not any(re.search(rf"\b{words}\b", s) for s in last)


def test_pronouns_follow_the_gender(cohort):
    others = {"female": r"\b(he|him|his|himself)\b", "male": r"\b(she|her|hers|herself)\b"}
    for gender, wrong in others.items():
        texts = cohort.filter(gender=gender)["description"]
        assert not texts.str.contains(f"(?i){wrong}").any()


def test_articles_and_sentence_openings_are_right(cohort):
    texts = cohort["description"]
    sounded = texts.str.replace_all(r"\b[Aa] (union|university|UX)\b", "")
    assert not sounded.str.contains(r"\b[Aa] [aeiouAEIOU]").any()
    assert not texts.str.contains(r"\b[Aa]n (?:[b-df-gj-np-tv-z]|h[^o])").any()
    assert not texts.str.contains(r"\b[Aa] (8|11|18)\b|\b[Aa] 8\d\b").any()
    assert not texts.str.contains(r"\b(?i:one) \w+[a-rt-z]s a (week|month)\b").any()
    assert not texts.str.contains(r"\b(?i:two|three) \w*[a-rt-z] a (week|month)\b").any()
    assert not texts.str.contains(r"  | ,| \.|\.\.|,\.").any()
    assert all(s[0].isupper() or s[0].isdigit() for t in texts for s in sentences(t))
    assert texts.str.contains(r"[.!?]$").all()


def test_people_of_working_age_do_not_retire_or_go_to_school(cohort):
    for low, high, job, wrong in (
        (
            4,
            17,
            "student",
            r"(?i)\b(retired|works as|colleagues|spouse|grandchildren|wine|poker|coffee|therapy)\b",
        ),
        (18, 59, None, r"\b(retired|preschooler|grandchildren|homework)\b"),
        (25, 59, None, r"\bstudent\b"),
        (60, 100, "retired", r"\b(student|Colleagues|After work|homework)\b"),
    ):
        group = cohort.filter(pl.col("age").is_between(low, high))
        if job == "retired":
            group = group.filter(job=job)
        elif job:
            assert group["job"].unique().to_list() == [job]
        hits = group.filter(pl.col("description").str.contains(wrong))
        assert hits.height == 0, hits["description"].head(1)


def test_adults_without_a_job_are_described_so(cohort):
    idle = cohort.filter(job="not working")["description"]
    assert idle.str.contains(
        r"not working|between jobs|out of work|stopped working|gave up (?:her|his) last job"
    ).all()
    assert not idle.str.contains(r"Colleagues|After work|days off|works as").any()
    studying = cohort.filter(pl.col("age") >= 18, pl.col("job") == "student")["description"]
    assert studying.str.contains("student").all()
    assert not studying.str.contains(r"Colleagues|After work|works as").any()


def test_genres_that_the_sampler_does_not_know_are_written_all_the_same():
    row = sample_attributes(1, "c", np.arange(1)).with_columns(
        pl.Series("likes", [["Western", "Cyberpunk"]]), pl.Series("dislikes", [["Musical"]])
    )
    text = StatisticalWriter().write(row)["description"][0].lower()
    assert "westerns" in text
    assert "cyberpunk films" in text
    assert "musicals" in text


def test_attributes_are_text_and_not_templates():
    row = sample_attributes(1, "c", np.arange(1)).with_columns(
        name=pl.lit("{place}"), hobby=pl.lit("collecting {0.__class__} braces")
    )
    text = StatisticalWriter().write(row)["description"][0]
    assert "{place}" in text
    assert "{0.__class__}" in text.replace("Collecting", "collecting")


def test_an_unknown_domain_is_named():
    row = sample_attributes(1, "c", np.arange(1)).with_columns(domain=pl.lit("music"))
    with pytest.raises(ConfigError, match="no phrases for this domain"):
        StatisticalWriter().write(row)


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_genre_of_a_list_has_phrases_of_its_own(domain):
    genres = load_lists(domain).genres
    phrases = [genre_phrase(g, domain) for g in genres]
    assert len(set(phrases)) == len(genres)
    assert all(p.endswith("s") for p in phrases), "verbs after a genre are plural"
    assert not any(a != b and re.search(rf"\b{a}\b", b) for a in phrases for b in phrases)
    assert DOMAIN_WORDS[domain].default == tuple(sorted(genres))
