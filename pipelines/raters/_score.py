"""Bulk scoring: a plan in, the `preference_scores` table out, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from pipelines.errors import ContractError
from pipelines.progress import advance
from pipelines.raters.protocol import OK, Explainer, Ints, Rater, RatingBatch, check_batch
from pipelines.seeding import hash_ids, uniform

#: Answers of a scale up to which distributions are stored as they are (count).
_EXACT = 10
#: Others are stored in this many parts of 1.
_PARTS = 10_000


def score_pairs(
    rater: Rater,
    plan: pl.DataFrame,
    personas: pl.DataFrame,
    items: pl.DataFrame,
    *,
    histories: pl.DataFrame | None = None,
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
    histories
        Passed on to the rater.
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
        past = histories
        if past is not None:
            past = past.filter(pl.col("persona_id").is_in(personas["persona_id"][who].implode()))
        pairs = np.stack([local, item[rows]], axis=1)
        rated = rater.rate(personas[who], items, past, pairs=pairs)
        check_batch(rated, len(pairs), rater.name)
        rated = stored(rated)
        draw = uniform(seed, person_keys[person[rows]], item_keys[item[rows]])
        frame = _frame(plan[rows], rated, draw, rater)
        drawn = uniform(seed + 1, person_keys[person[rows]], item_keys[item[rows]]) < explain
        if drawn.any() and isinstance(rater, Explainer):
            ratings = frame["mode"].cast(pl.Float64).fill_null(float("nan")).to_numpy()
            why = rater.explain(personas[who], items, pairs[drawn], ratings[drawn], past, seed=seed)
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
