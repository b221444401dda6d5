"""Networks on compact observations equal their dense formulas."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch as th

from sim import open_release
from sim.environment import Catalogue, PersonaTable, World
from sim.training._features import Features
from sim.training._networks import MASKED, ItemScores, Sizes, ValueNetwork, history, seen_mask

SIZES = Sizes(items=7, item_features=4, personas=3, persona_features=2, low=1.0, high=10.0)
OBSERVATION = {
    "persona": th.tensor([[2], [0]]),
    "recent_items": th.tensor([[4, 1, -1], [-1, -1, -1]]),
    "recent_ratings": th.tensor([[10.0, 1.0, -1.0], [-1.0, -1.0, -1.0]]),
}
SEEN = th.tensor([[0, 1, 0, 0, 1, 0, 0], [0] * 7]) > 0


def network() -> ItemScores:
    rng = np.random.default_rng(3)
    net = ItemScores(SIZES, rng.normal(size=(7, 4)), rng.normal(size=(3, 2)))
    with th.no_grad():
        for parameter in net.parameters():
            parameter.normal_(generator=th.Generator().manual_seed(1))
    return net


def test_a_compact_observation_masks_what_the_seen_vector_would() -> None:
    assert th.equal(seen_mask(OBSERVATION["recent_items"], 7), SEEN)


def test_where_everything_has_been_seen_nothing_is_masked() -> None:
    assert not seen_mask(th.tensor([[2, 1, 0, 1]]), 3).any()


def test_history_is_the_sum_of_features_times_surplus_ratings() -> None:
    net = network()
    past, level = history(OBSERVATION, net.items, SIZES)
    # Ratings 10 and 1 are 1 and -1 on the scale from -1 to 1; their mean is 0; 2 + 5 = 7.
    assert th.allclose(past[0], (net.items[4] - net.items[1]) / 7, atol=1e-6)
    assert past[1].tolist() == [0.0] * 4
    assert th.allclose(level, th.tensor([[0.0, 2 / 7], [0.0, 0.0]]))


def test_the_lowest_rating_differs_from_no_rating() -> None:
    rated = {**OBSERVATION, "recent_ratings": th.tensor([[1.0, 1.0, -1.0], [-1.0] * 3])}
    unrated = {**OBSERVATION, "recent_items": th.full((2, 3), -1)}
    net = ValueNetwork(SIZES)
    assert not th.allclose(net(rated)[0], net(unrated)[0])


def test_scores_are_the_product_of_weights_and_item_features() -> None:
    net = network()
    past, _ = history(OBSERVATION, net.items, SIZES)
    who = th.tensor([2, 0])
    weights = net.common + net.personas[who] @ net.by_feature + net.own[who]
    dense = (weights + past @ net.by_history) @ net.items.T
    assert th.allclose(net(OBSERVATION), dense.masked_fill(SEEN, MASKED), atol=1e-5)


def test_weights_are_linear_in_the_parameters() -> None:
    net = network()
    one = {n: th.randn_like(p) for n, p in net.named_parameters()}
    two = {n: th.randn_like(p) for n, p in net.named_parameters()}
    both = {n: one[n] + 2 * two[n] for n in one}
    parts = net.weights(OBSERVATION, one) + 2 * net.weights(OBSERVATION, two)
    assert th.allclose(net.weights(OBSERVATION, both), parts, atol=1e-4)


def test_an_untrained_network_scores_all_items_alike() -> None:
    scores = ItemScores(SIZES, np.ones((7, 4)), np.ones((3, 2)))(OBSERVATION)
    assert scores[1].tolist() == [0.0] * 7


def test_features_have_mean_zero_and_say_genres_and_likes(world: World) -> None:
    features = Features.read(world, components=4)
    assert features.items.shape[0] == len(world.catalogue)
    assert features.personas.shape[0] == len(world.cast)
    for table in (features.items, features.personas):
        assert table.mean(axis=0) == pytest.approx(0, abs=1e-6)
        assert np.isfinite(table).all()
    genres = world.catalogue.frame["genres"].to_list()
    columns = sorted({g for row in genres for g in row})
    raw = np.array([[g in row for g in columns] for row in genres], dtype=float)
    assert features.items[:, : len(columns)] == pytest.approx(raw - raw.mean(axis=0), abs=1e-6)


def test_features_of_a_release_without_ratings_and_texts_are_genres_and_years(
    small: ModuleType, tmp_path: Path
) -> None:
    bare = ("item_stats", "interactions", "item_embeddings", "persona_embeddings")
    small.build(tmp_path / "home", without=bare)
    release = open_release("movies", home=tmp_path / "home")
    world: Any = SimpleNamespace(
        release=release, catalogue=Catalogue.read(release), cast=PersonaTable.read(release)
    )
    genres = world.catalogue.frame["genres"].explode().drop_nulls().n_unique()
    assert Features.read(world, components=4).items.shape == (24, genres + 1)
