"""Recommenders that are fitted on interactions, on a release whose people are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy import sparse

from pipelines.errors import ConfigError, ReleaseError
from sim import Release, open_release
from sim.recommenders import RECOMMENDERS, known_items, open_recommender, people_release

USERS = [f"ml-user:{n}" for n in range(1, 41)]
FITTED = ("ease", "item-knn", "als", "bpr", "multvae", "lightgcn")
FOLDS_IN = tuple(name for name in FITTED if name != "bpr")
NEEDS = {
    "item-knn": "implicit",
    "als": "implicit",
    "bpr": "implicit",
    "multvae": "cornac",
    "lightgcn": "torch_geometric",
}


def opened(name: str, **options: Any) -> Any:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    return open_recommender(name, **options)


@pytest.fixture(scope="module")
def people(release: Release) -> Release:
    """The release with its 40 users in the place of personas."""
    return people_release(release, USERS)


@pytest.fixture(scope="module")
def train(people: Release) -> Any:
    """1 where a user rated an item in training, of shape (40, 24)."""
    out = np.zeros((40, 24))
    for user, items in enumerate(known_items(people)):
        out[user, items[items >= 0]] = 1
    return out


def test_known_items_are_those_of_the_named_splits(people: Release, train: Any) -> None:
    rows = people["splits"].polars().group_by("user_id", "split").len()
    counts = {(u, s): n for u, s, n in rows.iter_rows()}
    assert train.sum(axis=1).tolist() == [counts[u, "train"] for u in USERS]
    more = known_items(people, ("train", "validation"))
    assert ((more >= 0).sum(axis=1) == train.sum(axis=1) + 1).all()


def test_personas_that_nobody_is_matched_to_have_no_known_items(release: Release) -> None:
    assert known_items(release).shape == (6, 0)


def test_ease_is_the_closed_form(people: Release, train: Any) -> None:
    inverse = np.linalg.inv(train.T @ train + 20 * np.eye(24))
    weights = -inverse / np.diag(inverse)[None, :]
    np.fill_diagonal(weights, 0)
    scores = np.where(train > 0, -np.inf, train @ weights)
    lists = opened("ease", regularization=20).fit(people)
    lists = lists.recommend(range(40), 5, seen=known_items(people))
    best = np.take_along_axis(scores, lists, axis=1)
    assert np.allclose(best, -np.sort(-scores, axis=1)[:, :5])


def test_ease_equals_that_of_cornac(people: Release, train: Any) -> None:
    cornac = pytest.importorskip("cornac")
    user, item = np.nonzero(train)
    data = cornac.data.Dataset(
        40,
        24,
        {n: n for n in range(40)},
        {n: n for n in range(24)},
        (user, item, train[user, item]),
    )
    theirs = cornac.models.EASE(lamb=20, posB=False, seed=0).fit(data)
    ours = opened("ease", regularization=20).fit(people)
    scores = ours._of_histories(sparse.csr_matrix(train))
    assert np.allclose(scores, np.vstack([theirs.score(n) for n in range(40)]))


@pytest.mark.parametrize("name", FITTED)
def test_matched_personas_get_the_lists_of_their_own_rows(
    name: str, people: Release, train: Any
) -> None:
    model = opened(name).fit(people)
    lists = model.recommend(range(40), 5, seen=known_items(people))
    assert model.fallbacks == 0
    assert not np.take_along_axis(train, lists, axis=1).any()
    assert len({tuple(row) for row in lists.tolist()}) > 3


@pytest.mark.parametrize("name", ["ease", "item-knn", "multvae"])
def test_a_persona_with_a_users_history_gets_the_users_list(
    name: str, people: Release, release: Release
) -> None:
    # Models of the user's row alone: folding the row in must change nothing.
    history = known_items(people)[:6]
    matched = opened(name).fit(people).recommend(range(6), 5, seen=history)
    model = opened(name).fit(release)
    assert model.recommend(range(6), 5, seen=history).tolist() == matched.tolist()
    assert model.fallbacks == 0


@pytest.mark.parametrize("name", FOLDS_IN)
def test_histories_of_others_are_folded_in(name: str, release: Release) -> None:
    model = opened(name).fit(release)
    one = np.full((1, 1), 20)
    lists = [model.recommend([0], 23, seen=past).tolist() for past in (one, one - 19)]
    popular = open_recommender("popular").fit(release).recommend([0], 23, seen=one).tolist()
    assert lists[0] != popular or lists[1] != popular
    assert model.fallbacks == 0


def test_items_without_a_rating_are_not_folded_in(release: Release) -> None:
    model = opened("ease").fit(release)
    seen = np.array([[3, 9]])
    rated = model.recommend([0], 5, seen=seen, ratings=np.array([[4.0, np.nan]]))
    alone = model.recommend([0], 6, seen=seen[:, :1])
    assert rated[0].tolist() == [n for n in alone[0] if n != 9][:5]


@pytest.mark.parametrize("name", FITTED)
def test_users_without_a_history_get_popular_items_and_are_counted(
    name: str, release: Release
) -> None:
    model = opened(name).fit(release)
    popular = open_recommender("popular").fit(release)
    assert model.recommend([0, 1], 5).tolist() == popular.recommend([0, 1], 5).tolist()
    assert model.fallbacks == 2


@pytest.mark.parametrize("name", FITTED)
def test_users_with_one_rating_get_full_lists(name: str, people: Release) -> None:
    rows = people["interactions"].polars(["user_id", "item_id", "rating"])
    one = (pl.col("user_id") != USERS[0]) | (pl.col("item_id") == rows["item_id"][0])
    model = opened(name).fit(people, interactions=rows.filter(one))
    assert rows.filter(one & (pl.col("user_id") == USERS[0])).height == 1
    lists = model.recommend([0], 5)
    assert len(set(lists[0].tolist()) - {-1}) == 5
    assert model.fallbacks == 0


def test_bpr_counts_histories_that_it_cannot_fold_in(release: Release) -> None:
    model = opened("bpr").fit(release)
    popular = open_recommender("popular").fit(release)
    past = np.array([[3]])
    lists = model.recommend([0], 5, seen=past)
    assert lists.tolist() == popular.recommend([0], 5, seen=past).tolist()
    assert model.fallbacks == 1


def test_ratings_of_personas_give_them_a_row(release: Release) -> None:
    rows = release["interactions"].polars(["user_id", "item_id", "rating"])
    own = pl.DataFrame(
        {"user_id": ["persona:default:0"] * 2, "item_id": ["ml:1", "ml:2"], "rating": [5.0, 4.0]}
    )
    model = opened("ease").fit(release, interactions=pl.concat([rows, own]))
    model.recommend([0], 5)
    assert model.fallbacks == 0
    model.recommend([1], 5)
    assert model.fallbacks == 1


@pytest.mark.parametrize("name", RECOMMENDERS)
def test_lists_do_not_depend_on_held_out_ratings(
    name: str, people: Release, small: ModuleType, tmp_path: Path
) -> None:
    interactions = small.frames()["movies.interactions"]
    held = small.frames()["movies.splits"].filter(pl.col("split") != "train")
    changed = interactions.join(
        held.select("user_id", "item_id", held=True), on=["user_id", "item_id"], how="left"
    ).with_columns(
        rating=pl.when(pl.col("held")).then(5.5 - pl.col("rating")).otherwise(pl.col("rating"))
    )
    assert changed["rating"].to_list() != interactions["rating"].to_list()
    # Tables that contain the held-out ratings differ as well; training columns do not.
    stats = small.frames()["movies.item_stats"].with_columns(
        ratings=pl.col("ratings") * 2,
        mean_rating=6 - pl.col("mean_rating"),
        popularity_rank=25 - pl.col("popularity_rank"),
    )
    tables = {"movies.interactions": changed.drop("held"), "movies.item_stats": stats}
    small.build(tmp_path / "home", replace=tables)
    other = people_release(open_release("movies", home=tmp_path / "home"), USERS)
    lists = [opened(name).fit(r).recommend(range(40), 10).tolist() for r in (people, other)]
    assert lists[0] == lists[1]


@pytest.mark.parametrize("name", ["als", "bpr", "multvae", "lightgcn"])
def test_another_seed_gives_other_lists(name: str, people: Release) -> None:
    lists = [opened(name, seed=s).fit(people).recommend(range(40), 10).tolist() for s in (0, 1)]
    assert lists[0] != lists[1]


@pytest.mark.parametrize("name", ["multvae", "lightgcn"])
def test_fits_leave_the_global_generator_alone(name: str, people: Release) -> None:
    import torch

    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    opened(name).fit(people)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.pipeline
def test_a_library_loaded_by_the_fit_runs_in_one_thread(home: Path) -> None:
    pytest.importorskip("torch_geometric")
    code = f"""
import sys
from sim import open_release
from sim.recommenders import _libraries, open_recommender
release = open_release("movies", home={str(home)!r})
made = open_recommender("lightgcn", epochs=1)
assert "torch" not in sys.modules
keep = _libraries.LightGCNRecommender._keep
def threads(self, *args):
    import torch
    print("threads", torch.get_num_threads())
    keep(self, *args)
_libraries.LightGCNRecommender._keep = threads
made.fit(release)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["threads", "1"], done.stderr


def test_interactions_with_unknown_items_are_refused(release: Release) -> None:
    rows = pl.DataFrame({"user_id": ["a", "a"], "item_id": ["ml:1", "ml:99"], "rating": [1.0, 2.0]})
    with pytest.raises(ConfigError, match=r"unknown items, such as ml:99"):
        opened("ease").fit(release, interactions=rows)


def test_interactions_without_a_column_are_refused(release: Release) -> None:
    rows = pl.DataFrame({"user_id": ["a"], "item_id": ["ml:1"]})
    with pytest.raises(ConfigError, match="interactions lack rating"):
        open_recommender("mean-rating").fit(release, interactions=rows)
    with pytest.raises(ConfigError, match="interactions lack item_id"):
        opened("ease").fit(release, interactions=rows.drop("item_id"))


def test_no_interactions_are_an_error(release: Release) -> None:
    rows = release["interactions"].polars(["user_id", "item_id", "rating"]).head(0)
    with pytest.raises(ReleaseError, match="no interactions to fit on"):
        opened("ease").fit(release, interactions=rows)


@pytest.mark.parametrize(("name", "module"), NEEDS.items())
def test_a_missing_library_names_the_extra(
    name: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        ConfigError, match=rf"{module} is not installed.*understudy-recsys\[agents\]"
    ):
        open_recommender(name)
