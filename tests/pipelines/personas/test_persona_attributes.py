"""Attributes follow the stated distributions and depend on (seed, cohort, number) only."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.personas import (
    OPINIONS,
    article,
    load_lists,
    sample_attributes,
)
from pipelines.personas._lists import MAX_AGE, MIN_AGE

LARGE = 60_000


@pytest.fixture(scope="module")
def people() -> pl.DataFrame:
    return sample_attributes(7, "default", np.arange(LARGE), min_age=MIN_AGE).with_columns(
        first=pl.col("name").str.split(" ").list.first(),
        surname=pl.col("name").str.split(" ").list.last(),
    )


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    order=st.lists(st.integers(0, 200), min_size=1, max_size=30, unique=True),
)
def test_a_persona_depends_on_nothing_but_seed_cohort_and_number(seed, order):
    whole = sample_attributes(seed, "c", np.arange(201))
    assert sample_attributes(seed, "c", np.array(order)).equals(whole[order])


def test_another_seed_or_cohort_gives_other_people():
    base = sample_attributes(1, "a", np.arange(50))
    for other in (
        sample_attributes(2, "a", np.arange(50)),
        sample_attributes(1, "b", np.arange(50)),
    ):
        assert (base["text_seed"] == other["text_seed"]).sum() == 0
        assert (base["name"] == other["name"]).sum() < 10


def test_ages_follow_the_census_bands(people):
    lists = load_lists()
    band = lists.age_bands.of(people["age"].to_numpy())
    share = np.bincount(band, minlength=len(lists.age_shares)) / LARGE
    # 60,000 draws: a total variation of 0.01 would be ten times what chance gives.
    assert 0.5 * np.abs(share - lists.age_shares).sum() < 0.01
    assert (people["age"].min(), people["age"].max()) == (4, 94)


def test_people_are_adults_by_default():
    assert sample_attributes(7, "default", np.arange(LARGE))["age"].min() == 18


@pytest.mark.parametrize("min_age", [18, 22, 65, 94])
def test_ages_from_a_minimum_on_have_the_census_shares(min_age):
    lists = load_lists()
    people = sample_attributes(7, "default", np.arange(LARGE), min_age=min_age)
    years = np.arange(min_age, MAX_AGE + 1)
    band = lists.age_bands.of(years)
    # Ages of a band are equally frequent.
    share = lists.age_shares[band] / (lists.age_bands.high - lists.age_bands.low + 1)[band]
    found = np.bincount(people["age"] - min_age, minlength=len(years)) / LARGE
    assert people["age"].min() == min_age
    assert 0.5 * np.abs(found - share / share.sum()).sum() < 0.02


def test_everything_but_the_age_has_the_shares_of_adults(people):
    adults = people.filter(pl.col("age") >= 18)
    drawn = sample_attributes(8, "default", np.arange(LARGE))
    for column in ("gender", "job", "hobby", "likes", "leniency", "activity"):
        counts = [
            dict(frame[column].explode().value_counts(normalize=True).iter_rows())
            for frame in (adults.explode(column) if column == "likes" else adults, drawn)
        ]
        values = set(counts[0]) | set(counts[1])
        distance = 0.5 * sum(abs(counts[0].get(v, 0) - counts[1].get(v, 0)) for v in values)
        # Chance alone gives 0.03 for the 150 jobs.
        assert distance < 0.045, column


def test_women_are_more_frequent_the_older_the_group(people):
    share = {
        name: people.filter(pl.col("age").is_between(low, high))["gender"].eq("female").mean()
        for name, low, high in (("young", 4, 17), ("middle", 18, 64), ("old", 65, 94))
    }
    assert share["young"] == pytest.approx(0.487, abs=0.015)
    assert share["middle"] == pytest.approx(0.499, abs=0.012)
    assert share["old"] == pytest.approx(0.548, abs=0.02)


def test_no_first_name_exceeds_one_percent_and_none_fits_both_genders(people):
    counts = people["first"].value_counts(normalize=True)
    assert counts["proportion"].max() < 0.01
    assert people.group_by("first").agg(pl.col("gender").n_unique())["gender"].max() == 1
    assert all(len(names) >= 150 for names in load_lists().names.values())


def test_surnames_have_the_frequencies_of_the_list(people):
    lists = load_lists()
    share = dict(people["surname"].value_counts(normalize=True).iter_rows())
    for name in ("Smith", "Garcia", "Nguyen"):
        expected = lists.surname_shares[lists.surnames.index(name)]
        assert share[name] == pytest.approx(expected, abs=0.003)


def test_names_fit_the_generation(people):
    age = {name: people.filter(first=name)["age"].median() for name in ("Dorothy", "Isla", "Jason")}
    assert age["Dorothy"] > 70
    assert age["Isla"] < 20
    assert 35 < age["Jason"] < 65


def test_jobs_fit_the_age(people):
    assert people.filter(pl.col("age") < 18)["job"].unique().to_list() == ["student"]
    assert people.filter(job="retired")["age"].min() == 60
    assert people.filter(job="not working")["age"].max() == 59
    adults = people.filter((pl.col("age") >= 18) & (pl.col("job") == "student"))
    assert adults["age"].max() == 24
    assert people.filter(job="surgeon")["age"].min() >= 30
    employed = people.filter(~pl.col("job").is_in(["student", "retired", "not working"]))
    assert employed["job"].n_unique() == len(load_lists().jobs)


@pytest.mark.parametrize(
    ("low", "high", "gender", "does", "share"),
    # Cells of joint/careers.csv, by hand: 76 of 76 + 27 + 317 women, 424 of 424 + 25 men, ...
    [
        (20, 24, "female", "student", 76 / 420),
        (75, 94, "male", "retired", 424 / 449),
        (25, 34, "male", "not working", 141 / 838),
    ],
)
def test_adults_work_as_often_as_in_the_census(people, low, high, gender, does, share):
    group = people.filter(pl.col("age").is_between(low, high), gender=gender)
    assert (group["job"] == does).mean() == pytest.approx(share, abs=0.03)


def test_occupations_differ_by_gender_as_in_the_census(people):
    women = {
        job: people.filter(job=job)["gender"].eq("female").mean()
        for job in ("elementary school teacher", "plumber", "nurse")
    }
    # Among the employed of the source: 314 of 402 in education, 11 of 271 in construction and
    # 251 of 321 in health.
    assert women["elementary school teacher"] == pytest.approx(0.78, abs=0.1)
    assert women["plumber"] < 0.15
    assert women["nurse"] == pytest.approx(0.78, abs=0.1)


def test_children_and_adults_have_hobbies_of_their_own(people):
    child = pl.col("age") < 18
    both = set(people.filter(child)["hobby"]) & set(people.filter(~child)["hobby"])
    assert both == set() or both <= {"doing jigsaw puzzles", "playing the piano"}
    assert people.filter(hobby="finger painting")["age"].max() <= 9
    assert people.filter(hobby="tasting wine")["age"].min() >= 18


@pytest.mark.pipeline
def test_likes_are_never_empty_sorted_and_disjoint_from_dislikes(people):
    assert people["likes"].list.len().min() >= 1
    assert people["likes"].list.set_intersection(people["dislikes"]).list.len().max() == 0
    assert people["likes"].list.sort().equals(people["likes"])
    known = set(load_lists().genres)
    assert set(people["likes"].explode()) | set(people["dislikes"].explode().drop_nulls()) == known


def test_opinions_are_favourable_in_the_shares_of_the_source(people):
    lists = load_lists()
    grown = people.filter(pl.col("age") >= 13)
    for genre, share in zip(lists.genres, lists.genre_shares, strict=True):
        liked = grown["likes"].list.contains(genre).sum()
        opinions = liked + grown["dislikes"].list.contains(genre).sum()
        # A person who would like no genre is given one: one percent of people, upwards.
        assert liked / opinions == pytest.approx(share, abs=0.022), genre
        assert opinions / grown.height == pytest.approx(OPINIONS / 12, abs=0.015), genre


@pytest.mark.parametrize("domain", ["movies", "books", "games", "products"])
def test_nobody_has_an_opinion_before_the_age_that_the_list_states(domain):
    lists = load_lists(domain)
    people = sample_attributes(3, "ages", np.arange(8_000), lists, min_age=MIN_AGE)
    assert people["likes"].list.len().min() >= 1
    assert people["likes"].list.set_intersection(people["dislikes"]).list.len().max() == 0
    for side in ("likes", "dislikes"):
        least = people.select("age", genre=side).explode("genre").drop_nulls()
        first = dict(least.group_by("genre").agg(pl.col("age").min()).iter_rows())
        assert set(first) == set(lists.genres)
        for genre, age in zip(lists.genres, lists.genre_ages.tolist(), strict=True):
            assert first[genre] >= age, genre
    if domain == "movies":
        assert lists.genres_from(12) == tuple(
            g for g in lists.genres if g not in ("Crime", "Horror", "Thriller")
        )


def test_every_job_of_the_list_gets_the_right_article():
    wrong_if_by_letter = {
        "union organizer",
        "university lecturer",
        "UX designer",
        "X-ray technician",
    }
    jobs = load_lists().jobs
    assert wrong_if_by_letter <= set(jobs)
    for job in jobs:
        by_letter = "an" if job[0].lower() in "aeiou" else "a"
        given = article(job).split()[0]
        assert (given != by_letter) == (job in wrong_if_by_letter), article(job)
