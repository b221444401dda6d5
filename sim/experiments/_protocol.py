"""The seam of experiments: a context in, rows with intervals and their paired comparisons out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pipelines.errors import ReleaseError
from sim.metrics import Figure

if TYPE_CHECKING:
    from sim.experiments._context import ExperimentContext

__all__ = ["SOURCES", "Comparison", "Experiment", "Result", "Row", "TooFew"]

#: Sources of rows: real users, rules that know nothing or little of the user, brains without and
#: with a language model, and published figures.
SOURCES = ("people", "baseline", "statistical", "model", "paper")


class TooFew(ReleaseError):  # noqa: N818
    """Too few agents, interactions, systems or pictures for a figure.

    Parameters
    ----------
    what
        Plural noun of what is counted, such as ``people with 10 held-out interactions``.
    found, needed
        Counts.
    where
        Experiment and release.
    hint
        Remedy.
    """

    def __init__(
        self,
        what: str,
        *,
        found: int,
        needed: int,
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(
            f"{found:,} {what}, at least {needed:,} are needed",
            where=where,
            hint=hint,
            details={"found": found, "needed": needed},
        )
        self.found, self.needed = found, needed


@dataclass(frozen=True)
class Row:
    """A row of an experiment's table.

    Attributes
    ----------
    labels
        Columns that identify the row, such as ``brain`` and ``recommender``.
    source
        One of `SOURCES`.
    figures
        By name: with an interval; a plain number of a paper; None where it can't be had.
    n
        People that the interval is over (count).
    note
        A sentence on the row.
    """

    labels: dict[str, str]
    source: str
    figures: dict[str, Figure | float | None]
    n: int | None = None
    note: str = ""

    def __post_init__(self) -> None:
        assert self.source in SOURCES, self.source

    @property
    def title(self) -> str:
        """The labels in one line."""
        return ", ".join(v for v in self.labels.values() if v)

    def as_json(self) -> dict[str, Any]:
        """The row as plain values; a figure with an interval is [value, low, high]."""
        figures: dict[str, Any] = {}
        for name, f in self.figures.items():
            figures[name] = [f.value, f.low, f.high] if isinstance(f, Figure) else f
        return {
            "labels": self.labels,
            "source": self.source,
            "figures": figures,
            "n": self.n,
            "note": self.note,
        }


@dataclass(frozen=True)
class Comparison:
    """Paired difference of one figure between two rows.

    Attributes
    ----------
    left, right
        Titles of the rows.
    figure
        Name of the figure.
    difference
        Left minus right over the same people.
    p
        Of the paired permutation test (two-sided). Reports add Benjamini and Hochberg's q over
        the experiment.
    n
        People on both sides (count).
    """

    left: str
    right: str
    figure: str
    difference: Figure
    p: float
    n: int

    def as_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        d = self.difference
        return {
            "left": self.left,
            "right": self.right,
            "figure": self.figure,
            "difference": [d.value, d.low, d.high],
            "p": None if math.isnan(self.p) else self.p,
            "n": self.n,
        }


@dataclass(frozen=True)
class Result:
    """Outcome of an experiment.

    Attributes
    ----------
    rows
        Of the table.
    comparisons
        Paired tests.
    notes
        Sentences: what was assumed, left out (counted) or missed, and how a null result reads.
    pictures
        PNG by name.
    counts
        Agents, failed ones, and those left out by reason.
    legend
        Sentence on the intervals.
    assumed
        Whether statistical rows rest on the assumptions of the statistical brain.
    """

    rows: list[Row]
    comparisons: list[Comparison] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    pictures: dict[str, bytes] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    legend: str = (
        "Means over people with 95 % bootstrap intervals over people, unless a note says "
        "otherwise. Source `statistical` and `baseline`: no language model."
    )
    assumed: bool = True

    def as_json(self) -> dict[str, Any]:
        """Rows, comparisons, notes and counts as plain values."""
        return {
            "rows": [row.as_json() for row in self.rows],
            "comparisons": [c.as_json() for c in self.comparisons],
            "notes": self.notes,
            "counts": self.counts,
        }


@runtime_checkable
class Experiment(Protocol):
    """A question on simulated users, answered with figures, intervals and controls.

    ``sim.experiments.testing.ExperimentContract`` is the class that an implementation's tests
    inherit.

    Attributes
    ----------
    name
        As on the command line.
    question
        One sentence.
    anchor
        Tables and figures of the papers, such as ``Agent4Rec, Table 1; SimUSER, Table 1``.
    figures
        Meaning of each figure with unit and range, by name.
    settings
        A frozen dataclass; part of the identity of kept results.
    """

    name: str
    question: str
    anchor: str
    figures: dict[str, str]
    settings: Any

    def run(self, context: ExperimentContext) -> Result:
        """Answer the question on a release.

        Raises
        ------
        TooFew
            If there are too few agents, interactions, systems or pictures for a figure.
        """
        ...
