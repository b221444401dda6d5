"""The small release, opened for environments."""

from __future__ import annotations

import pytest

from sim import Release
from sim.environment import World


@pytest.fixture(scope="session")
def world(release: Release) -> World:
    """The release with the statistical rater; shared, as environments share it."""
    return World.open(release)
