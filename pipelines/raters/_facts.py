"""Metadata of a run of scoring: counts, tokens, time, and prompts with their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipelines.personas import reading_counts
from pipelines.raters._ensemble import EnsembleRater
from pipelines.raters.llm import ListwiseRater, LLMRater
from pipelines.raters.protocol import Floats, Rater
from pipelines.raters.statistical import StatisticalRater
from pipelines.seeding import combine, hash_ids

if TYPE_CHECKING:
    from pipelines.raters._cohort import CohortScores


def models_of(rater: Rater) -> list[LLMRater | ListwiseRater]:
    """The rater, or those of an ensemble's members, that ask a model."""
    members = rater.raters if isinstance(rater, EnsembleRater) else (rater,)
    return [member for member in members if isinstance(member, LLMRater | ListwiseRater)]


def asked_of(rater: Rater) -> Counter[str]:
    """Counts of requests to the rater's models by kind; empty for a rater without a model."""
    totals: Counter[str] = Counter()
    for model in models_of(rater):
        tally = model.tally
        totals += Counter(
            answers=tally.answers,
            calls=tally.calls,
            hits=tally.hits,
            duplicates=tally.duplicates,
            invalid=tally.statuses["invalid"],
            truncated=tally.statuses["truncated"],
            prompt_tokens=tally.prompt_tokens,
            completion_tokens=tally.completion_tokens,
            cached_tokens=tally.cached_tokens,
        )
    return totals


def disagreement_of(rater: Rater) -> Floats:
    """Pairs that an ensemble rated, and sums of its members' disagreement and spread."""
    return rater.disagreement.copy() if isinstance(rater, EnsembleRater) else np.zeros(3)


def persona_readings(
    rater: Rater, personas: pl.DataFrame, items: pl.DataFrame, *, max_texts: int = 100
) -> dict[str, int]:
    """:func:`pipelines.personas.reading_counts` where the statistical rater rates, else empty."""
    members = rater.raters if isinstance(rater, EnsembleRater) else (rater,)
    reads = any(isinstance(member, StatisticalRater) for member in members)
    if not (reads and personas.height and "likes" in personas.columns):
        return {}
    genres = items["genres"].explode().drop_nulls().unique().sort().to_list()
    return reading_counts(personas, genres, max_texts=max_texts)


def scoring_facts(
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
    counts = scores.asked
    free = counts["hits"] + counts["duplicates"]
    return {
        **facts,
        "invalid": counts["invalid"],
        "truncated": counts["truncated"],
        "calls": counts["calls"],
        "hits": counts["hits"],
        "hit_rate": round(free / counts["answers"], 6) if counts["answers"] else None,
        "prompt_tokens": counts["prompt_tokens"],
        "completion_tokens": counts["completion_tokens"],
        "cached_tokens": counts["cached_tokens"],
        "tokens_per_second": round(
            (counts["prompt_tokens"] + counts["completion_tokens"]) / seconds, 1
        ),
        "gpu_seconds": round(scores.seconds, 3) if any(map(_on_gpu, models)) else None,
    }


def prompt_examples(
    rater: Rater,
    scores: pl.DataFrame,
    personas: pl.DataFrame,
    items: pl.DataFrame,
    *,
    count: int = 3,
) -> list[dict[str, Any]]:
    """A few prompts (``count`` per model) with their scores; empty for raters without prompts.

    They are those that :func:`example_pairs` selects of ``scores`` (rows of `preference_scores`).
    Rows ``model, persona_id, item_id, prompt`` (messages in order), ``status, probabilities,
    expected, note``, ready for JSON.
    """
    few = example_pairs(scores, count=count)
    return [
        {
            "model": model.name,
            "persona_id": row["persona_id"],
            "item_id": row["item_id"],
            "prompt": [{"role": m.role, "text": m.content} for m in request.messages],
            **_answer(row),
        }
        for model in models_of(rater)
        for row in few.iter_rows(named=True)
        for request in model.requests(
            personas.filter(pl.col("persona_id") == row["persona_id"]),
            items.filter(pl.col("item_id") == row["item_id"]),
        )
    ]


def example_pairs(scores: pl.DataFrame, *, count: int = 3, seed: int = 0) -> pl.DataFrame:
    """A few rows of `preference_scores`, chosen by hashes of the pairs and the seed."""
    draw = combine(seed, hash_ids(scores["persona_id"]), hash_ids(scores["item_id"]))
    return scores[np.argsort(draw, kind="stable")[:count]]


def _answer(row: Mapping[str, Any]) -> dict[str, Any]:
    chances = row["probabilities"]
    return {
        "status": row["status"],
        "probabilities": None if chances is None else [round(p, 4) for p in chances],
        "expected": row["expected"],
        "note": row["note"],
    }


def _on_gpu(model: LLMRater | ListwiseRater) -> bool:
    return str(model.engine.metadata().get("device", "")).startswith("cuda")
