"""Every metric against a value worked out by hand, and laws that hold for any lists."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.errors import ContractError
from pipelines.scales import SCALES
from sim.metrics import (
    FIGURES,
    Played,
    average_precision,
    average_reward,
    evaluate,
    genre_share,
    liked_and_disliked,
    personalization,
    reciprocal_rank,
    relevant,
)

TEN = SCALES["1-10"]
NAN = float("nan")


def test_average_reward_is_the_mean_rating_of_the_list_and_no_rating_is_not_a_low_one() -> None:
    ratings = [[10, 7, 4], [2, NAN, 4], [NAN, NAN, NAN]]
    assert average_reward(ratings)[:2].tolist() == [7.0, 3.0]
    assert np.isnan(average_reward(ratings)[2])


def test_map_is_the_papers_formula() -> None:
    # Relevant at places 1, 3 and 4: Precision@1 = 1/1, @3 = 2/3, @4 = 3/4; the sum over 10.
    relevance = [[1, 0, 1, 1, 0, 0, 0, 0, 0, 0]]
    assert average_precision(relevance)[0] == pytest.approx((1 + 2 / 3 + 3 / 4) / 10)


def test_map_divides_by_ten_also_where_the_list_or_the_relevant_items_are_fewer() -> None:
    assert average_precision([[1, 1]])[0] == pytest.approx(0.2)
    assert average_precision([[1] + [0] * 9])[0] == pytest.approx(0.1)


def test_map_looks_at_the_first_ten_only() -> None:
    assert average_precision([[0] * 10 + [1] * 5])[0] == 0.0


def test_mrr_is_one_over_the_place_of_the_first_relevant_item() -> None:
    relevance = [[0, 0, 1, 1, 0, 0, 0, 0, 0, 0], [0] * 10, [1] * 10]
    assert reciprocal_rank(relevance).tolist() == pytest.approx([1 / 3, 0, 1])
    assert reciprocal_rank([[0] * 10 + [1]]).tolist() == [0]


@pytest.mark.parametrize(
    ("scale", "least", "below"), [("1-10", 7, 6), ("1-5", 4, 3), ("0-9", 6, 5), ("0.5-5", 3.5, 3)]
)
def test_relevant_is_seven_of_ten_on_every_scale(scale: str, least: float, below: float) -> None:
    assert relevant([least, below, NAN], SCALES[scale]).tolist() == [True, False, False]


def test_personalization_by_hand() -> None:
    # Pairs: {1,2} with {2,3} share one of two: 1/2; {1,2} with {4,5}: 0; {2,3} with {4,5}: 0.
    assert personalization([[1, 2], [3, 2], [4, 5]], k=2) == pytest.approx(1 - (0.5 + 0 + 0) / 3)


def test_personalization_with_lists_of_different_length() -> None:
    # {1} and {1, 2}: cosine 1 / (1 · √2).
    assert personalization([[1, -1], [1, 2]]) == pytest.approx(1 - 1 / np.sqrt(2))


def test_personalization_of_equal_lists_is_zero_and_never_below() -> None:
    for users in (2, 3, 7, 50, 331):
        assert 0 <= personalization([list(range(10))] * users) < 1e-12


def test_personalization_is_nothing_for_a_single_user() -> None:
    assert np.isnan(personalization([[1, 2]]))


def test_a_user_drawn_twice_is_not_paired_with_himself() -> None:
    # Only the pair (0, 1) counts, however often each is drawn.
    assert personalization([[1, 2], [2, 3]], k=2, weights=[3, 1]) == pytest.approx(0.5)


def test_a_list_that_repeats_an_item_is_refused() -> None:
    with pytest.raises(ContractError, match="twice"):
        personalization([[1, 1], [2, 3]])


lists = st.integers(2, 7).flatmap(
    lambda k: st.lists(st.permutations(range(9)).map(lambda p: p[:k]), min_size=2, max_size=8)
)


@given(lists)
def test_personalization_is_what_all_pairs_give_one_by_one(rows: list[list[int]]) -> None:
    def cosine(a: list[int], b: list[int]) -> float:
        return len(set(a) & set(b)) / np.sqrt(len(a) * len(b))

    pairs = [cosine(a, b) for a, b in itertools.combinations(rows, 2)]
    assert personalization(rows) == pytest.approx(1 - np.mean(pairs))


@given(st.lists(st.lists(st.booleans(), min_size=10, max_size=10), min_size=1, max_size=6))
def test_moving_a_relevant_item_up_never_lowers_map_or_mrr(rows: list[list[bool]]) -> None:
    better = [sorted(row, reverse=True) for row in rows]
    assert (average_precision(better) >= average_precision(rows) - 1e-12).all()
    assert (reciprocal_rank(better) >= reciprocal_rank(rows)).all()


def test_liked_has_a_liked_genre_and_no_disliked_one() -> None:
    action, comedy, horror = np.eye(3, dtype=int)
    items = np.array([action, comedy, horror, action + horror, 0 * action])
    likes, dislikes = np.array([action + comedy]), np.array([horror])
    liked, disliked = liked_and_disliked([[0, 1, 2, 3, 4, -1]], items, likes, dislikes)
    assert liked.tolist() == [[True, True, False, False, False, False]]
    # Item 3 has both: neutral, like the one without genres and the missing one.
    assert disliked.tolist() == [[False, False, True, False, False, False]]


def test_genre_share_of_the_top_five_and_of_the_top_ten() -> None:
    flags = [[True, True, False, False, False, True, True, True, True, True]]
    shown = [list(range(10))]
    assert genre_share(flags, shown, 5)[0] == pytest.approx(2 / 5)
    assert genre_share(flags, shown, 10)[0] == pytest.approx(7 / 10)
    assert genre_share(flags, [[0, 1, 2, 3, -1, -1, -1, -1, -1, -1]], 5)[0] == pytest.approx(2 / 4)


def played(ratings: list[list[float]], *, first: int = 0) -> Played:
    values = np.array(ratings, dtype=float)
    users, k = values.shape
    items = first + np.arange(users * k).reshape(users, k)
    nothing = np.zeros((users, k), bool)
    return Played(items, values, TEN, ~nothing, nothing)


def test_evaluation_gives_every_figure_with_an_interval_that_holds_its_value() -> None:
    rng = np.random.default_rng(0)
    runs = [played(rng.integers(1, 11, (50, 10)).tolist()) for _ in range(3)]
    figures = evaluate(runs)
    assert list(figures) == list(FIGURES)
    for name, figure in figures.items():
        assert figure.low <= figure.value <= figure.high, name
        assert len(figure.by_seed) == 3
    reward = figures["average_reward"]
    assert reward.value == pytest.approx(np.mean([run.ratings.mean() for run in runs]))
    assert reward.seed_low is not None
    assert reward.seed_low < reward.value < (reward.seed_high or 0)
    assert figures["personalization@10"].value == 1.0


def test_the_interval_over_users_is_that_of_the_mean() -> None:
    # 400 users with mean ratings of standard deviation s: the interval is 2 · 1.96 · s / 20 wide.
    rng = np.random.default_rng(1)
    ratings = np.clip(rng.normal(5, 2, (400, 1)), 1, 10).repeat(10, axis=1)
    figure = evaluate([played(ratings.tolist())])["average_reward"]
    wide = 2 * 1.96 * ratings[:, 0].std() / 20
    assert figure.high - figure.low == pytest.approx(wide, rel=0.1)


def test_fewer_than_three_seeds_have_no_interval_over_seeds() -> None:
    figure = evaluate([played([[8] * 10, [6] * 10])] * 2)["average_reward"]
    assert (figure.seed_low, figure.seed_high) == (None, None)


def test_a_user_without_a_rating_is_left_out_of_rated_figures_only() -> None:
    run = played([[8] * 10, [NAN] + [2] * 9])
    figures = evaluate([run])
    assert run.complete.tolist() == [True, False]
    assert figures["average_reward"].value == 8
    assert figures["map@10"].value == 1
    assert figures["liked@10"].value == 1  # both users


def test_nobody_to_evaluate_on_is_an_error() -> None:
    with pytest.raises(ContractError, match="no users to evaluate"):
        evaluate([])
    with pytest.raises(ContractError, match="no user's recommendations"):
        evaluate([played([[NAN] * 10])])
    with pytest.raises(ContractError, match="different users"):
        evaluate([played([[1] * 10]), played([[1] * 10] * 2)])
