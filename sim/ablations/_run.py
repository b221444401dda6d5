"""Running a suite: cell by cell, each kept under the hash of what decides it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import ConfigError
from pipelines.progress import counting
from pipelines.raters import FITTED_RATERS
from pipelines.scales import scale_named
from sim.ablations._cases import TESTS
from sim.ablations._cells import common_scale
from sim.ablations._context import SuiteContext
from sim.ablations._figures import TestScore, aggregate, score_of
from sim.ablations._grid import UNSEEN, Grid, Options, configurations
from sim.ablations._raters import RaterSpec

if TYPE_CHECKING:
    import polars as pl

    from pipelines.ablations import Suite


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
    #: Rows of :func:`sim.ablations._cells.scored`, of all tests and seeds.
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
    import polars as pl

    from pipelines.config import identity_hash

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
    import polars as pl

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
