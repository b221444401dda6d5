"""A cumulative logit model: P(answer <= k) = logistic((cutpoint_k - x.w) / width).

Cutpoints are in order.
McCullagh, "Regression models for ordinal data", JRSS B 42 (1980), where the width of a row is
the scale of section 6.1: larger for those of whom less is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit

from pipelines.raters.protocol import Floats, Ints
from pipelines.scales import RatingScale, rescale

#: No answer is impossible: each keeps a probability of at least this at the mean.
_LEAST = 1e-6
#: Ratings of a person and people that the spread of styles needs, and passes of its fits (counts).
_MIN_RATINGS, _MIN_PEOPLE, _STYLE_PASSES, _MATCH_PASSES = 10, 50, 20, 12


@dataclass(frozen=True)
class OrdinalModel:
    """Weights of shape (features,) and ascending cutpoints of shape (answers - 1,)."""

    weights: Floats
    cutpoints: Floats

    def probabilities(self, location: Floats, width: Floats | None = None) -> Floats:
        """Distributions of shape (rows, answers) at each location x.w; width 1 if not given."""
        gap = self.cutpoints[None, :] - location[:, None]
        if width is not None:
            gap /= width[:, None]
        return cumulative(gap)


def cumulative(gap: Floats) -> Floats:
    """Distributions of shape (rows, answers) at log odds of each answer or a lower one, but one.

    ``gap``, of shape (rows, answers - 1), is overwritten.
    """
    out = np.empty((len(gap), gap.shape[1] + 1))
    # The complement by symmetry: 1 - below loses every digit when below is near 1.
    out[:, -1] = expit(-gap[:, -1])
    below = expit(gap, out=gap)
    out[:, 0] = below[:, 0]
    np.subtract(below[:, 1:], below[:, :-1], out=out[:, 1:-1])
    return out


def fit_ordinal(
    features: Floats,
    answer: Ints,
    answers: int,
    *,
    prior: Floats | None = None,
    width: Floats | None = None,
) -> OrdinalModel:
    """Maximum likelihood of weights of at least 0, with a weak pull to `prior`.

    ``features`` are of shape (rows, features), ``answer`` the position of each row's answer, 0 to
    `answers` - 1. The pull is that of one pseudo-observation with variance 1; ``prior`` (default 0)
    are the values when there are few rows. ``width`` is that of each row's distribution (default
    1), of shape (rows,).
    """
    goal = np.zeros(features.shape[1]) if prior is None else prior
    wide = np.ones(len(answer)) if width is None else width
    counts = np.bincount(answer, minlength=answers) + 0.5
    start_cuts = _logit(np.cumsum(counts)[:-1] / counts.sum())
    size = features.shape[1]
    start = np.concatenate([goal, _to_free(start_cuts)])
    bounds = [(0.0, None)] * size + [(None, None)] * (answers - 1)

    def loss(point: Floats) -> tuple[float, Floats]:
        weights, free = point[:size], point[size:]
        cuts = _from_free(free)
        location = features @ weights
        padded = np.concatenate([[-np.inf], cuts, [np.inf]])
        upper = (padded[answer + 1] - location) / wide
        under = (padded[answer] - location) / wide
        high, low = expit(upper), expit(under)
        probability = np.maximum(high - low, 1e-300)
        slope_high, slope_low = high * (1 - high) / wide, low * (1 - low) / wide
        by_location = (slope_high - slope_low) / probability
        gradient = np.empty_like(point)
        gradient[:size] = features.T @ by_location + (weights - goal)
        as_upper = np.bincount(answer, slope_high / probability, minlength=answers)[:-1]
        as_lower = np.bincount(answer, slope_low / probability, minlength=answers)[1:]
        gradient[size:] = _free_gradient(free, np.asarray(as_lower - as_upper, np.float64))
        value = -np.log(probability).sum() + 0.5 * float((weights - goal) @ (weights - goal))
        rows = max(len(answer), 1)
        return value / rows, gradient / rows

    optimum = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 500}
    )
    return OrdinalModel(optimum.x[:size].copy(), _from_free(optimum.x[size:]))


def tilt(probabilities: Floats, extremes: Floats) -> Floats:
    """Change the odds of the first and the last answer against the others, in place.

    The response style "extreme responding" as a random effect (Greenleaf, "Measuring extreme
    response style", Public Opinion Quarterly 56, 1992).

    ``probabilities`` are of shape (rows, answers). ``extremes``, of shape (rows, 2), are each row's
    log odds, a draw from a normal distribution, and that one's variance (0 and 0 leave it as it
    is). The odds are multiplied by exp(draw - variance * (1 - 2 * share) / 2), where share is the
    probability of the two answers: to second order the mean over people is what it was, whatever
    the share.
    """
    share = probabilities[:, 0] + probabilities[:, -1]
    odds = np.exp(extremes[:, 0] + extremes[:, 1] * (share - 0.5))
    probabilities[:, 0] *= odds
    probabilities[:, -1] *= odds
    odds -= 1.0
    odds *= share
    odds += 1.0
    probabilities /= odds[:, None]
    return probabilities


def fit_styles(
    person: Ints, answer: Ints, location: Floats, width: Floats, cutpoints: Floats
) -> tuple[float, float] | None:
    """Spread of people's response styles, beyond what their mean implies.

    Each person has three normal effects: a shift of the location, the logarithm of a factor of the
    width, and the log odds of the end answers (:func:`tilt`). Their variances are fitted by
    approximate maximum likelihood (Laplace; Breslow and Clayton, "Approximate inference in
    generalized linear mixed models", JASA 88, 1993), people with ten ratings or more.

    ``person``, ``answer`` and the model's ``location`` and ``width`` are of ratings that the model
    did not learn from, each of shape (ratings,). Returns standard deviations of the log width and
    of the log odds; None with too few people to tell.
    """
    enough = (np.bincount(person) >= _MIN_RATINGS)[person]
    order = np.flatnonzero(enough)[np.argsort(person[enough], kind="stable")]
    who = np.unique(person[order], return_inverse=True)[1]
    first = np.flatnonzero(np.diff(who, prepend=-1))
    if len(first) < _MIN_PEOPLE:
        return None
    answer, location, width = answer[order], location[order], width[order]
    ends = np.zeros(len(cutpoints) + 1)
    ends[[0, -1]] = 1.0
    style, mean, variance = np.zeros((len(first), 3)), np.zeros(3), np.full(3, 0.1)
    for n in range(_STYLE_PASSES):
        effects = style[who]
        model = OrdinalModel(np.zeros(0), cutpoints)
        wide = width * np.exp(effects[:, 1])
        gap = (cutpoints - location[:, None] - effects[:, :1]) / wide[:, None]
        share = np.maximum(model.probabilities(location + effects[:, 0], wide), 1e-12)
        slope = expit(gap) * expit(-gap)
        # Derivatives of the log probability of each answer, of shape (ratings, 3, answers).
        by = np.stack(
            [
                -_steps(slope) / wide[:, None] / share,
                -_steps(gap * slope) / share,
                np.broadcast_to(ends, share.shape),
            ],
            axis=1,
        )
        share = share * np.exp(effects[:, 2:] * ends)
        share /= share.sum(axis=1, keepdims=True)
        by -= (by * share[:, None]).sum(axis=2, keepdims=True)
        score = np.add.reduceat(by[np.arange(len(who)), :, answer], first)
        curvature = np.add.reduceat(np.matmul(by * share[:, None], by.transpose(0, 2, 1)), first)
        spread = np.linalg.inv(curvature + np.diag(1.0 / variance))
        step = np.matmul(spread, (score - (style - mean) / variance)[:, :, None])[:, :, 0]
        style = style + np.clip(step, -0.5, 0.5)
        if n > 1:  # the first passes find the modes
            mean = style.mean(axis=0)
            information = (1.0 - np.einsum("nii->ni", spread) / variance).sum(axis=0)
            estimate = ((style - mean) ** 2).sum(axis=0) / np.maximum(information, 1e-9)
            variance = np.clip(estimate, 1e-4, 4.0)
    return float(np.sqrt(variance[1])), float(np.sqrt(variance[2]))


def match_spread(
    person: Ints,
    rating: Floats,
    answers: Floats,
    location: Floats,
    width: Floats,
    cutpoints: Floats,
    styles: tuple[float, float],
) -> tuple[float, float]:
    """Level and spread of the widths at which people's ratings are as spread as they are.

    Matched are the mean and the standard deviation, over people, of the standard deviation of one's
    ratings, by simulated moments (McFadden, "A method of simulated moments", Econometrica 57,
    1989); people with ten ratings or more.

    ``person``, ``rating``, ``location`` and ``width`` are of shape (ratings,); ``answers`` are the
    ratings that the model's answers stand for, ``styles`` the spreads of :func:`fit_styles`.
    Returns a factor of the widths, from 1/2 to 2, and the standard deviation of their logarithm
    over people, from a half to twice that of `styles`; 1 and that of `styles` with too few people.
    """
    count = np.bincount(person)
    enough = count >= _MIN_RATINGS
    if enough.sum() < _MIN_PEOPLE:
        return 1.0, styles[0]
    size, model = count[enough], OrdinalModel(np.zeros(0), cutpoints)

    def moments(value: Floats) -> Floats:
        first, second = (np.bincount(person, v)[enough] / size for v in (value, value**2))
        deviation = np.sqrt(np.maximum(second - first**2, 0.0))
        return np.array([deviation.mean(), deviation.std()])

    goal = moments(rating)
    # The same draws in every pass: only what is matched changes.
    rng = np.random.default_rng(0)
    wide, ends = rng.normal(size=(2, len(count)))
    drawn = rng.random((len(person), 1))
    odds = np.stack([styles[1] * ends, np.full(len(count), styles[1] ** 2)], axis=1)[person]
    estimate = np.array([1.0, styles[0]])
    low, high = np.array([0.5, 0.5 * styles[0]]), np.array([2.0, 2.0 * styles[0]])
    for _ in range(_MATCH_PASSES):
        widths = estimate[0] * width * np.exp(estimate[1] * wide - estimate[1] ** 2)[person]
        below = tilt(model.probabilities(location, widths), odds).cumsum(axis=1)[:, :-1]
        simulated = moments(answers[(below < drawn).sum(axis=1)])
        estimate = np.clip(estimate * goal / np.maximum(simulated, 1e-9), low, high)
    return float(estimate[0]), float(estimate[1])


def _steps(inner: Floats) -> Floats:
    """Differences between neighbouring cutpoints of what is 0 beyond both ends."""
    return np.diff(inner, axis=1, prepend=0.0, append=0.0)


def calibrate(
    location: npt.NDArray[np.float64], histogram: Floats, width: Floats | None = None
) -> Floats:
    """Cutpoints at which the mean distribution over `location` is exactly `histogram`.

    ``location`` is x.w of the rows, of shape (rows,), as is ``width`` (default 1). Answers without
    any share in the histogram get a tiny one, so that the ascending cutpoints, of shape (answers -
    1,), stay finite.
    """
    share = np.maximum(histogram, _LEAST)
    target = np.cumsum(share / share.sum())[:-1]
    wide = np.ones(len(location)) if width is None else width
    reach = 40.0 * float(wide.max())
    low = np.full(len(target), float(location.min()) - reach)
    high = np.full(len(target), float(location.max()) + reach)
    # Bisection: the mean of the logistic rises in cut. 60 halvings of a range below 1,000
    # leave an error under 1e-14.
    for _ in range(60):
        middle = (low + high) / 2
        mean = np.array([expit((cut - location) / wide).mean() for cut in middle])
        below = mean < target
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.maximum.accumulate((low + high) / 2)


def finer_cutpoints(cutpoints: Floats, source: RatingScale, scale: RatingScale) -> Floats:
    """Cutpoints between the answers of a scale that has more of them than the fitted `source`.

    Cutpoints stand halfway between neighbouring answers and are interpolated (beyond the ends:
    extrapolated) linearly, so that no answer of the finer scale is left without probability. Both
    are ascending, of shape (answers - 1,).

    Examples
    --------
    >>> from pipelines.scales import SCALES
    >>> finer_cutpoints(np.arange(4.0), SCALES["1-5"], SCALES["1-10"])[:3].round(3).tolist()
    [-0.278, 0.167, 0.611]
    """
    halves = source.answers[:-1] + source.step / 2
    midpoints = rescale(scale.answers[:-1] + scale.step / 2, scale, source)
    inside = np.interp(midpoints, halves, cutpoints)
    first, last = (np.diff(cutpoints)[n] / source.step for n in (0, -1))
    below, above = np.minimum(midpoints - halves[0], 0), np.maximum(midpoints - halves[-1], 0)
    return np.asarray(inside + below * first + above * last)


def _logit(share: Floats) -> Floats:
    return np.log(share) - np.log1p(-share)


def _to_free(cuts: Floats) -> Floats:
    """Ordered cutpoints as free numbers: the first, then logarithms of the gaps."""
    return np.concatenate([cuts[:1], np.log(np.diff(cuts))])


def _from_free(free: Floats) -> Floats:
    return np.cumsum(np.concatenate([free[:1], np.exp(np.clip(free[1:], -30, 30))]))


def _free_gradient(free: Floats, by_cut: Floats) -> Floats:
    """Chain rule of `_from_free`: a gap moves every cutpoint above it."""
    above = np.cumsum(by_cut[::-1])[::-1]
    return np.concatenate([above[:1], above[1:] * np.exp(np.clip(free[1:], -30, 30))])
