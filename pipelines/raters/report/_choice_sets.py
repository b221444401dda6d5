"""Figures of scores by choice set: worth of knowing the customer, consistency of replicates."""

from __future__ import annotations

from typing import Any

import numpy as np
import polars as pl
import polars.selectors as cs

from pipelines.raters._ensemble import EnsembleRater
from pipelines.raters.llm import ListwiseRater
from pipelines.raters.protocol import Floats, Ints, Rater
from pipelines.raters.statistical import positions
from pipelines.seeding import combine, hash_ids, uniform

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
