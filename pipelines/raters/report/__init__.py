"""Evaluation of raters on held-out ratings of people, and summaries of scores."""

from pipelines.raters.report._calibrate import Calibration, fit_calibration, read_calibration
from pipelines.raters.report._choice_sets import (
    choice_set_figures,
    consistency,
    consistency_markdown,
)
from pipelines.raters.report._held_out import People, ask_about, in_source_units, persona_rows
from pipelines.raters.report._metrics import (
    HeldOut,
    Predictions,
    evaluate,
    paired_difference,
    paired_loss_difference,
    reliability,
)
from pipelines.raters.report._population_report import (
    MIN_PERSONAS,
    MIN_RATINGS,
    MIN_USERS,
    POPULATION_FIGURES,
    PopulationReport,
    population_markdown,
    population_pictures,
    population_report,
    population_rows,
)
from pipelines.raters.report._predictors import BASELINES, BIAS, predict_baseline
from pipelines.raters.report._report import (
    CONTEXT,
    RaterReport,
    rater_report,
    reliability_plot,
    whole_report,
)
from pipelines.raters.report._summary import quality_summary, similarity

__all__ = [
    "BASELINES",
    "BIAS",
    "CONTEXT",
    "MIN_PERSONAS",
    "MIN_RATINGS",
    "MIN_USERS",
    "POPULATION_FIGURES",
    "Calibration",
    "HeldOut",
    "People",
    "PopulationReport",
    "Predictions",
    "RaterReport",
    "ask_about",
    "choice_set_figures",
    "consistency",
    "consistency_markdown",
    "evaluate",
    "fit_calibration",
    "in_source_units",
    "paired_difference",
    "paired_loss_difference",
    "persona_rows",
    "population_markdown",
    "population_pictures",
    "population_report",
    "population_rows",
    "predict_baseline",
    "quality_summary",
    "rater_report",
    "read_calibration",
    "reliability",
    "reliability_plot",
    "similarity",
    "whole_report",
]
