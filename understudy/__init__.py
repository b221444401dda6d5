"""Simulated users for recommender systems, as versioned datasets.

>>> from understudy import open_release
>>> release = open_release()     # yours, or a small one that comes with the package
>>> release["personas"].polars()             # doctest: +SKIP

Reading releases needs the core packages only. Environments, training and the pipeline are extras
(``pip install 'understudy-recsys[env]'``); a missing package is a ``MissingPackageError`` that
names its extra. Where gymnasium is installed, ``gymnasium.make("Understudy/Movies-v0")`` works
after ``import understudy``. Names that need an extra are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pipelines import __version__
from pipelines.errors import MissingPackageError, UnderstudyError
from pipelines.extras import missing_package
from sim import ENVIRONMENTS, Release, Table, open_release

if TYPE_CHECKING:
    from sim.environment import RecommendationEnv, RecommendationVectorEnv, SlateEnv, World
    from sim.play import play_episode
    from sim.recommenders import Audience, evaluate_offline, open_recommender
    from sim.training import RunSettings, train

__all__ = [
    "ENVIRONMENTS",
    "Audience",
    "MissingPackageError",
    "RecommendationEnv",
    "RecommendationVectorEnv",
    "Release",
    "RunSettings",
    "SlateEnv",
    "Table",
    "UnderstudyError",
    "World",
    "__version__",
    "evaluate_offline",
    "open_recommender",
    "open_release",
    "play_episode",
    "train",
]

_MODULES = {
    "Audience": "sim.recommenders",
    "RecommendationEnv": "sim.environment",
    "RecommendationVectorEnv": "sim.environment",
    "RunSettings": "sim.training",
    "SlateEnv": "sim.environment",
    "World": "sim.environment",
    "evaluate_offline": "sim.recommenders",
    "open_recommender": "sim.recommenders",
    "play_episode": "sim.play",
    "train": "sim.training",
}

_EXTRAS = {
    "sim.environment": "env",
    "sim.play": "env",
    "sim.recommenders": "env",
    "sim.training": "train",
}


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        where = f"understudy.{name}"
        raise missing_package(error, where=where, extra=_EXTRAS.get(module)) from error


def __dir__() -> list[str]:
    return sorted(__all__)
