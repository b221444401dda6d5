"""Figures of stored scores: spread beside people's ratings, and worth of choice sets.

Do scores spread over the scale as human ratings do (1 - total variation, as in SUBER, section
4.2)? Intervals are 95 % intervals of a bootstrap over users and personas, not over ratings: the
ratings of one user are not independent. They are the value plus or minus 1.96 standard errors.
Errors on held-out ratings of people are in the rater report.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from pipelines.errors import ContractError
from pipelines.raters._ensemble import EnsembleRater
from pipelines.raters._scoring import score_pairs
from pipelines.raters.llm import ListwiseRater
from pipelines.raters.protocol import Floats, Ints, Rater
from pipelines.raters.report.metrics import similarities
from pipelines.raters.statistical.baselines import MeanRater, RandomRater
from pipelines.raters.statistical.products import positions
from pipelines.raters.statistical.profiles import source_scale
from pipelines.scales import RatingScale, coarser, to_answers
from pipelines.seeding import combine, hash_ids, uniform

#: Users are put into at most this many groups, drawn with replacement as wholes (count).
_BLOCKS = 1_000
#: Standard errors to either side in a 95 % interval, and draws of the bootstrap (count).
_NORMAL, _RESAMPLES = 1.96, 500


def quality_summary(
    scores: pl.DataFrame,
    *,
    rater: Rater,
    item_stats: pl.DataFrame,
    interactions: pl.DataFrame | pl.LazyFrame,
    seed: int = 0,
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
    seed
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
    human = _blocks(interactions, "user_id", "rating", source, compared)
    drawn = {rater.name: given}
    pairs = given.select("persona_id", "item_id")
    for baseline in (RandomRater(scale), MeanRater(item_stats, scale, source)):
        if baseline.name != rater.name:
            people = pairs.select("persona_id").unique(maintain_order=True)
            films = pairs.select("item_id").unique(maintain_order=True)
            frames = score_pairs(baseline, pairs, people, films, seed=seed)
            drawn[baseline.name] = pl.concat(f.select("persona_id", "sample") for f in frames)
    human_draws = _resampled(human, rng)
    rows, histograms = [], {"human": _shares(human)}
    for name, frame in drawn.items():
        blocks = _blocks(frame, "persona_id", "sample", scale, compared)
        draws = similarities(_resampled(blocks, rng), human_draws)
        value = float(similarities(blocks.sum(axis=0)[None], human.sum(axis=0)[None])[0])
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


def _blocks(
    rows: pl.DataFrame | pl.LazyFrame, key: str, value: str, scale: RatingScale, target: RatingScale
) -> Floats:
    """Counts of answers on `target` by block of ids, of shape (blocks, answers).

    An id has a block of its own if there are few ids, else one of `_BLOCKS` by hash.
    """
    counts = rows.lazy().group_by(key, value).len().sort(key, value).collect(engine="streaming")
    answer = to_answers(counts[value].cast(pl.Float64).to_numpy(), scale, target)
    ids = counts[key].unique().sort()
    block = positions(counts[key], ids)
    if len(ids) > _BLOCKS:
        block = (hash_ids(ids) % np.uint64(_BLOCKS)).astype(np.int64)[block]
    out = np.zeros((min(len(ids), _BLOCKS), len(target)))
    position = np.rint((answer - target.low) / target.step).astype(np.int64)
    np.add.at(out, (block, position), counts["len"].to_numpy())
    return out


def _resampled(blocks: Floats, rng: np.random.Generator) -> Floats:
    """Sums over blocks drawn with replacement, of shape (draws, columns)."""
    size = len(blocks)
    weights = rng.multinomial(size, np.full(size, 1.0 / size), size=_RESAMPLES)
    return np.asarray(weights @ blocks)


def _shares(blocks: Floats) -> list[float]:
    total = blocks.sum(axis=0)
    return [round(float(v), 6) for v in total / total.sum()]


#: Best score of a persona in a set below which dialogues skip the set (BIEL, section 4).
LEAST_BEST = 60.0
#: Choice sets and replicates (counts; BIEL, section 4), and personas that they are taken for.
_SETS, _REPLICATES, _PERSONAS = 5, 3, 20
#: The paper's figures: mean standard deviation over replicates, and within categories (points).
PAPER = {"replicates": 4.1, "within_sets": 25.4}


def choice_set_figures(scores: pl.LazyFrame, choice_set_items: pl.LazyFrame) -> pl.DataFrame:
    """Figures of each choice set from `preference_scores`, of which failed ones are left out.

    Columns ``category_id, personas, products`` (counts), ``worth`` of knowing the customer,
    ``deviation`` (mean over personas of the standard deviation of their scores), ``best`` (mean of
    a persona's best score; all in points), and ``reached_share`` of the personas whose best score
    is 60 or more; by id.
    """
    key = "category_id"
    y = (
        scores.filter(pl.col("status") == "ok")
        .select("persona_id", "item_id", pl.col("expected").cast(pl.Float64))
        .join(choice_set_items.select(key, "item_id"), on="item_id")
    )
    by_persona = (
        y.group_by(key, "persona_id")
        .agg(best=pl.col("expected").max(), deviation=pl.col("expected").std(ddof=0))
        .group_by(key)
        .agg(
            pl.col("best").mean(),
            pl.col("deviation").mean(),
            personas=pl.len(),
            reached_share=(pl.col("best") >= LEAST_BEST).mean(),
        )
    )
    by_item = (
        y.group_by(key, "item_id")
        .agg(pl.col("expected").mean())
        .group_by(key)
        .agg(pl.col("expected").max(), products=pl.len())
    )
    return (
        by_persona.join(by_item, on=key)
        .select(
            key,
            "personas",
            "products",
            "deviation",
            "best",
            "reached_share",
            worth=pl.col("best") - pl.col("expected"),
        )
        # Sums depend on their order in the last digits, and groups come in any order.
        .with_columns(cs.float().round(6))
        .sort(key)
        .collect(engine="streaming")
    )


def consistency(
    rater: Rater,
    personas: pl.DataFrame,
    items: pl.DataFrame,
    choice_set_items: pl.DataFrame,
    *,
    seed: int = 0,
) -> dict[str, Any]:
    """Compare the variation of scores over replicates with that within choice sets.

    A replicate of a listwise model is another reply, of another seed; of other raters, another draw
    from each distribution; of an ensemble, the mean of its members' replicates. Five sets and
    twenty personas are chosen by hash from those of ``choice_set_items``.

    Returns ``replicates`` (mean over pairs of the standard deviation of three replicates, with n -
    1) and ``within_sets`` (mean over personas, sets and replicates of the standard deviation of a
    set's scores), both on the rater's scale, None where no pair has all replicates; the counts
    ``pairs``, ``sets``, ``personas``; and the ``paper``'s figures. JSON-ready.
    """
    sets = _drawn(choice_set_items["category_id"], _SETS, seed)
    people = personas.filter(
        pl.col("persona_id").is_in(_drawn(personas["persona_id"], _PERSONAS, seed).implode())
    )
    rows = (
        people.select("persona_id")
        .join(choice_set_items.filter(pl.col("category_id").is_in(sets.implode())), how="cross")
        .select("persona_id", "item_id", "category_id")
    )
    pairs = rows.select("persona_id", "item_id").unique(maintain_order=True)
    place = np.stack(
        [
            positions(pairs["persona_id"], people["persona_id"]),
            positions(pairs["item_id"], items["item_id"]),
        ],
        axis=1,
    )
    scores = np.stack(
        [_replicate(rater, n, people, items, place, seed) for n in range(_REPLICATES)]
    )
    ok = np.isfinite(scores).all(axis=0)
    scored = pairs.with_columns(
        *(pl.Series(f"r{n}", scores[n]) for n in range(_REPLICATES)), ok=pl.Series(ok)
    )
    within = (
        rows.join(scored.filter("ok"), on=["persona_id", "item_id"])
        .group_by("persona_id", "category_id")
        .agg(pl.col(f"r{n}").std(ddof=0) for n in range(_REPLICATES))
        .select(pl.mean_horizontal(f"r{n}" for n in range(_REPLICATES)).mean())
        .item()
    )
    return {
        "replicates": float(scores[:, ok].std(axis=0, ddof=1).mean()) if ok.any() else None,
        "within_sets": within,
        "pairs": int(ok.sum()),
        "sets": len(sets),
        "personas": people.height,
        "paper": PAPER,
    }


def consistency_markdown(found: dict[str, Any]) -> str:
    """Figures of :func:`consistency` as a table, beside the paper's."""

    def cell(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    return "\n".join(
        (
            "| standard deviation (points) | here | BIEL, section 4 |",
            "|---|---:|---:|",
            f"| over 3 replicates | {cell(found['replicates'])} | {PAPER['replicates']} |",
            f"| within a choice set | {cell(found['within_sets'])} | {PAPER['within_sets']} |",
            "",
            f"{found['pairs']:,} pairs of {found['personas']} personas in {found['sets']} sets.",
        )
    )


def _replicate(
    rater: Rater, number: int, personas: pl.DataFrame, items: pl.DataFrame, pairs: Ints, seed: int
) -> Floats:
    """Scores of a replicate, of shape (pairs,); NaN where there is none."""
    if isinstance(rater, EnsembleRater):
        members = [
            _replicate(r, number, personas, items, pairs, seed + n)
            for n, r in enumerate(rater.raters)
        ]
        return np.asarray(np.mean(members, axis=0))
    if isinstance(rater, ListwiseRater):
        return rater.replicate(number).rate(personas, items, pairs=pairs).expected
    who, what = hash_ids(personas["persona_id"]), hash_ids(items["item_id"])
    draw = uniform(seed, number, who[pairs[:, 0]], what[pairs[:, 1]])
    return rater.rate(personas, items, pairs=pairs).sample(draw)


def _drawn(values: pl.Series, count: int, seed: int) -> pl.Series:
    """Distinct values by the order of their hashes, `count` at most."""
    distinct = values.unique().sort()
    order = np.argsort(combine(seed, hash_ids(distinct)), kind="stable")
    return distinct.gather(np.sort(order[:count]))
