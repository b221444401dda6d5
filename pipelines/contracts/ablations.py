"""Contracts of the ablation suites: test cases made by rule from a domain, and their scores.

They belong to no release: they are made from one, and judge raters on it.
"""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract
from pipelines.contracts._columns import ITEM, USER, Model, column
from pipelines.contracts.published import Personas

__all__ = ["ABLATIONS"]

_PERSONA = "Persona, `persona:<cohort>:<n>`."
_DRAW = "Number of the independent draw, from 0: a seed of the suite uses one."
_SERIES = "Name of the series, in lower case, such as `toy story`."


class SuitePersonas(Personas):
    """Hand-made test personas, with the purpose of each (SUBER, appendix C)."""

    suite: pl.String = column(
        "Test that the persona is for: taste in genres, or rating everything alike.",
        isin=["genres", "raters"],
    )
    group: pl.String = column(
        "Genre that the persona rates high while it rates all else low; or `high` or `low`."
    )


class ItemSets(Model):
    """Items that each hand-made persona is asked about, and the expected ratings."""

    persona_id: pl.String = column(_PERSONA)
    item_id: pl.String = column(ITEM)
    suite: pl.String = column("Test.", isin=["genres", "raters"])
    group: pl.String = column("Genre of the persona, or `high` or `low`.")
    want: pl.String = column("Whether a high or a low rating is a success.", isin=["high", "low"])


class Series(Model):
    """Series of items and the one of each that is held out."""

    series: pl.String = column(_SERIES)
    item_id: pl.String = column(ITEM, unique=True)
    title: pl.String = column("Title of the item.", str_length={"min_value": 1})
    basis: pl.String = column("Basis of the series.", isin=["collection", "title", "keyword"])
    position: pl.Int64 = column("Place in the series by year, then id.", ge=1)
    held_out: pl.Boolean = column("Whether the item is held out for the question.")


class SeriesCases(Model):
    """Users with a history of a series, other items mixed in; both are in random order."""

    draw: pl.Int64 = column(_DRAW, ge=0)
    series: pl.String = column(_SERIES)
    persona_id: pl.String = column(_PERSONA)
    item_id: pl.String = column("Held-out item of the series, which the question is about.")
    history: pl.List(pl.String) = column(
        "Items rated before, oldest first; never the one in question."
    )
    ratings: pl.List(pl.Float64) = column(
        "Ratings of these items: the item's mean rounded, or null for items of the series, "
        "which are rated high in one question and low in the other.",
        unit="stars, on the suite's scale",
        within="1-10 (movies), 1-5 (books)",
    )
    high: pl.List(pl.Float64) = column(
        "High rating of each item of the series; null for the others.",
        unit="stars, on the suite's scale",
    )
    low: pl.List(pl.Float64) = column(
        "Low rating of each item of the series; null for the others.",
        unit="stars, on the suite's scale",
    )


class HumanCases(Model):
    """Ratings that people gave outside the training split, with their training ratings."""

    draw: pl.Int64 = column(_DRAW, ge=0)
    case: pl.Int64 = column("Number of the case in its draw.", ge=0)
    user_id: pl.String = column(USER)
    item_id: pl.String = column(ITEM)
    rating: pl.Float64 = column("Rating by the person, on `scale`.", ge=0.5, le=5)
    scale: pl.String = column("Scale of the source.", isin=["0.5-5", "1-5"])
    history: pl.List(pl.String) = column(
        "Items that the person rated in the training split, the latest, oldest first; never empty "
        "and never the one in question."
    )
    ratings: pl.List(pl.Float64) = column("Ratings of these items, on `scale`.")


class Scores(Model):
    """Success of each configuration in each test, with intervals; `test` is also `aggregate`."""

    cell: pl.String = column("Key of the configuration (hex).", str_length=64)
    rater: pl.String = column("Rater; `statistical` needs no language model.")
    scale: pl.String = column("Rating scale.")
    shots: pl.String = column("Worked examples, or `-` if the rater uses none.")
    system: pl.String = column("`default` or `custom`, or `-`.")
    retrieval: pl.String = column("Retriever of past items, or `-`.")
    perturbation: pl.String = column("Noise on the rating.", isin=["none", "greedy", "gaussian"])
    wording: pl.String = column(
        "Words of the hand-made personas: `own`, or paraphrases of the `open` or "
        "`sealed` half; `-text`: without fields; or `-`."
    )
    test: pl.String = column(
        "Test.", isin=["genres", "raters", "collections", "similarity", "aggregate"]
    )
    score: pl.Float64 = column(
        "Share of drawn ratings that are a success, or 1 - total variation; mean over "
        "seeds; null if no case has a rating.",
        null=True,
        ge=0,
        le=1,
    )
    low: pl.Float64 = column("Lower end of the 95 % interval over users (bootstrap).", null=True)
    high: pl.Float64 = column("Upper end of that interval.", null=True)
    seeds_low: pl.Float64 = column(
        "Lower end of the 95 % interval over seeds (Student's t).", null=True
    )
    seeds_high: pl.Float64 = column("Upper end of that interval.", null=True)
    expected: pl.Float64 = column(
        "Score without sampling noise: mean probability of success, or the similarity of the mean "
        "distribution.",
        null=True,
        ge=0,
        le=1,
    )
    cases: pl.Int64 = column("Cases over all seeds (count).", ge=0)
    users: pl.Int64 = column("Users in the interval (count).", ge=0)
    unreadable: pl.Int64 = column("Cases without a rating, left out of the score (count).", ge=0)
    flagged: pl.Boolean = column("Whether there are too many of these for a meaningful score.")


def _of(domain: str) -> dict[str, Contract]:
    tables: dict[str, tuple[type[Model], tuple[str, ...]]] = {
        "personas": (SuitePersonas, ("persona_id",)),
        "item_sets": (ItemSets, ("persona_id", "item_id")),
        "series": (Series, ("series", "position")),
        "series_cases": (SeriesCases, ("draw", "series", "persona_id")),
        "human_cases": (HumanCases, ("draw", "case")),
        "scores": (Scores, ("cell", "test")),
    }
    return {
        f"ablations.{domain}_{name}": Contract(f"{domain}_{name}", model, key)
        for name, (model, key) in tables.items()
    }


#: Tables of the ablation suites by dataset name.
ABLATIONS: dict[str, Contract] = {**_of("movies"), **_of("books")}
