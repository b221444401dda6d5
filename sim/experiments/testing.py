"""Conformance check for experiments."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import orjson

from pipelines.study import SOURCES, Figure, Study
from sim.experiments._context import ExperimentContext
from sim.experiments._experiment import Experiment

__all__ = ["check_experiment", "fresh"]


def fresh(context: ExperimentContext, **changes: Any) -> ExperimentContext:
    """A context with the same release, home and settings that has opened nothing yet."""
    names = [f.name for f in fields(context) if not f.name.startswith("_")]
    same = {n: getattr(context, n) for n in names if n not in ("made", "reused", "seconds")}
    duplicate = ExperimentContext(**(same | changes))
    duplicate.people = duplicate.people or context.people  # people that were matched for it
    return duplicate


def check_experiment(experiment: Experiment, context: ExperimentContext) -> Study:
    """Check what is required of every experiment, and return its study.

    ``context`` has a release in which the experiment can run, and the brains ``random`` and
    ``statistical``. AssertionError names what is wrong.
    """
    study = experiment.run(context)
    assert experiment.question.rstrip()[-1] in ".?", "the question is a sentence"
    assert all(experiment.figures.values()), "every figure has a meaning"
    sources = {row.source for row in study.rows}
    assert {"baseline", "statistical"} <= sources <= set(SOURCES), f"sources of rows: {sources}"
    labels = [tuple(sorted(row.labels.items())) for row in study.rows]
    assert len(set(labels)) == len(labels), "no two rows have the same labels"
    figure_names = set(experiment.figures)
    for row in study.rows:
        assert list(row.labels) == list(experiment.conditions)[: len(row.labels)], row.labels
        assert set(row.figures) <= figure_names, (row.labels, set(row.figures) - figure_names)
        for name, figure in row.figures.items():
            if isinstance(figure, Figure):
                assert figure.low <= figure.value <= figure.high, (row.labels, name)
    titles = {row.title for row in study.rows}
    for c in study.comparisons:
        assert {c.left, c.right} <= titles, "both sides of a comparison are rows"
        assert c.figure in figure_names
        assert c.difference.low <= c.difference.value <= c.difference.high
        assert not c.p > 1
    if experiment.claim is not None:
        answer = study.answer()
        assert experiment.claim.figure in figure_names, experiment.claim.figure
        assert answer is not None
        assert answer.verdict
    text = study.markdown(release=context.release.ref)
    assert experiment.question in text
    assert set(experiment.plots) <= set(study.pictures), "every plot is drawn"
    again = fresh(context)
    second = experiment.run(again)
    assert again.made == 0, "a second run computes nothing"
    assert orjson.dumps(second.as_json()) == orjson.dumps(study.as_json()), "and gives the same"
    assert second.pictures == study.pictures
    return study
