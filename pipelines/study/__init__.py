"""Results: rows of conditions over units, with intervals, paired comparisons, pages.

A :class:`Study` holds rows (a condition, values of units such as people or seeds), their means
with 95 % intervals, comparisons with controls, notes and pictures. :func:`write_report` writes it
as Markdown, CSV and one HTML page.

>>> import polars as pl
>>> study = Study("reading", "Do readers read more?", figures={"books": "books (count)"},
...     conditions=("group",), unit="person")
>>> few = study.add(["short"], "baseline", pl.DataFrame({"person": ["a", "b"], "books": [1, 2]}))
>>> many = study.add(["long"], "baseline", pl.DataFrame({"person": ["a", "b"], "books": [3, 4]}))
>>> study.compare(many, few, "books")
>>> study.comparisons[0].difference.value
2.0
"""

from pipelines.study._page import markdown, page, table, write_files, write_report
from pipelines.study._plots import Plot, Points, draw
from pipelines.study._statistics import (
    RESAMPLES,
    Figure,
    false_discovery,
    interval,
    mean_figure,
    mean_with_interval,
    over_seeds,
    paired_permutation,
    pooled,
    pooled_mean,
    user_weights,
)
from pipelines.study._study import SOURCES, Answer, Claim, Comparison, Row, Study, TooFew, shown

__all__ = [
    "RESAMPLES",
    "SOURCES",
    "Answer",
    "Claim",
    "Comparison",
    "Figure",
    "Plot",
    "Points",
    "Row",
    "Study",
    "TooFew",
    "draw",
    "false_discovery",
    "interval",
    "markdown",
    "mean_figure",
    "mean_with_interval",
    "over_seeds",
    "page",
    "paired_permutation",
    "pooled",
    "pooled_mean",
    "shown",
    "table",
    "user_weights",
    "write_files",
    "write_report",
]
