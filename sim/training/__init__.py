"""Training of recommendation policies in the environment, with stable-baselines3.

The names below load torch when they are first used, so that the command line can show its help
without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.training._algorithms import ALGORITHMS, algorithm_named
    from sim.training._evaluation import Audience
    from sim.training._policy_file import PolicyRecommender, load_policy, policy_bytes
    from sim.training._report import TrainingReport, policy_table, train
    from sim.training._settings import RunSettings, run_settings
    from sim.training._train import Stopped, Trained, Training

__all__ = [
    "ALGORITHMS",
    "Audience",
    "PolicyRecommender",
    "RunSettings",
    "Stopped",
    "Trained",
    "Training",
    "TrainingReport",
    "algorithm_named",
    "load_policy",
    "policy_bytes",
    "policy_table",
    "run_settings",
    "train",
]

_HOMES = {
    "ALGORITHMS": "_algorithms",
    "Audience": "_evaluation",
    "PolicyRecommender": "_policy_file",
    "RunSettings": "_settings",
    "Stopped": "_train",
    "Trained": "_train",
    "Training": "_train",
    "TrainingReport": "_report",
    "algorithm_named": "_algorithms",
    "load_policy": "_policy_file",
    "policy_bytes": "_policy_file",
    "policy_table": "_report",
    "run_settings": "_settings",
    "train": "_report",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
