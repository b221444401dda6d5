"""Raters say what a persona would give an item.

Every rater answers with a distribution over a scale's answers and a status per pair. The
statistical rater needs no model; `random` and `mean` are the baselines that others must beat.
Importing this loads no torch.
"""

from pipelines.prompts import scale_report
from pipelines.raters._ensemble import EnsembleRater, at_temperature, total_variation
from pipelines.raters._exposure import fit_exposure, judge_exposure
from pipelines.raters._plan import pairs_each, plan_choice_sets, plan_pairs, planned_sets
from pipelines.raters._registry import calibration_file, needs_of, open_rater
from pipelines.raters._replay import ReplayRater
from pipelines.raters._scoring import (
    CohortScores,
    Part,
    ScorePart,
    example_pairs,
    models_of,
    persona_readings,
    prompt_examples,
    score_pairs,
    scoring_metadata,
)
from pipelines.raters.llm import ListwiseRater, LLMRater, llm_name
from pipelines.raters.protocol import (
    FITTED_RATERS,
    OK,
    BoundRater,
    Rater,
    RatingBatch,
    all_pairs,
    bind,
    for_personas,
    layers,
)
from pipelines.raters.report.held_out import (
    BASELINES,
    BIAS,
    persona_rows,
    rater_report,
    reliability_plot,
    whole_report,
)
from pipelines.raters.report.population import (
    MIN_PERSONAS,
    MIN_RATINGS,
    MIN_USERS,
    POPULATION_FIGURES,
    population_markdown,
    population_pictures,
    population_report,
    population_rows,
)
from pipelines.raters.report.scores import (
    choice_set_figures,
    consistency,
    consistency_markdown,
    quality_summary,
)
from pipelines.raters.statistical.baselines import MeanRater, RandomRater
from pipelines.raters.statistical.fit import fit_rater, fit_statistical
from pipelines.raters.statistical.products import FacetRater, TextRater, WordsRater, around
from pipelines.raters.statistical.profiles import EFFECTS, source_scale
from pipelines.raters.statistical.rater import LiveStatistical, Settled, StatisticalRater
from pipelines.raters.surrogate import (
    KINDS,
    BoundSurrogate,
    SurrogateModel,
    SurrogateRater,
    surrogate_version,
)
from pipelines.scales import SCALES, rescale, scale_named, to_answers

#: Bumped whenever the same tables and settings give other scores.
CODE_VERSION = "13"

__all__ = [
    "BASELINES",
    "BIAS",
    "CODE_VERSION",
    "EFFECTS",
    "FITTED_RATERS",
    "KINDS",
    "MIN_PERSONAS",
    "MIN_RATINGS",
    "MIN_USERS",
    "OK",
    "POPULATION_FIGURES",
    "SCALES",
    "BoundRater",
    "BoundSurrogate",
    "CohortScores",
    "EnsembleRater",
    "FacetRater",
    "LLMRater",
    "ListwiseRater",
    "LiveStatistical",
    "MeanRater",
    "Part",
    "RandomRater",
    "Rater",
    "RatingBatch",
    "ReplayRater",
    "ScorePart",
    "Settled",
    "StatisticalRater",
    "SurrogateModel",
    "SurrogateRater",
    "TextRater",
    "WordsRater",
    "all_pairs",
    "around",
    "at_temperature",
    "bind",
    "calibration_file",
    "choice_set_figures",
    "consistency",
    "consistency_markdown",
    "example_pairs",
    "fit_exposure",
    "fit_rater",
    "fit_statistical",
    "for_personas",
    "judge_exposure",
    "layers",
    "llm_name",
    "models_of",
    "needs_of",
    "open_rater",
    "pairs_each",
    "persona_readings",
    "persona_rows",
    "plan_choice_sets",
    "plan_pairs",
    "planned_sets",
    "population_markdown",
    "population_pictures",
    "population_report",
    "population_rows",
    "prompt_examples",
    "quality_summary",
    "rater_report",
    "reliability_plot",
    "rescale",
    "scale_named",
    "scale_report",
    "score_pairs",
    "scoring_metadata",
    "source_scale",
    "surrogate_version",
    "to_answers",
    "total_variation",
    "whole_report",
]
