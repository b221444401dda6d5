"""Statistical raters: of ratings, of products in choice sets, and those without a persona."""

from pipelines.raters.statistical._baselines import MeanRater, RandomRater
from pipelines.raters.statistical._drawn import (
    component_sums,
    components,
    other_means,
    stated_genres,
)
from pipelines.raters.statistical._fit import fit_rater, fit_statistical
from pipelines.raters.statistical._live import LiveStatistical, Settled
from pipelines.raters.statistical._ordinal import OrdinalModel, fit_ordinal
from pipelines.raters.statistical._people import (
    HumanRows,
    collect_rows,
    group_surplus,
    source_scale,
)
from pipelines.raters.statistical._products import (
    SPREAD,
    ChoiceSets,
    FacetRater,
    TextRater,
    WordsRater,
    around,
    positions,
)
from pipelines.raters.statistical._profiles import EFFECTS, Catalogue, genre_matrix, vector_matrix
from pipelines.raters.statistical._rater import HUMAN, StatisticalRater

__all__ = [
    "EFFECTS",
    "HUMAN",
    "SPREAD",
    "Catalogue",
    "ChoiceSets",
    "FacetRater",
    "HumanRows",
    "LiveStatistical",
    "MeanRater",
    "OrdinalModel",
    "RandomRater",
    "Settled",
    "StatisticalRater",
    "TextRater",
    "WordsRater",
    "around",
    "collect_rows",
    "component_sums",
    "components",
    "fit_ordinal",
    "fit_rater",
    "fit_statistical",
    "genre_matrix",
    "group_surplus",
    "other_means",
    "positions",
    "source_scale",
    "stated_genres",
    "vector_matrix",
]
