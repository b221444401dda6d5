"""Scores of a cohort, some personas at a time, in the table's order."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import polars as pl

from pipelines.errors import ContractError, EngineError
from pipelines.execution import Executor, LocalExecutor
from pipelines.raters._facts import asked_of, disagreement_of, models_of
from pipelines.raters._score import score_pairs
from pipelines.raters.protocol import OK, Floats, Rater, for_personas
from pipelines.seeding import hash_ids

#: Pairs before the share of failed ones is judged, as for single calls (count).
_FIRST = 100
#: Groups of items whose pairs are computed together (count).
_GROUPS = 8


class Part(NamedTuple):
    """Pairs of some personas."""

    #: Rows of `score_plan`, by persona and item.
    plan: pl.DataFrame
    #: Rows about everybody in the plan.
    personas: pl.DataFrame
    #: Their rows of `persona_embeddings`.
    vectors: pl.DataFrame


class Scores(NamedTuple):
    """Scores of a part."""

    #: Rows of `preference_scores`.
    frame: pl.DataFrame
    #: Counts as in :func:`asked_of` and :func:`disagreement_of`, and CPU time of the process that
    #: scored.
    asked: Counter[str]
    disagreement: Floats
    cpu_seconds: float


@dataclass(frozen=True)
class ScorePart:
    """Scores parts with an open rater; see :class:`pipelines.execution.Work`."""

    rater: Rater
    #: Everything that the plans name.
    items: pl.DataFrame
    #: As of :func:`pipelines.raters.score_pairs`.
    seed: int = 0
    batch: int = 65_536
    explain: float = 0.0
    code: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, part: Part) -> Scores:
        """Score a part; errors of :func:`pipelines.raters.score_pairs`."""
        cpu, before = time.process_time(), asked_of(self.rater)
        disagreement = disagreement_of(self.rater)
        rater = for_personas(self.rater, part.vectors)
        frames: list[pl.DataFrame] = []
        for plan in self._groups(part.plan.sort("persona_id", "item_id")):
            frames += score_pairs(
                rater,
                plan,
                part.personas,
                self.items,
                seed=self.seed,
                batch=self.batch,
                explain=self.explain,
            )
        frame = pl.concat(frames).sort("persona_id", "item_id")
        return Scores(
            frame,
            asked_of(self.rater) - before,
            disagreement_of(self.rater) - disagreement,
            time.process_time() - cpu,
        )

    def _groups(self, plan: pl.DataFrame) -> list[pl.DataFrame]:
        """The plan, for raters that compute by hashes of items.

        The last digits of a matrix product follow from its shape: these groups give those of
        earlier versions.
        """
        if models_of(self.rater):
            return [plan]
        group = pl.Series("group", hash_ids(plan["item_id"]) % np.uint64(_GROUPS))
        return plan.with_columns(group).partition_by("group", include_key=False)

    def versions(self) -> Mapping[str, str]:
        """Versions of the code."""
        return self.code


@dataclass
class CohortScores:
    """Scores of a cohort and their counts so far."""

    cohort: str
    #: Pairs (count).
    planned: int
    #: Share of pairs without a score, after the first hundred, above which scoring stops (0-1).
    error_budget: float = 1.0
    #: Pairs scored, by status; what models were asked for them, as in :func:`asked_of` (counts).
    statuses: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    #: Of an ensemble, as in :func:`disagreement_of`.
    disagreement: Floats = field(default_factory=lambda: np.zeros(3))
    #: Duration on the clock, and in CPU time of the processes that scored.
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    @property
    def scored(self) -> int:
        """Pairs scored (count)."""
        return self.statuses.total()

    def rows(
        self, work: ScorePart, parts: Iterable[Part], executor: Executor | None = None
    ) -> Iterator[pl.DataFrame]:
        """Rows of `preference_scores`, part by part.

        Raises
        ------
        ContractError
            Nothing is planned, or a plan names somebody or something unknown.
        EngineError
            The rater returns wrong rows, or more pairs fail than the error budget allows. What a
            model answered is stored: run again, and only the rest is asked.
        """
        if not self.planned:
            raise ContractError("there is nothing to score", where=f"cohort {self.cohort}")
        began = time.perf_counter()
        for scores in (executor or LocalExecutor()).map(work, parts):
            self.statuses.update(dict(scores.frame["status"].value_counts().iter_rows()))
            self.asked += scores.asked
            self.disagreement += scores.disagreement
            self.cpu_seconds += scores.cpu_seconds
            self.seconds += time.perf_counter() - began
            self._judge()
            yield scores.frame
            began = time.perf_counter()
        if self.scored != self.planned:
            raise ContractError(
                f"{self.scored} scores for {self.planned} planned pairs",
                where=f"cohort {self.cohort}",
            )

    def _judge(self) -> None:
        failed = self.scored - self.statuses[OK]
        if self.scored < _FIRST or failed <= self.error_budget * self.scored:
            return
        kinds = ", ".join(f"{n} {kind}" for kind, n in self.statuses.most_common() if kind != OK)
        raise EngineError(
            f"{failed} of {self.scored} pairs failed ({kinds}), more than the "
            f"{self.error_budget:.0%} of serving.error_budget",
            where=f"cohort {self.cohort}",
            hint="answers are stored; run again: only the rest is requested",
        )
