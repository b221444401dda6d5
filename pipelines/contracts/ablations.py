"""Contracts of the ablation suites: test cases made by rule from a domain, and their scores.

They belong to no release: they are made from one, and judge raters on it.
"""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract
from pipelines.contracts._columns import ITEM, USER, Model
from pipelines.contracts.published import Personas

__all__ = ["ABLATIONS"]

_PERSONA = "Persona, `persona:<cohort>:<n>`."
_DRAW = "Number of the independent draw, from 0: a seed of the suite uses one."
_SERIES = "Name of the series, in lower case, such as `toy story`."


class SuitePersonas(Personas):
    """Hand-made test personas, with what each is for (SUBER, appendix C)."""

    suite: pl.String = pa.Field(
        isin=["genres", "raters"],
        description="Test that the persona is for: taste in genres, or rating everything alike.",
    )
    group: pl.String = pa.Field(
        description="The genre that it rates high and everything else low; or `high` or `low`."
    )


class ItemSets(Model):
    """Which items each hand-made persona is asked about, and what is expected of it."""

    persona_id: pl.String = pa.Field(description=_PERSONA)
    item_id: pl.String = pa.Field(description=ITEM)
    suite: pl.String = pa.Field(isin=["genres", "raters"], description="Test.")
    group: pl.String = pa.Field(description="Genre of the persona, or `high` or `low`.")
    want: pl.String = pa.Field(
        isin=["high", "low"], description="Whether a high or a low rating is a success."
    )


class Series(Model):
    """Series of items and the one of each that is held out."""

    series: pl.String = pa.Field(description=_SERIES)
    item_id: pl.String = pa.Field(unique=True, description=ITEM)
    title: pl.String = pa.Field(str_length={"min_value": 1}, description="Title of the item.")
    basis: pl.String = pa.Field(
        isin=["collection", "title", "keyword"], description="How the series was found."
    )
    position: pl.Int64 = pa.Field(ge=1, description="Place in the series by year, then id.")
    held_out: pl.Boolean = pa.Field(description="Whether it is the item that is asked about.")


class SeriesCases(Model):
    """Users with a history of a series, other items mixed in; both are in random order."""

    draw: pl.Int64 = pa.Field(ge=0, description=_DRAW)
    series: pl.String = pa.Field(description=_SERIES)
    persona_id: pl.String = pa.Field(description=_PERSONA)
    item_id: pl.String = pa.Field(description="The held-out item of the series, asked about.")
    history: pl.List(pl.String) = pa.Field(
        description="Items rated before, oldest first; never the one that is asked about."
    )
    ratings: pl.List(pl.Float64) = pa.Field(
        description="Their ratings: the item's mean rounded, or null for items of the series, "
        "which are rated high in one question and low in the other.",
        metadata={"unit": "stars, on the suite's scale", "range": "1-10 (movies), 1-5 (books)"},
    )
    high: pl.List(pl.Float64) = pa.Field(
        description="High rating of each item of the series; null for the others.",
        metadata={"unit": "stars, on the suite's scale"},
    )
    low: pl.List(pl.Float64) = pa.Field(
        description="Low rating of each item of the series; null for the others.",
        metadata={"unit": "stars, on the suite's scale"},
    )


class HumanCases(Model):
    """Ratings that people gave outside the training split, with their training ratings."""

    draw: pl.Int64 = pa.Field(ge=0, description=_DRAW)
    case: pl.Int64 = pa.Field(ge=0, description="Number of the case in its draw.")
    user_id: pl.String = pa.Field(description=USER)
    item_id: pl.String = pa.Field(description=ITEM)
    rating: pl.Float64 = pa.Field(ge=0.5, le=5, description="What the person gave, on `scale`.")
    scale: pl.String = pa.Field(isin=["0.5-5", "1-5"], description="Scale of the source.")
    history: pl.List(pl.String) = pa.Field(
        description="Items that the person rated in the training split, the latest, oldest first; "
        "never empty and never the one that is asked about."
    )
    ratings: pl.List(pl.Float64) = pa.Field(description="Their ratings, on `scale`.")


class Scores(Model):
    """Success of each configuration in each test, with intervals; `test` is also `aggregate`."""

    cell: pl.String = pa.Field(str_length=64, description="Key of the configuration (hex).")
    rater: pl.String = pa.Field(description="Who rated; `statistical` needs no language model.")
    scale: pl.String = pa.Field(description="Rating scale.")
    shots: pl.String = pa.Field(description="Worked examples, or `-` if the rater sees none.")
    system: pl.String = pa.Field(description="`default` or `custom`, or `-`.")
    retrieval: pl.String = pa.Field(description="How past items were chosen, or `-`.")
    perturbation: pl.String = pa.Field(
        isin=["none", "greedy", "gaussian"], description="Noise on the rating."
    )
    wording: pl.String = pa.Field(
        description="Words of the hand-made personas: `own`, or paraphrases of the `open` or "
        "`sealed` half; `-text`: without fields; or `-`."
    )
    test: pl.String = pa.Field(
        isin=["genres", "raters", "collections", "similarity", "aggregate"], description="Test."
    )
    score: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=1,
        description="Share of drawn ratings that are a success, or 1 - total variation; mean over "
        "seeds; null where there was no case with a rating.",
    )
    low: pl.Float64 = pa.Field(
        nullable=True, description="Lower end of the 95 % interval over users (bootstrap)."
    )
    high: pl.Float64 = pa.Field(nullable=True, description="Its upper end.")
    seeds_low: pl.Float64 = pa.Field(
        nullable=True, description="Lower end of the 95 % interval over seeds (Student's t)."
    )
    seeds_high: pl.Float64 = pa.Field(nullable=True, description="Its upper end.")
    expected: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=1,
        description="The score without the luck of the draw: mean probability of success, or the "
        "similarity of the mean distribution.",
    )
    cases: pl.Int64 = pa.Field(ge=0, description="Cases over all seeds (count).")
    users: pl.Int64 = pa.Field(ge=0, description="Users that the interval is over (count).")
    unreadable: pl.Int64 = pa.Field(
        ge=0, description="Cases without a rating, left out of the score (count)."
    )
    flagged: pl.Boolean = pa.Field(description="Whether so many that the score means little.")


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
