"""Surrogates of raters: learned from stored scores, judged on held-out pairs."""

from pipelines.surrogates._build import (
    FIGURES,
    RECIPE,
    Recipe,
    Taught,
    Teacher,
    compare,
    save_surrogate,
    teach,
    teacher_of,
)
from pipelines.surrogates._learn import Fit, Pairs, fit_pairs

#: Raised whenever the same tables and settings give another surrogate.
CODE_VERSION = "2"

__all__ = [
    "CODE_VERSION",
    "FIGURES",
    "RECIPE",
    "Fit",
    "Pairs",
    "Recipe",
    "Taught",
    "Teacher",
    "compare",
    "fit_pairs",
    "save_surrogate",
    "teach",
    "teacher_of",
]
