"""Contracts of the published tables: what a release may contain."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import (
    ITEM,
    TIME,
    Model,
    TrainingTraits,
    column,
    item_key,
    of_every_domain,
    rated_at,
    rating,
    scale,
    user_key,
)
from pipelines.statuses import STATUSES

__all__ = ["PUBLISHED"]

_PERSONA = "Persona, `persona:<cohort>:<n>`."


class Items(Model):
    """Items of the movie domain with the features of SUBER's table 6; missing features are null."""

    item_id: pl.String = item_key("ml:[0-9]+")
    title: pl.String = column("Title, leading article first.", str_length={"min_value": 1})
    year: pl.Int64 = column("Year of release.", null=True, ge=1870, le=2100, unit="year")
    genres: pl.List(pl.String) = column("MovieLens genres, alphabetical; may be empty.")
    overview: pl.String = column("Story line (TMDB).", null=True)
    actors: pl.List(pl.String) = column("Cast in billing order (TMDB); may be empty.")
    directors: pl.List(pl.String) = column("Directors (TMDB); may be empty.")
    keywords: pl.List(pl.String) = column("Keywords (TMDB); may be empty.")
    collection: pl.String = column("Series of the film (TMDB).", null=True)
    original_title: pl.String = column("Title in the original language (TMDB).", null=True)
    original_language: pl.String = column("Original language, ISO 639-1 code (TMDB).", null=True)
    release_date: pl.Date = column("Date of the first release (TMDB).", null=True)
    runtime: pl.Int64 = column("Running time (TMDB).", null=True, ge=1, unit="minutes")
    budget: pl.Int64 = column("Budget (TMDB).", null=True, ge=1, unit="USD")
    revenue: pl.Int64 = column("Revenue (TMDB).", null=True, ge=1, unit="USD")
    popularity: pl.Float64 = column("Popularity score (TMDB).", null=True, ge=0)
    vote_average: pl.Float64 = column("Mean vote (TMDB).", null=True, ge=0, le=10, within="0-10")
    vote_count: pl.Int64 = column("Number of votes (TMDB; count).", null=True, ge=0)
    poster_path: pl.String = column("Path of the poster on TMDB's image host.", null=True)
    tmdb_id: pl.Int64 = column("TMDB film id.", null=True)
    imdb_id: pl.String = column("IMDb id with `tt`.", null=True)
    has_tmdb: pl.Boolean = column("Whether a TMDB record was found.")


class Interactions(Model):
    """Human ratings, each on the scale of its source."""

    user_id: pl.String = user_key("ml-user:[0-9]+")
    item_id: pl.String = item_key("ml:[0-9]+")
    rating: pl.Float64 = rating(0.5, 5)
    scale: pl.String = scale("0.5-5", "1-5")
    rated_at: TIME = rated_at()


class Personas(Model):
    """Synthetic users."""

    persona_id: pl.String = column(
        _PERSONA, unique=True, str_matches=r"^persona:[a-z0-9-]+:[0-9]+$"
    )
    cohort: pl.String = column("Cohort, shared by personas that were generated together.")
    domain: pl.String = column(
        "Domain of the items that the persona rates.",
        isin=["movies", "books", "games", "products", "own"],
    )
    origin: pl.String = column(
        "Origin of the persona.", isin=["sampled", "matched", "imported", "handmade"]
    )
    writer: pl.String = column(
        "Writer of the description: `statistical` (no model), a model's id, `people` "
        "for hand-made personas, or `unknown` if the file of an imported persona does not say."
    )
    name: pl.String = column(
        "First and last name; null if an imported persona has none.",
        null=True,
        str_length={"min_value": 1},
    )
    age: pl.Int64 = column(
        "Age; null if an imported persona states none, or only an age band.",
        null=True,
        ge=4,
        le=100,
        unit="years",
    )
    gender: pl.String = column(
        "Gender (census categories); null if an imported persona states another or none.",
        null=True,
        isin=["female", "male"],
    )
    job: pl.String = column(
        "Job, or `student`, `retired` or `not working`; null if an imported persona states none.",
        null=True,
    )
    hobby: pl.String = column("Hobby, by age group; null for imported personas.", null=True)
    likes: pl.List(pl.String) = column(
        "Liked genres (for products, facet values such as `material:wood`), alphabetical; at "
        "least one, except for imported personas of other domains and hand-made ones who rate "
        "everything alike."
    )
    dislikes: pl.List(pl.String) = column("Disliked genres, disjoint from `likes`.")
    leniency: pl.String = column(
        "Level of the persona's ratings relative to others: lowest quarter of people, middle half "
        "or highest quarter; null if an imported persona's fields don't say, and for matched "
        "personas.",
        null=True,
        isin=["harsh", "average", "generous"],
    )
    manner: pl.String = column(
        "Use of the scale: quarter of people with the least varied ratings, middle half or "
        "quarter with the most varied; `polar`: best ratings for liked genres, bad ones for all "
        "others; `uniform`: everything alike. Null if an imported persona's fields don't say, and "
        "for matched personas.",
        null=True,
        isin=["narrow", "average", "wide", "polar", "uniform"],
    )
    activity: pl.String = column(
        "Number of the persona's ratings relative to others (60, 30 and 10 % of people); null for "
        "imported and hand-made personas.",
        null=True,
        isin=["low", "medium", "high"],
    )
    conformity: pl.String = column(
        "Closeness of the persona's ratings to the items' means relative to others (20, 55 and 25 "
        "% of people); null for imported and hand-made personas.",
        null=True,
        isin=["low", "medium", "high"],
    )
    description: pl.String = column(
        "Description of the person, as prose.", str_length={"min_value": 40, "max_value": 8000}
    )


class PersonaEmbeddings(Model):
    """One unit vector per persona."""

    persona_id: pl.String = column(_PERSONA, unique=True)
    model: pl.String = column("Encoder, with its weights' digest.")
    text_sha256: pl.String = column("Hash of the encoded text (hex).", str_length=64)
    vector: pl.List(pl.Float32) = column(
        "Unit vector; its length is the encoder's dimension.", within="-1 to 1"
    )


class ItemEmbeddings(Model):
    """One unit vector per item."""

    item_id: pl.String = column(ITEM, unique=True)
    model: pl.String = column("Encoder, with its weights' digest.")
    text_sha256: pl.String = column("Hash of the encoded text (hex).", str_length=64)
    vector: pl.List(pl.Float32) = column(
        "Unit vector; its length is the encoder's dimension.", within="-1 to 1"
    )


class ScorePlan(Model):
    """(Persona, item) pairs to score, and how each was selected."""

    persona_id: pl.String = column(_PERSONA)
    item_id: pl.String = column(ITEM)
    stratum: pl.String = column(
        "`all`, `exposure` if pairs were drawn by exposure, `choice_set` if whole choice sets are "
        "planned, or the popularity stratum that the pair was sampled from.",
        isin=["all", "choice_set", "exposure", "head", "torso", "tail"],
    )
    inclusion: pl.Float64 = column(
        "Inclusion probability of the pair in the plan; weighting by its reciprocal gives "
        "estimates over all pairs; 6 digits; null in rows of earlier versions.",
        null=True,
        gt=0,
        le=1,
        within="0-1",
    )
    exposure: pl.Float64 = column(
        "P(watch | persona, item): probability that a person of that taste is among those who "
        "rated the item, from the selection model (docs/population.md); null in a domain without "
        "training interactions and in choice sets, which are shown whole; 6 digits.",
        null=True,
        ge=0,
        le=1,
        within="0-1",
    )


class PreferenceScores(Model):
    """A rating distribution of one persona for one item."""

    persona_id: pl.String = column(_PERSONA)
    item_id: pl.String = column(ITEM)
    rater: pl.String = column("Rater; `statistical` needs no language model.")
    scale: pl.String = column("Rating scale.", isin=["1-5", "1-10", "0-9", "one-ten", "0-100"])
    probabilities: pl.List(pl.Float64) = column(
        "Probability of each answer of the scale, in ascending order of answers; null unless "
        "`ok`. Multiples of 0.0001 on scales of more than 10 answers.",
        null=True,
        within="0-1, sum 1",
    )
    expected: pl.Float64 = column("Expected rating.", null=True, ge=0, le=100, unit="on `scale`")
    mode: pl.Int64 = column("Most probable rating.", null=True, ge=0, le=100, unit="on `scale`")
    sample: pl.Int64 = column(
        "Rating drawn with the seed.", null=True, ge=0, le=100, unit="on `scale`"
    )
    entropy: pl.Float64 = column("Entropy of the distribution.", null=True, ge=0, unit="nats")
    status: pl.String = column(
        "`ok`, or why there is no score. A failed answer is never a rating.", isin=list(STATUSES)
    )
    prompt_version: pl.String = column(
        "Prompt template version; null for raters without prompts.", null=True
    )
    answer_key: pl.String = column(
        "Key of the stored answer; null for raters without a model.", null=True
    )
    note: pl.String = column(
        "Note on the pair, such as what was cut from a prompt that was too long, or why there is "
        "no score; else null.",
        null=True,
    )
    explanation: pl.String = column(
        "Explanation of the rating `mode`, written by a model (`scoring.explain`); else null.",
        null=True,
    )


class GraphTriples(Model):
    """Edges of the knowledge graph, built from training interactions only (SimUSER, appendix D)."""

    head: pl.String = column("Subject, such as `ml-user:1`.")
    head_type: pl.String = column("Type of the subject, such as `User`.")
    relation: pl.String = column("Relation, such as `liked`.")
    tail: pl.String = column("Object, such as `ml:862` or `genre:Drama`.")
    tail_type: pl.String = column("Type of the object, such as `Movie`.")


class ItemSimilarity(Model):
    """The most similar items of each item, by meta-paths and embeddings (SimUSER, formula 5).

    There is no user in it: the score is ``alpha * pathsim + embedding_weight * cosine``.
    """

    item_id: pl.String = column("Query item, such as `ml:862`.")
    neighbour_id: pl.String = column("Similar item.")
    rank: pl.Int64 = column(
        "Rank of the neighbour; 1 is the most similar, ties by `neighbour_id`.", ge=1
    )
    score: pl.Float64 = column("Ranking score; 6 decimals.")
    pathsim: pl.Float64 = column(
        "PathSim s(x, y): twice the path instances between the two items, divided by those from "
        "each back to itself; 6 decimals.",
        ge=0,
        within="0-1",
    )
    cosine: pl.Float64 = column(
        "Cosine of the items' embeddings; null (0 in the score) if either has none; 6 decimals.",
        null=True,
        ge=-1,
        le=1,
        within="-1 to 1",
    )
    instances: pl.Int64 = column("Path instances between the two items (count).", ge=0)
    paths: pl.List(pl.String) = column(
        "Meta-paths between the two items, most instances first; may be empty."
    )
    path_counts: pl.List(pl.Int64) = column("Instances of each meta-path (count).")
    basis: pl.String = column(
        "Basis of the score: `embedding` if no path joins the two items, so that only the cosine "
        "counts; `sampled paths` if one has more than 5,000 raters, of which "
        "that many were sampled.",
        isin=["paths", "sampled paths", "embedding"],
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
