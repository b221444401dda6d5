"""Experiments by name and from ``module:Class``, run on one context."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Sequence
from typing import Any

from pipelines import plugins
from pipelines.errors import ConfigError
from pipelines.progress import advance
from sim.experiments._context import ExperimentContext
from sim.experiments._protocol import Experiment, Result, TooFew
from sim.experiments._report import Outcome

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


def chosen_names(names: Sequence[str]) -> list[str]:
    """Names of experiments, each once; ``all`` stands for all of them.

    Raises ConfigError if no name is given.
    """
    if not names:
        raise ConfigError(
            "no experiment is named", where="understudy experiment", hint="names of `list`, or all"
        )
    whole = [n for name in names for n in (experiment_names() if name == "all" else [name])]
    return list(dict.fromkeys(whole))


def run_experiments(
    context: ExperimentContext, names: Sequence[str]
) -> dict[str, tuple[Experiment, Outcome]]:
    """Run experiments (:func:`chosen_names`) one after the other; sets the context's ``seconds``.

    Returns each experiment with its result by its own name; with the error instead where too little
    is there for figures.

    Raises
    ------
    ConfigError
        If a name is unknown, or two experiments have the same.
    TooFew
        If a single experiment is asked for, and too little is there.
    """
    chosen = chosen_names(names)
    # A wrong name ends the run before the first experiment.
    opened: dict[str, Experiment] = {}
    for name in chosen:
        made = open_experiment(name)
        if made.name in opened:
            raise ConfigError(
                f"two experiments are named {made.name}", where=name, hint="give one a new name"
            )
        opened[made.name] = made
    out: dict[str, tuple[Experiment, Outcome]] = {}
    for number, (name, experiment) in enumerate(opened.items()):
        advance(name, number, len(chosen))
        began = time.perf_counter()
        outcome: Outcome
        try:
            outcome = experiment.run(context)
        except TooFew as error:
            if len(chosen) == 1:
                raise
            outcome = error
        if context.people and isinstance(outcome, Result):
            outcome.notes.append(context.people)
        context.seconds[name] = time.perf_counter() - began
        out[name] = (experiment, outcome)
    return out
