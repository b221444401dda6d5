"""Conformance of recommenders."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from pipelines.errors import ConfigError
from sim._release import Release
from sim.recommenders import Recommender, open_recommender

__all__ = ["check_recommender"]


def check_recommender(
    chosen: str | type[Any] | Callable[[Release], Recommender], release: Release
) -> None:
    """Check what is required of every :class:`sim.recommenders.Recommender`.

    `chosen` is a name, a class, or a function that returns a recommender fitted on a release. The
    release holds at least three personas and five items. AssertionError names what is wrong.
    """

    def fitted() -> Recommender:
        if isinstance(chosen, str) or inspect.isclass(chosen):
            return open_recommender(chosen).fit(release)
        return chosen(release)

    subject = fitted()

    # A name for tables and a sentence for people.
    assert subject.name, "it has a name"
    assert subject.note.endswith("."), "its note is a sentence"

    # A fit depends on the data and the seed alone.
    equal = [candidate.recommend([0, 1, 2], 5).tolist() for candidate in (subject, fitted())]
    assert equal[0] == equal[1], "equal fits give equal lists"

    # Rows of users, items and ratings take the place of the training split.
    rows = release["interactions"].polars(["user_id", "item_id", "rating"])
    other = fitted()
    assert other.fit(release, interactions=rows) is other, "`fit` returns it"
    assert other.recommend([0], 3).shape == (1, 3), "shape is (users, k)"

    # As many numbers per user as asked for, none twice.
    lists = subject.recommend([0, 1, 2], 4)
    assert lists.shape == (3, 4), "shape is (users, k)"
    assert lists.dtype == np.int64, "item numbers are int64"
    assert ((lists >= 0) & (lists < len(release["items"]))).all(), "items are of the release"
    assert all(len(set(row)) == 4 for row in lists.tolist()), "items are distinct"

    # The best items are left out once they are seen.
    first = subject.recommend([0, 1], 2)
    seen = np.array([[first[0, 0], first[0, 1]], [first[1, 0], -1]])
    again = subject.recommend([0, 1], 4, seen=seen, ratings=np.where(seen >= 0, 3.0, np.nan))
    assert not set(again[0].tolist()) & set(first[0].tolist()), "seen items are left out"
    assert int(first[1, 0]) not in again[1].tolist(), "seen items are left out"

    # -1 pads a list that nothing is left for.
    items = len(release["items"])
    seen = np.arange(items - 1)[None, :]
    ratings = np.full(seen.shape, 3.0)
    lists = subject.recommend([0], 3, seen=seen, ratings=ratings)
    assert lists.tolist() == [[items - 1, -1, -1]], "-1 pads a list"

    # A batch is what its users get one by one.
    batch = subject.recommend([2, 0, 1], 5)
    single = [subject.recommend([user], 5)[0].tolist() for user in (2, 0, 1)]
    assert batch.tolist() == single, "a batch is what its users get one by one"

    # Repeated calls draw nothing anew.
    repeated = [subject.recommend([0, 1], 3).tolist() for _ in range(2)]
    assert repeated[0] == repeated[1], "a second call gives the same lists"

    # Places do not depend on k.
    head = subject.recommend([0], 5)[:, :2].tolist()
    assert subject.recommend([0], 2).tolist() == head, "a shorter list is the head of a longer one"

    # Unknown users and items, and histories of another shape, are errors of one line.
    for users, options in (
        ([10**6], {}),
        ([0], {"seen": [[10**6]]}),
        ([0, 1], {"seen": [[1]]}),
    ):
        error = ""
        try:
            subject.recommend(users, 2, **options)
        except ConfigError as raised:
            error = str(raised)
        assert subject.name in error, f"users {users}, {options}: {error!r}"
