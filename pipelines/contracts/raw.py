"""Contracts of the raw snapshots: original values, typed, nothing repaired."""

from __future__ import annotations

import polars as pl

from pipelines.contracts._base import Contract, contracts
from pipelines.contracts._columns import Model, column

__all__ = ["RAW"]


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
