"""Views of matched personas and their candidates: every row of a view is a fault."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from pipelines.quality._spec import Evidence, View, ViewFunction

_STATED = ("age_band", "occupation")
_BIG_FIVE = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")
#: Scores are stored with six decimals.
_TOLERANCE = 1.5e-6


def _personas(evidence: Evidence) -> View:
    """One row per matched persona."""
    return View(evidence.snapshot.scan().select("persona_id", "user_id").collect())


def _histories(evidence: Evidence) -> View:
    """One row per persona whose history or activity is not its number of training rows."""
    splits = evidence.needed(evidence.sibling_name("splits"))
    train = (
        splits.scan()
        .filter(pl.col("split") == "train")
        .group_by("user_id")
        .agg(train=pl.len().cast(pl.Int64))
    )
    return View.of(
        evidence.snapshot.scan()
        .select("persona_id", "user_id", "history", "activity")
        .join(train, on="user_id", how="left")
        .filter(
            ~pl.col("train").eq_missing(pl.col("history"))
            | ~pl.col("train").eq_missing(pl.col("activity"))
        )
    )


def _bases(evidence: Evidence) -> View:
    """One row per persona whose nulls are not those of its basis.

    `model` states everything, `none` nothing, `fitted` age or occupation and no personality.
    """
    stated = pl.sum_horizontal(pl.col(name).is_not_null() for name in _STATED)
    big_five = pl.sum_horizontal(pl.col(name).is_not_null() for name in _BIG_FIVE)
    basis, scored = pl.col("basis"), pl.col("score").is_not_null()
    right = (
        ((basis == "fitted") & (stated > 0) & (big_five == 0) & scored)
        | ((basis == "model") & (stated == len(_STATED)) & (big_five == len(_BIG_FIVE)) & scored)
        | ((basis == "none") & (stated == 0) & (big_five == 0) & ~scored)
    )
    frame = evidence.snapshot.scan().select(
        "persona_id", "basis", *_STATED, *_BIG_FIVE, right=right
    )
    return View.of(frame.filter(~pl.col("right")).drop("right"))


def _scores(evidence: Evidence) -> View:
    """One row per candidate whose score is not own less others, or missing though it is ok."""
    off = (pl.col("score") - (pl.col("own") - pl.col("others"))).abs()
    scored, ok = pl.col("score").is_not_null(), pl.col("status") == "ok"
    wrong = (scored != ok) | (scored & ((off > _TOLERANCE) | off.is_null()))
    return View.of(evidence.snapshot.scan().filter(wrong))


def _choices(evidence: Evidence) -> View:
    """One row per user whose chosen candidate is not the first of the best."""
    best = (
        evidence.snapshot.scan()
        .sort("user_id", "score", "candidate", descending=[False, True, False], nulls_last=True)
        .group_by("user_id", maintain_order=True)
        .agg(
            best=pl.col("candidate").first(),
            scored=pl.col("score").is_not_null().any(),
            chosen=pl.col("candidate").filter("chosen"),
            nothing=(pl.col("status") == "none").all(),
        )
    )
    expected = (
        pl.when(pl.col("scored") | pl.col("nothing"))
        .then(pl.concat_list("best"))
        .otherwise(pl.lit([], pl.List(pl.Int64)))
    )
    wrong = pl.col("chosen").list.len().ne(expected.list.len()) | (
        pl.col("chosen").list.first().ne_missing(expected.list.first())
    )
    return View.of(best.filter(wrong))


def _users(evidence: Evidence) -> View:
    """One row per user of one of the two tables alone."""
    personas = evidence.needed(evidence.sibling_name("matched_personas"))
    here = evidence.snapshot.scan().select("user_id").unique()
    there = personas.scan().select("user_id")
    alone = [here.join(there, on="user_id", how="anti"), there.join(here, on="user_id", how="anti")]
    return View.of(pl.concat(alone))


#: View functions by table, then by name.
MATCHING_VIEWS: Mapping[str, Mapping[str, ViewFunction]] = {
    "matched_personas": {"personas": _personas, "histories": _histories, "bases": _bases},
    "persona_candidates": {"scores": _scores, "choices": _choices, "users": _users},
}
