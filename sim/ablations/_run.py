"""Running a suite: cell by cell, each kept under the hash of what decides it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import identity_hash
from pipelines.errors import ConfigError
from pipelines.progress import counting
from pipelines.raters import FITTED_RATERS
from pipelines.scales import scale_named
from pipelines.study import (
    Comparison,
    Figure,
    interval,
    over_seeds,
    paired_permutation,
    user_weights,
)
from sim.ablations._context import RaterSpec, SuiteContext
from sim.ablations._grid import TESTS, UNSEEN, Grid, Options, common_scale, configurations

if TYPE_CHECKING:
    from pipelines.ablations import Suite


Floats = npt.NDArray[np.float64]

#: Share of cases without a rating above which a score is flagged.
FLAGGED = 0.05
#: Resamples of the bootstrap (count).
RESAMPLES = 2_000
_NAN = float("nan")
#: Rows of a case under one draw.
_CASE = ("test", "seed", "case")


@dataclass(frozen=True)
class TestScore(Figure):
    """A configuration in one test, or over all of them.

    The value is the mean over seeds, NaN where nothing was rated; the bootstrap draws users with
    all their cases.
    """

    __test__ = False

    #: The score without the luck of the draw.
    expected: float = _NAN
    #: Counts; `unreadable` cases are left out of everything else.
    cases: int = 0
    users: int = 0
    unreadable: int = 0
    #: Whether more than :data:`FLAGGED` of the cases are unreadable.
    flagged: bool = False
    #: Scores of the bootstrap, of shape (resamples,).
    resampled: Floats = field(default_factory=lambda: np.full(RESAMPLES, _NAN))

    @property
    def rated(self) -> bool:
        """Whether anything was rated."""
        return self.value == self.value


@lru_cache(maxsize=8)
def _weights(users: int) -> Floats:
    return np.asarray(user_weights(users, RESAMPLES, 0))


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
    def of(cls, rated: pl.DataFrame, human: Floats | None) -> UserSums:
        """Sums of the rated rows of one test that :func:`sim.ablations._grid.scored` made."""
        users, user = np.unique(rated["user"].to_numpy(), return_inverse=True)
        seeds, seed = np.unique(rated["seed"].to_numpy(), return_inverse=True)
        sums = np.zeros((len(seeds), len(users), 2 if human is None else len(human)))
        if human is None:
            np.add.at(sums[..., 0], (seed, user), 1.0)
            np.add.at(sums[..., 1], (seed, user), rated["success"].to_numpy().astype(np.float64))
        else:
            np.add.at(sums, (seed, user, rated["answer"].to_numpy()), 1.0)
        return cls(users.tolist(), sums, human)

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


def score_of(cases: pl.DataFrame, human: Floats | None) -> TestScore:
    """The score of one test, from the rows of :func:`sim.ablations._grid.scored` of all seeds.

    `human`: people's shares on the common scale, for the similarity.
    """
    rated = cases.filter(pl.col("status") == "ok")
    unreadable = cases.height - rated.height
    counts: dict[str, Any] = {
        "cases": cases.height,
        "unreadable": unreadable,
        "flagged": bool(cases.height) and unreadable > FLAGGED * cases.height,
    }
    if not rated.height:
        return TestScore(_NAN, _NAN, _NAN, **counts)
    table = UserSums.of(rated, human)
    seeds = table.by_seed(np.ones((1, len(table.users))))[0]
    value = float(np.nanmean(seeds))
    drawn = table.scores(_weights(len(table.users)))
    if human is None:
        figure = interval(value, drawn)
        expected = float(rated["chance"].mean())  # type: ignore[arg-type]
    else:
        # Resampling adds differences to the distance, so that percentiles may miss the score.
        margin = 1.96 * float(np.nanstd(drawn))
        figure = Figure(value, max(value - margin, 0.0), min(value + margin, 1.0))
        drawn = drawn - np.nanmean(drawn) + value
        mean = np.array(rated["shares"].to_list()).mean(axis=0)
        expected = float(1.0 - 0.5 * np.abs(mean - human).sum())
    return _score(figure, seeds, expected, drawn, counts | {"users": len(table.users)})


def aggregate(parts: Sequence[TestScore]) -> TestScore:
    """The mean of the tests (SUBER, section 4.2); tests without a rated case are left out.

    The intervals are those of the mean: the tests' users are drawn independently.
    """
    used = [p for p in parts if p.rated]
    counts: dict[str, Any] = {
        "cases": sum(p.cases for p in parts),
        "unreadable": sum(p.unreadable for p in parts),
        "flagged": any(p.flagged for p in parts),
    }
    if not used:
        return TestScore(_NAN, _NAN, _NAN, **counts)
    drawn = np.mean([p.resampled for p in used], axis=0)
    return _score(
        interval(float(np.mean([p.value for p in used])), drawn),
        np.mean([p.by_seed for p in used], axis=0),
        float(np.mean([p.expected for p in used])),
        drawn,
        counts | {"users": sum(p.users for p in used)},
    )


def _score(
    figure: Figure, seeds: Floats, expected: float, drawn: Floats, counts: dict[str, Any]
) -> TestScore:
    ends = over_seeds(seeds.tolist(), min_seeds=2)
    fields = figure.value, figure.low, figure.high, tuple(seeds.tolist()), *ends
    return TestScore(*fields, expected=expected, resampled=drawn, **counts)


def compare(
    left: pl.DataFrame,
    right: pl.DataFrame,
    human: tuple[Floats | None, Floats | None],
    tests: tuple[str, ...],
    titles: tuple[str, str] = ("", ""),
) -> list[Comparison]:
    """`left` minus `right` on the cases that both rated, per test and for the mean of `tests`.

    Both are rows of :func:`sim.ablations._grid.scored` of all tests and seeds; `human` are
    people's shares on the common scale of either side. p is of a permutation test over users; NaN
    for the similarity and the aggregate, which have the interval only.
    """
    rated = [f.filter(pl.col("status") == "ok") for f in (left, right)]
    both = rated[0].select(_CASE).join(rated[1].select(_CASE), on=_CASE)
    out, drawn = [], {}
    for test in left["test"].unique(maintain_order=True).to_list():
        chosen = both.filter(pl.col("test") == test)
        if not chosen.height:
            continue
        similar = test == "similarity"
        sides = [
            UserSums.of(f.join(chosen, on=_CASE, how="semi"), shares if similar else None)
            for f, shares in zip(rated, human, strict=True)
        ]
        count = len(sides[0].users)
        once, weights = np.ones((1, count)), _weights(count)
        value = float((sides[0].scores(once) - sides[1].scores(once))[0])
        draws = sides[0].scores(weights) - sides[1].scores(weights)
        drawn[test] = draws - np.nanmean(draws) + value
        left_sums, right_sums = (side.sums[..., 1].sum(axis=0) for side in sides)
        p = _NAN if similar else paired_permutation(left_sums, right_sums)
        out.append(Comparison(*titles, test, interval(value, drawn[test]), p, count))
    used = [c for c in out if c.figure in tests]
    if used:
        value = float(np.mean([c.difference.value for c in used]))
        difference = interval(value, np.mean([drawn[c.figure] for c in used], axis=0))
        users = sum(c.n for c in used)
        out.append(Comparison(*titles, "aggregate", difference, _NAN, users))
    return out


def mean_effect(
    pairs: Sequence[tuple[pl.DataFrame, pl.DataFrame]],
    titles: tuple[str, str] = ("", ""),
) -> list[Comparison]:
    """Mean of left minus right over pairs of configurations, in probabilities of success.

    Rows are those of :func:`compare`; cases that both sides of a pair rated count. The similarity
    has no success and is left out. Intervals and p are over users, each with all of its cases and
    pairs.
    """
    judged = pl.col("chance").is_not_null()
    parts = [
        left.filter(judged)
        .join(right.filter(judged).select(*_CASE, other="chance"), on=_CASE)
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
        weights = _weights(len(cases))
        draws = weights @ (left - right) / (weights @ cases)
        difference = interval(float((left - right).sum() / cases.sum()), draws)
        p = paired_permutation(left, right)
        out.append(Comparison(*titles, str(test), difference, p, len(cases)))
    return out


@dataclass(frozen=True)
class Configuration:
    """A rater with its options, scored."""

    #: Hash (hex) of what identifies it, seeds aside.
    key: str
    #: Name and kind of the rater.
    rater: str
    kind: str
    #: Options that it can see.
    options: Options
    #: By test; the last is the aggregate.
    scores: dict[str, TestScore]
    #: Rows of :func:`sim.ablations._grid.scored`, of all tests and seeds.
    cases: pl.DataFrame
    #: People's shares on the common scale; None without people.
    human: Any
    #: Metadata of the rater: fitted parameters, training data, parameters set by hand.
    metadata: dict[str, Any]


@dataclass(frozen=True)
class SuiteResult:
    """Result of a suite on the release ``name@version``."""

    suite: Suite
    release: str
    #: Seeds, each with its own draw of users, histories and people's ratings.
    seeds: tuple[int, ...]
    #: In the order of the report: rater by rater, its baseline first.
    configurations: list[Configuration]
    #: Configurations that were asked for, by rater, before those that a rater can't tell apart
    #: became one.
    asked: dict[str, int]
    #: Contents of the case tables, by table.
    counts: dict[str, dict[str, int]]
    #: Series that were asked for (count).
    wanted_series: int
    #: Cells that were there, and that were made now (counts).
    reused: int
    made: int
    #: Cases asked of each test and draw at most (count); None: all of them.
    sample: int | None = None

    @property
    def baselines(self) -> dict[str, Configuration]:
        """The first configuration of each rater, by its name."""
        first: dict[str, Configuration] = {}
        for c in self.configurations:
            first.setdefault(c.rater, c)
        return first


def run_suite(
    context: SuiteContext,
    specs: Sequence[RaterSpec],
    *,
    grid: Grid = "small",
    seeds: Sequence[int] = (0, 1, 2),
    sealed: bool = False,
) -> SuiteResult:
    """Score every configuration of every rater; cells that are kept are not made again.

    Parameters
    ----------
    context
        A release opened for the suite.
    specs
        Raters beside those of :data:`pipelines.raters.FITTED_RATERS`, which come first in any case.
    grid
        ``small`` or ``full``; see :func:`sim.ablations.configurations`.
    seeds
        Each is a draw of the case tables, of the paraphrases and of the ratings.
    sealed
        Whether the sealed half of the paraphrases is asked too; for final runs.

    Raises
    ------
    ConfigError
        If a seed has no draw, or there is none.
    """
    draws = int(context.cases["series_cases"].manifest.config["draws"])
    if not seeds or any(not 0 <= s < draws for s in seeds) or len(set(seeds)) != len(seeds):
        raise ConfigError(
            "each seed is the number of a draw of the case tables",
            where=f"seeds {list(seeds)}",
            hint=f"different numbers from 0 to {draws - 1}",
        )
    every = list(dict.fromkeys([*(RaterSpec(kind) for kind in FITTED_RATERS), *specs]))
    plan, requested = [], {}
    for spec in every:
        variants, requested[spec.name] = configurations(
            context.suite.domain, spec.sight, grid, sealed=sealed
        )
        plan += [(spec, options) for options in variants]
    total, done, reused = len(plan) * len(seeds), 0, 0
    scored: list[Configuration] = []
    with closing(context.raters):
        for spec, options in plan:
            frames = []
            for seed in seeds:
                cases = sum(len(context.questions(test, seed)) for test in TESTS)
                label = f"{_label(spec, options, seed)} ({done + 1} of {total})"
                with counting(label, cases):
                    frame, cached = context.cell(spec, options, seed)
                frames.append(frame)
                done, reused = done + 1, reused + cached
            scored.append(_configuration(context, spec, options, frames, seeds))
    counts = {
        table: dict(snapshot.manifest.stats["counts"]) for table, snapshot in context.cases.items()
    }
    wanted_series = int(context.cases["series"].manifest.stats["wanted_series"])
    return SuiteResult(
        context.suite, str(context.release), tuple(seeds), scored, requested, counts, wanted_series,
        reused, total - reused, context.sample,
    )  # fmt: skip


def _configuration(
    context: SuiteContext,
    spec: RaterSpec,
    options: Options,
    frames: Sequence[pl.DataFrame],
    seeds: Sequence[int],
) -> Configuration:

    cases = pl.concat(frames)
    human = context.human
    shares = None
    if human is not None:
        shares = common_scale(scale_named(options.scale), human)[2]
    scores = {
        test: score_of(
            cases.filter(pl.col("test") == test), shares if test == "similarity" else None
        )
        for test in TESTS
    }
    scores["aggregate"] = aggregate([scores[test] for test in context.suite.aggregate])
    keys = [context.cell_key(spec, options, seed) for seed in seeds]
    return Configuration(
        identity_hash({"cells": keys}), spec.name, spec.kind, options, scores, cases, shares,
        context.metadata(spec, options),
    )  # fmt: skip


def _label(spec: RaterSpec, options: Options, seed: int) -> str:
    shown = [options.scale, options.retrieval, options.perturbation, options.wording]
    if spec.kind == "llm":
        shots = UNSEEN if options.shots == UNSEEN else f"{options.shots}-shot"
        shown[1:1] = [shots, options.system]
    return f"{spec.name}: {', '.join(s for s in shown if s != UNSEEN)}, seed {seed}"


#: Columns of a score in tables, beside its value, and the fields that they are of.
SCORE = {
    "low": "low",
    "high": "high",
    "seeds_low": "seed_low",
    "seeds_high": "seed_high",
    "expected": "expected",
}


def finite(value: float | None) -> float | None:
    """The number for a table: null where it is not known."""
    return None if value is None or not np.isfinite(value) else float(value)


def scores_frame(result: SuiteResult) -> pl.DataFrame:
    """Rows of `ablations.<domain>_scores`."""
    from pipelines.contracts import CONTRACTS

    schema = CONTRACTS[f"ablations.{result.suite.domain}_scores"].polars_schema()
    rows = [
        {
            "cell": c.key,
            "rater": c.rater,
            **c.options.metadata(),
            "test": test,
            "score": finite(s.value),
            **{name: finite(getattr(s, of)) for name, of in SCORE.items()},
            "cases": s.cases,
            "users": s.users,
            "unreadable": s.unreadable,
            "flagged": s.flagged,
        }
        for c in result.configurations
        for test, s in c.scores.items()
    ]
    return pl.DataFrame(rows, schema=schema)
