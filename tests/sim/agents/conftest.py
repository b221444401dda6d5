"""The small release with real users behind its personas, opened for agents."""

from __future__ import annotations

from types import ModuleType

import pytest

from sim import Release, open_release
from sim.agents import AgentWorld

#: Users that personas are matched to; the other six personas are nobody's.
USERS = tuple(f"ml-user:{n}" for n in range(1, 31))


@pytest.fixture(scope="session")
def matched(small: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The small release with thirty matched personas and a graph of their training ratings."""
    home = tmp_path_factory.mktemp("agents") / "home"
    tables = small.matched_frames(USERS)
    small.build(home, replace=tables)
    return open_release("movies", home=home)


@pytest.fixture(scope="session")
def world(matched: Release) -> AgentWorld:
    """Its matched people, before pages of four."""
    return AgentWorld.open(matched)
