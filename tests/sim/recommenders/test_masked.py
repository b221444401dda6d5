"""Masked recommenders, and interactions with feedback."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from pipelines.errors import ConfigError
from sim import Release
from sim.environment import Catalogue, split_rows
from sim.recommenders import MaskedRecommender, Recommender, open_recommender, with_feedback
from sim.recommenders.testing import check_recommender


def test_masked_recommender_conforms(release: Release) -> None:
    mask = np.zeros(len(release["items"]), np.bool_)
    check_recommender(
        lambda view: MaskedRecommender(open_recommender("popular"), mask).fit(view), release
    )


@pytest.fixture(scope="module")
def popular(release: Release) -> Recommender:
    return open_recommender("popular").fit(release)


def test_masked_items_give_way_to_next_best(popular: Recommender, release: Release) -> None:
    whole = popular.recommend([0], 6)[0]
    mask = np.zeros(len(release["items"]), np.bool_)
    mask[whole[[0, 2]]] = True
    lists = MaskedRecommender(popular, mask).recommend([0, 1], 4)
    assert lists.tolist() == [whole[[1, 3, 4, 5]].tolist()] * 2


def test_mask_of_one_person_spares_the_others(popular: Recommender, release: Release) -> None:
    whole = popular.recommend([0], 3)[0]
    mask = np.zeros((len(release["personas"]), len(release["items"])), np.bool_)
    mask[1, whole[0]] = True
    lists = MaskedRecommender(popular, mask).recommend([0, 1], 2)
    assert lists.tolist() == [whole[:2].tolist(), whole[1:3].tolist()]


def test_nothing_unmasked_left_is_padded(popular: Recommender, release: Release) -> None:
    mask = np.ones(len(release["items"]), np.bool_)
    mask[[3, 5]] = False
    lists = MaskedRecommender(popular, mask).recommend([0], 3, seen=[[3]])
    assert lists.tolist() == [[5, -1, -1]]


def test_wrong_shape_of_mask_is_named(popular: Recommender, release: Release) -> None:
    with pytest.raises(ConfigError, match=r"a mask of shape \(3,\)"):
        MaskedRecommender(popular, np.zeros(3, np.bool_)).fit(release)


def test_feedback_is_added_once_as_best_rating(release: Release) -> None:
    train = split_rows(release, ("train",))
    known = train.filter(pl.col("user_id") == "ml-user:1")["item_id"][0]
    ids = Catalogue.read(release).ids
    rated = set(train.filter(pl.col("user_id") == "ml-user:1")["item_id"].to_list())
    new = next(n for n, item in enumerate(ids) if item not in rated)
    rows = with_feedback(release, ["ml-user:1"] * 3, [new, new, ids.index(known)])
    assert rows.height == train.height + 1
    added = rows.join(train, on=["user_id", "item_id"], how="anti")
    assert added.rows() == [("ml-user:1", ids[new], 5.0)]


def test_liked_by_everybody_rises_in_popularity(release: Release) -> None:
    popular = open_recommender("popular").fit(release)
    last = int(popular.recommend([0], len(release["items"]))[0, -1])
    fans = [f"persona:default:{n}" for n in range(6)] + [f"ml-user:{n}" for n in range(1, 41)]
    rows = with_feedback(release, fans, [last] * len(fans))
    again = open_recommender("popular").fit(release, interactions=rows)
    assert again.recommend([0], 1).tolist() == [[last]]
