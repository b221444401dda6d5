"""Conformance tests for experiments: inherit, and return yours from ``make``.

The fixture ``context`` is a session's :class:`sim.experiments.ExperimentContext` on a release in
which the experiment can run, with the brains ``random`` and ``statistical``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass
from typing import Any, ClassVar

import orjson

from sim.experiments._context import ExperimentContext
from sim.experiments._protocol import SOURCES, Experiment, Result, TooFew
from sim.experiments._report import comparisons_frame, markdown, rows_frame
from sim.metrics import Figure

__all__ = ["ExperimentContract", "fresh"]


def fresh(context: ExperimentContext, **changes: Any) -> ExperimentContext:
    """A context with the same release, home and settings that has opened nothing yet."""
    names = [f.name for f in fields(context) if not f.name.startswith("_")]
    kept = {n: getattr(context, n) for n in names if n not in ("made", "reused", "seconds")}
    return ExperimentContext(**(kept | changes))


class ExperimentContract(ABC):
    """Behaviour required of every :class:`sim.experiments.Experiment`."""

    #: Sources of which a row must be there.
    sources: tuple[str, ...] = ("baseline", "statistical")
    _results: ClassVar[dict[Any, Result]] = {}

    @abstractmethod
    def make(self) -> Experiment:
        """The experiment under test, with settings for a small release."""

    @abstractmethod
    def lacking(self, context: ExperimentContext) -> tuple[Experiment, ExperimentContext]:
        """An experiment and a context in which too little is there for a figure."""

    def result(self, context: ExperimentContext) -> Result:
        """The result, computed once per class and context."""
        key = (type(self), id(context))
        if key not in self._results:
            self._results[key] = self.make().run(context)
        return self._results[key]

    def test_it_states_its_question_and_figures(self) -> None:
        """A name, a question, an anchor, meanings of figures, and frozen settings."""
        made = self.make()
        assert isinstance(made, Experiment)
        assert made.name
        assert made.question.rstrip()[-1] in ".?"
        assert made.anchor
        assert made.figures
        assert all(made.figures.values())
        settings: Any = made.settings
        assert is_dataclass(settings)
        assert vars(type(settings))["__dataclass_params__"].frozen

    def test_floor_and_statistical_rows_are_there(self, context: ExperimentContext) -> None:
        """Rows of every required source, each labelled with one of the sources."""
        found = {row.source for row in self.result(context).rows}
        assert set(self.sources) <= found <= set(SOURCES)

    def test_rows_differ_in_their_labels(self, context: ExperimentContext) -> None:
        """No two rows have the same labels."""
        labels = [tuple(sorted(row.labels.items())) for row in self.result(context).rows]
        assert len(set(labels)) == len(labels)

    def test_figures_are_explained_and_intervals_ordered(self, context: ExperimentContext) -> None:
        """Figures are those that the experiment names; low <= value <= high, and finite."""
        known = set(self.make().figures)
        seen = 0
        for row in self.result(context).rows:
            assert set(row.figures) <= known, row.labels
            for name, found in row.figures.items():
                if isinstance(found, Figure):
                    seen += 1
                    assert found.low <= found.value <= found.high, (row.labels, name)
        assert seen

    def test_comparisons_are_of_rows(self, context: ExperimentContext) -> None:
        """Both sides of a comparison are rows of the table; p is a probability."""
        found = self.result(context)
        titles = {row.title for row in found.rows}
        for c in found.comparisons:
            assert {c.left, c.right} <= titles
            assert c.figure in self.make().figures
            assert c.difference.low <= c.difference.value <= c.difference.high
            assert not c.p > 1

    def test_rerun_computes_nothing_and_is_equal(self, context: ExperimentContext) -> None:
        """A second run reads every cell, and gives the same rows and pictures."""
        first = self.result(context)
        again = fresh(context)
        second = self.make().run(again)
        assert again.made == 0
        assert orjson.dumps(second.as_json()) == orjson.dumps(first.as_json())
        assert second.pictures == first.pictures

    def test_report_has_every_row(self, context: ExperimentContext) -> None:
        """Markdown has question and sources, CSV a line per figure; one picture at least."""
        made, found = self.make(), self.result(context)
        text = markdown(made, found, release=context.release.ref)
        assert made.question in text
        assert all(row.source in text for row in found.rows)
        lines = rows_frame(made, found).filter(rows_frame(made, found)["source"] != "paper")
        assert lines.height == sum(len(row.figures) for row in found.rows)
        assert comparisons_frame(made, found).height == len(found.comparisons)
        assert found.pictures
        assert all(png.startswith(b"\x89PNG") for png in found.pictures.values())

    def test_too_little_is_said_with_the_number_needed(self, context: ExperimentContext) -> None:
        """An error that names found and needed, and no figure."""
        experiment, poor = self.lacking(context)
        raised: TooFew | None = None
        try:
            experiment.run(poor)
        except TooFew as error:
            raised = error
        assert raised is not None, "figures of too little"
        assert raised.found < raised.needed
        assert f"{raised.needed:,}" in str(raised)
