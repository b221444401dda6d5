"""Suites of dialogues: lists of configurations after the paper's figures, and their reports."""

from sim.dialogue._report import (
    FIGURES,
    FILES,
    DialogueRun,
    checks,
    read_run,
    run_suites,
    write_run,
)
from sim.dialogue._suites import (
    SUITES,
    Configuration,
    DialogueContext,
    Suite,
    chosen_suites,
    configured_customer,
)

__all__ = [
    "FIGURES",
    "FILES",
    "SUITES",
    "Configuration",
    "DialogueContext",
    "DialogueRun",
    "Suite",
    "checks",
    "chosen_suites",
    "configured_customer",
    "read_run",
    "run_suites",
    "write_run",
]
