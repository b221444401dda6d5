"""Hand-made personas and the items that each is asked about."""

from __future__ import annotations

import numpy as np
import polars as pl

from pipelines.ablations._rule import CaseRule, Suite
from pipelines.errors import ConfigError
from pipelines.personas import (
    PARAPHRASE_DIGESTS,
    SUITE_GENRES,
    handmade_personas,
    handmade_suite,
    restated_personas,
)
from pipelines.seeding import hash_ids, uniform

#: Wordings of hand-made personas: our templates' words, or paraphrases of the open or the sealed
#: half, each with the fields (liked and disliked genres, leniency, manner) or with the text only.
WORDINGS = ("own", "own-text", "open", "open-text", "sealed", "sealed-text")
OWN_WORDS = WORDINGS[0]

_SCHEMA = dict.fromkeys(("persona_id", "item_id", "suite", "group", "want"), pl.String)


def suite_personas(suite: Suite) -> pl.DataFrame:
    """Rows of `ablations.<domain>_personas`: 32 of genres, 8 who rate everything alike."""
    return handmade_personas(suite.domain).join(
        handmade_suite(suite.domain), on="persona_id", validate="1:1"
    )


def worded_personas(personas: pl.DataFrame, wording: str, draw: int) -> pl.DataFrame:
    """Hand-made personas (:func:`suite_personas`) in one of :data:`WORDINGS` (else ConfigError).

    Other wordings than the first have ids of their own, so that no vector of another text is taken
    for theirs; ``user`` has the original id. ``draw`` is that of the paraphrases.
    """
    if wording not in WORDINGS:
        hint = f"one of {', '.join(WORDINGS)}"
        raise ConfigError("no such wording of hand-made personas", where=wording, hint=hint)
    worded = personas.with_columns(user="persona_id")
    if wording == OWN_WORDS:
        return worded
    half, _, text_only = wording.partition("-")
    if half in PARAPHRASE_DIGESTS:
        worded = restated_personas(worded, half, draw)
    if text_only:
        worded = worded.with_columns(
            *(pl.lit([], pl.List(pl.String)).alias(name) for name in ("likes", "dislikes")),
            *(pl.lit(None, pl.String).alias(name) for name in ("leniency", "manner")),
        )
    renamed = pl.col("persona_id").str.replace("persona:", f"persona:{wording}-", literal=True)
    return worded.with_columns(persona_id=renamed)


def wording_digest(wording: str) -> str:
    """Digest of the texts of a wording; empty for our own, which the case tables hold."""
    return PARAPHRASE_DIGESTS.get(wording.partition("-")[0], "")


def item_sets(
    personas: pl.DataFrame, items: pl.DataFrame, item_stats: pl.DataFrame, suite: Suite,
    rule: CaseRule,
) -> pl.DataFrame:  # fmt: skip
    """Rows of `ablations.<domain>_item_sets`, for the personas of :func:`suite_personas`.

    An item can be drawn if it has `least_ratings` training ratings. For a persona of a genre, an
    item is liked if it has that genre and none that the persona dislikes, disliked if it has a
    genre that the persona dislikes and neither its own nor one akin to it; whatever is in between
    is not asked. Of each side so many are drawn with equal chances, for each persona anew; where
    there are fewer, all of them are taken and nothing is made up.
    """
    rated = item_stats.filter(pl.col("train_ratings") >= rule.least_ratings)
    pool = items.join(rated.select("item_id"), on="item_id", how="semi").sort("item_id")
    genres = SUITE_GENRES[suite.domain]
    has = np.stack([pool["genres"].list.contains(g).to_numpy() for g in genres], axis=1)
    keys, ids = hash_ids(pool["item_id"]), pool["item_id"]
    frames = []
    for person in personas.iter_rows(named=True):
        order = uniform(rule.seed, hash_ids([person["persona_id"]])[0], keys)
        if person["suite"] == "genres":
            has_genre = has[:, genres.index(person["group"])]
            disliked = has[:, [genres.index(g) for g in person["dislikes"]]].any(axis=1)
            akin = [n for n, g in enumerate(genres) if g not in person["dislikes"]]
            sides = {
                "high": (has_genre & ~disliked, rule.liked),
                "low": (disliked & ~has[:, akin].any(axis=1), rule.disliked),
            }
        else:
            sides = {person["group"]: (np.ones(pool.height, dtype=bool), rule.everything)}
        for want, (mask, count) in sides.items():
            rows = np.flatnonzero(mask)
            rows = rows[np.argsort(order[rows], kind="stable")[:count]]
            frames.append(
                pl.DataFrame({"item_id": ids.gather(rows)}).select(
                    persona_id=pl.lit(person["persona_id"]),
                    item_id="item_id",
                    suite=pl.lit(person["suite"]),
                    group=pl.lit(person["group"]),
                    want=pl.lit(want),
                )
            )
    return pl.concat(frames) if frames else pl.DataFrame(schema=_SCHEMA)
