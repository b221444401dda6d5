"""Ablation suites: what each part of a simulated user's set-up is worth (SUBER, section 4.2)."""

from sim.ablations._context import KINDS, SYSTEMS, RaterCache, RaterSpec, SuiteContext
from sim.ablations._grid import Options, configurations, kernel, seen
from sim.ablations._report import option_study, suite_pictures, suite_study, table, write_report
from sim.ablations._run import (
    Configuration,
    SuiteResult,
    TestScore,
    aggregate,
    compare,
    run_suite,
    score_of,
    scores_frame,
)

__all__ = [
    "KINDS",
    "SYSTEMS",
    "Configuration",
    "Options",
    "RaterCache",
    "RaterSpec",
    "SuiteContext",
    "SuiteResult",
    "TestScore",
    "aggregate",
    "compare",
    "configurations",
    "kernel",
    "option_study",
    "run_suite",
    "score_of",
    "scores_frame",
    "seen",
    "suite_pictures",
    "suite_study",
    "table",
    "write_report",
]
