"""Paired tests between two configurations: the same users, cases and draws on both sides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from sim.ablations._figures import RESAMPLES, UserSums
from sim.metrics.intervals import user_weights

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]

#: Sign flips of the permutation test at most; few users are flipped exhaustively (count).
FLIPS = 4_999


@dataclass(frozen=True)
class Difference:
    """One configuration minus another.

    Attributes
    ----------
    test
        A test, or ``aggregate``.
    value
        Difference of the scores on the cases that both rated.
    low, high
        95 % interval: a bootstrap that draws users with their cases on both sides.
    p
        Of the paired permutation test over users (two-sided); NaN for the similarity and the
        aggregate, which have the interval only.
    users
        Users on both sides (count).
    """

    test: str
    value: float
    low: float
    high: float
    p: float
    users: int


def compare(
    left: pl.DataFrame,
    right: pl.DataFrame,
    human: tuple[Floats | None, Floats | None],
    tests: tuple[str, ...],
    *,
    seed: int = 0,
) -> list[Difference]:
    """`left` minus `right`, per test and for the mean of `tests`.

    Both are rows of :func:`sim.ablations._cells.scored` of all tests and seeds; `human` are
    people's shares on the common scale of either side.
    """
    import polars as pl

    key = ["test", "seed", "case"]
    rated = [f.filter(pl.col("status") == "ok") for f in (left, right)]
    both = rated[0].select(key).join(rated[1].select(key), on=key)
    out, drawn = [], {}
    for test in left["test"].unique(maintain_order=True).to_list():
        chosen = both.filter(pl.col("test") == test)
        if not chosen.height:
            continue
        similar = test == "similarity"
        sides = [
            UserSums.of(
                f.join(chosen, on=key, how="semi", maintain_order="left"),
                shares if similar else None,
            )
            for f, shares in zip(rated, human, strict=True)
        ]
        count = len(sides[0].users)
        one, weights = np.ones((1, count)), user_weights(count, RESAMPLES, seed)
        value = float((sides[0].scores(one) - sides[1].scores(one))[0])
        draws = sides[0].scores(weights) - sides[1].scores(weights)
        drawn[test] = draws - np.nanmean(draws) + value
        low, high = np.nanquantile(drawn[test], [0.025, 0.975])
        p = float("nan") if similar else _flipped(sides[0], sides[1], seed)
        out.append(Difference(test, value, float(low), float(high), p, count))
    used = [d for d in out if d.test in tests]
    if used:
        whole = np.mean([drawn[d.test] for d in used], axis=0)
        low, high = np.nanquantile(whole, [0.025, 0.975])
        value = float(np.mean([d.value for d in used]))
        users = sum(d.users for d in used)
        out.append(Difference("aggregate", value, float(low), float(high), float("nan"), users))
    return out


def _flipped(left: UserSums, right: UserSums, seed: int) -> float:
    """Probability under the hypothesis that a user's two results could as well be exchanged."""
    from scipy import stats

    gains = [side.sums[..., 1].sum(axis=0) for side in (left, right)]
    if np.array_equal(gains[0], gains[1]):
        return 1.0
    if len(gains[0]) < 2:
        return float("nan")

    def difference(a: Any, b: Any, axis: int) -> Any:
        return (a - b).sum(axis=axis)

    found = stats.permutation_test(
        gains,
        difference,
        permutation_type="samples",
        vectorized=True,
        n_resamples=FLIPS,
        rng=np.random.default_rng(seed),
    )
    return float(found.pvalue)


def with_discovery_rate(ps: list[float]) -> list[float]:
    """The p values after Benjamini and Hochberg's correction for how many were tested; NaN stays.

    >>> with_discovery_rate([0.01, float("nan"), 0.04])
    [0.02, nan, 0.04]
    """
    from scipy import stats

    values = np.array(ps, dtype=np.float64)
    known = ~np.isnan(values)
    if known.any():
        values[known] = stats.false_discovery_control(values[known])
    return [float(v) for v in values]
