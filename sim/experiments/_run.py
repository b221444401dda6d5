"""Running several experiments on one context."""

from __future__ import annotations

import time
from collections.abc import Sequence

from pipelines.errors import ConfigError
from sim.experiments._context import ExperimentContext
from sim.experiments._protocol import Experiment, TooFew
from sim.experiments._registry import experiment_names, open_experiment
from sim.experiments._report import Outcome


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
        if context.progress is not None:
            context.progress(name, number, len(chosen))
        began = time.perf_counter()
        outcome: Outcome
        try:
            outcome = experiment.run(context)
        except TooFew as error:
            if len(chosen) == 1:
                raise
            outcome = error
        context.seconds[name] = time.perf_counter() - began
        out[name] = (experiment, outcome)
    return out
