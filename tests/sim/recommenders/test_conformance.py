"""The conformance class over the whole registry, and over a plug-in from a foreign file."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.errors import ConfigError
from sim import Release
from sim.recommenders import RECOMMENDERS, Recommender, open_recommender, people_release
from sim.recommenders.testing import RecommenderContract

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


class TestForPersonas(RecommenderContract):
    """Personas that are matched to nobody."""

    @pytest.fixture(autouse=True)
    def _named(self, name: str) -> None:
        self.name = name

    def make(self, release: Release) -> Recommender:
        return fitted(self.name, release)


class TestForPeople(RecommenderContract):
    """Personas that are matched to a user each."""

    @pytest.fixture(autouse=True)
    def _named(self, name: str) -> None:
        self.name = name

    def make(self, release: Release) -> Recommender:
        users = [f"ml-user:{n}" for n in (7, 8, 10, 11)]
        return fitted(self.name, people_release(release, users))
