"""Personas matched to real users, as rows of the `personas` contract."""

from __future__ import annotations

import polars as pl

from pipelines.errors import ContractError
from pipelines.personas._generate import completed

#: Last word of the name of every cohort of matched personas.
MATCHED = "matched"
#: Raised when the same matches would give other personas.
MATCHED_VERSION = "matched-2"
_LEVELS = {1: "low", 2: "medium", 3: "high"}
_TRAITS = ("openness", "conscientiousness", "extraversion", "agreeableness", "neuroticism")


def matched_cohort(domain: str) -> str:
    """Name of a domain's cohort of matched personas.

    >>> matched_cohort("movies"), matched_cohort("books")
    ('matched', 'books-matched')
    """
    return MATCHED if domain == "movies" else f"{domain}-{MATCHED}"


def is_matched(cohort: str) -> bool:
    """Return True if the cohort holds matched personas.

    >>> is_matched("games-matched"), is_matched("matched-by-hand")
    (True, False)
    """
    return cohort == MATCHED or cohort.endswith(f"-{MATCHED}")


def matched_personas(matches: pl.DataFrame) -> pl.DataFrame:
    """Personas of a frame of ``<domain>.matched_personas``.

    Ages are bands, so the column `age` is null; name, gender, hobby, leniency and manner are
    never matched (the mean rating and pickiness stand in `matched_personas`). The
    description states the matched attributes, the summary of tastes and the habits.

    Returns
    -------
    A frame of the `personas` contract with origin `matched`, in its order. Its writer is that of
    the summary.

    Raises
    ------
    ContractError
        If there are no rows.
    """
    if matches.is_empty():
        raise ContractError("no matched personas", where="matched_personas")
    aged = pl.format("A person aged {}", "age_band")
    big_five = pl.concat_list(
        pl.format("{} {}", pl.col(name).replace_strict(_LEVELS, default=None), pl.lit(name))
        for name in _TRAITS
    ).list.drop_nulls()
    habits = pl.format(
        "Activity: {}; conformity: {}; diversity: {}; {}.",
        "activity_tier",
        "conformity_tier",
        "diversity_80_tier",
        pl.col("pickiness").str.replace_all("_", " ", literal=True),
    )
    description = pl.concat_str(
        pl.coalesce(aged, pl.lit("A person of unknown age")),
        pl.when(pl.col("occupation").is_not_null())
        .then(pl.format(", occupation: {}", "occupation"))
        .otherwise(pl.lit("")),
        pl.when(big_five.list.len() > 0)
        .then(pl.format(", with {}", big_five.list.join(", ")))
        .otherwise(pl.lit("")),
        pl.lit(". "),
        pl.col("taste")
        .str.replace_all("{", "(", literal=True)
        .str.replace_all("}", ")", literal=True),
        pl.lit(" "),
        habits,
    )
    domain = pl.col("cohort").str.strip_suffix(MATCHED).str.strip_suffix("-")
    personas = matches.sort("persona_id").select(
        *("persona_id", "cohort", "likes", "dislikes"),
        domain=domain.replace("", "movies"),
        origin=pl.lit("matched"),
        writer=pl.col("taste_writer"),
        job=pl.col("occupation"),
        activity=pl.col("activity_tier"),
        conformity=pl.col("conformity_tier"),
        description=description,
    )
    return completed(personas)
