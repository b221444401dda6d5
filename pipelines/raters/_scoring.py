"""Scoring: plans in, the `preference_scores` table out, and what it took.

Pairs are scored batch by batch (:func:`score_pairs`), a cohort some personas at a time, in the
table's order (:class:`CohortScores`).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from pipelines.errors import ContractError, EngineError
from pipelines.execution import Executor, LocalExecutor
from pipelines.personas import reading_counts
from pipelines.progress import advance
from pipelines.raters._ensemble import EnsembleRater
from pipelines.raters.llm import ListwiseRater, LLMRater
from pipelines.raters.protocol import (
    OK,
    Explainer,
    Floats,
    Ints,
    Rater,
    RatingBatch,
    check_batch,
    for_personas,
)
from pipelines.raters.statistical.rater import StatisticalRater
from pipelines.seeding import combine, hash_ids, uniform
from pipelines.statuses import Status

#: Answers of a scale up to which distributions are stored as they are (count).
_EXACT = 10
#: Others are stored in this many parts of 1.
_PARTS = 10_000
#: Pairs before the share of failed ones is judged, as for single calls (count).
_FIRST = 100
#: Groups of items whose pairs are computed together (count).
_GROUPS = 8
#: Counts of a model's tally that are summed, and statuses of answers that are counted.
_COUNTS = (
    *("answers", "calls", "hits", "duplicates"),
    *("prompt_tokens", "completion_tokens", "cached_tokens"),
)
_STATUSES: tuple[Status, ...] = ("invalid", "truncated")


def score_pairs(
    rater: Rater,
    plan: pl.DataFrame,
    personas: pl.DataFrame,
    items: pl.DataFrame,
    *,
    seed: int = 0,
    batch: int = 65_536,
    explain: float = 0.0,
) -> Iterator[pl.DataFrame]:
    """Score the pairs of a plan; frames of the `preference_scores` contract, in the plan's order.

    Parameters
    ----------
    rater
        The rater.
    plan
        Rows of the `score_plan` contract, in its order.
    personas, items
        Tables that hold everybody and everything in the plan (else ContractError).
    seed
        Of the ``sample`` column: a draw belongs to (persona, item, seed), whatever the order.
    batch
        Pairs per frame (count).
    explain
        Share of the pairs for which a rater that can write texts also explains the most probable
        rating, in a call of its own; drawn per pair. A text that can't be had is null, with a
        note: the rating stands.

    Raises
    ------
    ContractError
        If the plan is empty or names somebody or something unknown.
    EngineError
        If the rater returns another number of rows, or probabilities that don't sum to 1.
    """
    if not plan.height:
        raise ContractError("there is nothing to score", where="score_plan: no rows")
    person = places(plan, personas, "persona_id")
    item = places(plan, items, "item_id")
    person_keys, item_keys = hash_ids(personas["persona_id"]), hash_ids(items["item_id"])
    for start in range(0, plan.height, batch):
        rows = slice(start, min(start + batch, plan.height))
        who, local = np.unique(person[rows], return_inverse=True)
        pairs = np.stack([local, item[rows]], axis=1)
        rated = rater.rate(personas[who], items, pairs=pairs)
        check_batch(rated, len(pairs), rater.name)
        rated = stored(rated)
        draw = uniform(seed, person_keys[person[rows]], item_keys[item[rows]])
        frame = _frame(plan[rows], rated, draw, rater)
        drawn = uniform(seed + 1, person_keys[person[rows]], item_keys[item[rows]]) < explain
        if drawn.any() and isinstance(rater, Explainer):
            ratings = frame["mode"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
            why = rater.explain(personas[who], items, pairs[drawn], ratings[drawn], seed=seed)
            frame = _with_reasons(frame, why, drawn)
        yield frame
        advance("scoring pairs", rows.stop, plan.height)


def stored(rated: RatingBatch) -> RatingBatch:
    """Distributions as they are stored: on scales of many answers in multiples of 0.0001.

    The cumulated distribution is rounded, so that they still sum to 1; the expected rating moves
    by less than 0.01 steps. 101 exact numbers take 640 bytes of a compressed row, these about 70.
    """
    if len(rated.scale) <= _EXACT:
        return rated
    cumulated = np.rint(np.cumsum(rated.probabilities, axis=1) * _PARTS)
    return replace(rated, probabilities=np.diff(cumulated, axis=1, prepend=0.0) / _PARTS)


def places(plan: pl.DataFrame, table: pl.DataFrame, key: str) -> Ints:
    """Row of `table` that each row of a plan names, of shape (pairs,); ContractError if unknown."""
    place = pl.DataFrame({key: table[key]}).with_row_index("row")
    rows = plan.select(key).join(place, on=key, how="left", maintain_order="left")["row"]
    if rows.null_count():
        missing = plan.filter(rows.is_null())[key].unique().sort()
        raise ContractError(
            f"the plan names {len(missing)} unknown {key.removesuffix('_id')}s",
            where="score_plan",
            details={"rows": [{key: m} for m in missing.head(10)]},
        )
    return rows.cast(pl.Int64).to_numpy()


def _frame(plan: pl.DataFrame, rated: RatingBatch, draw: np.ndarray, rater: Rater) -> pl.DataFrame:
    status = pl.Series("status", list(rated.status), dtype=pl.String)
    ok = pl.col("status") == OK
    frame = plan.select("persona_id", "item_id").with_columns(
        pl.lit(rater.name).alias("rater"),
        pl.lit(rater.scale.name).alias("scale"),
        pl.Series("probabilities", rated.probabilities).arr.to_list(),
        pl.Series("expected", rated.expected),
        pl.Series("mode", rated.mode),
        pl.Series("sample", rated.sample(draw)),
        pl.Series("entropy", rated.entropy),
        status,
        pl.lit(rated.prompt_version, dtype=pl.String).alias("prompt_version"),
        _texts("answer_key", rated.answer_keys, plan.height),
        _texts("note", rated.notes, plan.height),
        pl.lit(None, dtype=pl.String).alias("explanation"),
    )
    values = ("probabilities", "expected", "mode", "sample", "entropy")
    # A failed answer is never a rating.
    frame = frame.with_columns(pl.when(ok).then(pl.col(values)))
    return frame.with_columns(pl.col("mode", "sample").cast(pl.Int64))


def _with_reasons(frame: pl.DataFrame, why: pl.DataFrame, drawn: np.ndarray) -> pl.DataFrame:
    """The scores with their explanations, and a note where a rating that was asked of has none."""
    row = pl.Series(np.cumsum(drawn) - 1).set(~pl.Series(drawn), None)
    failed = why.select(pl.coalesce("note", "status")).to_series().gather(row)
    missing = pl.Series(drawn) & (pl.col("status") == OK) & pl.col("explanation").is_null()
    reason = pl.format("no explanation: {}", failed)
    noted = pl.concat_str(pl.col("note"), reason, separator="; ", ignore_nulls=True)
    return frame.with_columns(why["explanation"].gather(row)).with_columns(
        note=pl.when(missing).then(noted).otherwise("note")
    )


def _texts(name: str, values: Sequence[str | None] | None, rows: int) -> pl.Series:
    return pl.Series(name, [None] * rows if values is None else list(values), dtype=pl.String)


def models_of(rater: Rater) -> list[LLMRater | ListwiseRater]:
    """The rater, or those of an ensemble's members, that ask a model."""
    members = rater.raters if isinstance(rater, EnsembleRater) else (rater,)
    return [member for member in members if isinstance(member, LLMRater | ListwiseRater)]


def counts_of(rater: Rater) -> Counter[str]:
    """Counts of requests to the rater's models by kind; empty for a rater without a model."""
    totals: Counter[str] = Counter()
    for model in models_of(rater):
        totals.update({name: getattr(model.tally, name) for name in _COUNTS})
        totals.update({status: model.tally.statuses[status] for status in _STATUSES})
    return totals


def disagreement_of(rater: Rater) -> Floats:
    """Pairs that an ensemble rated, and sums of its members' disagreement and spread."""
    return rater.disagreement.copy() if isinstance(rater, EnsembleRater) else np.zeros(3)


def persona_readings(
    rater: Rater, personas: pl.DataFrame, items: pl.DataFrame, *, max_texts: int
) -> dict[str, int]:
    """:func:`pipelines.personas.reading_counts` where the statistical rater rates, else empty."""
    members = rater.raters if isinstance(rater, EnsembleRater) else (rater,)
    reads = any(isinstance(member, StatisticalRater) for member in members)
    if not (reads and personas.height and "likes" in personas.columns):
        return {}
    genres = items["genres"].explode().drop_nulls().unique().sort().to_list()
    return reading_counts(personas, genres, max_texts=max_texts)


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
    #: Counts as in :func:`counts_of` and :func:`disagreement_of`, and CPU time of the process that
    #: scored.
    counts: Counter[str]
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
        cpu, before = time.process_time(), counts_of(self.rater)
        disagreement = disagreement_of(self.rater)
        rater = for_personas(self.rater, part.vectors)
        frames: list[pl.DataFrame] = []
        for plan in self._groups(part.plan.sort("persona_id", "item_id")):
            frames += score_pairs(
                rater,
                plan,
                part.personas,
                self.items,
                explain=self.explain,
                seed=self.seed,
                batch=self.batch,
            )
        frame = pl.concat(frames).sort("persona_id", "item_id")
        return Scores(
            frame,
            counts_of(self.rater) - before,
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
    #: Pairs scored, by status; requests for them, as in :func:`counts_of` (counts).
    statuses: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
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
            self.counts += scores.counts
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


def scoring_metadata(
    rater: Rater, scores: CohortScores, *, readings: Mapping[str, int] | None = None
) -> dict[str, Any]:
    """Counts of a run, ready for JSON.

    ``readings`` is the sum of :func:`persona_readings` over all parts.

    ``pairs`` (planned), ``scored_now``, ``statuses`` of these, ``seconds``, ``cpu_seconds`` (of
    processes that scored), ``pairs_per_second``; for raters that ask models also ``invalid`` and
    ``truncated`` (answers), ``calls``, ``hits``, ``hit_rate`` (answers that cost no call, 0-1),
    ``prompt_tokens``, ``completion_tokens``, ``cached_tokens`` (of the prompt tokens, not computed
    anew), ``tokens_per_second`` (prompt and completion), and ``gpu_seconds``: the time that a GPU
    was held for them, None where none was. For an ensemble also ``disagreement`` (mean total
    variation between two members' distributions, 0-1) and ``spread`` (mean standard deviation of
    their expected ratings, on the scale), None where nothing was rated. Where the statistical rater
    rates, ``personas`` are :func:`pipelines.personas.reading_counts`.
    """
    seconds = max(scores.seconds, 1e-9)
    facts: dict[str, Any] = {
        "pairs": scores.planned,
        "scored_now": scores.scored,
        "statuses": dict(sorted(scores.statuses.items())),
        "seconds": round(scores.seconds, 3),
        "cpu_seconds": round(scores.cpu_seconds, 3),
        "pairs_per_second": round(scores.scored / seconds, 1),
    }
    if isinstance(rater, EnsembleRater):
        rated, *sums = scores.disagreement.tolist()
        apart = [total / rated if rated else None for total in sums]
        facts["disagreement"], facts["spread"] = apart
    if readings:
        facts["personas"] = dict(readings)
    models = models_of(rater)
    if not models:
        return facts
    counts = scores.counts
    free = counts["hits"] + counts["duplicates"]
    tokens = counts["prompt_tokens"] + counts["completion_tokens"]
    on_gpu = (str(m.engine.metadata().get("device", "")).startswith("cuda") for m in models)
    return {
        **facts,
        **{
            name: counts[name]
            for name in (*_STATUSES, *_COUNTS)
            if name not in ("answers", "duplicates")
        },
        "hit_rate": round(free / counts["answers"], 6) if counts["answers"] else None,
        "tokens_per_second": round(tokens / seconds, 1),
        "gpu_seconds": round(scores.seconds, 3) if any(on_gpu) else None,
    }


def prompt_examples(
    rater: Rater,
    scores: pl.DataFrame,
    personas: pl.DataFrame,
    items: pl.DataFrame,
) -> list[dict[str, Any]]:
    """Prompts of pairs by model, with their scores; empty for raters without prompts.

    ``scores`` are rows of `preference_scores`, such as :func:`example_pairs` selects. Rows
    ``model, persona_id, item_id, prompt`` (messages in order), ``status, probabilities, expected,
    note``, ready for JSON.
    """
    return [
        {
            "model": model.name,
            "persona_id": row["persona_id"],
            "item_id": row["item_id"],
            "prompt": [{"role": m.role, "text": m.content} for m in request.messages],
            "status": row["status"],
            "probabilities": None
            if row["probabilities"] is None
            else [round(p, 4) for p in row["probabilities"]],
            "expected": row["expected"],
            "note": row["note"],
        }
        for model in models_of(rater)
        for row in scores.iter_rows(named=True)
        for request in model.requests(
            personas.filter(pl.col("persona_id") == row["persona_id"]),
            items.filter(pl.col("item_id") == row["item_id"]),
        )
    ]


def example_pairs(scores: pl.DataFrame) -> pl.DataFrame:
    """Three rows of `preference_scores`, chosen by hashes of the pairs."""
    draw = combine(0, hash_ids(scores["persona_id"]), hash_ids(scores["item_id"]))
    return scores[np.argsort(draw, kind="stable")[:3]]
