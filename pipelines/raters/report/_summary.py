"""Summary of a table of scores, beside baselines, with intervals.

Do scores spread over the scale as human ratings do (1 - total variation, as in SUBER, section
4.2)? Intervals are 95 % intervals of a bootstrap over users and personas, not over ratings: the
ratings of one user are not independent. They are the value plus or minus 1.96 standard errors.
Errors on held-out ratings of people are in the rater report.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl

from pipelines.errors import ContractError
from pipelines.raters._scoring import score_pairs
from pipelines.raters.protocol import Floats, Ints, Rater
from pipelines.raters.report._metrics import similarities
from pipelines.raters.statistical import MeanRater, RandomRater, source_scale
from pipelines.scales import RatingScale, coarser, to_answers
from pipelines.seeding import hash_ids

#: Users are put into at most this many groups, drawn with replacement as wholes (count).
_BLOCKS = 1_000
#: Standard errors to either side in a 95 % interval.
_NORMAL = 1.96


def similarity(left: Floats, right: Floats) -> float:
    """1 - total variation distance of two histograms (counts or shares): 0 to 1.

    >>> similarity(np.array([1.0, 1.0]), np.array([2.0, 2.0]))
    1.0
    >>> similarity(np.array([1.0, 0.0]), np.array([0.5, 0.5]))
    0.5
    """
    return float(similarities(left[None, :], right[None, :])[0])


def quality_summary(
    scores: pl.DataFrame,
    *,
    rater: Rater,
    item_stats: pl.DataFrame,
    interactions: pl.DataFrame | pl.LazyFrame,
    seed: int = 0,
    resamples: int = 500,
) -> dict[str, Any]:
    """Summarize a table of scores.

    Parameters
    ----------
    scores
        Rows of the `preference_scores` contract, all on the rater's scale.
    rater
        Name of the rater.
    item_stats, interactions
        Tables of those names.
    seed, resamples
        Of the bootstrap.

    Returns
    -------
    ``similarity`` (rows ``rater, similarity, low, high``: the rater, `random` and `mean` on
    the same pairs), ``histograms`` (shares per answer, with `human`), both on ``scale``, the
    coarser of the rater's and the source's; counts, and the rater's ``facts``. Ready for JSON.

    Raises
    ------
    ContractError
        If no score is `ok` or the scores are on another scale.
    """
    scale, source = rater.scale, source_scale(interactions)
    if scores["scale"].unique().to_list() not in ([scale.name], []):
        raise ContractError("the scores are on another scale than the rater's", where=scale.name)
    given = scores.filter(pl.col("status") == "ok")
    if not given.height:
        raise ContractError("there is no score to judge", where="preference_scores")
    rng = np.random.default_rng(seed)
    compared = coarser(scale, source)
    human = _human_blocks(interactions, source, compared)
    drawn = {rater.name: given}
    pairs = given.select("persona_id", "item_id")
    for baseline in (RandomRater(scale), MeanRater(item_stats, scale, source)):
        if baseline.name != rater.name:
            people = pairs.select("persona_id").unique(maintain_order=True)
            films = pairs.select("item_id").unique(maintain_order=True)
            frames = score_pairs(baseline, pairs, people, films, seed=seed)
            drawn[baseline.name] = pl.concat(f.select("persona_id", "sample") for f in frames)
    human_draws = _resampled(human, resamples, rng)
    rows, histograms = [], {"human": _shares(human)}
    for name, frame in drawn.items():
        blocks = _score_blocks(frame, scale, compared)
        draws = similarities(_resampled(blocks, resamples, rng), human_draws)
        value = similarity(blocks.sum(axis=0), human.sum(axis=0))
        # Resampling adds differences, so the draws lie below the value and their percentiles
        # may miss it; their spread is what the interval needs.
        margin = _NORMAL * float(draws.std())
        low, high = max(value - margin, 0.0), min(value + margin, 1.0)
        rows.append({"rater": name, "similarity": value, "low": low, "high": high})
        histograms[name] = _shares(blocks)
    return {
        "scale": compared.name,
        "answers": compared.answers.tolist(),
        "pairs": given.height,
        "failed_pairs": scores.height - given.height,
        "human_ratings": int(human.sum()),
        "similarity": rows,
        "histograms": histograms,
        "interval": "95 %, bootstrap over users and personas",
        "facts": rater.metadata(),
    }


def _human_blocks(
    interactions: pl.DataFrame | pl.LazyFrame, source: RatingScale, scale: RatingScale
) -> Floats:
    counts = (
        interactions.lazy()
        .group_by("user_id", "rating")
        .len()
        .sort("user_id", "rating")
        .collect(engine="streaming")
    )
    answer = to_answers(counts["rating"].to_numpy(), source, scale)
    return _blocks(counts["user_id"], _position(answer, scale), counts["len"], scale)


def _score_blocks(frame: pl.DataFrame, scale: RatingScale, compared: RatingScale) -> Floats:
    counts = frame.group_by("persona_id", "sample").len().sort("persona_id", "sample")
    answer = to_answers(counts["sample"].cast(pl.Float64).to_numpy(), scale, compared)
    return _blocks(counts["persona_id"], _position(answer, compared), counts["len"], compared)


def _position(answer: Floats, scale: RatingScale) -> Ints:
    return np.rint((answer - scale.low) / scale.step).astype(np.int64)


def _blocks(ids: pl.Series, position: Ints, counts: pl.Series, scale: RatingScale) -> Floats:
    """Counts per block of ids and answer, of shape (blocks, answers)."""
    block, size = _block_of(ids)
    out = np.zeros((size, len(scale)))
    np.add.at(out, (block, position), counts.to_numpy())
    return out


def _block_of(ids: pl.Series) -> tuple[Ints, int]:
    """A block per id: its own if there are few ids, else one of `_BLOCKS` by hash."""
    distinct = ids.unique().sort()
    if len(distinct) <= _BLOCKS:
        block = np.arange(len(distinct))
    else:
        block = (hash_ids(distinct) % np.uint64(_BLOCKS)).astype(np.int64)
    rows = (
        pl.DataFrame({"id": ids})
        .join(pl.DataFrame({"id": distinct, "block": block}), on="id", maintain_order="left")
        .get_column("block")
    )
    return rows.to_numpy(), min(len(distinct), _BLOCKS)


def _resampled(blocks: Floats, resamples: int, rng: np.random.Generator) -> Floats:
    """Sums over blocks drawn with replacement, of shape (resamples, columns)."""
    size = len(blocks)
    weights = rng.multinomial(size, np.full(size, 1.0 / size), size=resamples)
    return np.asarray(weights @ blocks)


def _shares(blocks: Floats) -> list[float]:
    total = blocks.sum(axis=0)
    return [round(float(v), 6) for v in total / total.sum()]
