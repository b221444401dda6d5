"""Contracts of the published tables: what a release may contain."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import (
    ITEM,
    TIME,
    Contract,
    HumanUsers,
    Model,
    TrainingTraits,
    column,
    contracts,
    item_key,
    of_every_domain,
    rated_at,
    rating,
    scale,
    share,
    user_key,
)
from pipelines.contracts.raw import Rejected
from pipelines.statuses import STATUSES

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
    exposure: pl.Float64 = share(
        "P(watch | persona, item): probability that a person of that taste is among those who "
        "rated the item, from the selection model (docs/population.md); null in a domain without "
        "training interactions and in choice sets, which are shown whole; 6 digits.",
        null=True,
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


_ASIN = "asin:[0-9A-Z]{10}"


class BookItems(Model):
    """Books as selected by SUBER (appendix B); missing features are null or empty."""

    item_id: pl.String = item_key(_ASIN)
    title: pl.String = column("Title.", str_length={"min_value": 1})
    year: pl.Int64 = column("Year of publication.", null=True, ge=1400, le=2100, unit="year")
    genres: pl.List(pl.String) = column(
        "Categories with at least `books.min_category_size` books, alphabetical; "
        "empty only where the source has no categories."
    )
    description: pl.String = column("Back-cover text; null only if the source has none.", null=True)
    authors: pl.List(pl.String) = column("Authors; may be empty.")
    publisher: pl.String = column("Publishing house.", null=True)
    release_date: pl.Date = column("Day of publication.", null=True)
    price: pl.Float64 = column("Price when crawled.", null=True, ge=0, unit="USD")
    average_rating: pl.Float64 = column(
        "Mean rating that the page showed (2023).", null=True, ge=1, le=5, unit="stars"
    )
    rating_number: pl.Int64 = column("Ratings that the page showed (2023; count).", null=True, ge=0)
    category: pl.String = column("Category by file name: `Books`, `Kindle_Store`.")
    edition: pl.String = column("Edition that the record is from.", isin=["2018", "2023"])
    category_path: pl.List(pl.String) = column(
        "Categories from the top down, as the record lists them; may be empty."
    )
    also_bought: pl.List(pl.String) = column(
        "Items that its buyers also bought (2018); may be empty."
    )
    also_viewed: pl.List(pl.String) = column(
        "Items that its viewers also viewed (2018); may be empty."
    )
    bought_together: pl.List(pl.String) = column(
        "Items bought together with it (2023); may be empty."
    )


class BookInteractions(Model):
    """Human ratings of books, on 1-5."""

    user_id: pl.String = user_key("amazon-user:[0-9A-Za-z_#-]+")
    item_id: pl.String = item_key(_ASIN)
    rating: pl.Float64 = rating(1, 5)
    scale: pl.String = scale("1-5")
    rated_at: TIME = rated_at()
    verified_purchase: pl.Boolean = column("Whether Amazon verified the purchase.", null=True)


#: Published tables of the domain by dataset name.
BOOKS: dict[str, Contract] = contracts(
    "books",
    **of_every_domain(BookItems, BookInteractions),
    training_traits=(TrainingTraits, "user_id"),
)


_GAME = "steam:(?:0|[1-9][0-9]*)"
_USER = r"steam-user:[^\s/]+"


class GameItems(Model):
    """Games, extensions and programs of Steam's store; missing features are null."""

    item_id: pl.String = item_key(_GAME)
    title: pl.String = column("Title.", str_length={"min_value": 1})
    year: pl.Int64 = column("Year of release.", null=True, ge=1970, le=2100, unit="year")
    genres: pl.List(pl.String) = column("Steam genres, alphabetical; may be empty.")
    tags: pl.List(pl.String) = column("Tags given by players, most used first; may be empty.")
    specs: pl.List(pl.String) = column("Features, such as `Single-player`; may be empty.")
    developer: pl.String = column("Developer; several are separated by commas.", null=True)
    publisher: pl.String = column("Publisher; several are separated by commas.", null=True)
    price: pl.Float64 = column("Price; 0 is free.", null=True, ge=0, unit="USD")
    release_date: pl.Date = column("Release date, if the day is known.", null=True)
    early_access: pl.Boolean = column("Whether it is in early access.", null=True)
    sentiment: pl.String = column(
        "The store's summary of its reviews, such as `Mostly Positive`.", null=True
    )
    metascore: pl.Int64 = column("Metacritic's score.", null=True, ge=0, le=100, within="0-100")
    url: pl.String = column("Address in the store.", null=True)


class GameInteractions(Model):
    """Reviews as ratings on 1-5: the recommendation, refined by the time played.

    The mapping is the settings' section ``games``.
    """

    user_id: pl.String = user_key(_USER)
    item_id: pl.String = item_key(_GAME)
    rating: pl.Float64 = rating(1, 5)
    scale: pl.String = scale("1-5")
    rated_at: TIME = rated_at()
    recommended: pl.Boolean = column("Whether the user recommends the game.")
    playtime: pl.Int64 = column(
        "Total time played; null if unknown.", null=True, ge=0, unit="minutes"
    )
    purchased: pl.Boolean = column(
        "Whether the game is in the user's library; null without libraries.", null=True
    )


#: Published tables of the domain by dataset name.
GAMES: dict[str, Contract] = contracts(
    "games",
    **of_every_domain(GameItems, GameInteractions),
    training_traits=(TrainingTraits, "user_id"),
)


_CATEGORY = "Category of the tree: `category:` and its path."


class ProductItems(Model):
    """Products of Amazon's categories other than books and films; missing fields are null."""

    item_id: pl.String = item_key(_ASIN)
    title: pl.String = column(
        "Title; null if it was markup.", null=True, str_length={"min_value": 1}
    )
    year: pl.Int64 = column(
        "Year of publication; null for most products.", null=True, ge=1400, le=2100, unit="year"
    )
    genres: pl.List(pl.String) = column(
        "Levels of `category_path` after the first; without them the department. "
        "Alphabetical; may be empty."
    )
    brand: pl.String = column("Brand (2018) or store (2023).", null=True)
    description: pl.String = column("Description, as plain text.", null=True)
    features: pl.List(pl.String) = column("Selling points; may be empty.")
    price: pl.Float64 = column("Price when crawled.", null=True, ge=0, unit="USD")
    average_rating: pl.Float64 = column(
        "Mean rating that the page showed (2023).", null=True, ge=1, le=5, unit="stars"
    )
    rating_number: pl.Int64 = column("Ratings that the page showed (2023; count).", null=True, ge=0)
    category: pl.String = column("Category by file name, such as `Gift_Cards`.")
    edition: pl.String = column("Edition that the record is from.", isin=["2018", "2023"])
    main_category: pl.String = column("Department, as in the record.", null=True)
    category_path: pl.List(pl.String) = column(
        "Categories from the top down, as the record lists them, up to the first entry that is "
        "not a name; may be empty."
    )
    also_bought: pl.List(pl.String) = column(
        "Items that its buyers also bought (2018); may be empty."
    )
    also_viewed: pl.List(pl.String) = column(
        "Items that its viewers also viewed (2018); may be empty."
    )
    bought_together: pl.List(pl.String) = column(
        "Items bought together with it (2023); may be empty."
    )


class ProductInteractions(BookInteractions):
    """Human ratings of products, on 1-5."""


class Products(Model):
    """Products that are in a choice set (BIEL, appendix C), each with its position in the tree."""

    item_id: pl.String = item_key(_ASIN, unique=True)
    title: pl.String = column("Title.", null=True)
    brand: pl.String = column("Brand or store.", null=True)
    description: pl.String = column("Description.", null=True)
    features: pl.List(pl.String) = column("Selling points; may be empty.")
    price: pl.Float64 = column("Price.", null=True, ge=0, unit="USD")
    average_rating: pl.Float64 = column(
        "Mean rating that the page showed.", null=True, ge=1, le=5, unit="stars"
    )
    rating_number: pl.Int64 = column("Ratings that the page showed (count).", null=True, ge=0)
    category: pl.String = column("Amazon's category by file name.")
    path: pl.List(pl.String) = column("Levels matched to the tree.")
    path_from: pl.String = column(
        "Source of the path: the record's categories; if it has none, its "
        "department or the file's name.",
        isin=["categories", "main_category", "file"],
    )
    category_id: pl.String = column("Leaf of the product: the deepest choice set that contains it.")
    heuristic: pl.String = column(
        "Weakest heuristic needed to match a level of the path.",
        isin=["equal", "folded", "words", "substring"],
    )
    bridged: pl.Int64 = column("Levels of the tree that the path skips (count).", ge=0)
    similarity: pl.Float64 = share(
        "Minimum similarity of a level to its category's name; 6 decimals.", within="0-1"
    )


class Categories(Model):
    """Choice sets: the category tree without its top levels and small categories."""

    category_id: pl.String = column(_CATEGORY, unique=True, str_matches="^category:.+$")
    name: pl.String = column("Name of the last level.", str_length={"min_value": 1})
    path: pl.String = column("Names from the top level down, ` > ` between them.")
    depth: pl.Int64 = column("Level in the tree; 1 is the top.", ge=1)
    parent_id: pl.String = column("Parent category, if that is a choice set too.", null=True)
    products: pl.Int64 = column("Products in the category or below it (count).", ge=1)
    leaf_products: pl.Int64 = column("Products whose leaf it is (count).", ge=0)


class ProductCategory(Model):
    """Choice sets of each product: one row for each category on its path."""

    item_id: pl.String = column(ITEM)
    category_id: pl.String = column(_CATEGORY)
    is_leaf: pl.Boolean = column("Whether the category is the product's leaf; exactly one is.")


class ChoiceSetItems(Model):
    """Products of each choice set that shoppers are shown: all of them, or a seeded sample."""

    category_id: pl.String = column(_CATEGORY)
    item_id: pl.String = column(ITEM)
    position: pl.Int64 = column("Position in the sample, from 0.", ge=0)
    split: pl.String = column(
        "Split of the choice set, the same for all sets below one topmost set, so that no product "
        "is in both splits.",
        isin=["train", "test"],
    )


class Facets(Model):
    """Product properties of a choice set that a shopper can be asked about, by product."""

    category_id: pl.String = column(_CATEGORY)
    facet_id: pl.String = column(
        "`price`, `brand`, a packaged vocabulary such as `material`, or `word:` and a word.",
        str_length={"min_value": 1},
    )
    kind: pl.String = column(
        "Origin of the facet's values.", isin=["price", "brand", "vocabulary", "word"]
    )
    question: pl.String = column("Question that asks for the facet.", str_length={"min_value": 1})
    value: pl.String = column(
        "The product's value; a product without one has no row.", str_length={"min_value": 1}
    )
    item_id: pl.String = column(ITEM)


#: Published tables of the product domain by dataset name.
PRODUCTS: dict[str, Contract] = contracts(
    "products",
    **of_every_domain(ProductItems, ProductInteractions),
    products=(Products, "item_id"),
    categories=(Categories, "category_id"),
    product_category=(ProductCategory, "item_id", "category_id"),
    choice_set_items=(ChoiceSetItems, "category_id", "position"),
    facets=(Facets, "category_id", "facet_id", "item_id"),
)


_KEY = r"[\s\S]+"


class RawItems(Model):
    """Items of a given file; what it does not state is null."""

    item_id: pl.String = column("Item, as in the file.", unique=True)
    title: pl.String = column("Title, as in the file.", null=True)
    year: pl.Int64 = column("First number of four digits in the year's column.", null=True)
    genres: pl.List(pl.String) = column("Members of the genres' column, alphabetical.")
    description: pl.String = column("Text, as in the file.", null=True)
    attributes: pl.List(pl.String) = column(
        "Short values of further columns, each as `column: value`; alphabetical."
    )


class RawRatings(Model):
    """Ratings of a given file, on its own scale."""

    user_id: pl.String = column("User, as in the file.")
    item_id: pl.String = column("Item, as in the file.")
    rating: pl.Float64 = column("Rating, as in the file.")
    low: pl.Float64 = column("Lowest rating of the scale.")
    high: pl.Float64 = column("Highest rating of the scale.")
    timestamp: pl.Int64 = column(
        "Time of the rating; null if the file states none.", null=True, ge=0, unit="seconds, UTC"
    )


class RawUsers(Model):
    """Users of a given file; no rows without one."""

    user_id: pl.String = column("User, as in the file.", unique=True)
    age_band: pl.String = column("Decade of the age, or the band of the file.", null=True)
    gender: pl.String = column("Gender, as in the file.", null=True)
    occupation: pl.String = column("Occupation, as in the file.", null=True)


class OwnItems(Model):
    """Items of a given file; missing features are null."""

    item_id: pl.String = item_key(f"own:{_KEY}")
    title: pl.String = column(
        "Title; the item's id if the file has none.", str_length={"min_value": 1}
    )
    year: pl.Int64 = column("Year.", null=True, ge=0, le=2100, unit="year")
    genres: pl.List(pl.String) = column("Genres or other kinds, alphabetical; may be empty.")
    description: pl.String = column("Text about the item.", null=True)
    attributes: pl.List(pl.String) = column(
        "Values of further columns that several items share, each as `column: value`."
    )


class OwnInteractions(Model):
    """Ratings of a given file, taken from its scale to 1-5, ends to ends."""

    user_id: pl.String = user_key(f"own-user:{_KEY}")
    item_id: pl.String = item_key(f"own:{_KEY}")
    rating: pl.Float64 = rating(1, 5)
    scale: pl.String = scale("1-5")
    rated_at: TIME = column(
        "Time of the rating (UTC); null if the file states none.", null=True, unit="microseconds"
    )
    source_rating: pl.Float64 = column("Rating, as in the file.")
    source_scale: pl.String = column("Lowest and highest rating of the file's scale.")


class Users(HumanUsers):
    """Human users; attributes and times that the files lack are null, never invented."""

    first_rated_at: TIME = column("First rating (UTC); null if unknown.", null=True)
    last_rated_at: TIME = column("Last rating (UTC); null if unknown.", null=True)


#: Raw tables by dataset name.
RAW_OWN: dict[str, Contract] = contracts(
    "raw",
    own_items=(RawItems, "item_id"),
    own_ratings=(RawRatings, "user_id", "item_id"),
    own_users=(RawUsers, "user_id"),
    own_rejected=(Rejected, "file", "line", "reason"),
)
#: Published tables of the domain by dataset name.
OWN: dict[str, Contract] = contracts(
    "own",
    **{**of_every_domain(OwnItems, OwnInteractions), "human_users": (Users, "user_id")},
    training_traits=(TrainingTraits, "user_id"),
)
