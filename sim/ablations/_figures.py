"""From cases to scores: means over seeds, intervals over users and over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from pipelines.study import over_seeds, user_weights

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]

#: Share of cases without a rating above which a score is flagged.
FLAGGED = 0.05
#: Resamples of the bootstrap (count).
RESAMPLES = 2_000


@dataclass(frozen=True)
class TestScore:
    """A configuration in one test, or over all of them."""

    __test__ = False

    test: str
    #: Mean over seeds; NaN where nothing was rated.
    score: float
    #: 95 % interval over users: a bootstrap that draws users with all their cases.
    low: float
    high: float
    #: Score of each seed.
    seeds: tuple[float, ...]
    #: 95 % interval over seeds (Student's t); NaN for a single seed.
    seeds_low: float
    seeds_high: float
    #: The score without the luck of the draw.
    expected: float
    #: Counts; `unreadable` cases are left out of everything else.
    cases: int
    users: int
    unreadable: int
    #: Whether more than :data:`FLAGGED` of the cases are unreadable.
    flagged: bool
    #: Scores of the bootstrap, of shape (resamples,).
    resampled: Floats


@dataclass(frozen=True)
class UserSums:
    """Sums of one test by user and seed: every score is a function of them.

    ``sums`` has shape (seeds, users, columns): rated and successful cases, or rated cases by
    answer; ``users`` are sorted ids; ``human`` are people's shares for the similarity, else None.
    """

    users: list[str]
    sums: Floats
    human: Floats | None

    @classmethod
    def of(cls, cases: pl.DataFrame, human: Floats | None) -> UserSums:
        """Sums of the rows of one test that :func:`sim.ablations._cells.scored` made."""
        import polars as pl

        users = cases["user"].unique().sort().to_list()
        seeds = cases["seed"].unique().sort().to_list()
        rated = cases.filter(pl.col("status") == "ok")
        place = {u: n for n, u in enumerate(users)}
        turn = {s: n for n, s in enumerate(seeds)}
        user = np.array([place[u] for u in rated["user"]], dtype=np.int64)
        seed = np.array([turn[s] for s in rated["seed"]], dtype=np.int64)
        width = 2 if human is None else len(human)
        sums = np.zeros((len(seeds), len(users), width))
        if human is None:
            np.add.at(sums[..., 0], (seed, user), 1.0)
            np.add.at(sums[..., 1], (seed, user), rated["success"].to_numpy().astype(np.float64))
        else:
            np.add.at(sums, (seed, user, rated["answer"].to_numpy()), 1.0)
        return cls(users, sums, human)

    def scores(self, weights: Floats) -> Floats:
        """Mean over seeds of the score, for each row of user weights (resamples, users)."""
        return np.asarray(self.by_seed(weights).mean(axis=1))

    def by_seed(self, weights: Floats) -> Floats:
        """Score by seed, of shape (resamples, seeds); NaN where nothing was rated."""
        total = np.einsum("ru,suc->rsc", weights, self.sums)
        with np.errstate(invalid="ignore", divide="ignore"):
            if self.human is None:
                return np.asarray(total[..., 1] / total[..., 0])
            shares = total / total.sum(axis=2, keepdims=True)
        return np.asarray(1.0 - 0.5 * np.abs(shares - self.human).sum(axis=2))


def score_of(test: str, cases: pl.DataFrame, human: Floats | None, *, seed: int = 0) -> TestScore:
    """The score of one test, from the rows of :func:`sim.ablations._cells.scored` of all seeds.

    `human`: people's shares on the common scale, for the similarity; `seed`: of the bootstrap.
    """
    import polars as pl

    rated = cases.filter(pl.col("status") == "ok")
    unreadable = cases.height - rated.height
    flagged = bool(cases.height) and unreadable > FLAGGED * cases.height
    if not rated.height:
        nan = float("nan")
        return TestScore(
            test, nan, nan, nan, (), nan, nan, nan, cases.height, 0, unreadable, flagged,
            np.full(RESAMPLES, nan),
        )  # fmt: skip
    table = UserSums.of(rated, human)
    seeds = table.by_seed(np.ones((1, len(table.users))))[0]
    score = float(np.nanmean(seeds))
    drawn = table.scores(user_weights(len(table.users), RESAMPLES, seed))
    if human is None:
        low, high = np.nanquantile(drawn, [0.025, 0.975])
        expected = float(rated["chance"].mean())  # type: ignore[arg-type]
    else:
        # Resampling adds differences to the distance, so that percentiles may miss the score.
        margin = 1.96 * float(np.nanstd(drawn))
        low, high = max(score - margin, 0.0), min(score + margin, 1.0)
        drawn = drawn - np.nanmean(drawn) + score
        mean = np.array(rated["shares"].to_list()).mean(axis=0)
        expected = float(1.0 - 0.5 * np.abs(mean - human).sum())
    return TestScore(
        test, score, float(low), float(high), tuple(seeds.tolist()), *_over_seeds(seeds),
        expected, cases.height, len(table.users), unreadable, flagged, drawn,
    )  # fmt: skip


def aggregate(parts: Sequence[TestScore]) -> TestScore:
    """The mean of the tests (SUBER, section 4.2); tests without a rated case are left out.

    The intervals are those of the mean: the tests' users are drawn independently.
    """
    used = [p for p in parts if np.isfinite(p.score)]
    nan = float("nan")
    cases = sum(p.cases for p in parts)
    unreadable = sum(p.unreadable for p in parts)
    flagged = any(p.flagged for p in parts)
    if not used:
        return TestScore(
            "aggregate", nan, nan, nan, (), nan, nan, nan, cases, 0, unreadable, flagged,
            np.full(RESAMPLES, nan),
        )  # fmt: skip
    score = float(np.mean([p.score for p in used]))
    drawn = np.mean([p.resampled for p in used], axis=0)
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    seeds = np.mean([p.seeds for p in used], axis=0)
    return TestScore(
        "aggregate", score, float(low), float(high), tuple(seeds.tolist()), *_over_seeds(seeds),
        float(np.mean([p.expected for p in used])), cases, sum(p.users for p in used),
        unreadable, flagged, drawn,
    )  # fmt: skip


def _over_seeds(seeds: Floats) -> tuple[float, float]:
    """95 % interval of the mean over independent seeds; NaN for a single one."""
    low, high = over_seeds(seeds.tolist(), min_seeds=2)
    nan = float("nan")
    return nan if low is None else low, nan if high is None else high
