"""Contracts of the raw snapshots: original values, typed, nothing repaired."""

from __future__ import annotations

import pandera.polars as pa
import polars as pl

from pipelines.contracts._base import Contract, contracts

__all__ = ["RAW"]


class _Model(pa.DataFrameModel):
    class Config:
        strict = True
        ordered = True


class MovielensMovies(_Model):
    """Films as MovieLens lists them (movies.csv)."""

    movie_id: pl.Int64 = pa.Field(ge=1, unique=True, description="MovieLens film id.")
    title: pl.String = pa.Field(
        description="Title with the year in brackets, article last, as published."
    )
    genres: pl.String = pa.Field(
        description="Genres separated by `|`, or `(no genres listed)`, as published."
    )


class MovielensRatings(_Model):
    """Ratings as MovieLens lists them (ratings.csv), without rejected rows."""

    user_id: pl.Int64 = pa.Field(ge=1, description="MovieLens user id.")
    movie_id: pl.Int64 = pa.Field(ge=1, description="MovieLens film id.")
    rating: pl.Float64 = pa.Field(
        ge=0.5,
        le=5.0,
        description="Rating.",
        metadata={"unit": "stars", "range": "0.5-5, step 0.5; 1-5 in ML-1M and ML-100K"},
    )
    scale: pl.String = pa.Field(
        isin=["0.5-5", "1-5"], description="Lowest and highest rating of the variant."
    )
    timestamp: pl.Int64 = pa.Field(
        ge=0, description="When it was given.", metadata={"unit": "seconds since 1970, UTC"}
    )


class MovielensLinks(_Model):
    """Ids of the same film elsewhere (links.csv)."""

    movie_id: pl.Int64 = pa.Field(ge=1, unique=True, description="MovieLens film id.")
    imdb_id: pl.String = pa.Field(nullable=True, description="IMDb number without `tt`.")
    tmdb_id: pl.Int64 = pa.Field(nullable=True, ge=1, description="TMDB film id.")


class MovielensTags(_Model):
    """Free-text tags (tags.csv)."""

    user_id: pl.Int64 = pa.Field(ge=1, description="MovieLens user id.")
    movie_id: pl.Int64 = pa.Field(ge=1, description="MovieLens film id.")
    tag: pl.String = pa.Field(description="The tag as typed.")
    timestamp: pl.Int64 = pa.Field(
        ge=0, description="When it was given.", metadata={"unit": "seconds since 1970, UTC"}
    )


class MovielensUsers(_Model):
    """What ML-1M (users.dat) and ML-100K (u.user) tell of their users; empty for the others."""

    user_id: pl.Int64 = pa.Field(ge=1, unique=True, description="MovieLens user id.")
    gender: pl.String = pa.Field(isin=["F", "M"], description="Gender code, as published.")
    age: pl.Int64 = pa.Field(
        nullable=True, ge=1, le=120, description="Age (ML-100K).", metadata={"unit": "years"}
    )
    age_code: pl.Int64 = pa.Field(
        nullable=True,
        isin=[1, 18, 25, 35, 45, 50, 56],
        description="Lowest age of the band, 1 for the youngest (ML-1M).",
    )
    occupation: pl.String = pa.Field(nullable=True, description="Occupation (ML-100K).")
    occupation_code: pl.Int64 = pa.Field(
        nullable=True, ge=0, le=20, description="Number of the occupation (ML-1M)."
    )
    zip: pl.String = pa.Field(nullable=True, description="Postal code, as published.")


class TmdbMovies(_Model):
    """TMDB's record of a film, flattened (SUBER table 6, plus keywords, collection, ids)."""

    tmdb_id: pl.Int64 = pa.Field(ge=1, unique=True, description="TMDB film id.")
    imdb_id: pl.String = pa.Field(nullable=True, description="IMDb id with `tt`.")
    title: pl.String = pa.Field(nullable=True, description="English title.")
    original_title: pl.String = pa.Field(nullable=True, description="Title in its language.")
    original_language: pl.String = pa.Field(nullable=True, description="ISO 639-1 code.")
    overview: pl.String = pa.Field(nullable=True, description="Story line.")
    genres: pl.List(pl.String) = pa.Field(description="TMDB genre names, in TMDB's order.")
    keywords: pl.List(pl.String) = pa.Field(description="Keywords, in TMDB's order.")
    actors: pl.List(pl.String) = pa.Field(description="Cast in billing order (at most 10).")
    directors: pl.List(pl.String) = pa.Field(description="Directors.")
    collection: pl.String = pa.Field(nullable=True, description="Series the film belongs to.")
    release_date: pl.String = pa.Field(nullable=True, description="First release, as published.")
    runtime: pl.Int64 = pa.Field(nullable=True, description="Length.", metadata={"unit": "minutes"})
    popularity: pl.Float64 = pa.Field(nullable=True, description="TMDB popularity figure.")
    vote_average: pl.Float64 = pa.Field(
        nullable=True, description="Mean TMDB vote.", metadata={"range": "0-10"}
    )
    vote_count: pl.Int64 = pa.Field(nullable=True, description="Number of TMDB votes.")
    budget: pl.Int64 = pa.Field(nullable=True, description="Budget.", metadata={"unit": "USD"})
    revenue: pl.Int64 = pa.Field(nullable=True, description="Revenue.", metadata={"unit": "USD"})
    poster_path: pl.String = pa.Field(nullable=True, description="Path on TMDB's image host.")


class TmdbMissing(_Model):
    """Films that have a TMDB id but no usable TMDB record, with the reason."""

    tmdb_id: pl.Int64 = pa.Field(ge=1, unique=True, description="TMDB film id that was asked for.")
    reason: pl.String = pa.Field(
        isin=[
            "not_in_dump",
            "not_found",
            "record_of_another_film",
            "unusable_record",
            "not_fetched",
        ],
        description="Why there is no record.",
    )


class Rejected(_Model):
    """Rows of original files that could not be taken, each with its place and reason."""

    file: pl.String = pa.Field(description="Name of the file, relative to the data folder.")
    line: pl.Int64 = pa.Field(ge=1, description="Line in the file; the first line is 1.")
    reason: pl.String = pa.Field(
        str_matches=r"^[a-z0-9_]+$", description="Short code of the reason, such as `bad_rating`."
    )
    text: pl.String = pa.Field(
        description="The row as read, cut to 500 characters; of a longer one the size follows."
    )


class Files(_Model):
    """The original files a world consists of."""

    file: pl.String = pa.Field(unique=True, description="Name, relative to the data folder.")
    sha256: pl.String = pa.Field(str_length=64, description="Checksum of the file (hex).")
    bytes: pl.Int64 = pa.Field(ge=1, description="Size.", metadata={"unit": "bytes"})
    source: pl.String = pa.Field(description="Source that reads it, such as `movielens`.")
    origin: pl.String = pa.Field(description="`generated`, `given` or the download address.")
    licence: pl.String = pa.Field(description="Licence or terms, one line.")


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
