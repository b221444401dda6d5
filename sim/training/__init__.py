"""Training of recommendation policies in the environment, with stable-baselines3.

The names below load torch when they are first used, so that the command line can show its help
without.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sim.training._algorithms import ALGORITHMS
    from sim.training._policy_file import PolicyRecommender, load_policy, policy_bytes
    from sim.training._report import TrainingReport, policy_table, train
    from sim.training._settings import RunSettings, run_settings
    from sim.training._train import Stopped, Trained, Training

__all__ = [
    "ALGORITHMS",
    "PolicyRecommender",
    "RunSettings",
    "Stopped",
    "Trained",
    "Training",
    "TrainingReport",
    "load_policy",
    "policy_bytes",
    "policy_table",
    "run_settings",
    "train",
]

_HOMES = {
    "_algorithms": ("ALGORITHMS",),
    "_policy_file": ("PolicyRecommender", "load_policy", "policy_bytes"),
    "_report": ("TrainingReport", "policy_table", "train"),
    "_settings": ("RunSettings", "run_settings"),
    "_train": ("Stopped", "Trained", "Training"),
}


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
