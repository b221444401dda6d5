"""Small statistics of whole tables, with the finite-sample bounds the checks use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

#: Chance that a check of a correct sampler fails by luck (per check and version).
ALPHA = 1e-4


def total_variation(a: Mapping[str, float], b: Mapping[str, float]) -> float:
    """Half the summed absolute difference of two histograms, each scaled to sum 1 (0 to 1).

    An empty histogram is at distance 1 from any other, 0 from another empty one.

    >>> total_variation({"x": 1, "y": 1}, {"x": 4})
    0.5
    """
    mass_a, mass_b = sum(a.values()), sum(b.values())
    if mass_a <= 0 or mass_b <= 0:
        return 0.0 if mass_a <= 0 and mass_b <= 0 else 1.0
    keys = sorted(set(a) | set(b))
    return 0.5 * sum(abs(a.get(k, 0.0) / mass_a - b.get(k, 0.0) / mass_b) for k in keys)


def tv_allowance(shares: Sequence[float], n: int, alpha: float = ALPHA) -> float:
    """Total variation that ``n`` independent draws from ``shares`` stay below.

    Holds with probability at least ``1 - alpha``, for any ``n``: the expected distance is at
    most ``sum(sqrt(p * (1 - p) / n)) / 2`` (Jensen), and one draw moves the distance by at
    most ``1 / n``, so it exceeds its expectation by ``sqrt(ln(1 / alpha) / (2 * n))`` with
    probability at most ``alpha`` (McDiarmid's inequality). At most 1.

    >>> round(tv_allowance([0.5, 0.5], 10_000), 4)
    0.0265
    """
    if n <= 0:
        return 1.0
    total = sum(shares) or 1.0
    expected = 0.5 * sum(math.sqrt(max(0.0, p / total * (1 - p / total)) / n) for p in shares)
    return min(1.0, expected + math.sqrt(math.log(1.0 / alpha) / (2.0 * n)))


def share_allowance(n: int, tests: int, alpha: float = ALPHA) -> float:
    """Distance of a share of ``n`` draws from its target, over ``tests`` shares at once.

    Hoeffding's inequality with a union bound: ``sqrt(ln(2 * tests / alpha) / (2 * n))``.

    >>> round(share_allowance(10_000, 18), 4)
    0.0253
    """
    if n <= 0:
        return 1.0
    return min(1.0, math.sqrt(math.log(2.0 * max(1, tests) / alpha) / (2.0 * n)))


def concentration_bound(n: int, share: float, alpha: float = ALPHA) -> float:
    """Largest share one value may reach in ``n`` draws if none has probability above ``share``.

    At most ``1 / share`` values can have that probability, so with a union bound over them it
    is the upper ``alpha * share`` quantile of the binomial distribution, divided by ``n``. It
    tends to ``share`` as ``n`` grows; a bound of exactly ``share`` would refuse most small
    cohorts of a correct sampler.

    >>> concentration_bound(200, 0.01), round(concentration_bound(1_000_000, 0.01), 4)
    (0.06, 0.0105)
    """
    from scipy.stats import binom

    if n <= 0:
        return 1.0
    return min(1.0, float(binom.isf(alpha * share, n, share)) / n)


def mean_interval(mean: float, deviation: float, n: int) -> tuple[float, float]:
    """Normal 95 % interval of a mean of ``n`` independent values.

    >>> low, high = mean_interval(3.0, 1.0, 100)
    >>> round(low, 3), round(high, 3)
    (2.804, 3.196)
    """
    half = 1.959963984540054 * deviation / math.sqrt(n) if n > 0 else math.inf
    return (mean - half, mean + half)
