"""Self-consistency of candidates with a history (SimUSER, equation 2), and the best one."""

from __future__ import annotations

import numpy as np

from pipelines.errors import ContractError
from pipelines.matching._history import Floats, History, Ints, Lists
from pipelines.matching._protocol import Trials
from pipelines.seeding import combine

# A purpose per draw, so that adding one changes no other.
_OWN, _OTHERS, _THEIRS = 41, 42, 43


def list_sizes(counts: Ints, size: int) -> Ints:
    """Interactions of a user's list: `size`, or half of all where there are fewer than two lists.

    >>> list_sizes(np.array([1, 5, 99, 100]), 50).tolist()
    [1, 3, 50, 50]
    """
    return np.where(counts < 2 * size, -(-counts // 2), size)


def draw_trials(
    history: History, users: Ints, *, subsets: int, size: int, others: int, seed: int
) -> Trials:
    """Lists that the candidates of each user are scored on.

    Own lists are drawn one by one from all interactions of the user and may overlap. The other
    users are drawn from everybody with a training interaction; each has one list for all
    comparisons. ``users`` are ascending numbers of shape (n,); ``subsets`` (the paper's j),
    ``size`` and ``others`` count own lists, interactions of a list and other users.

    Raises ContractError if there is no other user to compare with.
    """
    everybody = len(history.users)
    if everybody < 2:
        raise ContractError(
            "a single user can't be compared with others", where=f"{history.domain}.interactions"
        )
    own_lists = [
        history.draw(users, list_sizes(history.counts[users], size), seed, _OWN, subset)
        for subset in range(subsets)
    ]
    compared = np.empty((len(users), min(others, everybody - 1)), np.int64)
    for n, (user, key) in enumerate(zip(users, history.keys[users], strict=True)):
        rng = np.random.default_rng(int(combine(seed, _OTHERS, key)))
        drawn = rng.choice(everybody - 1, compared.shape[1], replace=False)
        compared[n] = drawn + (drawn >= user)
    people, place = np.unique(compared, return_inverse=True)
    theirs = history.draw(people, list_sizes(history.counts[people], size), seed, _THEIRS)
    first = np.cumsum([0, *(len(lists) for lists in own_lists)])
    numbers = first[:-1][None, :] + np.arange(len(users))[:, None]
    return Trials(_joined([*own_lists, theirs]), numbers, first[-1] + place.reshape(compared.shape))


def self_consistency(expected: Floats, own: int) -> tuple[Floats, Floats, Floats]:
    """s(p, u): mean rating of own lists less mean rating of others' lists.

    Means, because there are ten times as many lists of others as own ones. ``expected`` has ratings
    on 1-10 of shape (candidates, lists), the ``own`` lists first, NaN where there is none. Returns
    means of own lists, of others' lists, and their difference; NaN for a candidate that lacks one
    of its ratings.

    >>> self_consistency(np.array([[8.0, 7.0, 9.0, 5.0, 5.0]]), 3)[2].tolist()
    [3.0]
    """
    mine, others = expected[:, :own].mean(axis=1), expected[:, own:].mean(axis=1)
    return mine, others, mine - others


def choose(user: Ints, score: Floats, users: int) -> tuple[Ints, Floats]:
    """Row of the best candidate of each user, and how much better it is than the next.

    ``user`` is the position of each candidate's user, ascending; ``score`` is NaN where there is
    none. Rows (-1 where no candidate has a score; of equal scores the lower number) and margins
    (NaN with fewer than two scores) are of shape (users,).
    """
    order = np.lexsort((np.arange(len(user)), -np.nan_to_num(score, nan=-np.inf), user))
    first = np.searchsorted(user[order], np.arange(users))
    best, margin = np.full(users, -1), np.full(users, np.nan)
    for n, place in enumerate(first):
        rows = order[place : place + 2]
        rows = rows[(user[rows] == n) & ~np.isnan(score[rows])]
        if len(rows):
            best[n] = rows[0]
        if len(rows) == 2:
            margin[n] = score[rows[0]] - score[rows[1]]
    return best, margin


def _joined(parts: list[Lists]) -> Lists:
    sizes = np.concatenate([np.diff(part.start) for part in parts])
    rows = np.concatenate([part.rows for part in parts])
    return Lists(np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64), rows)
