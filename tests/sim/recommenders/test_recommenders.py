"""Baselines: each does what its name says, on a release whose right answers are known."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from pipelines.errors import ConfigError, ReleaseError
from sim import Release, open_release
from sim.recommenders import BASELINES, open_recommender
from sim.recommenders.testing import check_recommender


@pytest.mark.parametrize("name", BASELINES)
def test_baseline_conforms(name: str, release: Release) -> None:
    check_recommender(name, release)


def items_of(release: Release) -> list[str]:
    return sorted(release["items"].polars(["item_id"])["item_id"].to_list())


@pytest.mark.pipeline
def test_random_shows_every_item_about_equally_often_and_differs_by_user_and_seed(
    release: Release,
) -> None:
    first = np.concatenate(
        [open_recommender("random", seed=s).fit(release).recommend(range(6), 1) for s in range(400)]
    )
    counts = np.bincount(first.ravel(), minlength=24)
    assert counts.min() > 60  # 100 expected, standard deviation 10
    assert counts.max() < 140


def test_popular_shows_the_most_rated_in_training_to_everybody(release: Release) -> None:
    stats = (
        release["item_stats"].polars().sort(["train_ratings", "item_id"], descending=[True, False])
    )
    ids = items_of(release)
    lists = open_recommender("popular").fit(release).recommend([0, 5], 3)
    assert [ids[n] for n in lists[0]] == stats["item_id"].head(3).to_list()
    assert lists[0].tolist() == lists[1].tolist()


def test_mean_rating_is_damped(release: Release, small: ModuleType, tmp_path: Path) -> None:
    import polars as pl

    stats = small.frames()["movies.item_stats"].with_columns(
        train_ratings=pl.when(pl.col("item_id") == "ml:1")
        .then(1)
        .when(pl.col("item_id") == "ml:2")
        .then(100)
        .otherwise(10)
        .cast(pl.Int64),
        train_mean_rating=pl.when(pl.col("item_id") == "ml:1")
        .then(5.0)
        .when(pl.col("item_id") == "ml:2")
        .then(4.5)
        .otherwise(3.0),
    )
    small.build(tmp_path / "home", replace={"movies.item_stats": stats})
    other = open_release("movies", home=tmp_path / "home")
    ids = items_of(other)
    # (1 · 5 + 5 · m) / 6 < (100 · 4.5 + 5 · m) / 105 with the global mean m of about 3.5.
    best = open_recommender("mean-rating").fit(other).recommend([0], 2)[0]
    assert [ids[n] for n in best] == ["ml:2", "ml:1"]


def test_content_is_liked_minus_disliked_genres_plus_the_cosine_of_the_texts(
    release: Release,
) -> None:
    items = release["items"].polars(["item_id", "genres"]).sort("item_id")
    vectors = release["item_embeddings"].polars().sort("item_id")["vector"].to_list()
    persona = release["personas"].polars().sort("persona_id").row(2, named=True)
    text = release["persona_embeddings"].polars().sort("persona_id")["vector"][2].to_list()
    scores = []
    for genres, vector in zip(items["genres"].to_list(), vectors, strict=True):
        liked, disliked = (len(set(genres) & set(persona[k])) for k in ("likes", "dislikes"))
        scores.append((liked - disliked) / max(len(genres), 1) + float(np.dot(vector, text)))
    best = open_recommender("content").fit(release).recommend([2], 6)[0]
    assert best.tolist() == np.argsort(scores)[::-1][:6].tolist()
    assert not any(set(items["genres"][int(n)]) & set(persona["dislikes"]) for n in best)


def test_content_works_without_embeddings_and_says_so(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path / "home", without=("item_embeddings", "persona_embeddings"))
    release = open_release("movies", home=tmp_path / "home")
    assert "no embeddings" in open_recommender("content").fit(release).note


def test_a_baseline_names_the_table_it_lacks(small: ModuleType, tmp_path: Path) -> None:
    small.build(tmp_path / "home", without=("item_stats",))
    release = open_release("movies", home=tmp_path / "home")
    for name in ("popular", "mean-rating"):
        with pytest.raises(ReleaseError, match="item_stats"):
            open_recommender(name).fit(release)


def test_unfitted_and_unknown_recommenders_are_errors() -> None:
    for name in BASELINES:
        with pytest.raises(ConfigError, match="before recommend"):
            open_recommender(name).recommend([0], 1)
    with pytest.raises(ConfigError, match="did you mean popular"):
        open_recommender("populr")
