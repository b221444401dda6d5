"""How the files of each MovieLens layout are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

from pipelines.scales import SCALES, RatingScale
from pipelines.sources._delimited import DelimitedReader, latin1
from pipelines.sources._original import Original
from pipelines.sources._protocol import RawTable, Workspace
from pipelines.sources._record import Column, Kind, RowFault, integer, number, text
from pipelines.sources._rows import CsvReader
from pipelines.sources.movielens._layout import Format
from pipelines.sources.movielens._tables import (
    Films,
    absent_table,
    movie_faults,
    raw_table,
    user_faults,
)

if TYPE_CHECKING:
    import polars as pl

__all__ = ["GENRE_FLAGS", "READERS"]

_USER = Column("userId", "user_id", integer("bad_id"))
_MOVIE = Column("movieId", "movie_id", integer("bad_id"))
_RATING = Column("rating", "rating", number("bad_rating"))
_TIME = Column("timestamp", "timestamp", integer("bad_timestamp"))
_TITLE = Column("title", "title", text())
_GENRES = Column("genres", "genres", text())
_GENDER = Column("gender", "gender", text())
_AGE = Column("age", "age", integer("bad_age"))
_ZIP = Column("zip", "zip", text())

_LINKS = (
    _MOVIE,
    Column("imdbId", "imdb_id", text()),
    Column("tmdbId", "tmdb_id", integer("bad_id", optional=True)),
)
_TAGS = (_USER, _MOVIE, Column("tag", "tag", text()), _TIME)

#: ML-1M: the lowest age of each band, 1 for the youngest; occupations are numbered from 0.
_AGE_CODES = frozenset({1, 18, 25, 35, 45, 50, 56})
_OCCUPATION_CODES = range(21)
#: ML-100K: the flags at the end of each line of u.item, in this order.
GENRE_FLAGS = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi",
    "Thriller", "War", "Western",
)  # fmt: skip
_NO_GENRES = "(no genres listed)"
_AGES = range(1, 121)

Originals = Mapping[str, Original]


def _flag() -> Kind:
    def parse(field: str) -> int | RowFault:
        return int(field) if field in ("0", "1") else RowFault("bad_genre_flag")

    return Kind("[01]", parse, optional=False, text=False, type_name="int64")


_ITEM = (
    _MOVIE,
    _TITLE,
    Column("release date", "release_date", text()),
    Column("video release date", "video_date", text()),
    Column("IMDb URL", "url", text()),
    *(Column(genre, f"flag {genre}", _flag()) for genre in GENRE_FLAGS),
)


def _read_csv(originals: Originals, work: Workspace) -> Iterator[RawTable]:
    def reader(name: str, *columns: Column) -> CsvReader:
        return CsvReader(originals[name], columns, work.reject, progress=work.progress)

    films = Films()
    yield _films(reader("movies.csv", _MOVIE, _TITLE, _GENRES), films, work)
    yield _ratings(
        reader("ratings.csv", _USER, _MOVIE, _RATING, _TIME), films, SCALES["0.5-5"], work
    )
    yield raw_table(
        "raw.movielens_links", reader("links.csv", *_LINKS), films.link_faults, work,
        key=("movie_id",), finish=_links_published,
    )  # fmt: skip
    yield raw_table(
        "raw.movielens_tags", reader("tags.csv", *_TAGS), films.tag_faults, work,
        key=("user_id", "movie_id", "tag", "timestamp"), allow_empty=True,
    )  # fmt: skip
    yield absent_table("raw.movielens_users")


def _read_dat(originals: Originals, work: Workspace) -> Iterator[RawTable]:
    def reader(name: str, *columns: Column) -> CsvReader:
        original = latin1(originals[name])
        return DelimitedReader(original, columns, "::", work.reject, progress=work.progress)

    films = Films()
    yield _films(reader("movies.dat", _MOVIE, _TITLE, _GENRES), films, work)
    yield _ratings(reader("ratings.dat", _USER, _MOVIE, _RATING, _TIME), films, SCALES["1-5"], work)
    yield absent_table("raw.movielens_links")
    yield absent_table("raw.movielens_tags")
    occupation = Column("occupation", "occupation", integer("bad_occupation"))
    yield raw_table(
        "raw.movielens_users",
        reader("users.dat", _USER, _GENDER, _AGE, occupation, _ZIP),
        partial(user_faults, _AGE_CODES, _OCCUPATION_CODES),
        work,
        key=("user_id",),
        finish=lambda frame: _users_published(frame, coded=True),
    )


def _read_u(originals: Originals, work: Workspace) -> Iterator[RawTable]:
    def reader(name: str, separator: str, *columns: Column) -> CsvReader:
        original = latin1(originals[name])
        return DelimitedReader(original, columns, separator, work.reject, progress=work.progress)

    films = Films()
    yield _films(reader("u.item", "|", *_ITEM), films, work, finish=_flags_published)
    yield _ratings(
        reader("u.data", "\t", _USER, _MOVIE, _RATING, _TIME), films, SCALES["1-5"], work
    )
    yield absent_table("raw.movielens_links")
    yield absent_table("raw.movielens_tags")
    occupation = Column("occupation", "occupation", text())
    yield raw_table(
        "raw.movielens_users",
        reader("u.user", "|", _USER, _AGE, _GENDER, occupation, _ZIP),
        partial(user_faults, _AGES, None),
        work,
        key=("user_id",),
        finish=lambda frame: _users_published(frame, coded=False),
    )


#: How the originals of each layout become the source's tables.
READERS: Mapping[Format, Callable[[Originals, Workspace], Iterator[RawTable]]] = {
    "csv": _read_csv,
    "dat": _read_dat,
    "u": _read_u,
}


def _films(
    reader: CsvReader,
    films: Films,
    work: Workspace,
    *,
    finish: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
) -> RawTable:
    return raw_table(
        "raw.movielens_movies", reader, movie_faults, work,
        key=("movie_id",), seen=films.add, finish=finish,
    )  # fmt: skip


def _ratings(reader: CsvReader, films: Films, scale: RatingScale, work: Workspace) -> RawTable:
    import polars as pl

    films.close()
    named = pl.lit(scale.name).alias("scale")
    return raw_table(
        "raw.movielens_ratings",
        reader,
        lambda: films.rating_faults(scale),
        work,
        key=("user_id", "movie_id"),
        prefer=(("timestamp", False), ("line", False)),
        finish=lambda frame: frame.select("user_id", "movie_id", "rating", named, "timestamp"),
    )


def _links_published(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return frame.with_columns(pl.col("imdb_id").replace("", None))


def _flags_published(frame: pl.DataFrame) -> pl.DataFrame:
    """Genre flags as the other variants write genres."""
    import polars as pl

    named = [pl.when(pl.col(f"flag {g}") == 1).then(pl.lit(g)) for g in GENRE_FLAGS[1:]]
    genres = pl.concat_str(named, separator="|", ignore_nulls=True).replace("", _NO_GENRES)
    return frame.select("movie_id", "title", genres=genres)


def _users_published(frame: pl.DataFrame, *, coded: bool) -> pl.DataFrame:
    """What the variant says of its users: codes (ML-1M) or years and words (ML-100K)."""
    import polars as pl

    none, nothing = pl.lit(None, dtype=pl.Int64), pl.lit(None, dtype=pl.String)
    return frame.select(
        "user_id",
        "gender",
        age=none if coded else pl.col("age"),
        age_code=pl.col("age") if coded else none,
        occupation=nothing if coded else pl.col("occupation"),
        occupation_code=pl.col("occupation") if coded else none,
        zip=pl.col("zip").replace("", None),
    )
