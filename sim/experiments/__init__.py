"""Experiments on simulated users: claims of the papers with baselines, controls and intervals.

After SimUSER (section 4, appendix F) and Agent4Rec (sections 3 and 4). An experiment is a function
with the decorator :func:`experiment` that fills a :class:`pipelines.study.Study`, on any release
with any brain and recommender; :class:`ExperimentContext` opens, fits and caches what several of
them need.
"""

from sim.experiments._context import CODE_VERSION, RECOMMENDERS, ExperimentContext
from sim.experiments._experiment import (
    EXPERIMENTS,
    Experiment,
    chosen_names,
    experiment,
    open_experiment,
    paper_rows,
    run_experiments,
)

__all__ = [
    "CODE_VERSION",
    "EXPERIMENTS",
    "RECOMMENDERS",
    "Experiment",
    "ExperimentContext",
    "chosen_names",
    "experiment",
    "open_experiment",
    "paper_rows",
    "run_experiments",
]
