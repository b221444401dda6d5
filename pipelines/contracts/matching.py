"""Contracts of matched personas. A release holds them where they were made from its own tables."""

from __future__ import annotations

from typing import Any

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import USER, Model, TrainingTraits, tier

__all__ = ["MATCHED_DOMAINS", "MATCHING"]

#: Domains whose users get personas.
MATCHED_DOMAINS = ("movies", "books", "games")
_AGES = ["under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+"]


def _trait(name: str) -> Any:
    return pa.Field(
        nullable=True,
        ge=1,
        le=3,
        description=f"{name}: 1 low, 2 medium, 3 high; null without a language model.",
    )


class MatchedPersonas(Model):
    """Personas matched to real users by self-consistency (SimUSER, section 3.1).

    Everything is made of training interactions. An attribute that nothing is known about is null.
    """

    persona_id: pl.String = pa.Field(
        unique=True,
        str_matches=r"^persona:[a-z0-9-]*matched:[0-9]+$",
        description="Persona: `persona:<cohort>:<number>`; the number is the user's place among "
        "the users of the domain.",
    )
    user_id: pl.String = pa.Field(description=USER)
    cohort: pl.String = pa.Field(description="`matched` for films, else `<domain>-matched`.")
    method: pl.String = pa.Field(
        description="Who proposed and rated the candidates: `statistical` (no language model), "
        "`model`, or a plug-in's name."
    )
    basis: pl.String = pa.Field(
        isin=["fitted", "model", "none"],
        description="Where the attributes come from: `fitted` on other users whose source tells "
        "them, a language `model`, or `none`, then they are null.",
    )
    age_band: pl.String = pa.Field(nullable=True, isin=_AGES, description="Age band (years).")
    occupation: pl.String = pa.Field(
        nullable=True, description="One of the 21 occupations of SimUSER, appendix B."
    )
    openness: pl.Int64 = _trait("Openness")
    conscientiousness: pl.Int64 = _trait("Conscientiousness")
    extraversion: pl.Int64 = _trait("Extraversion")
    agreeableness: pl.Int64 = _trait("Agreeableness")
    neuroticism: pl.Int64 = _trait("Neuroticism")
    score: pl.Float64 = pa.Field(
        nullable=True,
        ge=-9,
        le=9,
        description="s(p, u) of the chosen candidate: mean expected rating of the user's own lists "
        "less that of other users' lists; 6 decimals; null without a candidate.",
        metadata={"unit": "rating, 1-10"},
    )
    margin: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=18,
        description="Score above the second best candidate's; null with fewer than two.",
        metadata={"unit": "rating, 1-10"},
    )
    candidates: pl.Int64 = pa.Field(ge=0, description="Candidates with a score (count).")
    activity: pl.Int64 = pa.Field(ge=1, description="Training interactions (count).")
    activity_tier: pl.String = tier("Its tier among the users of the domain.")
    conformity: pl.Float64 = pa.Field(
        ge=0,
        le=16,
        description="Mean squared difference of the ratings from the items' training means.",
        metadata={"unit": "stars squared", "range": "0-16"},
    )
    conformity_tier: pl.String = tier("Its tier; `high` is for the smallest differences.")
    diversity: pl.Int64 = pa.Field(ge=0, description="Different genres among the items (count).")
    diversity_tier: pl.String = tier("Its tier among the users of the domain.")
    diversity_80: pl.Int64 = pa.Field(
        ge=0, description="Most frequent genres within 0.8 of the items' genres (count)."
    )
    diversity_80_tier: pl.String = tier("Its tier: the diversity of simulated users.")
    mean_rating: pl.Float64 = pa.Field(
        ge=1, le=5, description="Mean training rating.", metadata={"unit": "stars, 1-5"}
    )
    pickiness: pl.String = pa.Field(
        isin=["extremely_picky", "moderately_picky", "not_picky"],
        description="By mean training rating (SimUSER, appendix A).",
    )
    likes: pl.List(pl.String) = pa.Field(
        description="Genres rated above expectation, alphabetical; statistical."
    )
    dislikes: pl.List(pl.String) = pa.Field(
        description="Genres rated below expectation, alphabetical; disjoint from `likes`."
    )
    taste: pl.String = pa.Field(
        str_length={"min_value": 1}, description="Summary of tastes (SimUSER's s_u)."
    )
    taste_writer: pl.String = pa.Field(
        description="Who wrote the summary: `statistical` (no model), or a model's id."
    )
    history: pl.Int64 = pa.Field(
        ge=1, description="Training interactions that the persona was made from (count)."
    )
    answer_keys: pl.List(pl.String) = pa.Field(
        description="Keys of the stored answers behind summary, attributes and score; empty "
        "without a model."
    )


class PersonaCandidates(Model):
    """Candidate personas of matched users, with their self-consistency scores."""

    user_id: pl.String = pa.Field(description=USER)
    candidate: pl.Int64 = pa.Field(ge=0, description="Number within the user, from 0.")
    attributes: pl.String = pa.Field(
        nullable=True,
        description="JSON object of the attributes that were proposed; null where none was.",
    )
    own: pl.Float64 = pa.Field(
        nullable=True,
        ge=1,
        le=10,
        description="Mean expected rating of the user's own lists; 6 decimals.",
        metadata={"unit": "rating, 1-10"},
    )
    others: pl.Float64 = pa.Field(
        nullable=True,
        ge=1,
        le=10,
        description="Mean expected rating of one list of each other user; 6 decimals.",
        metadata={"unit": "rating, 1-10"},
    )
    score: pl.Float64 = pa.Field(
        nullable=True, ge=-9, le=9, description="`own` less `others`; null unless `ok`."
    )
    chosen: pl.Boolean = pa.Field(
        description="Whether it became the persona: the best score, ties to the lower number."
    )
    status: pl.String = pa.Field(
        isin=["ok", "truncated", "invalid", "refused", "engine_error", "none"],
        description="`ok`, or why there is no score; `none` where the source tells nothing, so "
        "that nothing is proposed.",
    )


#: The tables by dataset name.
MATCHING: dict[str, Contract] = {
    name: contract
    for domain in MATCHED_DOMAINS
    for name, contract in contracts(
        domain,
        matched_personas=(MatchedPersonas, "persona_id"),
        persona_candidates=(PersonaCandidates, "user_id", "candidate"),
    ).items()
}

#: Traits that a matched persona takes over from the table `training_traits`, in its order.
TRAITS: tuple[str, ...] = tuple(n for n in TrainingTraits.to_schema().columns if n != "user_id")
