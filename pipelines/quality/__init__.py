"""Checks of published datasets as a whole, drift, release summaries and dataset cards.

Suites are data (``suites.yaml``, :data:`SUITES`) and run by great-expectations over small views
of a snapshot; importing this package loads none of it.

>>> from pipelines.quality import SUITES
>>> [e.name for e in SUITES["movies.score_plan"] if e.severity == "error"]
['personas_planned', 'plan_balance']
"""

from pipelines.quality._card import dataset_card
from pipelines.quality._check import check_dataset
from pipelines.quality._plots import PLOTS, figures_for, plots_for
from pipelines.quality._report import release_report, report_page
from pipelines.quality._spec import Expectation, PersonaTargets, Setting, persona_targets
from pipelines.quality._suites import (
    CONTRACT_CHECK,
    SUITES,
    previous_snapshot,
    required_checks,
    world_of,
)
from pipelines.quality._summary import release_summary, render_summary

__all__ = [
    "CONTRACT_CHECK",
    "PLOTS",
    "SUITES",
    "Expectation",
    "PersonaTargets",
    "Setting",
    "check_dataset",
    "dataset_card",
    "figures_for",
    "persona_targets",
    "plots_for",
    "previous_snapshot",
    "release_report",
    "release_summary",
    "render_summary",
    "report_page",
    "required_checks",
    "world_of",
]
