"""Calibration of rating distributions on held-out ratings.

Temperature scaling (Guo et al., "On Calibration of Modern Neural Networks", 2017, section 4.2), or
an isotonic regression of each cumulative probability P(rating <= k) on whether the rating was at
most k, or a cumulative logit model that also sees a baseline's prediction. The one with the lowest
cross-validated negative log-likelihood is kept, `none` included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import orjson

from pipelines.errors import ConfigError, ContractError
from pipelines.raters.protocol import Floats, Ints
from pipelines.raters.statistical.ordinal import OrdinalModel, fit_ordinal
from pipelines.scales import SCALES

Kind: TypeAlias = Literal["none", "temperature", "isotonic", "baseline"]

_FOLDS = 5
#: Probability that a fitted distribution leaves to the uniform one, so that nothing is impossible.
_FLOOR = 0.01
_TINY = 1e-12
#: Temperatures that are looked at.
_RANGE = (0.1, 20.0)


@dataclass(frozen=True)
class Calibration:
    """A map from distributions to distributions."""

    #: Chosen method.
    kind: Kind
    #: Temperature of the method `temperature`.
    temperature: float = 1.0
    #: Knots of the method `isotonic`, for each answer but the last: cumulative predicted
    #: probabilities and the corresponding shares of ratings, both ascending.
    knots: tuple[tuple[Floats, Floats], ...] = ()
    #: Model of the method `baseline`: of the expected position of the answer and the baseline.
    model: OrdinalModel | None = None
    #: Cross-validated nats per rating of each kind.
    nll: Mapping[str, float] = field(default_factory=dict)
    #: Number of ratings that it was fitted on.
    ratings: int = 0

    def __call__(self, probabilities: Floats, baseline: Floats | None = None) -> Floats:
        """Calibrated distributions, of the same shape (n, answers).

        ``baseline``, of shape (n,), is needed by the method of this name.
        """
        p = np.asarray(probabilities, dtype=np.float64)
        if self.model is not None and baseline is not None:
            steps = self.model.probabilities(_features(p, baseline) @ self.model.weights)
            return np.asarray((1 - _FLOOR) * steps + _FLOOR / p.shape[1], np.float64)
        if self.kind == "none":
            return p
        if self.kind == "temperature":
            return _tempered(p, self.temperature)
        below = np.cumsum(p, axis=1)[:, :-1]
        shares = np.stack(
            [
                np.interp(below[:, k], predicted, share)
                for k, (predicted, share) in enumerate(self.knots)
            ],
            axis=1,
        )
        # Thresholds are fitted one by one: a higher one may not lie below a lower one.
        edges = np.maximum.accumulate(shares, axis=1)
        steps = np.diff(edges, prepend=0.0, append=1.0, axis=1)
        return np.asarray((1 - _FLOOR) * steps + _FLOOR / p.shape[1], np.float64)

    def to_json(self, scale: str) -> bytes:
        """Stored form, with the scale of the distributions; :func:`read_calibration` reads it."""
        content = {
            "scale": scale,
            **self.metadata(),
            "knots": [[list(map(float, side)) for side in pair] for pair in self.knots],
        }
        return orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS)

    def metadata(self) -> dict[str, Any]:
        """Chosen method and the reason; JSON-ready."""
        return {
            "kind": self.kind,
            "temperature": self.temperature,
            "cross_validated_nll": dict(self.nll),
            "ratings": self.ratings,
            **({} if self.model is None else {"weights": self.model.weights.tolist()}),
        }


def read_calibration(file: Path, scale: str) -> Calibration:
    """A stored calibration of distributions on a scale.

    Raises ConfigError if the file is none, or of another scale.
    """
    try:
        raw = orjson.loads(file.read_bytes())
        knots = tuple((np.array(x, np.float64), np.array(y, np.float64)) for x, y in raw["knots"])
        fitted = Calibration(
            raw["kind"],
            float(raw["temperature"]),
            knots,
            nll=raw["cross_validated_nll"],
            ratings=int(raw["ratings"]),
        )
        of = raw["scale"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError("the calibration can't be read", where=f"{file}: {error}") from None
    complete = len(fitted.knots) == len(SCALES[of]) - 1 if fitted.kind == "isotonic" else True
    if of != scale or fitted.kind not in ("none", "temperature", "isotonic") or not complete:
        raise ConfigError(
            "the calibration does not fit the scale",
            where=f"{file} is of {of}, scoring.scale is {scale}",
            hint="set scoring.scale to the calibration's, or scoring.calibration to none",
        )
    return fitted


def fit_calibration(
    probabilities: Floats, answer: Ints, user: Ints, baseline: Floats | None = None
) -> Calibration:
    """Fit every kind and keep the best.

    ``probabilities`` are distributions over the answers, of shape (n, answers), ``answer`` the
    position of the answer that people gave and ``user`` the user's number, of shape (n,): folds of
    the cross-validation are whole users. ``baseline``, of shape (n,), is another predictor's
    expected rating of each, such as user and item bias; None leaves its method out. Raises
    ContractError with fewer than five users.
    """
    p, y = np.asarray(probabilities, dtype=np.float64), np.asarray(answer)
    people = np.unique(user)
    if len(people) < _FOLDS:
        raise ContractError(
            f"calibration needs ratings of {_FOLDS} users at least", where=f"{len(people)} users"
        )
    fold = np.searchsorted(people, user) % _FOLDS
    kinds: tuple[Kind, ...] = ("none", "temperature", "isotonic")
    if baseline is not None:
        kinds = (*kinds, "baseline")
    other = np.zeros(len(y)) if baseline is None else np.asarray(baseline, dtype=np.float64)
    nll: dict[str, float] = {}
    for kind in kinds:
        losses = np.empty(len(y))
        for n in range(_FOLDS):
            out = fold == n
            losses[out] = _losses(
                _fit(kind, p[~out], y[~out], other[~out])(p[out], other[out]), y[out]
            )
        nll[kind] = float(losses.mean())
    best = min(kinds, key=lambda kind: nll[kind])
    return replace(_fit(best, p, y, other), nll=nll, ratings=len(y))


def _features(p: Floats, baseline: Floats) -> Floats:
    return np.stack([p @ np.arange(p.shape[1]), baseline], axis=1)


def _fit(kind: Kind, p: Floats, y: Ints, baseline: Floats) -> Calibration:
    if kind == "baseline":
        features = _features(p, baseline)
        return Calibration(kind, model=fit_ordinal(features, y, p.shape[1]))
    if kind == "temperature":
        from scipy.optimize import minimize_scalar

        optimum = minimize_scalar(
            lambda log: float(_losses(_tempered(p, float(np.exp(log))), y).mean()),
            bounds=tuple(np.log(_RANGE)),
            method="bounded",
        )
        return Calibration(kind, float(np.exp(optimum.x)))
    if kind == "isotonic":
        from sklearn.isotonic import IsotonicRegression

        knots = []
        below = np.cumsum(p, axis=1)
        for k in range(p.shape[1] - 1):
            # Equal probabilities share the mean of their outcomes.
            fitted = IsotonicRegression(y_min=0, y_max=1).fit(below[:, k], y <= k)
            knots.append((fitted.X_thresholds_, fitted.y_thresholds_))
        return Calibration(kind, knots=tuple(knots))
    return Calibration("none")


def _tempered(p: Floats, temperature: float) -> Floats:
    logs = np.log(np.maximum(p, _TINY)) / temperature
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _losses(p: Floats, y: Ints) -> Floats:
    return np.asarray(-np.log(np.maximum(p[np.arange(len(y)), y], _TINY)))
