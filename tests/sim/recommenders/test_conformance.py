"""Conformance of the whole registry, and of a plug-in from a foreign file."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipelines.errors import ConfigError
from sim import Release
from sim.recommenders import (
    RECOMMENDERS,
    Ints,
    PopularRecommender,
    Recommender,
    open_recommender,
    people_release,
)
from sim.recommenders.testing import check_recommender

PLUGIN = """
import numpy as np

class Newest:
    \"\"\"Items with the highest number first.\"\"\"

    def fit(self, release, *, interactions=None):
        self.items = len(release["items"])
        return self

    def recommend(self, users, k, *, seen=None, ratings=None):
        lists = np.full((len(users), k), -1)
        for row in range(len(users)):
            past = set() if seen is None else set(np.asarray(seen)[row].tolist())
            left = [n for n in reversed(range(self.items)) if n not in past][:k]
            lists[row, : len(left)] = left
        return lists
"""

#: Fewer passes than by default: the seam is tested, not the quality.
FAST = {"bpr": {"iterations": 5}, "multvae": {"epochs": 3}, "lightgcn": {"epochs": 5}}


@pytest.fixture(params=[*RECOMMENDERS, "plug-in"])
def name(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Every name of the registry, and ``file.py:Class``."""
    if request.param != "plug-in":
        return str(request.param)
    path = tmp_path / "newest_first.py"
    path.write_text(PLUGIN)
    return f"{path}:Newest"


def fitted(name: str, release: Release) -> Recommender:
    try:
        return open_recommender(name, **FAST.get(name, {})).fit(release)
    except ConfigError as error:
        if "is not installed" in str(error):
            pytest.skip(str(error))
        raise


def test_conforms_for_personas_that_are_matched_to_nobody(name: str, release: Release) -> None:
    check_recommender(partial(fitted, name), release)


def test_conforms_for_personas_that_are_matched_to_a_user_each(name: str, release: Release) -> None:
    users = [f"ml-user:{n}" for n in (7, 8, 10, 11)]
    check_recommender(partial(fitted, name), people_release(release, users))


def test_fault_is_named(release: Release) -> None:
    class Restless(PopularRecommender):
        """Turns lists of five round if somebody is alone."""

        def recommend(self, users: Any, k: int, **options: Any) -> Ints:
            lists = super().recommend(users, k, **options)
            return lists[:, ::-1] if (len(lists), k) == (1, 5) else lists

    with pytest.raises(AssertionError, match="a batch is what its users get"):
        check_recommender(Restless, release)
