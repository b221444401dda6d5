"""Users with histories: of a series rated high or low, and people with their own ratings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from pipelines.ablations._rule import CaseRule, Suite
from pipelines.errors import ContractError
from pipelines.scales import SCALES, RatingScale, to_answers
from pipelines.seeding import hash_ids, hash_text, uniform

#: Largest distance from an end of the scale at which a rating counts as extreme (share of the
#: scale's length; set by hand): 9 and 10, 1 and 2 of 1-10; 5 and 1 of 1-5.
_END = 0.15

_SERIES_SCHEMA: dict[str, Any] = {
    "draw": pl.Int64,
    **dict.fromkeys(("series", "persona_id", "item_id"), pl.String),
    "history": pl.List(pl.String),
    **dict.fromkeys(("ratings", "high", "low"), pl.List(pl.Float64)),
}


def extremes(scale: RatingScale) -> tuple[np.ndarray, np.ndarray]:
    """The high and the low answers that items of a series are given.

    >>> [answers.tolist() for answers in extremes(SCALES["1-10"])]
    [[9.0, 10.0], [1.0, 2.0]]
    >>> [answers.tolist() for answers in extremes(SCALES["1-5"])]
    [[5.0], [1.0]]
    """
    share = (scale.answers - scale.low) / (scale.high - scale.low)
    return scale.answers[share >= 1 - _END], scale.answers[share <= _END]


def series_cases(
    series: pl.DataFrame,
    items: pl.DataFrame,
    item_stats: pl.DataFrame,
    personas: pl.DataFrame,
    source: RatingScale,
    suite: Suite,
    rule: CaseRule,
) -> pl.DataFrame:
    """Rows of `ablations.<domain>_series_cases`.

    For every draw and series (:func:`pipelines.ablations.find_series`), so many personas of the
    domain are drawn (all, if there are fewer). Each gets a history in random order: every item of
    the series but the held-out one, and `fillers` other rated items with their mean training
    ratings (on the scale ``source``), rounded to answers. The high (low) ratings of the series are
    drawn from the answers near the end of the scale.
    """
    people = personas.filter(pl.col("domain") == suite.domain).sort("persona_id")
    rated = items.select("item_id").join(
        item_stats.filter(pl.col("train_ratings") > 0).select("item_id", "train_mean_rating"),
        on="item_id",
    )
    rated = rated.sort("item_id")
    means = to_answers(rated["train_mean_rating"].to_numpy(), source, suite.scale)
    ids = np.array(rated["item_id"].to_list(), dtype=object)
    who = np.array(people["persona_id"].to_list(), dtype=object)
    keys = hash_ids(who)
    tops, bottoms = extremes(suite.scale)
    frames = []
    for name, members in series.group_by("series", maintain_order=True):
        series_key = hash_text(str(name[0]))
        inside = members.filter(~pl.col("held_out"))["item_id"].to_list()
        held_out = members.filter("held_out")["item_id"].item()
        free = np.flatnonzero(~np.isin(ids, [*inside, held_out]))
        for draw in range(rule.draws):
            order = np.argsort(uniform(rule.seed, draw, series_key, keys), kind="stable")
            chosen = who[order[: rule.users]]
            rng = np.random.default_rng([rule.seed, draw, series_key])
            count = min(rule.fillers, len(free))
            others = free[
                np.argsort(rng.random((len(chosen), len(free))), axis=1)[:, :count]
            ]  # of shape (users, fillers)
            shape = (len(chosen), len(inside))
            blank = np.full((len(chosen), count), np.nan)
            columns = {
                "history": np.concatenate(
                    [np.broadcast_to(np.array(inside, dtype=object), shape), ids[others]], axis=1
                ),
                "ratings": np.concatenate([np.full(shape, np.nan), means[others]], axis=1),
                "high": np.concatenate([rng.choice(tops, shape), blank], axis=1),
                "low": np.concatenate([rng.choice(bottoms, shape), blank], axis=1),
            }
            mixed = np.argsort(rng.random(columns["history"].shape), axis=1)
            frames.append(
                pl.DataFrame(
                    {
                        "draw": [draw] * len(chosen),
                        "series": [str(name[0])] * len(chosen),
                        "persona_id": chosen.tolist(),
                        "item_id": [held_out] * len(chosen),
                        **{
                            key: np.take_along_axis(values, mixed, axis=1).tolist()
                            for key, values in columns.items()
                        },
                    },
                    schema=_SERIES_SCHEMA,
                )
            )
    table = pl.concat(frames) if frames else pl.DataFrame(schema=_SERIES_SCHEMA)
    # Lists know no NaN: what has no rating here is null.
    return table.with_columns(
        pl.col("ratings", "high", "low").list.eval(pl.element().fill_nan(None))
    )


@dataclass(frozen=True)
class HumanSample:
    """Cases of people, and the distribution that they are drawn from."""

    #: Rows of `ablations.<domain>_human_cases`.
    cases: pl.DataFrame
    #: Share of each answer of `scale`: item uniform, then one of its ratings uniform.
    distribution: dict[str, float]
    #: The source's.
    scale: RatingScale


def human_cases(interactions: pl.DataFrame, splits: pl.DataFrame, rule: CaseRule) -> HumanSample:
    """People's ratings outside the training split: an item uniform, then one of its ratings.

    Raters learn from the training split; a rating of it could be known to them, and for an item
    that one person rated, its mean is that rating. So the cases, and the human distribution beside
    them, are of the other splits. The history is the person's own training ratings, the latest
    `past`; people without any are left out, so that it is never empty. Raises ContractError if the
    interactions are on several scales.
    """
    names = interactions["scale"].unique().to_list()
    if len(names) != 1:
        raise ContractError("interactions must be on one scale", where=f"scale: {sorted(names)}")
    scale = SCALES[names[0]]
    joined = interactions.join(splits, on=["user_id", "item_id"], how="inner")
    histories = (
        joined.filter(pl.col("split") == "train")
        .sort("user_id", "rated_at", "item_id")
        .group_by("user_id", maintain_order=True)
        .agg(history=pl.col("item_id").tail(rule.past), ratings=pl.col("rating").tail(rule.past))
    )
    held = (
        joined.filter(pl.col("split") != "train")
        .join(histories.select("user_id"), on="user_id", how="semi")
        .sort("item_id", "user_id")
    )
    if not held.height:
        return HumanSample(_no_cases(), {}, scale)
    per_item = (
        held.group_by("item_id", "rating")
        .len()
        .with_columns(share=pl.col("len") / pl.col("len").sum().over("item_id"))
    )
    shares = per_item.group_by("rating").agg(
        share=pl.col("share").sum() / held["item_id"].n_unique()
    )
    start = (
        held.with_row_index("row")
        .group_by("item_id", maintain_order=True)
        .agg(first=pl.col("row").first(), count=pl.len())
    )
    first, count = start["first"].to_numpy().astype(np.int64), start["count"].to_numpy()
    frames = []
    for draw in range(rule.draws):
        rng = np.random.default_rng([rule.seed, draw, hash_text("people")])
        item = rng.integers(len(first), size=rule.people)
        rows = first[item] + (rng.random(rule.people) * count[item]).astype(np.int64)
        frames.append(
            held[rows.tolist()]
            .select("user_id", "item_id", "rating", "scale", draw=pl.lit(draw, pl.Int64))
            .with_columns(case=pl.int_range(pl.len(), dtype=pl.Int64))
        )
    cases = pl.concat(frames).join(histories, on="user_id", how="left", maintain_order="left")
    table = dict(shares.sort("rating").iter_rows())
    return HumanSample(
        cases.select(*_HUMAN), {f"{a:g}": float(table.get(a, 0.0)) for a in scale.answers}, scale
    )


_HUMAN: dict[str, Any] = {
    "draw": pl.Int64,
    "case": pl.Int64,
    "user_id": pl.String,
    "item_id": pl.String,
    "rating": pl.Float64,
    "scale": pl.String,
    "history": pl.List(pl.String),
    "ratings": pl.List(pl.Float64),
}


def _no_cases() -> pl.DataFrame:
    return pl.DataFrame(schema=_HUMAN)
