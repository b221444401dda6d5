"""Contracts of the published tables: what a release may contain."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import (
    ITEM,
    TIME,
    Model,
    TrainingTraits,
    item_key,
    of_every_domain,
    rated_at,
    rating,
    scale,
    user_key,
)

__all__ = ["PUBLISHED"]

_PERSONA = "Persona, `persona:<cohort>:<n>`."


class Items(Model):
    """Items of the movie domain with the features of SUBER's table 6; unknown features are null."""

    item_id: pl.String = item_key("ml:[0-9]+")
    title: pl.String = pa.Field(str_length={"min_value": 1}, description="Title, article first.")
    year: pl.Int64 = pa.Field(
        nullable=True, ge=1870, le=2100, description="Year of release.", metadata={"unit": "year"}
    )
    genres: pl.List(pl.String) = pa.Field(
        description="MovieLens genres, alphabetical; may be empty."
    )
    overview: pl.String = pa.Field(nullable=True, description="Story line (TMDB).")
    actors: pl.List(pl.String) = pa.Field(description="Cast in billing order (TMDB); may be empty.")
    directors: pl.List(pl.String) = pa.Field(description="Directors (TMDB); may be empty.")
    keywords: pl.List(pl.String) = pa.Field(description="Keywords (TMDB); may be empty.")
    collection: pl.String = pa.Field(nullable=True, description="Series it belongs to (TMDB).")
    original_title: pl.String = pa.Field(nullable=True, description="Title in its language (TMDB).")
    original_language: pl.String = pa.Field(nullable=True, description="ISO 639-1 code (TMDB).")
    release_date: pl.Date = pa.Field(nullable=True, description="First release (TMDB).")
    runtime: pl.Int64 = pa.Field(
        nullable=True, ge=1, description="Length (TMDB).", metadata={"unit": "minutes"}
    )
    budget: pl.Int64 = pa.Field(
        nullable=True, ge=1, description="Budget (TMDB).", metadata={"unit": "USD"}
    )
    revenue: pl.Int64 = pa.Field(
        nullable=True, ge=1, description="Revenue (TMDB).", metadata={"unit": "USD"}
    )
    popularity: pl.Float64 = pa.Field(nullable=True, ge=0, description="Popularity figure (TMDB).")
    vote_average: pl.Float64 = pa.Field(
        nullable=True, ge=0, le=10, description="Mean vote (TMDB).", metadata={"range": "0-10"}
    )
    vote_count: pl.Int64 = pa.Field(nullable=True, ge=0, description="Votes (TMDB; count).")
    poster_path: pl.String = pa.Field(nullable=True, description="Path on TMDB's image host.")
    tmdb_id: pl.Int64 = pa.Field(nullable=True, description="TMDB film id.")
    imdb_id: pl.String = pa.Field(nullable=True, description="IMDb id with `tt`.")
    has_tmdb: pl.Boolean = pa.Field(description="Whether a TMDB record was found.")


class Interactions(Model):
    """Human ratings, each on its source's scale."""

    user_id: pl.String = user_key("ml-user:[0-9]+")
    item_id: pl.String = item_key("ml:[0-9]+")
    rating: pl.Float64 = rating(0.5, 5)
    scale: pl.String = scale("0.5-5", "1-5")
    rated_at: TIME = rated_at()


class Personas(Model):
    """Synthetic users."""

    persona_id: pl.String = pa.Field(
        unique=True, str_matches=r"^persona:[a-z0-9-]+:[0-9]+$", description=_PERSONA
    )
    cohort: pl.String = pa.Field(description="Personas generated together share a cohort.")
    domain: pl.String = pa.Field(
        isin=["movies", "books", "games"], description="Whose items it has a taste in and rates."
    )
    origin: pl.String = pa.Field(
        isin=["sampled", "matched", "imported", "handmade"], description="Where it comes from."
    )
    writer: pl.String = pa.Field(
        description="Who wrote the description: `statistical` (no model), a model's id, `people` "
        "for hand-made personas, or `unknown` if the file of an imported persona does not say."
    )
    name: pl.String = pa.Field(
        nullable=True,
        str_length={"min_value": 1},
        description="First name and surname; null if an imported persona has none.",
    )
    age: pl.Int64 = pa.Field(
        nullable=True,
        ge=4,
        le=100,
        description="Age; null if an imported persona states none, or a band of ages only.",
        metadata={"unit": "years"},
    )
    gender: pl.String = pa.Field(
        nullable=True,
        isin=["female", "male"],
        description="Gender (census categories); null if an imported persona states another or "
        "none.",
    )
    job: pl.String = pa.Field(
        nullable=True,
        description="Job, or `student`, `retired` or `not working`; null if an imported persona "
        "states none.",
    )
    hobby: pl.String = pa.Field(
        nullable=True, description="Hobby, by age group; null for imported personas."
    )
    likes: pl.List(pl.String) = pa.Field(
        description="Liked genres, alphabetical: at least one, but none for imported personas and "
        "for hand-made ones who rate everything alike."
    )
    dislikes: pl.List(pl.String) = pa.Field(description="Disliked genres, disjoint from `likes`.")
    leniency: pl.String = pa.Field(
        nullable=True,
        isin=["harsh", "average", "generous"],
        description="How high it rates beside others: lowest quarter of people, middle half or "
        "highest quarter; null if an imported persona's fields don't say, and of matched personas.",
    )
    manner: pl.String = pa.Field(
        nullable=True,
        isin=["narrow", "average", "wide", "polar", "uniform"],
        description="How it uses the scale: quarter of people with the least varied ratings, "
        "middle half or quarter with the most varied; `polar`: best ratings for liked genres, bad "
        "ones for all others; `uniform`: everything alike. Null if an "
        "imported persona's fields don't say, and of matched personas.",
    )
    activity: pl.String = pa.Field(
        nullable=True,
        isin=["low", "medium", "high"],
        description="How much it rates beside others (60, 30 and 10 % of people); null of imported "
        "and hand-made personas.",
    )
    conformity: pl.String = pa.Field(
        nullable=True,
        isin=["low", "medium", "high"],
        description="How close its ratings are to the items' means beside others (20, 55 and 25 % "
        "of people); null of imported and hand-made personas.",
    )
    description: pl.String = pa.Field(
        str_length={"min_value": 40, "max_value": 8000}, description="Who this person is, as prose."
    )


class PersonaEmbeddings(Model):
    """One unit vector per persona."""

    persona_id: pl.String = pa.Field(unique=True, description=_PERSONA)
    model: pl.String = pa.Field(description="Encoder, with its weights' digest.")
    text_sha256: pl.String = pa.Field(str_length=64, description="Hash of the encoded text (hex).")
    vector: pl.List(pl.Float32) = pa.Field(
        description="Unit vector; its length is the encoder's dimension.",
        metadata={"range": "-1 to 1"},
    )


class ItemEmbeddings(Model):
    """One unit vector per item."""

    item_id: pl.String = pa.Field(unique=True, description=ITEM)
    model: pl.String = pa.Field(description="Encoder, with its weights' digest.")
    text_sha256: pl.String = pa.Field(str_length=64, description="Hash of the encoded text (hex).")
    vector: pl.List(pl.Float32) = pa.Field(
        description="Unit vector; its length is the encoder's dimension.",
        metadata={"range": "-1 to 1"},
    )


class ScorePlan(Model):
    """Which (persona, item) pairs are scored, and why they were chosen."""

    persona_id: pl.String = pa.Field(description=_PERSONA)
    item_id: pl.String = pa.Field(description=ITEM)
    stratum: pl.String = pa.Field(
        isin=["all", "exposure", "head", "torso", "tail"],
        description="`all`, `exposure` if pairs were drawn by it, or the popularity stratum the "
        "pair was sampled from.",
    )
    inclusion: pl.Float64 = pa.Field(
        nullable=True,
        gt=0,
        le=1,
        description="Probability that the plan holds the pair: figures of the plan weighted by "
        "its reciprocal are of all pairs; 6 digits; null in rows of earlier versions.",
        metadata={"range": "0-1"},
    )
    exposure: pl.Float64 = pa.Field(
        nullable=True,
        ge=0,
        le=1,
        description="P(watch | persona, item): probability that a person of that taste is among "
        "those who rated the item, by the selection model (docs/population.md); null in a domain "
        "without training interactions; 6 digits.",
        metadata={"range": "0-1"},
    )


class PreferenceScores(Model):
    """A rating distribution of one persona for one item."""

    persona_id: pl.String = pa.Field(description=_PERSONA)
    item_id: pl.String = pa.Field(description=ITEM)
    rater: pl.String = pa.Field(description="Who scored; `statistical` needs no language model.")
    scale: pl.String = pa.Field(
        isin=["1-5", "1-10", "0-9", "one-ten", "0-100"], description="Rating scale."
    )
    probabilities: pl.List(pl.Float64) = pa.Field(
        nullable=True,
        description="Probability of each answer of the scale, ascending; null unless `ok`.",
        metadata={"range": "0-1, sum 1"},
    )
    expected: pl.Float64 = pa.Field(
        nullable=True, ge=0, le=100, description="Expected rating.", metadata={"unit": "on `scale`"}
    )
    mode: pl.Int64 = pa.Field(
        nullable=True, ge=0, le=100, description="Most probable.", metadata={"unit": "on `scale`"}
    )
    sample: pl.Int64 = pa.Field(
        nullable=True, ge=0, le=100, description="Seeded draw.", metadata={"unit": "on `scale`"}
    )
    entropy: pl.Float64 = pa.Field(
        nullable=True, ge=0, description="Entropy.", metadata={"unit": "nats"}
    )
    status: pl.String = pa.Field(
        isin=["ok", "truncated", "invalid", "refused", "engine_error"],
        description="`ok`, or why there is no score. A failed answer is never a rating.",
    )
    prompt_version: pl.String = pa.Field(
        nullable=True, description="Prompt template version; null for raters without prompts."
    )
    answer_key: pl.String = pa.Field(
        nullable=True, description="Key of the stored answer; null for raters without a model."
    )
    note: pl.String = pa.Field(
        nullable=True,
        description="What is to be known of this pair, such as what was left out of a prompt that "
        "was too long, or why there is no score; null where nothing.",
    )
    explanation: pl.String = pa.Field(
        nullable=True,
        description="Why the persona gives the rating `mode`, in the words of a model that was "
        "asked for it (`scoring.explain`); else null.",
    )


class GraphTriples(Model):
    """Edges of the knowledge graph; only training interactions enter (SimUSER, appendix D)."""

    head: pl.String = pa.Field(description="Subject, such as `ml-user:1`.")
    head_type: pl.String = pa.Field(description="Its type, such as `User`.")
    relation: pl.String = pa.Field(description="Relation, such as `liked`.")
    tail: pl.String = pa.Field(description="Object, such as `ml:862` or `genre:Drama`.")
    tail_type: pl.String = pa.Field(description="Its type, such as `Movie`.")


class ItemSimilarity(Model):
    """The most similar items of each item, by meta-paths and embeddings (SimUSER, formula 5).

    There is no user in it: the score is ``alpha * pathsim + embedding_weight * cosine``.
    """

    item_id: pl.String = pa.Field(description="Query item, such as `ml:862`.")
    neighbour_id: pl.String = pa.Field(description="Another item.")
    rank: pl.Int64 = pa.Field(ge=1, description="1 is the most similar; ties by `neighbour_id`.")
    score: pl.Float64 = pa.Field(description="What is ranked by; 6 decimals.")
    pathsim: pl.Float64 = pa.Field(
        ge=0,
        description="s(x, y): twice the path instances between the two over those from each "
        "back to itself; 6 decimals.",
        metadata={"range": "0-1"},
    )
    cosine: pl.Float64 = pa.Field(
        nullable=True,
        ge=-1,
        le=1,
        description="Of the items' embeddings; null (0 in the score) if either has none; "
        "6 decimals.",
        metadata={"range": "-1 to 1"},
    )
    instances: pl.Int64 = pa.Field(ge=0, description="Path instances between the two (count).")
    paths: pl.List(pl.String) = pa.Field(
        description="Meta-paths that join the two, most instances first; empty if none does."
    )
    path_counts: pl.List(pl.Int64) = pa.Field(description="Their instances (count).")
    basis: pl.String = pa.Field(
        isin=["paths", "embedding"],
        description="`embedding` if no path joins the two, so that the cosine alone does.",
    )


#: Published tables by dataset name.
PUBLISHED: dict[str, Contract] = {
    **contracts(
        "movies",
        **of_every_domain(Items, Interactions),
        training_traits=(TrainingTraits, "user_id"),
        personas=(Personas, "persona_id"),
        persona_embeddings=(PersonaEmbeddings, "persona_id"),
        item_embeddings=(ItemEmbeddings, "item_id"),
        score_plan=(ScorePlan, "persona_id", "item_id"),
        preference_scores=(PreferenceScores, "persona_id", "item_id"),
        graph_triples=(GraphTriples, "head", "relation", "tail"),
    ),
    "movies.item_similarity": Contract(
        "item_similarity",
        ItemSimilarity,
        ("item_id", "neighbour_id"),
        ("item_id", "rank", "neighbour_id"),
    ),
}
