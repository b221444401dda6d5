"""Paired tests between two configurations: the same users, cases and draws on both sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from sim.ablations._figures import RESAMPLES, UserSums
from sim.metrics import paired_permutation, user_weights

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Difference:
    """Difference of two configurations."""

    #: A test, or ``aggregate``.
    test: str
    #: Difference of the scores on the cases that both rated.
    value: float
    #: 95 % interval: a bootstrap that draws users with their cases on both sides.
    low: float
    high: float
    #: p-value of the paired permutation test over users (two-sided); NaN for the similarity and the
    #: aggregate, which have the interval only.
    p: float
    #: Users on both sides (count).
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
        left_sums, right_sums = (side.sums[..., 1].sum(axis=0) for side in sides)
        p = float("nan") if similar else paired_permutation(left_sums, right_sums, seed)
        out.append(Difference(test, value, float(low), float(high), p, count))
    used = [d for d in out if d.test in tests]
    if used:
        whole = np.mean([drawn[d.test] for d in used], axis=0)
        low, high = np.nanquantile(whole, [0.025, 0.975])
        value = float(np.mean([d.value for d in used]))
        users = sum(d.users for d in used)
        out.append(Difference("aggregate", value, float(low), float(high), float("nan"), users))
    return out


def mean_effect(
    pairs: Sequence[tuple[pl.DataFrame, pl.DataFrame]], *, seed: int = 0
) -> list[Difference]:
    """Mean of left minus right over pairs of configurations, in probabilities of success.

    Rows are those of :func:`compare`; cases that both sides of a pair rated count. The similarity
    has no success and is left out. Intervals and p are over users, each with all of its cases and
    pairs.
    """
    import polars as pl

    key, judged = ["test", "seed", "case"], pl.col("chance").is_not_null()
    parts = [
        left.filter(judged)
        .join(right.filter(judged).select(*key, other="chance"), on=key)
        .select("test", "user", "chance", "other")
        for left, right in pairs
    ]
    sums = (
        pl.concat(parts)
        .group_by("test", "user", maintain_order=True)
        .agg(pl.col("chance", "other").sum(), cases=pl.len())
        .sort("test", "user")
    )
    out = []
    for (test,), users in sums.group_by("test", maintain_order=True):
        left, right, cases = (users[name].to_numpy() for name in ("chance", "other", "cases"))
        weights = user_weights(len(cases), RESAMPLES, seed)
        draws = weights @ (left - right) / (weights @ cases)
        low, high = np.quantile(draws, [0.025, 0.975])
        value = float((left - right).sum() / cases.sum())
        p = paired_permutation(left, right, seed)
        out.append(Difference(str(test), value, float(low), float(high), p, len(cases)))
    return out
