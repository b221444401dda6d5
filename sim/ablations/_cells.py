"""A cell of the grid: a configuration and a seed, scored case by case."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError
from pipelines.scales import RatingScale, rescale, to_answers
from pipelines.seeding import hash_text, uniform
from sim.ablations._cases import Cases, Human
from sim.environment.noise import perturb

if TYPE_CHECKING:
    import polars as pl

    from pipelines.ablations import Suite

#: q of greedy noise (probability) and the standard deviation of Gaussian noise (answers).
STRENGTH = {"none": 0.0, "greedy": 0.3, "gaussian": 1.0}


def kernel(name: str, scale: RatingScale, strength: float | None = None) -> npt.NDArray[np.float64]:
    """Probability of each answer after the noise, by answer before it; rows sum to 1.

    ``none``; ``greedy``: one answer up or down with probability q/2 each (SUBER, section 4.1);
    ``gaussian``: a normal number is added and the sum rounded. What falls off the scale is put at
    its end. `strength` is q (0-1), or the standard deviation in answers; default :data:`STRENGTH`.
    Another name or strength is a ConfigError.

    >>> from pipelines.scales import SCALES
    >>> kernel("greedy", SCALES["1-5"], 0.5)[0].tolist()
    [0.75, 0.25, 0.0, 0.0, 0.0]
    """
    if name not in STRENGTH:
        raise ConfigError("unknown perturbation", where=name, hint=f"one of {', '.join(STRENGTH)}")
    strength = STRENGTH[name] if strength is None else strength
    count = len(scale)
    if strength < 0 or (name == "greedy" and strength > 1):
        raise ConfigError("no such strength of noise", where=f"{name} {strength}")
    if name == "none" or strength == 0:
        return np.eye(count)
    if name == "greedy":
        steps = np.array([strength / 2, 1 - strength, strength / 2])
        out = np.zeros((count, count))
        for step, share in zip((-1, 0, 1), steps, strict=True):
            to = np.clip(np.arange(count) + step, 0, count - 1)
            out[np.arange(count), to] += share
        return out
    from scipy.stats import norm

    # Borders between answers; all that lies beyond the outer ones is at the ends.
    border = np.arange(count - 1) + 0.5
    with np.errstate(over="ignore"):
        below = norm.cdf((border[None, :] - np.arange(count)[:, None]) / strength)
    padded = np.concatenate([np.zeros((count, 1)), below, np.ones((count, 1))], axis=1)
    return np.asarray(np.diff(padded, axis=1))


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def successes(test: str, suite: Suite, scale: RatingScale) -> npt.NDArray[np.bool_]:
    """Answers of a scale that count as low and as high, of shape (2, answers).

    The suite states its thresholds on its own scale; an answer of another scale is converted to
    that one (linearly, ends to ends), so that 8 of 1-10 is 7 of 0-9.
    """
    high, low = suite.thresholds[test]
    stars = rescale(scale.answers, scale, suite.scale)
    # Conversion must not lose a threshold to rounding.
    return np.stack([stars <= low + 1e-9, stars >= high - 1e-9])


def common_scale(scale: RatingScale, human: Human) -> tuple[RatingScale, Ints, Floats]:
    """The scale with fewer answers, on which ratings and people's ratings are compared.

    Returns also the number of its answer for each answer of `scale`, and the human shares on it
    (each answer of the source counts at the nearest one).
    """
    target = human.scale if len(human.scale) <= len(scale) else scale

    def number(answers: Floats, source: RatingScale) -> Ints:
        nearest = to_answers(answers, source, target)
        return np.rint((nearest - target.low) / target.step).astype(np.int64)

    shares = np.bincount(
        number(human.scale.answers, human.scale), human.shares, minlength=len(target)
    )
    return target, number(scale.answers, scale), np.asarray(shares, dtype=np.float64)


def scored(
    cases: Cases,
    answers: pl.DataFrame,
    scale: RatingScale,
    suite: Suite,
    *,
    seed: int,
    noise: str,
    human: Human | None,
) -> pl.DataFrame:
    """The outcome of each case under one seed.

    The rating is drawn from the rater's distribution (`answers`, of
    :func:`sim.ablations._context.answers`) and then perturbed. The draws belong to (seed, test,
    case), so that configurations are compared under the same luck. `human` is needed by the
    similarity only.

    Columns: ``test``, ``seed``, ``case``, ``user``, ``group``, ``want``, ``status``, ``answer``
    (number of the drawn answer; for the similarity on the common scale), ``success`` and ``chance``
    (its probability), and ``shares`` (similarity only: the distribution on the common scale). Where
    there is no rating, the last four are null: a reply that can't be read is no rating.
    """
    import polars as pl

    ok = (answers["status"] == "ok").to_numpy()
    probabilities = np.zeros((len(cases), len(scale)))
    flat = answers["probabilities"].filter(answers["status"] == "ok")
    probabilities[ok] = np.array(flat.to_list(), dtype=np.float64).reshape(
        int(ok.sum()), len(scale)
    )
    matrix = kernel(noise, scale)
    test_key, number = hash_text(cases.test), np.arange(len(cases))
    first = uniform(seed, test_key, 0, number)
    below = np.cumsum(probabilities, axis=1)[:, :-1] <= first[:, None]
    rating = perturb(
        scale.answers[below.sum(axis=1)],
        uniform(seed, test_key, 1, number),
        noise,
        STRENGTH[noise] * scale.step,
        scale,
    )
    answer = np.rint((rating - scale.low) / scale.step).astype(np.int64)
    after = probabilities @ matrix
    frame = pl.DataFrame(
        {
            "test": [cases.test] * len(cases),
            "seed": [seed] * len(cases),
            "case": number,
            "user": cases.users,
            "group": cases.group,
            "want": cases.want,
            "status": answers["status"],
        },
        schema_overrides={
            **dict.fromkeys(("test", "user", "group", "status"), pl.String),
            **dict.fromkeys(("seed", "case", "want"), pl.Int64),
        },
    )
    success = np.zeros(len(cases), dtype=bool)
    chance = np.zeros(len(cases))
    shares: list[list[float]] | None = None
    if cases.test == "similarity" and human is not None:
        target, onto, _ = common_scale(scale, human)
        answer = onto[answer]
        spread = np.zeros((len(scale), len(target)))
        spread[np.arange(len(scale)), onto] = 1.0
        shares = (after @ spread).tolist()
    elif len(cases):
        good = successes(cases.test, suite, scale)[cases.want]  # (n, answers)
        success = np.take_along_axis(good, answer[:, None], axis=1)[:, 0]
        chance = (after * good).sum(axis=1)
    judged = cases.test != "similarity"
    rated = pl.col("status") == "ok"
    return frame.with_columns(
        answer=pl.when(rated).then(pl.Series(answer, dtype=pl.Int64)),
        success=pl.when(rated & judged).then(pl.Series(success, dtype=pl.Boolean)),
        chance=pl.when(rated & judged).then(pl.Series(chance, dtype=pl.Float64)),
        shares=pl.when(rated).then(
            pl.Series(shares or [None] * len(cases), dtype=pl.List(pl.Float64))
        ),
    )
