"""Accuracy of matched attributes, beside the majority class and the prior."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.matching._history import ASSUMED_FILE, STATED, Floats, History, Ints
from pipelines.matching._protocol import attribute_values
from pipelines.study import RESAMPLES, Figure, Study, interval, user_weights

#: Meaning of the figures.
FIGURES = {
    "accuracy": "share of right answers",
    "precision": "mean over the classes that these people have; 0 of one that is never answered",
    "recall": "mean over these classes",
    "f1": "mean over these classes",
    "difference": "accuracy less that of the majority class, paired by person",
}


def plain(figure: Figure | float | None) -> dict[str, float] | None:
    """A figure with its interval, ready for JSON."""
    if not isinstance(figure, Figure):
        return None
    return {"value": figure.value, "low": figure.low, "high": figure.high}


def attribute_study(
    history: History,
    personas: pl.DataFrame,
    metadata: Mapping[str, Any],
    *,
    posterior: Mapping[str, Floats] | None = None,
) -> Study:
    """Compare matched ages and occupations with what the source states.

    The true values are compared only here: a matcher never sees those of the user at hand. The
    prior answers each class with its share among all people, the majority class is the most
    frequent one.

    ``personas`` are rows of `matched_personas`; people whose attribute is not published or not
    matched are left out; ``metadata`` is the match's. ``posterior`` has probabilities of the values
    by attribute, in the order of ``personas``, and adds the most probable value as a row: what
    self-consistency chooses from.
    For each attribute that there is anything to compare of, rows are the matcher, then both
    baselines.
    """
    study = Study(
        "matched attributes",
        "How often is a matched attribute the one that the source states?",
        "SimUSER, section 3.1",
        FIGURES,
        ("attribute", "predictor"),
        legend="95 % intervals are percentiles of a bootstrap over people.",
    )
    numbers = history.numbers(personas["user_id"].to_list())
    for name in STATED:
        options = {value: n for n, value in enumerate(attribute_values(name))}
        matched = personas[name].replace_strict(options, default=None, return_dtype=pl.Int64)
        valid = (history.stated[name][numbers] >= 0) & matched.is_not_null().to_numpy()
        if not valid.any():
            continue
        truth = history.stated[name][numbers[valid]]
        everybody = history.stated[name][history.stated[name] >= 0]
        shares = np.bincount(everybody, minlength=len(options)) / len(everybody)
        size = len(truth)
        one_hot = np.eye(len(options))
        answers = {
            str(personas["method"][0]): one_hot[matched.to_numpy()[valid].astype(np.int64)],
            **(
                {"most probable": one_hot[posterior[name][valid].argmax(axis=1)]}
                if posterior and name in posterior
                else {}
            ),
            "majority": np.tile(one_hot[int(shares.argmax())], (size, 1)),
            "prior": np.tile(shares, (size, 1)),
        }
        weights = np.concatenate([np.ones((1, size)), user_weights(size, RESAMPLES, 0)])
        drawn = {who: _figures(truth, answer, weights) for who, answer in answers.items()}
        for who, values in drawn.items():
            columns = dict(zip(FIGURES, values.T, strict=False))
            if who != "majority":
                columns["difference"] = values[:, 0] - drawn["majority"][:, 0]
            figures = {f: interval(float(c[0]), c[1:]) for f, c in columns.items()}
            model = "model" if metadata.get("language_model") else "statistical"
            source = "baseline" if who in ("majority", "prior") else model
            study.add([name, who], source, figures=figures, n=size)
        majority = metadata.get("published_majority")
        if name == "occupation" and majority is not None:
            study.notes.append(
                f"The most frequent occupation has {majority:.3f} of the people before the mapping."
            )
    if not metadata.get("language_model"):
        study.footer = f"No language model; assumptions that are not fitted are in {ASSUMED_FILE}."
    return study


def attribute_rows(study: Study) -> list[dict[str, Any]]:
    """The rows of :func:`attribute_study` as plain values."""
    return [
        {
            **row.labels,
            "baseline": row.source == "baseline",
            "users": row.n,
            **{name: plain(row.figures.get(name)) for name in FIGURES},
        }
        for row in study.rows
    ]


def _figures(truth: Ints, answer: Floats, weights: Floats) -> Floats:
    """Accuracy and macro precision, recall, F1 by resample; the first row is of the people."""
    classes = answer.shape[1]
    cells = np.eye(classes)[truth][:, :, None] * answer[:, None, :]
    confusion = (weights @ cells.reshape(len(truth), -1)).reshape(-1, classes, classes)
    right = np.diagonal(confusion, axis1=1, axis2=2)
    true, answered = confusion.sum(axis=2), confusion.sum(axis=1)
    precision = _share(right, answered)
    recall = _share(right, true)
    f1 = _share(2 * precision * recall, precision + recall)
    valid = true > 0
    macro = [_share((f * valid).sum(axis=1), valid.sum(axis=1)) for f in (precision, recall, f1)]
    return np.stack([right.sum(axis=1) / true.sum(axis=1), *macro], axis=1)


def _share(part: Floats, total: npt.NDArray[Any]) -> Floats:
    return np.asarray(np.divide(part, total, out=np.zeros(part.shape), where=total > 0))
