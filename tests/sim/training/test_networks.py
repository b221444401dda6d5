"""Networks on compact observations are those that appendix F writes with dense vectors."""

from __future__ import annotations

import pytest
import torch as th

from sim.training._distribution import MASKED
from sim.training._networks import ItemScores, Sizes, ValueNetwork, seen_mask

SIZES = Sizes(items=7, personas=3, low=1.0, high=10.0, dim=4, hidden=5)
OBSERVATION = {
    "persona": th.tensor([[2], [0]]),
    "recent_items": th.tensor([[4, 1, -1], [-1, -1, -1]]),
    "recent_ratings": th.tensor([[9.0, 3.0, -1.0], [-1.0, -1.0, -1.0]]),
}
#: Ratings enter as (r - low + 1) / (high - low + 1).
DENSE = th.tensor([[0, 0.3, 0, 0, 0.9, 0, 0], [0.0] * 7])


def test_a_compact_observation_masks_what_the_seen_vector_would() -> None:
    mask = seen_mask(OBSERVATION["recent_items"], 7)
    assert mask.tolist() == (DENSE > 0).tolist()


def test_where_everything_has_been_seen_nothing_is_masked() -> None:
    assert not seen_mask(th.tensor([[2, 1, 0, 1]]), 3).any()


def test_scores_are_the_users_vector_times_the_items_plus_bias() -> None:
    net = ItemScores(SIZES, history=False)
    with th.no_grad():
        net.bias.normal_()
    scores = net(OBSERVATION)
    dense = net.users[th.tensor([2, 0])] @ net.items.T + net.bias
    assert th.allclose(scores, dense.masked_fill(DENSE > 0, MASKED))


def test_scores_with_history_add_the_dense_ratings_times_a_matrix() -> None:
    net = ItemScores(SIZES, history=True)
    user = net.users[th.tensor([2, 0])] + DENSE @ net.past
    dense = user @ net.items.T + net.bias
    assert th.allclose(net(OBSERVATION), dense.masked_fill(DENSE > 0, MASKED), atol=1e-6)


def test_the_critic_is_two_dense_layers_on_user_and_ratings() -> None:
    net = ValueNetwork(SIZES)
    one_hot = th.eye(3)[th.tensor([2, 0])]
    hidden = th.relu(one_hot @ net.users + DENSE @ net.items + net.bias)
    assert th.allclose(net(OBSERVATION), net.out(hidden), atol=1e-6)


def test_the_lowest_rating_differs_from_no_rating() -> None:
    net = ValueNetwork(SIZES)
    rated = {**OBSERVATION, "recent_ratings": th.tensor([[1.0, 1.0, -1.0], [-1.0] * 3])}
    unrated = {**OBSERVATION, "recent_items": th.full((2, 3), -1)}
    assert not th.allclose(net(rated)[0], net(unrated)[0])


@pytest.mark.parametrize("history", [False, True])
def test_masked_items_get_no_gradient(history: bool) -> None:
    net = ItemScores(SIZES, history=history)
    net(OBSERVATION)[0].exp().sum().backward()
    assert net.bias.grad is not None
    assert net.bias.grad[[1, 4]].tolist() == [0, 0]
    assert bool((net.bias.grad[[0, 2, 3, 5, 6]] != 0).all())
