"""Statistics of the sample world: long tails, biases, taste, series, words."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.config import SampleSettings
from pipelines.errors import ConfigError
from pipelines.sample_world import write_sample_world
from pipelines.sample_world._films import GENRES, draw_films
from pipelines.sample_world._ratings import (
    BLOCK,
    HALF_STARS_SINCE,
    RatingModel,
    user_activity,
)
from pipelines.sample_world._text import Dice, article_last, lexicon, with_article


def gini(counts: np.ndarray) -> float:
    """Gini coefficient of counts: 0 if all are equal, near 1 if one has everything."""
    x = np.sort(counts.astype(np.float64))
    n = len(x)
    return float(2 * (np.arange(1, n + 1) * x).sum() / (n * x.sum()) - (n + 1) / n)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sample") / "world"
    write_sample_world(folder, SampleSettings(), broken_rows=False)
    return folder


@pytest.fixture(scope="module")
def ratings(folder: Path) -> pl.DataFrame:
    return pl.read_csv(folder / "movielens/sample/ratings.csv")


@pytest.fixture(scope="module")
def movies(folder: Path) -> pl.DataFrame:
    return pl.read_csv(folder / "movielens/sample/movies.csv")


@pytest.fixture(scope="module")
def records(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / "tmdb/movies.jsonl.gz", "rb") as lines:
        return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def as_small() -> pl.DataFrame:
    """Ratings of a world of ml-latest-small's size (without files)."""
    films = draw_films(2026, 9_742)
    model = RatingModel(2026, films, 610, 100_836)
    block = model.block(0)
    return pl.DataFrame(
        {
            "userId": block.user,
            "movieId": block.film,
            "rating": block.half_stars / 2,
            "timestamp": block.timestamp,
            "year": model.years[block.film],
        }
    )


def counts_of(frame: pl.DataFrame, column: str) -> np.ndarray:
    return frame[column].value_counts()["count"].to_numpy()


def histogram(frame: pl.DataFrame) -> np.ndarray:
    return np.bincount((2 * frame["rating"]).cast(pl.Int64), minlength=11)[1:] / frame.height


def slope(counts: np.ndarray, low: int, high: int) -> float:
    """Of log count against log rank."""
    ordered = np.sort(counts)[::-1][low - 1 : high]
    return float(np.polyfit(np.log(np.arange(low, low + len(ordered))), np.log(ordered), 1)[0])


# --- long tails and biases ------------------------------------------------------------------


def test_ratings_are_distributed_as_in_movielens(ratings: pl.DataFrame) -> None:
    share = histogram(ratings)
    assert 3.35 <= ratings["rating"].mean() <= 3.65
    assert 0.95 <= ratings["rating"].std() <= 1.15
    assert np.argmax(share) == 7  # 4.0 stars
    whole, half = share[1::2], share[0::2]
    assert 0.2 <= half.sum() <= 0.35
    assert all(w > h for w, h in zip(whole, half, strict=True))


def test_no_half_star_is_older_than_half_stars(ratings: pl.DataFrame) -> None:
    before = ratings.filter(pl.col("timestamp") < HALF_STARS_SINCE)
    assert before.height > 500
    assert (before["rating"] % 1 == 0).all()


def test_a_few_films_have_most_ratings_even_in_the_dense_default(ratings: pl.DataFrame) -> None:
    # A third of all pairs is rated and no film can have more than 200, so the tail is short.
    counts = np.sort(counts_of(ratings, "movieId"))[::-1]
    assert 0.28 <= gini(counts) <= 0.5
    assert counts[:30].sum() > 4 * counts[-30:].sum()


def test_users_differ_in_mean_spread_and_activity(ratings: pl.DataFrame) -> None:
    users = ratings.group_by("userId").agg(
        mean=pl.col("rating").mean(), spread=pl.col("rating").std(), n=pl.len()
    )
    assert 0.3 <= users["mean"].std() <= 0.6
    assert 0.8 <= users["spread"].mean() <= 1.05
    assert users["spread"].std() >= 0.12
    assert gini(users["n"].to_numpy()) >= 0.35


def test_items_differ_and_good_ones_are_better_known(ratings: pl.DataFrame) -> None:
    items = ratings.group_by("movieId").agg(mean=pl.col("rating").mean(), n=pl.len())
    assert 0.3 <= items["mean"].std() <= 0.6
    assert np.corrcoef(items["mean"], items["n"].log())[0, 1] > 0.15


def test_at_its_size_the_world_has_the_tails_of_ml_latest_small(as_small: pl.DataFrame) -> None:
    # The real file: 0.716 and 0.604; slopes -0.27, -0.56, -0.96.
    items, users = counts_of(as_small, "movieId"), counts_of(as_small, "userId")
    assert gini(items) == pytest.approx(0.67, abs=0.06)
    assert gini(users) == pytest.approx(0.60, abs=0.05)
    assert slope(items, 1, 100) == pytest.approx(-0.25, abs=0.08)
    assert slope(items, 10, 1_000) == pytest.approx(-0.56, abs=0.1)
    assert slope(items, 100, 3_000) == pytest.approx(-0.96, abs=0.12)
    assert (items == 1).mean() > 0.15


@pytest.mark.shared_data
def test_the_real_file_agrees(as_small: pl.DataFrame, shared_data: Path) -> None:
    import zipfile

    with zipfile.ZipFile(shared_data / "movielens" / "ml-latest-small.zip") as archive:
        real = pl.read_csv(archive.read("ml-latest-small/ratings.csv"))
    films = 9_742

    def item_gini(frame: pl.DataFrame) -> float:
        counts = counts_of(frame, "movieId")
        return gini(np.concatenate([counts, np.zeros(films - len(counts), dtype=np.int64)]))

    assert abs(histogram(as_small) - histogram(real)).sum() / 2 < 0.09
    assert as_small["rating"].mean() == pytest.approx(real["rating"].mean(), abs=0.1)
    assert item_gini(as_small) == pytest.approx(item_gini(real), abs=0.05)
    assert gini(counts_of(as_small, "userId")) == pytest.approx(
        gini(counts_of(real, "userId")), abs=0.05
    )
    for frame, other in ((as_small, real), (real, as_small)):
        means = [
            f.group_by("userId").agg(pl.col("rating").mean())["rating"] for f in (frame, other)
        ]
        assert means[0].std() == pytest.approx(means[1].std(), abs=0.1)


def test_nobody_rates_a_film_before_it_is_out(as_small: pl.DataFrame) -> None:
    when = as_small["timestamp"].to_numpy().astype("datetime64[s]").astype("datetime64[Y]")
    assert (when.astype(int) + 1970 > as_small["year"].to_numpy()).all()


def test_ratings_come_in_sittings_over_years(as_small: pl.DataFrame) -> None:
    ordered = as_small.sort("userId", "timestamp").with_columns(
        gap=pl.col("timestamp").diff().over("userId")
    )
    assert 5 <= ordered["gap"].median() <= 60  # seconds, within a sitting
    breaks = ordered.filter(pl.col("gap") > 86_400).height / 610
    assert 3 <= breaks <= 15  # ml-latest-small: 7.7 per user
    first = as_small["timestamp"].to_numpy().astype("datetime64[s]").astype("datetime64[Y]")
    assert len(set(first.tolist())) >= 25


# --- taste ----------------------------------------------------------------------------------


def by_genre(ratings: pl.DataFrame, movies: pl.DataFrame) -> pl.DataFrame:
    """Ratings, centred per film and then per user, one row per genre of the film."""
    return (
        ratings.with_columns(r=pl.col("rating") - pl.col("rating").mean().over("movieId"))
        .with_columns(r=pl.col("r") - pl.col("r").mean().over("userId"))
        .join(movies.with_columns(genre=pl.col("genres").str.split("|")), on="movieId")
        .explode("genre")
    )


def test_a_favourite_found_in_one_half_shows_in_the_other(
    ratings: pl.DataFrame, movies: pl.DataFrame
) -> None:
    half = ratings.with_columns(odd=pl.int_range(pl.len()).over("userId") % 2 == 1)
    table = (
        by_genre(half, movies)
        .group_by("userId", "genre", "odd")
        .agg(r=pl.col("r").mean(), n=pl.len())
    )
    seen, hidden = (
        table.filter((pl.col("odd") == odd) & (pl.col("n") >= 4)) for odd in (False, True)
    )
    favourite = seen.sort("r", descending=True).group_by("userId", maintain_order=True).first()
    least = seen.sort("r").group_by("userId", maintain_order=True).first()
    liked = favourite.join(hidden, on=["userId", "genre"], suffix="_hidden")["r_hidden"]
    disliked = least.join(hidden, on=["userId", "genre"], suffix="_hidden")["r_hidden"]
    assert min(liked.len(), disliked.len()) > 120
    assert liked.mean() > 0.1
    assert disliked.mean() < -0.1
    both = seen.join(hidden, on=["userId", "genre"], suffix="_hidden")
    # ml-latest-small: 0.33.
    assert np.corrcoef(both["r"], both["r_hidden"])[0, 1] == pytest.approx(0.35, abs=0.12)


def test_true_favourites_are_rated_higher_and_chosen_more_often() -> None:
    films = draw_films(3, 400)
    model = RatingModel(3, films, 600, 30_000)
    block, people = model.block(0), model.people(0)
    local = block.user - 1
    favourite = np.argmax(people.taste, axis=1)
    has = model.genre[block.film, favourite[local]] > 0
    centred = (
        block.half_stars / 2
        - (np.bincount(local, block.half_stars / 2) / np.bincount(local))[local]
    )
    assert centred[has].mean() - centred[~has].mean() > 0.2
    # Against how often the same films are chosen by everybody.
    popular = np.bincount(block.film, minlength=400) / len(block.film)
    expected = (popular[:, None] * (model.genre > 0)).sum(axis=0)[favourite]
    assert has.sum() > 1.2 * (expected * np.bincount(local)).sum()


def test_taste_is_more_than_one_dimension() -> None:
    people = RatingModel(3, draw_films(3, 50), 900, 20_000).people(0)
    favourites = Counter(np.argmax(people.taste, axis=1).tolist())
    assert len(favourites) == len(GENRES)
    assert max(favourites.values()) < 0.15 * 900


# --- series and people ----------------------------------------------------------------------


def test_films_of_a_series_share_collection_genres_and_people(
    records: list[dict[str, Any]],
) -> None:
    series: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        if record["belongs_to_collection"]:
            series[record["belongs_to_collection"]["id"]].append(record)
    pairs = [
        pair for films in series.values() for pair in itertools.pairwise(films) if len(films) > 1
    ]
    assert len(pairs) >= 10

    def share(of: str, one: dict[str, Any], two: dict[str, Any]) -> bool | None:
        people = [
            {
                p["id"]
                for p in r["credits"]["cast" if of == "cast" else "crew"]
                if of == "cast" or p["job"] == "Director"
            }
            for r in (one, two)
        ]
        return bool(people[0] & people[1]) if all(people) else None

    for one, two in pairs:
        assert one["genres"] == two["genres"]
        assert one["belongs_to_collection"] == two["belongs_to_collection"]
        assert one["title"] != two["title"]
        assert share("cast", one, two) is not False
    same_director = [s for s in (share("director", *p) for p in pairs) if s is not None]
    assert np.mean(same_director) > 0.6


def test_sequels_are_numbered_and_later(movies: pl.DataFrame) -> None:
    films = {f.title: f for f in draw_films(2026, 300)}
    sequels = [f for f in films.values() if f.part > 1]
    assert len(sequels) >= 20
    for film in sequels:
        assert re.search(rf" ({film.part}\b|{'I' * min(film.part, 3)}|IV|V)", film.title)
        first = next(f for f in films.values() if f.collection == film.collection and f.part == 1)
        assert film.year > first.year
        assert film.title.startswith(first.title)


def test_directors_and_actors_make_several_films(records: list[dict[str, Any]]) -> None:
    cast = Counter(p["id"] for r in records for p in r["credits"]["cast"])
    directors = Counter(
        p["id"] for r in records for p in r["credits"]["crew"] if p["job"] == "Director"
    )
    for counts in (cast, directors):
        assert max(counts.values()) >= 5
        assert max(counts.values()) <= 0.15 * len(records)
        assert sum(n > 1 for n in counts.values()) > 0.15 * len(counts)


# --- words ----------------------------------------------------------------------------------


def test_no_two_overviews_and_no_two_titles_with_year_are_equal() -> None:
    films = draw_films(2026, 3_000)
    overviews = [f.overview for f in films if f.overview]
    assert len(set(overviews)) == len(overviews)
    assert len({f.movielens_title for f in films}) == 3_000
    again = Counter(f.title for f in films)
    assert sum(n > 1 for n in again.values()) == sum(f.remake for f in films) > 5


def sentences(text: str) -> Sequence[str]:
    return re.findall(r"[^.!?]+[.!?]", text)


def test_overviews_read_as_prose() -> None:
    for film in draw_films(8, 1_500):
        text = film.overview
        if not text:
            continue
        assert 1 <= len(sentences(text)) <= 5
        assert 40 <= len(text) <= 700
        assert not re.search(r"[{}]|\s\s|\ba [aeiou](?!ne-|ni)|\ban [bcdfgjklmnpqrstvwxyz]", text)
        assert all(s.strip()[0].isupper() or s.strip()[0] == '"' for s in sentences(text))
        assert film.story.hero.first in text or film.story.slots["role"] in text.lower()


def test_a_genre_has_words_of_its_own() -> None:
    words: dict[str, set[str]] = defaultdict(set)
    for film in draw_films(8, 3_000):
        words[film.story.genre] |= set(re.findall(r"[a-z]{5,}", film.overview))
    for one, two in itertools.combinations(sorted(words), 2):
        shared = len(words[one] & words[two]) / min(len(words[one]), len(words[two]))
        assert shared < 0.75, (one, two)


def test_a_story_has_the_genre_of_its_film() -> None:
    for film in draw_films(8, 500):
        assert film.story.genre in film.genres
        assert set(film.genres) <= set(GENRES)


def test_every_genre_of_movielens_but_the_format_has_a_vocabulary() -> None:
    assert set(lexicon()["genres"]) == set(GENRES) - {"IMAX"}


@pytest.mark.parametrize(
    ("natural", "listed"),
    [
        ("The Comet Harbor", "Comet Harbor, The"),
        ("A Lantern for Ida", "Lantern for Ida, A"),
        ("An Island for Rhys II", "Island for Rhys II, An"),
        ("Anchor Season", "Anchor Season"),
        ("Theo and the Wolf", "Theo and the Wolf"),
        ("The", "The"),
    ],
)
def test_leading_articles_move_to_the_end(natural: str, listed: str) -> None:
    assert article_last(natural) == listed


@pytest.mark.parametrize(
    ("noun", "phrase"),
    [
        ("undercover agent", "an undercover agent"),
        ("ex-boxer", "an ex-boxer"),
        ("one-eyed sailor", "a one-eyed sailor"),
        ("university town", "a university town"),
        ("hotel clerk", "a hotel clerk"),
    ],
)
def test_articles_follow_the_sound(noun: str, phrase: str) -> None:
    assert with_article(noun) == phrase


# --- laws -----------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1_000),
    users=st.integers(1, 400),
    films=st.integers(1, 300),
    share=st.floats(0, 1),
)
def test_activity_sums_up_and_stays_within_bounds(
    seed: int, users: int, films: int, share: float
) -> None:
    ratings = users + int(share * (users * films - users))
    counts = user_activity(seed, users, ratings, films)
    assert counts.sum() == ratings
    assert counts.max() <= films
    assert counts.min() >= min(20, ratings // users)


def test_activity_beyond_the_catalogue_is_refused() -> None:
    with pytest.raises(ConfigError):
        user_activity(1, 10, 201, 20)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(0, 30), size=st.integers(0, 30))
def test_samples_have_no_repetition(seed: int, n: int, size: int) -> None:
    drawn = Dice(seed).sample(range(size), n)
    assert len(drawn) == len(set(drawn)) == min(n, size)
    assert set(drawn) <= set(range(size))


def test_blocks_do_not_depend_on_the_order_they_are_made_in() -> None:
    films = draw_films(4, 80)
    forwards = RatingModel(4, films, 2 * BLOCK + 100, 90_000)
    backwards = RatingModel(4, films, 2 * BLOCK + 100, 90_000)
    ahead = [forwards.block(b) for b in range(forwards.blocks)]
    behind = [backwards.block(b) for b in reversed(range(backwards.blocks))][::-1]
    for one, two in zip(ahead, behind, strict=True):
        for column in ("user", "film", "half_stars", "timestamp"):
            assert np.array_equal(getattr(one, column), getattr(two, column))
    users = np.concatenate([b.user for b in ahead])
    assert np.array_equal(users, np.repeat(np.arange(1, 2 * BLOCK + 101), forwards.activity))


def test_the_two_ways_of_choosing_films_have_one_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    films = draw_films(4, 600)

    def chosen() -> np.ndarray:
        model = RatingModel(4, films, BLOCK, 40 * BLOCK)
        assert (model.activity * 6 < 600).mean() > 0.8  # the sparse way has work to do
        return np.bincount(model.block(0).film, minlength=600) / BLOCK

    sparse = chosen()
    monkeypatch.setattr("pipelines.sample_world._ratings._ROUNDS", 0)
    dense = chosen()
    assert not np.array_equal(sparse, dense)
    # Standard error of a share of 1024 users is below 0.016, of a difference below 0.023.
    assert abs(sparse - dense).max() < 0.09
    assert np.corrcoef(sparse, dense)[0, 1] > 0.99


def test_files_can_be_read_with_the_plain_csv_module(folder: Path) -> None:
    for table in ("movies", "ratings", "links", "tags"):
        with (folder / f"movielens/sample/{table}.csv").open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
        assert len({len(row) for row in rows}) == 1
