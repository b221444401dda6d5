"""Cohorts of personas as their ids name them: ``persona:<cohort>:<number>``."""

from __future__ import annotations

import re

import polars as pl

from pipelines.config import COHORT_NAME, COHORT_NAME_IN_WORDS
from pipelines.errors import ConfigError

__all__ = [
    "PAIRS",
    "PERSONAS",
    "block_size",
    "check_cohort_name",
    "cohort_of",
    "in_cohort",
]


#: Personas, and pairs unless one persona has more, that are planned and scored together at most
#: (counts): what of them is in memory stays far below 2 GB (benchmarks/earlier/scale.md).
PERSONAS, PAIRS = 50_000, 2_097_152


def check_cohort_name(name: str) -> str:
    """The name; ConfigError unless it is of lower-case letters, digits and hyphens (63 at most).

    >>> check_cohort_name("2026-w47")
    '2026-w47'
    """
    if not re.fullmatch(COHORT_NAME, name):
        raise ConfigError("not a cohort's name", where=repr(name), hint=COHORT_NAME_IN_WORDS)
    return name


def block_size(pairs: int, *, most: int = PAIRS) -> int:
    """Personas that are planned or scored together, each with this many pairs (counts).

    It is halved as often as need be, so that a few more items move no persona to another block.

    >>> block_size(10), block_size(200), block_size(220), block_size(10_000_000)
    (50000, 6250, 6250, 1)
    """
    size = PERSONAS
    while size > 1 and size * pairs > most:
        size //= 2
    return size


def cohort_of() -> pl.Expr:
    """The cohort that a persona's id names.

    >>> pl.DataFrame({"persona_id": ["persona:a-1:0000002"]}).select(c=cohort_of())["c"].item()
    'a-1'
    """
    return pl.col("persona_id").str.split_exact(":", 2).struct.field("field_1")


def in_cohort(cohort: str) -> pl.Expr:
    """Filter of one cohort's rows: a range of persona ids, so that readers skip row groups.

    >>> ids = pl.DataFrame({"persona_id": ["persona:a-1:0", "persona:a:0", "persona:ab:0"]})
    >>> ids.filter(in_cohort("a"))["persona_id"].to_list()
    ['persona:a:0']
    """
    # A semicolon is the character after the colon that ends a cohort's name.
    ids = pl.col("persona_id")
    return (ids >= f"persona:{cohort}:") & (ids < f"persona:{cohort};")
