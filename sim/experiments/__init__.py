"""Experiments on simulated users: claims of the papers with baselines, controls and intervals.

After SimUSER (section 4, appendix F) and Agent4Rec (sections 3 and 4). An :class:`Experiment`
answers one question on any release with any brain and recommender; :class:`ExperimentContext`
opens, fits and keeps what several of them need.
"""

from sim.experiments._context import CODE_VERSION, RECOMMENDERS, ExperimentContext
from sim.experiments._figures import bars, by_person, finish_picture, paired
from sim.experiments._protocol import SOURCES, Comparison, Experiment, Result, Row, TooFew
from sim.experiments._report import (
    Outcome,
    comparisons_frame,
    markdown,
    paper_rows,
    rows_frame,
    write_report,
)
from sim.experiments._run import (
    EXPERIMENTS,
    chosen_names,
    experiment_names,
    open_experiment,
    run_experiments,
)

__all__ = [
    "CODE_VERSION",
    "EXPERIMENTS",
    "RECOMMENDERS",
    "SOURCES",
    "Comparison",
    "Experiment",
    "ExperimentContext",
    "Outcome",
    "Result",
    "Row",
    "TooFew",
    "bars",
    "by_person",
    "chosen_names",
    "comparisons_frame",
    "experiment_names",
    "finish_picture",
    "markdown",
    "open_experiment",
    "paired",
    "paper_rows",
    "rows_frame",
    "run_experiments",
    "write_report",
]
