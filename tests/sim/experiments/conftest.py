"""The small release with thirty matched people, opened for experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pipelines.config import load_settings
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.memory import TextVectors
from sim import Release, open_release
from sim.experiments import ExperimentContext
from sim.experiments.testing import fresh
from tests.sim.agents.test_model_brain import Encoder

USERS = tuple(f"ml-user:{n}" for n in range(1, 31))


@pytest.fixture(scope="session")
def matched(small: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The small release with thirty matched personas and a graph of their training ratings."""
    home = tmp_path_factory.mktemp("experiments") / "home"
    small.build(home, replace=small.matched_frames(USERS))
    return open_release("movies", home=home)


@pytest.fixture(scope="session")
def context(
    matched: Release, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExperimentContext]:
    """Thirty agents, three pages of two, two recommenders; results kept in a home of its own."""
    home = tmp_path_factory.mktemp("kept")
    settings = load_settings(overrides={"runtime": {"home": str(home)}})
    made = ExperimentContext(
        matched, settings, home, agents=30, pages=3, per_page=2, recommenders=("random", "popular")
    )
    yield made
    made.close()


@pytest.fixture
def scripted(
    context: ExperimentContext, tmp_path: Path
) -> Iterator[Callable[..., ExperimentContext]]:
    """Contexts with a model brain whose engine replies by a rule; nothing kept, six agents."""
    opened = []

    def make(rule: Any = None, **changes: Any) -> ExperimentContext:
        world = context.world()
        options = {
            "engine": ScriptedEngine(rule, name="test"),
            "vectors": TextVectors(Encoder(world)),
        }
        made = fresh(
            context,
            home=tmp_path / str(len(opened)),
            brains=("random", "statistical", "model"),
            brain_options={"model": options},
            sample={"model_agents": 6, "model_pages": 1},
            **changes,
        )
        opened.append(made)
        return made

    yield make
    for made in opened:
        made.close()
