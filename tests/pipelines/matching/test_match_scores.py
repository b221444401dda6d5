"""Equation 2 of SimUSER with worked figures, and the lists that it is taken over."""

from __future__ import annotations

import numpy as np
import pytest

from pipelines.errors import ContractError
from pipelines.matching import History, choose, draw_trials, likeness, list_sizes, self_consistency
from pipelines.matching.testing import small_world


def test_scores_are_differences_of_means_and_the_best_wins() -> None:
    # Own 8, 7, 9 against others' 5: 3. Own 9, 9, 9 against 7: 2.
    expected = np.array([[8.0, 7.0, 9.0, *[5.0] * 30], [9.0, 9.0, 9.0, *[7.0] * 30]])
    own, others, score = self_consistency(expected, 3)
    assert own.tolist() == [8.0, 9.0]
    assert others.tolist() == [5.0, 7.0]
    assert score.tolist() == [3.0, 2.0]
    best, margin = choose(np.array([0, 0]), score, 1)
    assert (best.tolist(), margin.tolist()) == ([0], [1.0])


def test_ties_go_to_the_lower_number_and_missing_scores_to_nobody() -> None:
    user = np.array([0, 0, 1, 1, 2])
    score = np.array([1.0, 1.0, np.nan, -2.0, np.nan])
    best, margin = choose(user, score, 4)
    assert best.tolist() == [0, 3, -1, -1]
    assert margin[0] == 0
    assert np.isnan(margin[1:]).all()


def test_a_twice_as_likely_item_is_rated_seven() -> None:
    assert float(likeness(np.log(0.02 / 0.01))) == pytest.approx(7.0)
    assert float(likeness(-np.log(0.02 / 0.01))) == pytest.approx(4.0)


def test_short_histories_have_lists_of_half_of_them() -> None:
    assert list_sizes(np.array([1, 2, 9, 99, 100, 700]), 50).tolist() == [1, 1, 5, 50, 50, 50]


def test_lists_hold_own_items_once_and_others_are_other_people(history: History) -> None:
    users = np.arange(len(history.users))
    trials = draw_trials(history, users, subsets=3, size=2, others=7, seed=4)
    owner = np.repeat(users, history.counts)
    assert trials.own.shape == (len(users), 3)
    assert trials.others.shape == (len(users), 7)
    for user in users:
        for number in trials.own[user]:
            rows = trials.lists.of(number)
            assert len(set(rows.tolist())) == len(rows) == 2
            assert set(owner[rows]) == {user}
        people = [owner[trials.lists.of(n)[0]] for n in trials.others[user]]
        assert user not in people
        assert len(set(people)) == 7


def test_lists_do_not_depend_on_who_else_is_matched(history: History) -> None:
    few = draw_trials(history, np.array([3]), subsets=2, size=3, others=2, seed=1)
    many = draw_trials(history, np.arange(9), subsets=2, size=3, others=2, seed=1)
    for column in range(2):
        assert (
            few.lists.of(few.own[0, column]).tolist() == many.lists.of(many.own[3, column]).tolist()
        )
        assert (
            few.lists.of(few.others[0, column]).tolist()
            == many.lists.of(many.others[3, column]).tolist()
        )


def test_one_user_has_nobody_to_be_compared_with() -> None:
    tables = small_world(users=1)
    tables.pop("training_traits")
    history = History.read("movies", **tables)
    with pytest.raises(ContractError, match=r"can't be compared with others: movies.interactions"):
        draw_trials(history, np.array([0]), subsets=1, size=2, others=3, seed=1)
