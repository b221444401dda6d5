"""Gymnasium's own vector environments and checker, and libraries that fork, over a release."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from support import dialogue_release, small_release

import sim
from sim.dialogue.testing import sample_world

pytestmark = [pytest.mark.pipeline, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a release of films."""
    folder = tmp_path_factory.mktemp("home")
    small_release.build(folder)
    return folder


def rewards(name: str, mode: str, actions: list[Any], **options: Any) -> list[list[float]]:
    """Rewards of two environments under the same actions."""
    envs = gymnasium.make_vec(name, num_envs=2, vectorization_mode=mode, **options)
    try:
        envs.reset(seed=0)
        return [envs.step(np.array(action))[1].tolist() for action in actions]
    finally:
        envs.close()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"observation": "ratings"},
        {"watched": 3},
        {"retriever": "graph"},
        {"rater": "replay"},
        {"vector_kwargs": {"context": "spawn"}},
    ],
    ids=str,
)
def test_async_environments_live_as_those_of_one_process(home: Path, options: Any) -> None:
    actions = [[3, 5], [3, 6], [20, 0]]
    shared: Any = {"release": "movies@latest", "home": home}
    found = rewards("Understudy/Movies-v0", "async", actions, **shared, **options)
    options.pop("vector_kwargs", None)
    assert found == rewards("Understudy/Movies-v0", "sync", actions, **shared, **options)
    assert all(1 <= reward <= 10 for step in found for reward in step)


def test_async_slates_live_as_those_of_one_process(home: Path) -> None:
    actions = [[[3, 5, 7, 9, 11], [0, 1, 2, 3, 4]]] * 2
    shared: Any = {"release": "movies@latest", "home": home}
    found = rewards("Understudy/MoviesSlate-v0", "async", actions, **shared)
    assert found == rewards("Understudy/MoviesSlate-v0", "sync", actions, **shared)


def test_async_dialogues_live_as_those_of_one_process(tmp_path: Path) -> None:
    dialogue_release.publish(tmp_path, sample_world())
    actions = [[0, 1], [1, 0], [20, 21]]
    shared: Any = {"release": "products@latest", "home": tmp_path}
    found = rewards("Understudy/Dialogue-v0", "async", actions, **shared)
    assert found == rewards("Understudy/Dialogue-v0", "sync", actions, **shared)


@pytest.mark.parametrize("name", ["Understudy/Movies-v0", "Understudy/MoviesSlate-v0"])
def test_gymnasiums_checker_finds_nothing(name: str, home: Path) -> None:
    env = gymnasium.make(name, release="movies@latest", home=home, render_mode="ansi")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    assert env.unwrapped.release.ref == sim.open_release("movies@latest", home=home).ref
