"""The seam of experiments: a context in, rows with intervals and their paired comparisons out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pipelines.errors import ReleaseError
from sim.metrics import Figure

if TYPE_CHECKING:
    from sim.experiments._context import ExperimentContext

#: Sources of rows: real users, rules that know nothing or little of the user, brains without and
#: with a language model, and published figures.
SOURCES = ("people", "baseline", "statistical", "model", "paper")


class TooFew(ReleaseError):  # noqa: N818
    """Too few agents, interactions, systems or pictures for a figure.

    ``what`` is the plural noun of what is counted, such as ``people with 10 held-out
    interactions``.
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
    """A row of an experiment's table."""

    #: Columns that identify the row, such as ``brain`` and ``recommender``.
    labels: dict[str, str]
    #: One of `SOURCES`.
    source: str
    #: By name: with an interval; a plain number of a paper; None where it can't be had.
    figures: dict[str, Figure | float | None]
    #: People that the interval is over (count).
    n: int | None = None
    #: A sentence on the row.
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
        return vars(self) | {"figures": figures}


@dataclass(frozen=True)
class Comparison:
    """Paired difference of one figure between two rows."""

    #: Titles of the rows.
    left: str
    right: str
    #: Name of the figure.
    figure: str
    #: Left minus right over the same people.
    difference: Figure
    #: p-value of the paired permutation test (two-sided). Reports add Benjamini and Hochberg's q
    #: over the experiment.
    p: float
    #: People on both sides (count).
    n: int

    def as_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        d = self.difference
        p = None if math.isnan(self.p) else self.p
        return vars(self) | {"difference": [d.value, d.low, d.high], "p": p}


@dataclass(frozen=True)
class Result:
    """Outcome of an experiment."""

    #: Rows of the table.
    rows: list[Row]
    #: Paired tests.
    comparisons: list[Comparison] = field(default_factory=list)
    #: Sentences: what was assumed, left out (counted) or missed, and how a null result reads.
    notes: list[str] = field(default_factory=list)
    #: PNG by name.
    pictures: dict[str, bytes] = field(default_factory=dict)
    #: Agents, failed ones, and those left out by reason.
    counts: dict[str, int] = field(default_factory=dict)
    #: Sentence on the intervals.
    legend: str = (
        "Means over people with 95 % bootstrap intervals over people, unless a note says "
        "otherwise. Source `statistical` and `baseline`: no language model."
    )
    #: Whether statistical rows rest on the assumptions of the statistical brain.
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
    """

    #: Name on the command line.
    name: str
    #: One sentence.
    question: str
    #: Tables and figures of the papers, such as ``Agent4Rec, Table 1; SimUSER, Table 1``.
    anchor: str
    #: Meaning of each figure with unit and range, by name.
    figures: dict[str, str]
    #: A frozen dataclass; part of the identity of kept results.
    settings: Any

    def run(self, context: ExperimentContext) -> Result:
        """Answer the question on a release.

        Raises TooFew if there are too few agents, interactions, systems or pictures for a figure.
        """
