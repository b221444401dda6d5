"""Contracts of what models make beside a release: matches, captions, tuned raters, surrogates."""

from __future__ import annotations

from typing import Any

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import (
    ITEM,
    USER,
    Contract,
    Model,
    TrainingTraits,
    column,
    contracts,
    tier,
)
from pipelines.statuses import CAPTION_STATUSES, STATUSES

#: Domains whose users get personas.
MATCHED_DOMAINS = ("movies", "books", "games")
_AGES = ["under 18", "18-24", "25-34", "35-44", "45-49", "50-55", "56+"]


def _trait(name: str) -> Any:
    return column(
        f"{name}: 1 low, 2 medium, 3 high; null without a language model.", null=True, ge=1, le=3
    )


class MatchedPersonas(Model):
    """Personas matched to real users by self-consistency (SimUSER, section 3.1).

    All columns are made of training interactions. Unknown attributes are null.
    """

    persona_id: pl.String = column(
        "Persona: `persona:<cohort>:<number>`; the number is the user's position among the users "
        "of the domain.",
        unique=True,
        str_matches=r"^persona:[a-z0-9-]*matched:[0-9]+$",
    )
    user_id: pl.String = column(USER)
    cohort: pl.String = column("`matched` for films, else `<domain>-matched`.")
    method: pl.String = column(
        "Matcher of the candidates: `statistical` (no language model), "
        "`model`, or a plug-in's name."
    )
    basis: pl.String = column(
        "Basis of the attributes: `fitted` on other users whose source states them, a language "
        "`model`, or `none` (attributes are null).",
        isin=["fitted", "model", "none"],
    )
    age_band: pl.String = column("Age band (years).", null=True, isin=_AGES)
    occupation: pl.String = column("One of the 21 occupations of SimUSER, appendix B.", null=True)
    openness: pl.Int64 = _trait("Openness")
    conscientiousness: pl.Int64 = _trait("Conscientiousness")
    extraversion: pl.Int64 = _trait("Extraversion")
    agreeableness: pl.Int64 = _trait("Agreeableness")
    neuroticism: pl.Int64 = _trait("Neuroticism")
    score: pl.Float64 = column(
        "s(p, u) of the chosen candidate: mean expected rating of the user's own lists minus that "
        "of other users' lists; 6 decimals; null without a candidate.",
        null=True,
        ge=-9,
        le=9,
        unit="rating, 1-10",
    )
    margin: pl.Float64 = column(
        "Score minus the second-best candidate's; null with fewer than two candidates.",
        null=True,
        ge=0,
        le=18,
        unit="rating, 1-10",
    )
    candidates: pl.Int64 = column("Candidates with a score (count).", ge=0)
    activity: pl.Int64 = column("Training interactions (count).", ge=1)
    activity_tier: pl.String = tier("Tier among the users of the domain.")
    conformity: pl.Float64 = column(
        "Mean squared difference of the ratings from the items' training means.",
        ge=0,
        le=16,
        unit="stars squared",
        within="0-16",
    )
    conformity_tier: pl.String = tier("Conformity tier; `high` is for the smallest differences.")
    diversity: pl.Int64 = column("Distinct genres among the items (count).", ge=0)
    diversity_tier: pl.String = tier("Tier among the users of the domain.")
    diversity_80: pl.Int64 = column(
        "Most frequent genres within a cumulative share of 0.8 of the items' genres (count).", ge=0
    )
    diversity_80_tier: pl.String = tier("Tier of `diversity_80`: the diversity of simulated users.")
    mean_rating: pl.Float64 = column("Mean training rating.", ge=1, le=5, unit="stars, 1-5")
    pickiness: pl.String = column(
        "Pickiness by mean training rating (SimUSER, appendix A).",
        isin=["extremely_picky", "moderately_picky", "not_picky"],
    )
    likes: pl.List(pl.String) = column("Genres rated above expectation, alphabetical; statistical.")
    dislikes: pl.List(pl.String) = column(
        "Genres rated below expectation, alphabetical; disjoint from `likes`."
    )
    taste: pl.String = column("Summary of tastes (SimUSER's s_u).", str_length={"min_value": 1})
    taste_writer: pl.String = column(
        "Writer of the summary: `statistical` (no model), or a model's id."
    )
    history: pl.Int64 = column(
        "Training interactions that the persona was made from (count).", ge=1
    )
    answer_keys: pl.List(pl.String) = column(
        "Keys of the stored answers behind summary, attributes and score; empty without a model."
    )


class PersonaCandidates(Model):
    """Candidate personas of matched users, with their self-consistency scores."""

    user_id: pl.String = column(USER)
    candidate: pl.Int64 = column("Number of the candidate of the user, from 0.", ge=0)
    attributes: pl.String = column(
        "JSON object of the proposed attributes; null if there are none.", null=True
    )
    own: pl.Float64 = column(
        "Mean expected rating of the user's own lists; 6 decimals.",
        null=True,
        ge=1,
        le=10,
        unit="rating, 1-10",
    )
    others: pl.Float64 = column(
        "Mean expected rating of one list of each other user; 6 decimals.",
        null=True,
        ge=1,
        le=10,
        unit="rating, 1-10",
    )
    score: pl.Float64 = column("`own` minus `others`; null unless `ok`.", null=True, ge=-9, le=9)
    chosen: pl.Boolean = column(
        "Whether the candidate became the persona: best score, ties to the lower number."
    )
    status: pl.String = column(
        "`ok`, or why there is no score; `none` if the source states no attributes, so that none "
        "are proposed.",
        isin=[*STATUSES, "none"],
    )


#: The tables by dataset name.
MATCHING: dict[str, Contract] = contracts(
    MATCHED_DOMAINS,
    matched_personas=(MatchedPersonas, "persona_id"),
    persona_candidates=(PersonaCandidates, "user_id", "candidate"),
)

#: Traits that a matched persona takes over from the table `training_traits`, in its order.
TRAITS: tuple[str, ...] = tuple(n for n in TrainingTraits.to_schema().columns if n != "user_id")


#: Domains whose worlds may have posters.
CAPTIONED_DOMAINS = ("movies",)


class Captions(Model):
    """Captions of items' posters (SimUSER, section 3.2.2): one row per item."""

    item_id: pl.String = column(ITEM, unique=True)
    caption: pl.String = column(
        "Caption, in one line; null unless `ok`.", null=True, str_length={"min_value": 1}
    )
    captioner: pl.String = column(
        "Captioner: `statistical` (pixel statistics), a model's id, or a plug-in's name."
    )
    image_sha256: pl.String = column(
        "SHA-256 (hex) of the poster's file; null if there is none or it is too large to read.",
        null=True,
        str_matches=r"^[0-9a-f]{64}$",
    )
    status: pl.String = column(
        "`ok`, or why there is no caption: `missing`, `corrupt`, `too_large`, "
        "`animated`, `cmyk` (inks without a profile), or the status of a model's answer.",
        isin=list(CAPTION_STATUSES),
    )

    @pa.dataframe_check(description="An `ok` row has a caption, and no other row has one.")
    def caption_by_status(cls, data: pa.PolarsData) -> pl.LazyFrame:  # noqa: N805
        """One truth value per row."""
        return data.lazyframe.select(pl.col("caption").is_not_null() == (pl.col("status") == "ok"))


#: The tables by dataset name.
CAPTIONS: dict[str, Contract] = contracts(CAPTIONED_DOMAINS, captions=(Captions, "item_id"))


#: Domains whose ratings a model is trained on.
TUNED_DOMAINS = ("movies",)


class RatingExamples(Model):
    """Ledger lines that a rating model is trained on: targets, and the context before them."""

    window: pl.String = column(
        "Window of one person's consecutive ratings: `<cut>:<user>:<number>`, or "
        "`validation:<user>`."
    )
    position: pl.Int64 = column("Position in the window, from 0.", ge=0)
    user_id: pl.String = column("Human user who rated.")
    item_id: pl.String = column(ITEM)
    rating: pl.Float64 = column("Rating on the prompt's scale (an answer of it).", ge=0, le=100)
    split: pl.String = column(
        "`train` and `validation` are targets; `context` is a training rating that "
        "precedes validation targets.",
        isin=["train", "validation", "context"],
    )
    shows: pl.String = column(
        "What the window shows about its person.", isin=["both", "description", "history"]
    )
    votes: pl.Boolean = column("Whether public votes are shown.")
    description: pl.String = column(
        "Facts about the person, from ratings before the window; may be empty."
    )
    line: pl.String = column("Facts about the item, up to where the rating goes.")
    after: pl.String = column(
        "Text after the rating: the person's mean surplus over others in the lines "
        "shown so far; empty if no line has a mean."
    )
    text_sha256: pl.String = column(
        "SHA-256 (hex) of the prompt's text up to where the rating goes.",
        str_matches=r"^[0-9a-f]{64}$",
    )


class RatingModel(Model):
    """Files of a rating model, stored beside the table: a checkpoint that engines open."""

    file: pl.String = column("Name of the file.", unique=True)
    bytes: pl.Int64 = column("Size (bytes).", ge=0)
    sha256: pl.String = column("SHA-256 (hex) of its content.", str_matches=r"^[0-9a-f]{64}$")


#: The tables by dataset name.
TUNING: dict[str, Contract] = contracts(
    TUNED_DOMAINS,
    rating_examples=(RatingExamples, "window", "position"),
    rating_model=(RatingModel, "file"),
)


#: Domains whose scores a surrogate is learned from.
SURROGATE_DOMAINS = ("movies", "books", "games")


class RatingSurrogate(RatingModel):
    """Files of a surrogate, stored beside the table: arrays, metadata and a card."""


class SurrogateFidelity(Model):
    """A surrogate compared with its teacher on held-out pairs; 95 % intervals over personas."""

    kind: pl.String = column(
        "Whether personas and items were in the training pairs; `visited states` are rated with "
        "memories, and their baseline is the surrogate without memories."
    )
    figure: pl.String = column(
        "`rmse` of expected ratings (units of the scale), `correlation` of these within a persona, "
        "`total_variation` between distributions, `ndcg@10` by the teacher's order.",
        isin=["rmse", "correlation", "total_variation", "ndcg@10"],
    )
    value: pl.Float64 = column("Value for the surrogate; null if undefined.", null=True)
    low: pl.Float64 = column("Lower end of its interval.", null=True)
    high: pl.Float64 = column("Upper end of that interval.", null=True)
    floor: pl.Float64 = column(
        "Value for the baseline: the additive fit of persona and item (both seen), the item's "
        "mean (persona unseen), the persona's mean (item unseen), or a constant.",
        null=True,
    )
    floor_low: pl.Float64 = column("Lower end of its interval.", null=True)
    floor_high: pl.Float64 = column("Upper end of that interval.", null=True)
    difference: pl.Float64 = column("Surrogate minus baseline.", null=True)
    difference_low: pl.Float64 = column("Lower end of its interval (paired).", null=True)
    difference_high: pl.Float64 = column("Upper end of that interval.", null=True)
    pairs: pl.Int64 = column("Held-out pairs (count).", ge=1)
    personas: pl.Int64 = column("Personas of these pairs (count).", ge=1)


#: The tables by dataset name.
SURROGATES: dict[str, Contract] = contracts(
    SURROGATE_DOMAINS,
    rating_surrogate=(RatingSurrogate, "file"),
    surrogate_fidelity=(SurrogateFidelity, "kind", "figure"),
)
