"""Attributes hang together as people's do: published tables, the copula, distances."""

from __future__ import annotations

import csv
import runpy
import shutil
from importlib.resources import files
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pipelines.personas import (
    MIN_PEOPLE,
    TRAITS,
    joint_distances,
    load_lists,
    read_lists,
    sample_attributes,
)
from pipelines.personas._joint import TRAIT_SHARES, filled
from pipelines.warehouse import TIER_ENDS

DATA = Path(str(files("pipelines.personas") / "data"))
#: Genres that men (+1) or women (-1) of ml-100k rate higher, over film and person: those whose
#: 95 % interval leaves out 0 (benchmarks/personas/joint_shares.py --against).
SIGNS = {"Action": 1, "Adventure": 1, "Crime": 1, "Documentary": -1, "Romance": -1, "Sci-Fi": 1}


@pytest.fixture(scope="module")
def people() -> pl.DataFrame:
    return sample_attributes(11, "joint", np.arange(30_000))


@pytest.mark.parametrize("name", ["movies", "careers"])
def test_no_published_cell_is_of_fewer_than_twenty_people(name):
    with (DATA / "joint" / f"{name}.csv").open() as lines:
        counts = [int(row["people"]) for row in csv.DictReader(lines)]
    assert min(counts) >= MIN_PEOPLE == 20


def test_trait_shares_are_the_tiers_of_human_users():
    for name in ("activity", "conformity"):
        ends = TIER_ENDS[name]
        low, middle, _ = TRAIT_SHARES[name]
        # A small distance is much conformity: its tiers count from the other end.
        expected = ends if name == "activity" else (1 - ends[1], 1 - ends[0])
        assert (low, low + middle) == pytest.approx(expected)


def test_attributes_are_nearer_to_people_than_independent_ones(people):
    found = joint_distances(people, load_lists())
    mean = found.group_by("pair").agg(pl.col("distance", "independent").mean())
    by_pair = {pair: (own, base) for pair, own, base in mean.iter_rows()}
    for pair, most in (
        ("genre x genre", 0.012), ("genre x gender", 0.01), ("genre x age", 0.01),
        ("activity x age", 0.015), ("conformity x age", 0.015), ("career x gender", 0.02),
        ("status x age", 0.015), ("leniency x age", 0.012), ("manner x age", 0.015),
    ):  # fmt: skip
        own, base = by_pair[pair]
        assert own < most
        assert own < 0.5 * base, pair


def test_traits_have_their_shares_among_adults(people):
    adults = people.filter(pl.col("age") >= 18)
    for name, levels in TRAITS.items():
        share = dict(adults[name].value_counts(normalize=True).iter_rows())
        assert [share[level] for level in levels] == pytest.approx(TRAIT_SHARES[name], abs=0.012)


def test_shuffled_genres_are_as_far_from_people_as_independent_ones(people):
    order = np.random.default_rng(0).permutation(people.height)
    mixed = people.with_columns(people["gender"].gather(order))
    found = joint_distances(mixed, load_lists()).filter(pl.col("pair") == "genre x gender")
    assert found["distance"].mean() == pytest.approx(found["independent"].mean(), abs=0.005)


def test_likes_and_dislikes_by_gender_have_the_signs_of_people(people):
    male = (people["gender"] == "male").to_numpy()
    for genre, sign in SIGNS.items():
        for side, direction in (("likes", sign), ("dislikes", -sign)):
            stated = people[side].list.contains(genre).to_numpy()
            men, women = stated[male], stated[~male]
            error = (men.var() / len(men) + women.var() / len(women)) ** 0.5
            # Adventure is the smallest shift: 5 % dislike it, so its dislikes are uncertain.
            assert direction * (men.mean() - women.mean()) > (error if side == "likes" else 0), (
                genre
            )


@pytest.fixture(scope="module")
def benchmark(repository: Path):
    return runpy.run_path(str(repository / "benchmarks/personas/joint_shares.py"))


@pytest.mark.pipeline
@pytest.mark.shared_data
def test_packaged_tables_of_films_follow_from_ml_100k(benchmark, shared_data):
    written = benchmark["film_tables"](shared_data)
    assert written.equals(pl.read_csv(DATA / "joint" / "movies.csv").cast({"people": pl.UInt32}))


@pytest.mark.shared_data
def test_signs_by_gender_follow_from_ml_100k(benchmark, shared_data):
    shares = benchmark["favourable"](*benchmark["read_100k"](shared_data))
    clear = shares.filter(pl.col("difference").abs() > pl.col("half"))
    assert dict(clear.select("genre", pl.col("difference").sign()).iter_rows()) == SIGNS


def test_empty_cells_are_filled_as_if_independent_and_stay_below_the_minimum():
    out = filled(np.array([[60.0, np.nan], [40, 20]]))
    # Independence would say 30; a cell of 20 people or more would have been published.
    assert out.tolist() == [[60.0, 19.0], [40.0, 20.0]]
    assert filled(np.array([[30.0, np.nan], [50, np.nan]])).tolist() == [[30.0, 30], [50, 50]]


def test_what_is_backed_off_is_listed():
    listed = load_lists().backed_off
    assert "Comedy by age: 4-17 as its neighbor" in listed
    assert any(line.startswith("career by age: ") for line in listed)
    assert "every pair of attributes: independent (no source)" in load_lists("books").backed_off


def test_a_domain_without_tables_has_independent_opinions():
    people = sample_attributes(5, "books", np.arange(20_000), load_lists("books"))
    adults = people.filter(pl.col("age") >= 18)
    liked = adults.select(
        a=pl.col("likes").list.contains("Mystery"), b=pl.col("likes").list.contains("History")
    ).cast(pl.Float64)
    assert abs(liked.select(pl.corr("a", "b")).item()) < 0.03


def test_a_genre_that_no_table_has_is_independent_and_listed(tmp_path):
    folder = Path(shutil.copytree(DATA, tmp_path / "lists"))
    with (folder / "genres" / "movies.csv").open("a") as file:
        file.write("Western,0.5,4,western\n")
    lists = read_lists(folder)
    assert "Western by gender: independent, not published" in lists.backed_off
    people = sample_attributes(1, "c", np.arange(3_000), lists)
    opinions = people["likes"].list.contains("Western") | people["dislikes"].list.contains(
        "Western"
    )
    assert opinions.mean() == pytest.approx(5.4 / 13, abs=0.04)
