"""Ablation suites: test cases made by rule from a domain's tables, and what judges raters on them.

The tables are snapshots like any other (`ablations.<domain>_...`), made from one version of a
domain's tables. `sim.ablations` runs the grid of configurations over them.
"""

from pipelines.ablations._build import (
    CASE_TABLES,
    CHECKS,
    CODE_VERSION,
    check_cases,
    make_cases,
    needs,
)
from pipelines.ablations._cases import HumanSample, extremes, human_cases, series_cases
from pipelines.ablations._rule import CaseRule, Suite, suite_named
from pipelines.ablations._series import find_series
from pipelines.ablations._sets import (
    WORDINGS,
    item_sets,
    suite_personas,
    worded_personas,
    wording_digest,
)

__all__ = [
    "CASE_TABLES",
    "CHECKS",
    "CODE_VERSION",
    "WORDINGS",
    "CaseRule",
    "HumanSample",
    "Suite",
    "check_cases",
    "extremes",
    "find_series",
    "human_cases",
    "item_sets",
    "make_cases",
    "needs",
    "series_cases",
    "suite_named",
    "suite_personas",
    "worded_personas",
    "wording_digest",
]
