"""Accuracy of matched attributes, beside the majority class and the prior."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ContractError
from pipelines.matching._assumed import ASSUMED_FILE
from pipelines.matching._history import STATED, Floats, History, Ints
from pipelines.matching._protocol import attribute_values

#: Resamples of people that intervals are percentiles of (count).
RESAMPLES = 1_000
FIGURES = ("accuracy", "precision", "recall", "f1")


@dataclass(frozen=True)
class Interval:
    """A figure with its 95 % interval, percentiles of a bootstrap over people."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class AttributeRow:
    """Figures of one estimate of an attribute."""

    #: Attribute, and its predictor: a matcher's method, `majority` or `prior`.
    attribute: str
    predictor: str
    #: Whether nothing of the user is known to it.
    baseline: bool
    #: People whose source states the attribute (count).
    users: int
    #: Share of right answers, and means over the classes that these people have; a class that is
    #: never answered has precision 0.
    accuracy: Interval
    precision: Interval
    recall: Interval
    f1: Interval
    #: Accuracy less that of the majority class, paired by person; None for that row itself.
    difference: Interval | None

    def as_json(self) -> dict[str, Any]:
        """Row as plain values."""
        return asdict(self)


def attribute_report(
    history: History, personas: pl.DataFrame, *, posterior: Mapping[str, Floats] | None = None
) -> list[AttributeRow]:
    """Compare matched ages and occupations with what the source states.

    The true values are compared only here: a matcher never sees those of the user at hand. The
    prior answers each class with its share among all people, the majority class is the most
    frequent one.

    ``personas`` are rows of `matched_personas`; people whose attribute is not published or not
    matched are left out. ``posterior`` has probabilities of the values by attribute, in the order
    of ``personas``, and adds the most probable value as a row: what self-consistency chooses from.
    For each attribute that there is anything to compare of, rows are the matcher, then both
    baselines.
    """
    rows = []
    numbers = history.numbers(personas["user_id"].to_list())
    for name in STATED:
        options = {value: n for n, value in enumerate(attribute_values(name))}
        matched = personas[name].replace_strict(options, default=None, return_dtype=pl.Int64)
        known = (history.stated[name][numbers] >= 0) & matched.is_not_null().to_numpy()
        if not known.any():
            continue
        truth = history.stated[name][numbers[known]]
        everybody = history.stated[name][history.stated[name] >= 0]
        shares = np.bincount(everybody, minlength=len(options)) / len(everybody)
        size = len(truth)
        one = np.eye(len(options))
        answers = {
            str(personas["method"][0]): one[matched.to_numpy()[known].astype(np.int64)],
            **(
                {"most probable": one[posterior[name][known].argmax(axis=1)]}
                if posterior and name in posterior
                else {}
            ),
            "majority": np.tile(one[int(shares.argmax())], (size, 1)),
            "prior": np.tile(shares, (size, 1)),
        }
        rows += _rows(name, truth, answers)
    return rows


def _rows(name: str, truth: Ints, answers: dict[str, Floats]) -> list[AttributeRow]:
    weights = _weights(len(truth))
    drawn = {who: _figures(truth, answer, weights) for who, answer in answers.items()}
    rows = []
    for who, figures in drawn.items():
        gap = figures[:, 0] - drawn["majority"][:, 0]
        accuracy, precision, recall, f1 = (_interval(values) for values in figures.T)
        paired = None if who == "majority" else _interval(gap)
        baseline = who in ("majority", "prior")
        rows.append(
            AttributeRow(name, who, baseline, len(truth), accuracy, precision, recall, f1, paired)
        )
    return rows


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
    there = true > 0
    macro = [_share((f * there).sum(axis=1), there.sum(axis=1)) for f in (precision, recall, f1)]
    return np.stack([right.sum(axis=1) / true.sum(axis=1), *macro], axis=1)


def _share(part: Floats, whole: npt.NDArray[Any]) -> Floats:
    return np.asarray(np.divide(part, whole, out=np.zeros(part.shape), where=whole > 0))


def _weights(people: int) -> Floats:
    """Bootstrap weights by person: 1 in the first row, then counts of draws with replacement."""
    rng = np.random.default_rng(0)
    draws = rng.multinomial(people, np.full(people, 1.0 / people), size=RESAMPLES)
    return np.concatenate([np.ones((1, people)), draws])


def _interval(values: Floats) -> Interval:
    low, high = np.quantile(values[1:], [0.025, 0.975])
    return Interval(float(values[0]), float(low), float(high))


def bootstrapped(values: Floats) -> Interval:
    """The mean of one value per person, with its interval.

    Raises :class:`ContractError` if there is no person.
    """
    if not len(values):
        raise ContractError("there are no people to average over", where="bootstrap")
    return _interval(_weights(len(values)) @ values / len(values))


def report_text(
    rows: Sequence[AttributeRow], metadata: dict[str, Any], write: Callable[[str], object]
) -> None:
    """Write the figures as lines of a Markdown table, with what is assumed."""
    write("| attribute | by | accuracy | precision | recall | F1 | accuracy minus majority |")
    write("|---|---|--:|--:|--:|--:|--:|")
    for row in rows:
        cells = [getattr(row, figure) for figure in FIGURES]
        gap = "" if row.difference is None else row.difference
        write(f"| {row.attribute} | {row.predictor} | {' | '.join(map(str, cells))} | {gap} |")
    majority = metadata.get("published_majority")
    if majority is not None and any(row.attribute == "occupation" for row in rows):
        write(f"The most frequent occupation has {majority:.3f} of the people before the mapping.")
    if not metadata.get("language_model", False):
        write(f"No language model; assumptions that are not fitted are in {ASSUMED_FILE}.")
