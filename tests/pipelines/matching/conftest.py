from __future__ import annotations

import pytest

from pipelines.matching import History
from pipelines.matching.testing import small_world


@pytest.fixture(scope="session")
def world():
    return small_world()


@pytest.fixture(scope="session")
def history(world):
    return History.read("movies", **{k: v for k, v in world.items() if k != "training_traits"})
