"""The small release with thirty matched people, opened for experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from PIL import Image

from pipelines.config import load_settings
from pipelines.llm.engines.scripted import ScriptedEngine
from pipelines.memory import TextVectors
from sim import Release, open_release
from sim.experiments import Experiment, ExperimentContext, open_experiment
from sim.experiments.testing import fresh
from tests.sim.agents.test_model_brain import Encoder
from tests.sim.experiments.scripted import Prepared, Studies, comments

USERS = tuple(f"ml-user:{n}" for n in range(1, 31))
#: Options with which the experiments run on the small release; `reviews` and `thumbnails` need
#: comments and posters besides.
OPTIONS: dict[str, dict[str, Any]] = {
    "believability": {"items": 4, "positives": (1,), "nearest": 3},
    "enhancement": {"recommenders": ("ease",), "k": 5},
    "bubble": {"recommender": "ease", "rounds": 2, "min_items": 5},
    "causal": {"recommender": "random", "min_ratings": 1, "min_items": 20, "resamples": 10},
    "traits": {"recommender": "popular", "items": 2, "min_people": 1},
    "exposure": {
        "genres": ("comedy", "horror"), "pages": (1, 2), "agents": 20, "films": 24, "min_agents": 10
    },
    "hallucination": {"min_items": 2},
    "offline": {
        "systems": ("random", "popular", "mean-rating", "item-knn", "ease"), "min_systems": 5
    },
    # People of the small release have one test item each.
    "judge": {"recommender": "popular", "least": 1},
}  # fmt: skip


@pytest.fixture(scope="session")
def matched(small: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Release:
    """The small release with thirty matched personas, ten in every tier, and a graph."""
    home = tmp_path_factory.mktemp("experiments") / "home"
    tables = small.matched_frames(USERS)
    number = pl.col("user_id").str.slice(8).cast(pl.Int64)
    tiers = number.replace_strict(
        {n: ("low", "medium", "high")[n % 3] for n in range(1, 41)}, return_dtype=pl.String
    )
    names = ("activity_tier", "conformity_tier", "diversity_80_tier")
    traits = tables["movies.training_traits"].with_columns(**dict.fromkeys(names, tiers))
    small.build(home, replace={**tables, "movies.training_traits": traits})
    return open_release("movies", home=home)


@pytest.fixture(scope="session")
def posters(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Posters of 14 of the 24 films in five colours; that of film 3 is damaged."""
    folder = tmp_path_factory.mktemp("world")
    (folder / "posters").mkdir()
    for n in range(1, 15):
        colour = ("red", "green", "yellow", "black", "white")[n % 5]
        Image.new("RGB", (20, 30), colour).save(folder / "posters" / f"{n}.jpg", "JPEG")
    (folder / "posters" / "3.jpg").write_bytes(b"\xff\xd8 no picture")
    return folder


@pytest.fixture(scope="session")
def prepared(posters: Path) -> Prepared:
    """Experiments with the options of the small release, and others."""

    def make(name: str, **options: Any) -> Experiment:
        own = {"reviews": {"comments": comments()}, "thumbnails": {"folder": posters}} | OPTIONS
        return open_experiment(name, **(own.get(name, {}) | options))

    return make


@pytest.fixture(scope="session")
def studies(context: ExperimentContext, prepared: Prepared) -> Studies:
    """The study of an experiment on the small release."""
    return lru_cache(maxsize=None)(lambda name: prepared(name).run(context))


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
