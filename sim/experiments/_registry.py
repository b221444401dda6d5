"""Experiments by name and from ``module:Class``."""

from __future__ import annotations

import importlib.util
from typing import Any

from pipelines import plugins
from sim.experiments._protocol import Experiment

#: The project's experiments by name, in the order of reports; imported on first use.
EXPERIMENTS: dict[str, str] = {
    "believability": "sim.experiments._believability:Believability",
    "rating": "sim.experiments._rating:Rating",
    "distribution": "sim.experiments._distribution:Distribution",
    "strategies": "sim.experiments._strategies:Strategies",
    "enhancement": "sim.experiments._enhancement:Enhancement",
    "bubble": "sim.experiments._bubble:Bubble",
    "causal": "sim.experiments._causal:Causal",
    "traits": "sim.experiments._traits:Traits",
    "exposure": "sim.experiments._exposure:Exposure",
    "reviews": "sim.experiments._reviews:Reviews",
    "thumbnails": "sim.experiments._thumbnails:Thumbnails",
    "hallucination": "sim.experiments._hallucination:Hallucination",
    "offline": "sim.experiments._offline:Offline",
    "feeling": "sim.experiments._feeling:Feeling",
    "judge": "sim.experiments._judge:Judge",
    "cost": "sim.experiments._cost:Cost",
}


def experiment_names() -> list[str]:
    """Names of the experiments that are there, in the order of reports."""
    return [n for n, place in EXPERIMENTS.items() if importlib.util.find_spec(place.split(":")[0])]


def open_experiment(name: str, **options: Any) -> Experiment:
    """An experiment by name.

    A name is one of `EXPERIMENTS`, ``module:Class`` or ``path/to/file.py:Class``; options are
    arguments of its class, such as ``settings``.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with ``run``, or an
        option is unknown.
    """
    made: Experiment = plugins.open_plugin(
        name,
        {n: EXPERIMENTS[n] for n in experiment_names()},
        options,
        kind="experiment",
        methods=("run",),
        implement="sim.experiments.Experiment (docs/experiments.md)",
    )
    return made
