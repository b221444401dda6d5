"""Raters say what a persona would give an item.

Every rater answers with a distribution over a scale's answers and a status per pair. The
statistical rater needs no model; `random` and `mean` are the baselines that others must beat.
Importing this loads no torch.
"""

from pipelines.prompts import scale_report
from pipelines.raters._ensemble import EnsembleBatch, EnsembleRater, at_temperature, total_variation
from pipelines.raters._exposure import ExposureModel, fit_exposure, judge_exposure
from pipelines.raters._facts import prompt_examples, scoring_facts
from pipelines.raters._plan import STRATA, plan_pairs
from pipelines.raters._registry import (
    OPENED,
    needs_of,
    open_rater,
    rater_class,
)
from pipelines.raters._replay import ReplayRater
from pipelines.raters._score import score_pairs
from pipelines.raters._shards import Shard, Shards, cohort_of, in_cohort, shard_numbers
from pipelines.raters.llm import EXPLANATIONS, LLMRater
from pipelines.raters.protocol import (
    OK,
    RATERS,
    BoundRater,
    Rater,
    RatingBatch,
    all_pairs,
    bind,
    layers,
)
from pipelines.raters.report import (
    BASELINES,
    BIAS,
    COMPARED,
    CONTEXT,
    MIN_PERSONAS,
    MIN_RATINGS,
    MIN_USERS,
    POPULATION_FIGURES,
    HeldOut,
    PopulationReport,
    Predictions,
    RaterReport,
    evaluate,
    paired_difference,
    persona_rows,
    population_markdown,
    population_pictures,
    population_report,
    population_rows,
    quality_summary,
    rater_report,
    reliability,
    reliability_plot,
    similarity,
    whole_report,
)
from pipelines.raters.statistical import (
    EFFECTS,
    LiveStatistical,
    MeanRater,
    RandomRater,
    Settled,
    StatisticalRater,
    fit_rater,
    fit_statistical,
    source_scale,
)
from pipelines.scales import SCALES, RatingScale, rescale, scale_named, to_answers

#: Bumped whenever the same tables and settings give other scores.
CODE_VERSION = "11"

__all__ = [
    "BASELINES",
    "BIAS",
    "CODE_VERSION",
    "COMPARED",
    "CONTEXT",
    "EFFECTS",
    "EXPLANATIONS",
    "MIN_PERSONAS",
    "MIN_RATINGS",
    "MIN_USERS",
    "OK",
    "OPENED",
    "POPULATION_FIGURES",
    "RATERS",
    "SCALES",
    "STRATA",
    "BoundRater",
    "EnsembleBatch",
    "EnsembleRater",
    "ExposureModel",
    "HeldOut",
    "LLMRater",
    "LiveStatistical",
    "MeanRater",
    "PopulationReport",
    "Predictions",
    "RandomRater",
    "Rater",
    "RaterReport",
    "RatingBatch",
    "RatingScale",
    "ReplayRater",
    "Settled",
    "Shard",
    "Shards",
    "StatisticalRater",
    "all_pairs",
    "at_temperature",
    "bind",
    "cohort_of",
    "evaluate",
    "fit_exposure",
    "fit_rater",
    "fit_statistical",
    "in_cohort",
    "judge_exposure",
    "layers",
    "needs_of",
    "open_rater",
    "paired_difference",
    "persona_rows",
    "plan_pairs",
    "population_markdown",
    "population_pictures",
    "population_report",
    "population_rows",
    "prompt_examples",
    "quality_summary",
    "rater_class",
    "rater_report",
    "reliability",
    "reliability_plot",
    "rescale",
    "scale_named",
    "scale_report",
    "score_pairs",
    "scoring_facts",
    "shard_numbers",
    "similarity",
    "source_scale",
    "to_answers",
    "total_variation",
    "whole_report",
]
