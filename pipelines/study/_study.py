"""A study: rows of conditions, paired comparisons, notes; what it answers, in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl
import polars.selectors as cs

from pipelines.errors import ReleaseError
from pipelines.study._statistics import (
    Figure,
    Floats,
    false_discovery,
    mean_figure,
    paired_permutation,
    pooled,
    summed,
    unit_figures,
    unit_means,
)

#: Sources of rows: real users, rules that know nothing or little of the user, simulated users
#: without and with a language model, and published figures.
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
        self._counted = what

    def __reduce__(self) -> tuple[Any, ...]:
        named: dict[str, Any] = {
            "found": self.found,
            "needed": self.needed,
            "where": self.where,
            "hint": self.hint,
        }
        return partial(type(self), **named), (self._counted,)


@dataclass(frozen=True)
class Row:
    """A condition with its figures."""

    #: Values of the conditions by name, such as ``brain`` and ``recommender``.
    labels: dict[str, str]
    #: One of `SOURCES`.
    source: str
    #: By name: with an interval; a plain number of a paper; None where it can't be had.
    figures: dict[str, Figure | float | None]
    #: Units that the interval is over (count).
    n: int | None = None
    #: A sentence on the row.
    note: str = ""
    #: What the figures measure where that is not what the other rows measure, such as ``lower
    #: bound``. Rows of different measures stand in different tables and panels.
    measure: str = ""
    #: Values by unit that comparisons are paired on.
    values: pl.DataFrame | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        assert self.source in SOURCES, self.source

    @property
    def title(self) -> str:
        """The labels in one line."""
        return ", ".join(v for v in self.labels.values() if v)

    def has(self, labels: Mapping[str, str]) -> bool:
        """Return True if the row has all of these labels."""
        return all(self.labels.get(name) == value for name, value in labels.items())

    def as_json(self) -> dict[str, Any]:
        """The row as plain values; a figure with an interval is [value, low, high]."""
        figures: dict[str, Any] = {}
        for name, f in self.figures.items():
            figures[name] = [f.value, f.low, f.high] if isinstance(f, Figure) else f
        plain = {name: getattr(self, name) for name in ("labels", "source", "n", "note")}
        return plain | {"figures": figures}


@dataclass(frozen=True)
class Comparison:
    """Paired difference of one figure between two rows."""

    #: Titles of the rows.
    left: str
    right: str
    #: Name of the figure.
    figure: str
    #: Left minus right over the same units.
    difference: Figure
    #: p-value of the paired permutation test (two-sided). Reports add Benjamini and Hochberg's q
    #: over the study.
    p: float
    #: Units on both sides (count).
    n: int

    def as_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        d = self.difference
        p = None if math.isnan(self.p) else self.p
        return vars(self) | {"difference": [d.value, d.low, d.high], "p": p}


@dataclass(frozen=True)
class Claim:
    """A claim of a paper, and the figure and control that it is tested by."""

    #: The claim, in one sentence.
    text: str
    #: Name of the figure.
    figure: str
    #: The rows are those that have these labels, with a language model if there are such, else
    #: statistical; the first is quoted.
    row: Mapping[str, str]
    #: Labels in which the control row differs from it, or a number such as the level of chance.
    control: Mapping[str, str] | float
    #: Sentences for a figure above the control, below it, and not told from it.
    above: str
    below: str
    equal: str


@dataclass(frozen=True)
class Answer:
    """Our number for a claim."""

    #: The figure with its control and their difference, in one sentence.
    measured: str
    #: The verdict in words.
    verdict: str

    def as_json(self) -> dict[str, Any]:
        """The answer as plain values."""
        return dict(vars(self))


@dataclass
class Study:
    """Rows of conditions with figures over units, comparisons with controls, and notes.

    A unit is what is drawn independently: a person, a user, a seed.
    """

    #: Name, and one question.
    name: str
    question: str
    #: Tables and figures of papers, such as ``Agent4Rec, Table 1``; empty without one.
    paper: str = ""
    #: Meaning of each figure with unit and range, by name.
    figures: Mapping[str, str] = field(default_factory=dict)
    #: Names of the labels, in the order of columns.
    conditions: tuple[str, ...] = ()
    claim: Claim | None = None
    #: Settings and version of the code that the rows depend on; errors name `where`.
    settings: dict[str, Any] = field(default_factory=dict)
    version: str = "1"
    where: str | None = None
    #: Column that names the unit in values of rows.
    unit: str = "persona_id"
    #: Seed of permutation tests.
    seed: int = 0
    rows: list[Row] = field(default_factory=list)
    #: Rows of papers, for context.
    published: list[Row] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    #: Sentences: what was assumed, left out (counted) or missed, and how a null result reads.
    notes: list[str] = field(default_factory=list)
    #: PNG by name.
    pictures: dict[str, bytes] = field(default_factory=dict)
    #: Wider tables that are written in place of those of rows (`csv`) and comparisons (`paired`).
    tables: dict[str, pl.DataFrame] = field(default_factory=dict)
    #: Units, failed ones, and those left out by reason.
    counts: dict[str, int] = field(default_factory=dict)
    #: How rows are compared, as the heading of the table of comparisons.
    compared: str = "Paired differences (left minus right), permutation test"
    #: Sentence on the intervals, and a last one.
    legend: str = ""
    footer: str = ""
    #: Why there are no rows; None if there are.
    too_few: TooFew | None = None

    def require(self, what: str, found: int, needed: int, hint: str, *, of: str = "") -> None:
        """Raise TooFew if fewer than ``needed`` are found; ``of`` names the row in the error."""
        if found < needed:
            where = ", ".join(part for part in (self.where, of) if part)
            raise TooFew(what, found=found, needed=needed, where=where or None, hint=hint)

    def add(
        self,
        labels: Sequence[str],
        source: str,
        values: pl.DataFrame | None = None,
        figures: Mapping[str, Figure | float | None] | None = None,
        *,
        names: Sequence[str] | None = None,
        n: int | None = None,
        least: tuple[str, int, str] | None = None,
        sampled: bool | None = None,
        note: str = "",
        measure: str = "",
    ) -> Row:
        """Add a row.

        Parameters
        ----------
        labels
            Values of the first of `conditions`.
        source
            One of `SOURCES`.
        values
            Rows of units with columns of figures, whose means are the row's figures unless
            ``figures`` gives them. Comparisons pair them.
        figures
            By name.
        names
            Figures to average; by default those that are columns of ``values``.
        n
            Units (count); by default those of ``values``.
        least
            What is counted, how many a row needs, and what to do. With fewer, a row of a sample
            has no figures and a note; any other raises TooFew.
        sampled
            True if the row is of a sample that is small by choice; by default, rows of a language
            model are.
        note, measure
            See :class:`Row`.
        """
        named = dict(zip(self.conditions, labels, strict=False))
        if values is not None and figures is None:
            columns = names or [f for f in self.figures if f in values.columns]
            figures = unit_figures(values, columns, self.unit)
        if values is not None and n is None:
            n = values[self.unit].n_unique()
        if least is not None and (n or 0) < least[1]:
            what, needed, hint = least
            try:
                self.require(what, n or 0, needed, hint, of=", ".join(v for v in labels if v))
            except TooFew as few:
                if not (source == "model" if sampled is None else sampled):
                    raise
                figures, note, values = dict.fromkeys(figures or self.figures), few.what, None
        row = Row(named, source, dict(figures or {}), n, note, measure, values)
        self.rows.append(row)
        return row

    def compare(self, left: Row, right: Row, *figures: str) -> None:
        """Add paired differences of figures over the units of both rows, as far as there are any.

        Rows without values are not compared.
        """
        if left.values is None or right.values is None:
            return
        for figure in figures:
            sides = [
                unit_means(row.values, [figure], self.unit).drop_nulls()
                for row in (left, right)
                if row.values is not None
            ]
            both = sides[0].join(sides[1], on=self.unit, suffix="_right").sort(self.unit)
            if both.is_empty():
                continue
            values = both[figure].to_numpy(), both[f"{figure}_right"].to_numpy()
            difference = mean_figure(values[0] - values[1])
            assert difference is not None
            p = paired_permutation(*values, seed=self.seed)
            self.comparisons.append(
                Comparison(left.title, right.title, figure, difference, p, both.height)
            )

    def compare_pooled(
        self,
        left: str,
        right: str,
        figure: str,
        owner: npt.ArrayLike,
        values: tuple[Floats, Floats],
        of: Callable[[Floats], Floats] = np.asarray,
    ) -> None:
        """Add the difference of a function of two means over the same rows, by titles of rows.

        ``owner`` is the unit of each row, ``values`` those of both sides, of shape (rows,) each.
        The interval draws units, and the test exchanges the sums of units.
        """
        difference = pooled(
            owner, [*values, np.ones(len(values[0]))], lambda s: of(s[0] / s[2]) - of(s[1] / s[2])
        )
        sums = summed(owner, values[0]), summed(owner, values[1])
        p = paired_permutation(*sums, seed=self.seed)
        self.comparisons.append(Comparison(left, right, figure, difference, p, len(sums[0])))

    def against(self, *figures: str, rows: Sequence[Row] | None = None, **changed: str) -> None:
        """Compare every row that has one of the figures with its :meth:`control`.

        ``rows`` are all by default; ``changed`` are the labels of the control.
        """
        for row in self.rows if rows is None else rows:
            control = self.control(row, changed)
            if control is not None and control is not row:
                self.compare(row, control, *(f for f in figures if f in row.figures))

    def control(self, row: Row, changed: Mapping[str, str]) -> Row | None:
        """The first row with the changed labels that else has the labels of a row; None without."""
        labels = {**row.labels, **changed}
        return next(
            (
                other
                for other in self.rows
                if other.has(changed) and all(labels.get(k) == v for k, v in other.labels.items())
            ),
            None,
        )

    def answer(self) -> Answer | None:
        """What the rows say of the claim; None without a claim.

        A paired difference decides where there is one, else whether the intervals are apart. The
        first row that the claim is of is quoted; where there are more, the verdict counts those
        that say the same.
        """
        claim = self.claim
        if claim is None:
            return None
        answers = [self._answer_of(claim, row) for row in self._claimed(claim)]
        if not answers:
            reason = next((f" {r.note}" for r in self.rows if r.has(claim.row) and r.note), "")
            return Answer(
                f"`{claim.figure}` was not measured.{reason}", "None: nothing was measured."
            )
        same = sum(answer.verdict == answers[0].verdict for answer in answers)
        if len(answers) == 1:
            return answers[0]
        return replace(
            answers[0], verdict=f"{answers[0].verdict} ({same} of {len(answers)} such rows.)"
        )

    def _answer_of(self, claim: Claim, row: Row) -> Answer:
        value = row.figures[claim.figure]
        assert isinstance(value, Figure)
        text = f"`{claim.figure}` of {row.title} is {shown(value)}"
        text += f" (n {row.n:,})" if row.n is not None else ""
        if not isinstance(claim.control, Mapping):
            difference = Figure(0.0, value.low - claim.control, value.high - claim.control)
            return Answer(f"{text}, against {claim.control:g}.", _verdict(claim, difference))
        control = self.control(row, claim.control)
        beside = None if control is None else control.figures.get(claim.figure)
        if control is None or not isinstance(beside, Figure):
            return Answer(f"{text}.", "None: the control has no figure.")
        text += f"; control {control.title}: {shown(beside)}"
        qs = false_discovery([c.p for c in self.comparisons])
        for c, q in zip(self.comparisons, qs, strict=True):
            if (c.left, c.right, c.figure) == (row.title, control.title, claim.figure):
                test = "" if math.isnan(q) else f", q {q:.3g}"
                text += f"; difference {shown(c.difference)}{test}."
                return Answer(text, _verdict(claim, c.difference))
        apart = Figure(value.value, value.low - beside.high, value.high - beside.low)
        return Answer(f"{text}; not paired.", _verdict(claim, apart))

    def _claimed(self, claim: Claim) -> list[Row]:
        """Rows with the figure that a claim is of, with a language model if there are such."""
        measured = [
            row
            for row in self.rows
            if row.has(claim.row) and isinstance(row.figures.get(claim.figure), Figure)
        ]
        by_source = ([r for r in measured if r.source == s] for s in ("model", "statistical"))
        return next(filter(None, by_source), [r for r in measured if r.source == "baseline"])

    def rows_frame(self) -> pl.DataFrame:
        """All rows, long: a line per row and figure, those of the papers last.

        Columns: ``experiment``, ``row``, ``source``, ``labels`` (text), ``figure``, ``value``,
        ``low``, ``high`` (95 %; null for a paper's), ``n``, ``note``.
        """
        lines = []
        for number, row in enumerate([*self.rows, *self.published]):
            for name, figure in row.figures.items():
                ranged = isinstance(figure, Figure)
                lines.append(
                    {
                        "experiment": self.name,
                        "row": number,
                        "source": row.source,
                        "labels": "; ".join(f"{k}: {v}" for k, v in row.labels.items()),
                        "figure": name,
                        "value": figure.value if ranged else figure,  # type: ignore[union-attr]
                        "low": figure.low if ranged else None,  # type: ignore[union-attr]
                        "high": figure.high if ranged else None,  # type: ignore[union-attr]
                        "n": row.n,
                        "note": row.note,
                    }
                )
        return _stable(pl.DataFrame(lines, schema=_ROWS))

    def comparisons_frame(self) -> pl.DataFrame:
        """Paired tests, with Benjamini and Hochberg's q over the study.

        Columns: ``experiment``, ``left``, ``right``, ``figure``, ``difference``, ``low``, ``high``
        (95 %), ``p``, ``q``, ``n``.
        """
        qs = false_discovery([c.p for c in self.comparisons])
        lines = [
            {
                **vars(c),
                "experiment": self.name,
                "difference": c.difference.value,
                "low": c.difference.low,
                "high": c.difference.high,
                "q": q,
            }
            for c, q in zip(self.comparisons, qs, strict=True)
        ]
        return _stable(pl.DataFrame(lines, schema=_COMPARISONS))

    def as_json(self) -> dict[str, Any]:
        """Rows, comparisons, notes, counts and the answer as plain values."""
        answer = self.answer()
        return {
            "too_few": None if self.too_few is None else str(self.too_few),
            "claim": None if self.claim is None else self.claim.text,
            "answer": None if answer is None or self.too_few else answer.as_json(),
            "rows": [row.as_json() for row in self.rows],
            "comparisons": [c.as_json() for c in self.comparisons],
            "notes": self.notes,
            "counts": self.counts,
        }

    def draw(self, plots: Mapping[str, Any]) -> None:
        """Add pictures of the rows; see :class:`Plot`."""
        for name, plot in plots.items():
            self.pictures[name] = plot.png(self.rows)

    def markdown(self, *, release: str = "", level: int = 1) -> str:
        """The page as Markdown, with a heading of ``level``: question, claim, answer, tables."""
        from pipelines.study._page import markdown

        return markdown(self, release=release, level=level)


def _verdict(claim: Claim, difference: Figure) -> str:
    if difference.low > 0:
        return claim.above
    return claim.below if difference.high < 0 else claim.equal


def shown(figure: Figure | float | None) -> str:
    """A figure as text.

    Half of the interval over seeds, where there is one, follows a ±.

    >>> shown(Figure(0.5, 0.25, 0.75)), shown(1234.5), shown(None)
    ('0.500 [0.250, 0.750]', '1234.5', '')
    >>> shown(Figure(0.5, 0.25, 0.75, seed_low=0.4, seed_high=0.6))
    '0.500 [0.250, 0.750] ±0.100'
    """
    if figure is None or (isinstance(figure, Figure) and math.isnan(figure.value)):
        return ""
    if not isinstance(figure, Figure):
        return _number(figure)
    text = f"{_number(figure.value)} [{_number(figure.low)}, {_number(figure.high)}]"
    if figure.seed_low is None or figure.seed_high is None:
        return text
    return f"{text} ±{_number((figure.seed_high - figure.seed_low) / 2)}"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


_ROWS: dict[str, Any] = {
    "experiment": pl.String,
    "row": pl.Int64,
    "source": pl.String,
    "labels": pl.String,
    "figure": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "note": pl.String,
}
_COMPARISONS: dict[str, Any] = {
    **dict.fromkeys(("experiment", "left", "right", "figure"), pl.String),
    **dict.fromkeys(("difference", "low", "high", "p", "q"), pl.Float64),
    "n": pl.Int64,
}


def _stable(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame with nulls for NaN, rounded to 9 decimals.

    The last bits of sums depend on the number of threads and on where arrays lie in memory.
    """
    return frame.fill_nan(None).with_columns(cs.float().round(9))
