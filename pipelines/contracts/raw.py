"""Contracts of the raw snapshots: original values, typed, nothing repaired."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract, Model, column, contracts


class MovielensMovies(Model):
    """Films as MovieLens lists them (movies.csv)."""

    movie_id: pl.Int64 = column("MovieLens film id.", ge=0, unique=True)
    title: pl.String = column("Title with the year in brackets, article last, as published.")
    genres: pl.String = column("Genres separated by `|`, or `(no genres listed)`, as published.")


class MovielensRatings(Model):
    """Ratings as MovieLens lists them (ratings.csv), without rejected rows."""

    user_id: pl.Int64 = column("MovieLens user id.", ge=0)
    movie_id: pl.Int64 = column("MovieLens film id.", ge=0)
    rating: pl.Float64 = column(
        "Rating.", ge=0.5, le=5.0, unit="stars", within="0.5-5, step 0.5; 1-5 in ML-1M and ML-100K"
    )
    scale: pl.String = column("Lowest and highest rating of the variant.", isin=["0.5-5", "1-5"])
    timestamp: pl.Int64 = column("Time of the rating.", ge=0, unit="seconds since 1970, UTC")


class MovielensLinks(Model):
    """Ids of the film in other databases (links.csv)."""

    movie_id: pl.Int64 = column("MovieLens film id.", ge=0, unique=True)
    imdb_id: pl.String = column("IMDb number without `tt`.", null=True)
    tmdb_id: pl.Int64 = column("TMDB film id.", null=True, ge=1)


class MovielensTags(Model):
    """Free-text tags (tags.csv)."""

    user_id: pl.Int64 = column("MovieLens user id.", ge=0)
    movie_id: pl.Int64 = column("MovieLens film id.", ge=0)
    tag: pl.String = column("The tag as typed.")
    timestamp: pl.Int64 = column("Time of the tag.", ge=0, unit="seconds since 1970, UTC")


class MovielensUsers(Model):
    """User attributes that ML-1M (users.dat) and ML-100K (u.user) publish; empty for the others."""

    user_id: pl.Int64 = column("MovieLens user id.", ge=0, unique=True)
    gender: pl.String = column("Gender code, as published.", isin=["F", "M"])
    age: pl.Int64 = column("Age (ML-100K).", null=True, ge=1, le=120, unit="years")
    age_code: pl.Int64 = column(
        "Lowest age of the band, 1 for the youngest (ML-1M).",
        null=True,
        isin=[1, 18, 25, 35, 45, 50, 56],
    )
    occupation: pl.String = column("Occupation (ML-100K).", null=True)
    occupation_code: pl.Int64 = column("Number of the occupation (ML-1M).", null=True, ge=0, le=20)
    zip: pl.String = column("Postal code, as published.", null=True)


class TmdbMovies(Model):
    """TMDB's record of a film, flattened (SUBER table 6, plus keywords, collection, ids)."""

    tmdb_id: pl.Int64 = column("TMDB film id.", ge=1, unique=True)
    imdb_id: pl.String = column("IMDb id with `tt`.", null=True)
    title: pl.String = column("English title.", null=True)
    original_title: pl.String = column("Title in the original language.", null=True)
    original_language: pl.String = column("ISO 639-1 code.", null=True)
    overview: pl.String = column("Story line.", null=True)
    genres: pl.List(pl.String) = column("TMDB genre names, in TMDB's order.")
    keywords: pl.List(pl.String) = column("Keywords, in TMDB's order.")
    actors: pl.List(pl.String) = column("Cast in billing order (at most 10).")
    directors: pl.List(pl.String) = column("Directors.")
    collection: pl.String = column("Series the film belongs to.", null=True)
    release_date: pl.String = column("First release, as published.", null=True)
    runtime: pl.Int64 = column("Length.", null=True, unit="minutes")
    popularity: pl.Float64 = column("TMDB popularity figure.", null=True)
    vote_average: pl.Float64 = column("Mean TMDB vote.", null=True, within="0-10")
    vote_count: pl.Int64 = column("Number of TMDB votes.", null=True)
    budget: pl.Int64 = column("Budget.", null=True, unit="USD")
    revenue: pl.Int64 = column("Revenue.", null=True, unit="USD")
    poster_path: pl.String = column("Path on TMDB's image host.", null=True)


class TmdbMissing(Model):
    """Films with a TMDB id but no usable TMDB record, with the reason."""

    tmdb_id: pl.Int64 = column("TMDB film id that was requested.", ge=1, unique=True)
    reason: pl.String = column(
        "Why there is no record.",
        isin=[
            "not_in_dump",
            "not_found",
            "record_of_another_film",
            "unusable_record",
            "not_fetched",
        ],
    )


class Rejected(Model):
    """Rejected rows of original files, each with its location and reason."""

    file: pl.String = column("Name of the file, relative to the data folder.")
    line: pl.Int64 = column("Line in the file; the first line is 1.", ge=1)
    reason: pl.String = column(
        "Short code of the reason, such as `bad_rating`.", str_matches=r"^[a-z0-9_]+$"
    )
    text: pl.String = column(
        "The row as read, cut to 500 characters, with the size of a longer row."
    )
    field: pl.String = column("Field at fault; null if the row as a whole is.", null=True)
    value: pl.String = column("Value of the field; null if it is absent.", null=True)


class Files(Model):
    """Original files of a world."""

    file: pl.String = column("Name, relative to the data folder.", unique=True)
    sha256: pl.String = column("Checksum of the file (hex).", str_length=64)
    bytes: pl.Int64 = column("Size.", ge=1, unit="bytes")
    source: pl.String = column("Source that reads it, such as `movielens`.")
    origin: pl.String = column("`generated`, `given` or the download address.")
    licence: pl.String = column("Licence or terms, one line.")


#: Raw tables by dataset name.
RAW: dict[str, Contract] = contracts(
    "raw",
    world_files=(Files, "file"),
    movielens_movies=(MovielensMovies, "movie_id"),
    movielens_ratings=(MovielensRatings, "user_id", "movie_id"),
    movielens_links=(MovielensLinks, "movie_id"),
    movielens_tags=(MovielensTags, "user_id", "movie_id", "tag", "timestamp"),
    movielens_users=(MovielensUsers, "user_id"),
    movielens_rejected=(Rejected, "file", "line", "reason"),
    tmdb_movies=(TmdbMovies, "tmdb_id"),
    tmdb_missing=(TmdbMissing, "tmdb_id"),
    tmdb_rejected=(Rejected, "file", "line", "reason"),
)


_CATEGORY = "Category, as in the file's name, such as `Books`."
_FILE = "File, relative to the data folder."
_LINE = "Line in it; the first line is 1."
_ASIN = "Product's ASIN (for most books the ISBN-10)."
_JSON = "as JSON text, as published."


class AmazonReviews2018(Model):
    """Reviews of the 2018 edition as published, repeated ones included."""

    category: pl.String = column(_CATEGORY)
    file: pl.String = column(_FILE)
    line: pl.Int64 = column(_LINE, ge=1)
    reviewer_id: pl.String = column("Reviewer's id.")
    asin: pl.String = column(_ASIN)
    overall: pl.Float64 = column("Rating.", ge=1, le=5, unit="stars", within="1-5, whole")
    unix_review_time: pl.Int64 = column(
        "Time of the review, to the day.", ge=1, unit="seconds since 1970, UTC"
    )
    verified: pl.Boolean = column("Whether the purchase is verified.", null=True)
    vote: pl.String = column(f"Helpful votes, {_JSON}", null=True)
    summary: pl.String = column("The review's heading.", null=True)
    review_text: pl.String = column("The review.", null=True)
    style: pl.String = column(f"Variant bought, such as the binding, {_JSON}", null=True)


class AmazonMeta2018(Model):
    """Products of the 2018 edition as published, repeated ones included."""

    category: pl.String = column(_CATEGORY)
    file: pl.String = column(_FILE)
    line: pl.Int64 = column(_LINE, ge=1)
    asin: pl.String = column(_ASIN)
    title: pl.String = column("Title; for many products a piece of a web page instead.", null=True)
    brand: pl.String = column("Brand; for a book, its author.", null=True)
    main_cat: pl.String = column("Department.", null=True)
    category_path: pl.List(pl.String) = column(
        "Categories from the top down (the record's `category`); may be empty."
    )
    description: pl.List(pl.String) = column("Paragraphs; may be empty.")
    feature: pl.List(pl.String) = column("Selling points; may be empty.")
    also_buy: pl.List(pl.String) = column("ASINs that its buyers also bought; may be empty.")
    also_view: pl.List(pl.String) = column("ASINs that its viewers also viewed; may be empty.")
    price: pl.String = column(f"Price, {_JSON}", null=True)
    date: pl.String = column(f"First listed, {_JSON}", null=True)
    rank: pl.String = column(f"Sales rank, {_JSON}", null=True)
    details: pl.String = column(f"Table of details, such as the publisher, {_JSON}", null=True)


class AmazonReviews2023(Model):
    """Reviews of the 2023 edition as published, repeated ones included."""

    category: pl.String = column(_CATEGORY)
    file: pl.String = column(_FILE)
    line: pl.Int64 = column(_LINE, ge=1)
    user_id: pl.String = column("Reviewer's id; not that of the 2018 edition.")
    parent_asin: pl.String = column("ASIN that all variants of a product share.")
    asin: pl.String = column("ASIN of the variant.", null=True)
    rating: pl.Float64 = column("Rating.", ge=1, le=5, unit="stars", within="1-5, whole")
    timestamp: pl.Int64 = column("Time of the review.", ge=1, unit="milliseconds since 1970, UTC")
    verified_purchase: pl.Boolean = column("Whether the purchase is verified.", null=True)
    helpful_vote: pl.Int64 = column("Helpful votes (count).", null=True)
    title: pl.String = column("The review's heading.", null=True)
    text: pl.String = column("The review.", null=True)


class AmazonMeta2023(Model):
    """Products of the 2023 edition as published, repeated ones included."""

    category: pl.String = column(_CATEGORY)
    file: pl.String = column(_FILE)
    line: pl.Int64 = column(_LINE, ge=1)
    parent_asin: pl.String = column("ASIN that all variants of a product share.")
    main_category: pl.String = column("Department.", null=True)
    title: pl.String = column("Title.", null=True)
    subtitle: pl.String = column("Binding and date of a book.", null=True)
    store: pl.String = column("Store; for a book, its author.", null=True)
    author: pl.String = column(f"Author of a book, {_JSON}", null=True)
    average_rating: pl.Float64 = column(
        "Mean rating that the page showed.", null=True, unit="stars", within="1-5, whole"
    )
    rating_number: pl.Int64 = column("Ratings that the page showed (count).", null=True)
    price: pl.String = column(f"Price in USD, {_JSON}", null=True)
    categories: pl.List(pl.String) = column("Categories from the top down; may be empty.")
    description: pl.List(pl.String) = column("Paragraphs; may be empty.")
    features: pl.List(pl.String) = column("Selling points; may be empty.")
    bought_together: pl.String = column(f"Products bought together with it, {_JSON}", null=True)
    details: pl.String = column(f"Table of details, such as the publisher, {_JSON}", null=True)


#: Raw Amazon tables by dataset name.
RAW_AMAZON: dict[str, Contract] = contracts(
    "raw",
    # By place: the same record may be in a file more than once.
    amazon_reviews_2018=(AmazonReviews2018, "file", "line"),
    amazon_meta_2018=(AmazonMeta2018, "file", "line"),
    amazon_reviews_2023=(AmazonReviews2023, "file", "line"),
    amazon_meta_2023=(AmazonMeta2023, "file", "line"),
    amazon_rejected=(Rejected, "file", "line", "reason"),
)


_ID = "Number of the game in Steam's store."
_USER = "Steam user: an id of 17 digits, or the name in the profile's address."
_USER_LINE = "Line of the user in the file; the first line is 1."


class SteamGames(Model):
    """Games, extensions and programs as Steam's store lists them (steam_games.json)."""

    game_id: pl.Int64 = column(_ID, ge=0, unique=True)
    app_name: pl.String = column("Name of the program.", null=True)
    title: pl.String = column("Title in the store.", null=True)
    url: pl.String = column("Address in the store.", null=True)
    publisher: pl.String = column("Publisher; several are separated by commas.", null=True)
    developer: pl.String = column("Developer; several are separated by commas.", null=True)
    genres: pl.List(pl.String) = column("Genres, as published; may be empty.")
    tags: pl.List(pl.String) = column("Tags of the players, most used first; may be empty.")
    specs: pl.List(pl.String) = column("Features, such as `Single-player`; may be empty.")
    release_date: pl.String = column("Release, mostly `2013-09-24`, else free text.", null=True)
    price: pl.String = column("Price in USD, or a text such as `Free To Play`.", null=True)
    discount_price: pl.String = column("Reduced price in USD, or a text.", null=True)
    early_access: pl.Boolean = column("Whether it is sold before it is finished.", null=True)
    sentiment: pl.String = column(
        "The store's summary of the reviews, such as `Mostly Positive`.", null=True
    )
    metascore: pl.String = column("Metacritic's score, or a text.", null=True)


class SteamReviews(Model):
    """Reviews by Australian users (australian_user_reviews.json), one row each, repeats included.

    Their place distinguishes them: a user may have reviewed a game more than once.
    """

    line: pl.Int64 = column(_USER_LINE, ge=1)
    position: pl.Int64 = column("Number of the review in the user's list.", ge=1)
    user_id: pl.String = column(_USER, str_length={"min_value": 1})
    game_id: pl.Int64 = column(_ID, ge=0)
    recommend: pl.Boolean = column("Whether the user recommends the game.")
    posted: pl.String = column(
        "`Posted November 5, 2011.` or `Posted 2011-11-05.`; the year may be absent.", null=True
    )
    last_edited: pl.String = column("Date of the last edit, in the same form.", null=True)
    funny: pl.String = column("Number of users who found it funny, as text.", null=True)
    helpful: pl.String = column("Number of users who found it helpful, as text.", null=True)
    review: pl.String = column("The text; may be empty.", null=True)


class SteamPlaytime(Model):
    """Playtime by user and game (australian_users_items.json); may be empty."""

    line: pl.Int64 = column(_USER_LINE, ge=1)
    position: pl.Int64 = column("Number of the game in the user's list.", ge=1)
    user_id: pl.String = column(_USER, str_length={"min_value": 1})
    game_id: pl.Int64 = column(_ID, ge=0)
    playtime_forever: pl.Int64 = column("Total time played.", ge=0, unit="minutes")
    playtime_2weeks: pl.Int64 = column(
        "Time played in the two weeks before the file was made.", null=True, ge=0, unit="minutes"
    )


#: Raw Steam tables by dataset name.
RAW_STEAM: dict[str, Contract] = contracts(
    "raw",
    steam_games=(SteamGames, "game_id"),
    steam_reviews=(SteamReviews, "line", "position"),
    steam_playtime=(SteamPlaytime, "line", "position"),
    # Several reviews of one line may be rejected for one reason; their texts begin with the place.
    steam_rejected=(Rejected, "file", "line", "reason", "text"),
)


class TaxonomyCategories(Model):
    """Categories of a tree as its file lists them, one path each."""

    path: pl.String = column(
        "Names from the top level down, ` > ` between them, as published.",
        unique=True,
        str_length={"min_value": 1},
    )
    name: pl.String = column("Name of the last level.", str_length={"min_value": 1})
    depth: pl.Int64 = column("Levels of the path (count).", ge=1)


class PersonaFileRows(Model):
    """Personas as the files state them: a text, attributes, or both."""

    file: pl.String = column("Name of the file, relative to the data folder.")
    line: pl.Int64 = column("Line in the file; the first line is 1.", ge=1)
    text: pl.String = column(
        "Description of the persona, as prose; null if there are attributes only.", null=True
    )
    name: pl.String = column("Name, if the file states one.", null=True)
    age: pl.String = column("Age or age band, as published.", null=True)
    gender: pl.String = column("Sex or gender, as published.", null=True)
    job: pl.String = column("Job or field of work, as published.", null=True)
    writer: pl.String = column("Author or model of the text, if the file states it.", null=True)
    attributes: pl.String = column(
        "All attributes with their published names, as a JSON object of texts."
    )


#: Raw tables of given files by dataset name.
RAW_FILES: dict[str, Contract] = contracts(
    "raw",
    taxonomy_categories=(TaxonomyCategories, "path"),
    taxonomy_rejected=(Rejected, "file", "line", "reason"),
    persona_files=(PersonaFileRows, "file", "line"),
    persona_files_rejected=(Rejected, "file", "line", "reason"),
)
