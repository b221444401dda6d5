"""MovieLens (GroupLens, University of Minnesota): films, ratings, links and tags."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pipelines.downloads import Download
from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.scales import SCALES
from pipelines.sources._files import UNPACK_LIMITS, Original, UnpackLimits, any_file, zip_members
from pipelines.sources._folders import (
    check_file,
    described,
    entries,
    has_folder,
    pick_files,
    resembling,
    unclear_name,
)
from pipelines.sources._protocol import Source
from pipelines.sources._reader import Column, Separated
from pipelines.sources._tables import Check, Checks, RawTable, Workspace, check_time, raw_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["ARCHIVES", "Layout", "MovielensSource", "find_layout"]


Format = Literal["csv", "dat", "dat-tags", "u"]

#: The files of each layout, in the order in which they are read. The tag genome of the large
#: archives is not used, nor are ML-100K's prepared splits and its lists of names.
FILES: Mapping[Format, tuple[str, ...]] = {
    "csv": ("movies.csv", "ratings.csv", "links.csv", "tags.csv"),
    "dat": ("movies.dat", "users.dat", "ratings.dat"),
    "dat-tags": ("movies.dat", "ratings.dat", "tags.dat"),
    "u": ("u.item", "u.user", "u.data"),
}
#: Files that copies and people's own data may lack; of a published archive they have been lost.
_OPTIONAL = ("links.csv", "tags.csv")

#: Published archives. The MD5 sums are those GroupLens publishes beside each archive.
#: ml-latest-small was compared with a real copy; the others are quoted from public code that
#: compared its own downloads with them, and were not verified against the files here.
#: GroupLens may regenerate ml-latest-small; the others are frozen.
ARCHIVES: Mapping[str, Download] = {
    name: Download(f"{name}.zip", f"datasets/movielens/{name}.zip", "md5", checksum)
    for name, checksum in {
        "ml-latest-small": "31a303aabbc519bd33d025e44d6c2570",
        "ml-25m": "6b51fb2759a8657d3bfcbfc42b592ada",
        "ml-32m": "d472be332d4daa821edc399621853b57",
        "ml-1m": "c4d9eecfca2ab87c1945afe126590906",
        "ml-100k": "0e33842e24a9c977be4e0107933c0723",
    }.items()
}

_FOLDER = "movielens"
#: The names of files, for error texts.
EXPECTED = "movielens/ml-latest-small.zip or movielens/<variant>/movies.csv"
#: The layout of each.
_VARIANTS: Mapping[str, Format] = {
    "ml-latest-small": "csv",
    "sample": "csv",
    "ml-25m": "csv",
    "ml-32m": "csv",
    "ml-20m": "csv",
    "ml-latest": "csv",
    "ml-10m": "dat-tags",
    "ml-1m": "dat",
    "ml-100k": "u",
}
#: Variant of files that lie directly in the folder.
_BARE = "movielens"
#: Folder of data that may be called as MovieLens' and are not.
_OWN = "own"
#: Names of the files in Kaggle's copy of ml-20m.
_SINGULAR = {f"{name}.csv": f"{name}s.csv" for name in ("movie", "rating", "link", "tag")}


def published_name(name: str) -> str:
    """The published name of a file or variant that is spelled otherwise: in capitals, with ``_``.

    >>> [published_name(n) for n in ("Movies.CSV.gz", "rating.csv", "ML_25M", "ml-10M100K")]
    ['movies.csv', 'ratings.csv', 'ml-25m', 'ml-10m']
    """
    plain = name.lower().removesuffix(".gz")
    variant = re.sub(r"^movielens-", "ml-", plain.replace("_", "-").replace("-dataset", ""))
    variant = re.sub(r"^ml-10m100k", "ml-10m", variant)
    return variant if variant.startswith("ml-") else _SINGULAR.get(plain, plain)


def _layout_of(names: Iterable[str]) -> Format | None:
    """The layout that files of these names are in; None if films or ratings are absent."""
    names = {published_name(name) for name in names}
    if {"movies.dat", "ratings.dat"} <= names:
        return "dat-tags" if "tags.dat" in names and "users.dat" not in names else "dat"
    if {"u.item", "u.data"} <= names:
        return "u"
    return "csv" if {"movies.csv", "ratings.csv"} <= names else None


@dataclass(frozen=True, slots=True)
class Layout:
    """A variant of MovieLens in a data folder."""

    #: Its name, such as ``ml-25m``.
    variant: str
    #: The archive, or the folder of its files.
    path: Path
    #: Layout of the files: ``csv``, ``dat`` (ML-1M), ``dat-tags`` (ML-10M) or ``u`` (ML-100K).
    format: Format = "csv"

    @property
    def name(self) -> str:
        """Name relative to the data folder."""
        return _FOLDER if self.variant == _BARE else f"{_FOLDER}/{self.path.name}"

    def paths(self) -> list[Path]:
        """Return the files on disk that are read: the archive, or its files.

        Raises :class:`SourceError` if one is missing or can't be read.
        """
        return [self.path] if self._packed else list(self._files().values())

    def originals(self, limits: UnpackLimits = UNPACK_LIMITS) -> dict[str, Original]:
        """Return the files by base name.

        Raises :class:`SourceError` if the archive is corrupt or exceeds the limits, or a file is
        missing.
        """
        if not self._packed:
            files = self._files().items()
            return {n: any_file(p, f"{self.name}/{p.name}", limits) for n, p in files}
        members = zip_members(self.path, self.name, FILES[self.format], limits, published_name)
        self._refuse_missing(members)
        return members

    @property
    def _packed(self) -> bool:
        return self.path.suffix == ".zip"

    def _files(self) -> dict[str, Path]:
        names = FILES[self.format]
        expected = ", ".join(names)
        by_name: dict[str, Path] = {}
        for path in pick_files(self.path, lambda n: published_name(n) in names, expected):
            name = published_name(path.name)
            if name in by_name:
                raise SourceError(
                    f"two files of {name}",
                    where=f"{by_name[name]} and {path.name}",
                    hint="keep one of them",
                )
            by_name[name] = path
        self._refuse_missing(by_name)
        return {name: by_name[name] for name in names if name in by_name}

    def _refuse_missing(self, present: Collection[str]) -> None:
        names = FILES[self.format]
        if not self._packed:
            names = tuple(name for name in names if name not in _OPTIONAL)
        missing = [name for name in names if name not in present]
        if missing:
            raise SourceError(
                f"{', '.join(missing)} missing",
                where=str(self.path),
                hint=f"expected {', '.join(names)}",
            )


def find_layout(folder: Path, variant: str = "auto") -> Layout:
    """Find the MovieLens files of a data folder.

    That is ``movielens/<variant>.zip``, ``movielens/<variant>/`` or the files directly in
    ``movielens/``; without a folder of this name, the same in the data folder itself. An archive
    wins over a folder of the same name. A part of a published archive may be called
    ``<variant>-<anything>.zip``; it is taken if the whole one is not there. Archives and folders of
    other names are looked into if there is none of these. The variant ``auto`` is the only one, or
    ml-latest-small among several.

    Raises :class:`SourceError` if there is none, not the one asked for, or several to choose from.
    """
    here = _place(folder)
    if not has_folder(here, EXPECTED):
        raise SourceError(
            "no folder with MovieLens files",
            where=str(here),
            hint=f"expected {EXPECTED}; see docs/data.md",
        )
    inside = entries(here, EXPECTED)
    layouts: dict[str, Layout] = {}
    for path in sorted(inside, key=_rank):
        name = _variant_of(path)
        if name is None or name in layouts:
            continue
        check = check_file if path.suffix.lower() == ".zip" else has_folder
        check(path, EXPECTED)
        layouts[name] = Layout(name, path, _VARIANTS[name])
    published = {*_VARIANTS, *(f"{name}.zip" for name in _VARIANTS), *FILES["csv"]}
    for path in inside:
        name = published_name(path.name)
        if name not in published and published_name(resembling(name)) in published:
            raise unclear_name(path, EXPECTED)
    names = [path.name for path in inside]
    bare = "csv" if any(published_name(n) in FILES["csv"] for n in names) else _layout_of(names)
    if bare and _VARIANTS.get(variant, bare) == bare:
        unpacked = _variant_of(here) if here == folder else None
        name = (unpacked or _BARE) if variant == "auto" else variant
        layouts.setdefault(name, Layout(name, here, bare))
    if not layouts:
        layouts = {layout.variant: layout for path in inside if (layout := _looked_into(path))}
    listed = ", ".join(layouts) or "none"
    if variant != "auto":
        if variant not in layouts:
            raise SourceError(
                f"no {variant} here (found: {listed})",
                where=str(here),
                hint=f"expected {variant}.zip or {variant}/",
            )
        return layouts[variant]
    if "ml-latest-small" in layouts:
        return layouts["ml-latest-small"]
    if len(layouts) == 1:
        return next(iter(layouts.values()))
    raise SourceError(
        f"which MovieLens variant? found: {listed}"
        if layouts
        else f"no MovieLens files{described(here)}",
        where=str(here),
        hint="set world.variant"
        if layouts
        else f"expected {', '.join(f'{name}.zip' for name in ARCHIVES)} or their files",
    )


def _place(folder: Path) -> Path:
    """The folder ``movielens/``; the data folder if that has none, but an archive or its files."""
    here = folder / _FOLDER
    if has_folder(here, EXPECTED) or not has_folder(folder, EXPECTED):
        return here
    inside = [path for path in entries(folder, EXPECTED) if path.name != _OWN]
    direct = _layout_of(path.name for path in inside) or any(map(_variant_of, inside))
    return folder if direct or any(map(_looked_into, inside)) else here


def _variant_of(path: Path) -> str | None:
    """The variant that an archive, a part of one, or a folder is called after."""
    name = published_name(path.name)
    packed = name.endswith(".zip")
    name = name.removesuffix(".zip")
    if name in _VARIANTS:
        return name
    parts = [v for v in _VARIANTS if packed and name.startswith(f"{v}-")]
    return max(parts, key=len, default=None) if resembling(name) == name else None


def _rank(path: Path) -> tuple[int, int, str]:
    """Order of entries: published variants in their order, the archive first, then a folder."""
    variant = _variant_of(path)
    name = published_name(path.name)
    kinds = (f"{variant}.zip", variant)
    kind = kinds.index(name) if name in kinds else len(kinds)
    return list(_VARIANTS).index(variant) if variant else len(_VARIANTS), kind, path.name


def _looked_into(path: Path) -> Layout | None:
    """The layout of an archive or a folder of another name, by the files that are in it."""
    if path.is_dir():
        layout = _layout_of(file.name for file in entries(path, EXPECTED))
    elif path.suffix.lower() == ".zip" and path.is_file():
        every = {name for names in FILES.values() for name in names}
        layout = _layout_of(zip_members(path, path.name, every, rename=published_name))
    else:
        return None
    return Layout(path.stem if path.is_file() else path.name, path, layout) if layout else None


#: What a file of each layout holds.
Content = Literal["films", "ratings", "links", "tags", "users"]

#: IMDb's number, which other publishers write with ``tt`` and pandas as 114709.0; or nothing.
_IMDB = r"^(?:(?:tt)?([0-9]+)(?:\.0*)?)?$"
_USER = Column("userId", "user_id", "integer", "bad_id", required=True)
_MOVIE = Column("movieId", "movie_id", "integer", "bad_id", required=True)
_RATING = Column("rating", "rating", "number", "bad_rating", required=True)
_TIME = Column("timestamp", "timestamp", "seconds", "bad_timestamp", required=True)
_TITLE, _GENRES = Column("title", "title"), Column("genres", "genres")
_GENDER, _ZIP = Column("gender", "gender"), Column("zip", "zip")
_AGE = Column("age", "age", "integer", "bad_age", required=True)
_COLUMNS: Mapping[Content, tuple[Column, ...]] = {
    "films": (_MOVIE, _TITLE, _GENRES),
    "ratings": (_USER, _MOVIE, _RATING, _TIME),
    "links": (
        _MOVIE,
        Column("imdbId", "imdb_id"),
        Column("tmdbId", "tmdb_id", "integer", "bad_id"),
    ),
    "tags": (_USER, _MOVIE, Column("tag", "tag"), _TIME),
}
#: ML-1M: the lowest age of each band, 1 for the youngest; occupations are numbered from 0.
_AGE_CODES = (1, 18, 25, 35, 45, 50, 56)
#: ML-100K: the flags at the end of each line of u.item, in this order.
GENRE_FLAGS = (
    "unknown", "Action", "Adventure", "Animation", "Children's", "Comedy", "Crime", "Documentary",
    "Drama", "Fantasy", "Film-Noir", "Horror", "Musical", "Mystery", "Romance", "Sci-Fi",
    "Thriller", "War", "Western",
)  # fmt: skip
_NO_GENRES = "(no genres listed)"
_ITEM = (
    *(_MOVIE, _TITLE),
    *(Column(name, name) for name in ("release date", "video release date", "IMDb URL")),
    *(Column(g, f"flag {g}", "boolean", "bad_genre_flag", required=True) for g in GENRE_FLAGS),
)


@dataclass(frozen=True, slots=True)
class Files:
    """A layout as it is published: how its lines are written, and the columns of each file."""

    names: Mapping[Content, str]
    scale: str
    #: Columns where they are not those of every layout.
    columns: Mapping[Content, tuple[Column, ...]] = field(default_factory=dict)
    #: Separator by file; commas, quotes and a header if there is none.
    separators: Mapping[Content, str] = field(default_factory=dict)
    encoding: Literal["utf-8", "latin-1"] = "utf-8"
    #: Ages of users, and whether these and occupations are codes.
    ages: Sequence[int] = ()
    coded: bool = False


_COLONS: Mapping[Content, str] = dict.fromkeys(("films", "ratings", "tags", "users"), "::")
_OCCUPATION = Column("occupation", "occupation", "integer", "bad_occupation", required=True)
LAYOUTS: Mapping[Format, Files] = {
    "csv": Files(
        {"films": "movies.csv", "ratings": "ratings.csv", "links": "links.csv", "tags": "tags.csv"},
        "0.5-5",
    ),
    "dat": Files(
        {"films": "movies.dat", "ratings": "ratings.dat", "users": "users.dat"},
        "1-5",
        {"users": (_USER, _GENDER, _AGE, _OCCUPATION, _ZIP)},
        _COLONS,
        "latin-1",
        _AGE_CODES,
        coded=True,
    ),
    "dat-tags": Files(
        {"films": "movies.dat", "ratings": "ratings.dat", "tags": "tags.dat"},
        "0.5-5",
        separators=_COLONS,
    ),
    "u": Files(
        {"films": "u.item", "ratings": "u.data", "users": "u.user"},
        "1-5",
        {
            "films": _ITEM,
            "users": (_USER, _AGE, _GENDER, Column("occupation", "occupation"), _ZIP),
        },
        {"films": "|", "ratings": "\t", "users": "|"},
        "latin-1",
        range(1, 121),
    ),
}


def read_tables(
    layout: Files, originals: Mapping[str, Original], work: Workspace
) -> Iterator[RawTable]:
    """Films, ratings, links, tags and users; tables without a file have no rows."""
    import polars as pl

    scale, listed, occupation = SCALES[layout.scale], list[pl.Series](), pl.col("occupation")

    def table(content: Content, key: tuple[str, ...], checks: Checks, **more: Any) -> RawTable:
        original = originals.get(layout.names.get(content, ""))
        separator = layout.separators.get(content)
        plain = separator is None
        columns = layout.columns.get(content) or _COLUMNS.get(content, ())
        separated = Separated(separator or ",", plain, plain, layout.encoding)
        parts = {original.name: separated.rows(original, columns)} if original else {}
        name = f"raw.movielens_{'movies' if content == 'films' else content}"
        return raw_table(name, parts, work, columns=columns, checks=checks, key=key, **more)

    def films(frame: pl.DataFrame) -> pl.DataFrame:
        listed.append(frame["movie_id"])
        if "genres" in frame.columns:
            return frame
        # Genre flags become what the other variants write.
        named = [pl.when(pl.col(f"flag {g}")).then(pl.lit(g)) for g in GENRE_FLAGS[1:]]
        genres = pl.concat_str(named, separator="|", ignore_nulls=True).replace("", _NO_GENRES)
        return frame.with_columns(genres=genres)

    def users(frame: pl.DataFrame) -> pl.DataFrame:
        """User attributes that the variant publishes: codes (ML-1M) or years and words."""
        none, nothing = pl.lit(None, dtype=pl.Int64), pl.lit(None, dtype=pl.String)
        return frame.with_columns(
            age=none if layout.coded else pl.col("age"),
            age_code=pl.col("age") if layout.coded else none,
            occupation=nothing if layout.coded else occupation,
            occupation_code=occupation if layout.coded else none,
            zip=pl.col("zip").replace("", None),
        )

    yield table(
        "films", ("movie_id",),
        lambda _: [_from("movie_id"), _filled("missing_title", "title")], finish=films,
    )  # fmt: skip
    movies = pl.concat(listed) if listed else pl.Series(dtype=pl.Int64)
    is_listed = Check("unknown_film", "movie_id", pl.col("movie_id").is_in(movies.implode()))
    is_pair = (_from("user_id"), _from("movie_id"))
    rating, steps = pl.col("rating"), (pl.col("rating") - scale.low) / scale.step
    on_scale = rating.is_between(scale.low, scale.high) & (steps == steps.round())
    yield table(
        "ratings", ("user_id", "movie_id"),
        lambda _: [*is_pair, Check("off_scale", "rating", on_scale),
                   check_time("timestamp", zero=True), is_listed],
        prefer=(("timestamp", False), ("line", False)), repeated="repeated_rating",
        filtered=("repeated_rating",),
        finish=lambda frame: frame.with_columns(scale=pl.lit(scale.name)),
    )  # fmt: skip
    yield table(
        "links", ("movie_id",),
        lambda _: [_from("movie_id"),
                   Check("bad_id", "imdb_id", pl.col("imdb_id").str.contains(_IMDB)),
                   _from("tmdb_id", 1), is_listed],
        finish=lambda frame: frame.with_columns(pl.col("imdb_id").str.extract(_IMDB)),
    )  # fmt: skip
    yield table(
        "tags", ("user_id", "movie_id", "tag", "timestamp"),
        lambda _: [*is_pair, _filled("missing_tag", "tag"), check_time("timestamp", zero=True),
                   is_listed],
        allow_empty=True,
    )  # fmt: skip
    yield table(
        "users", ("user_id",),
        lambda _: [_from("user_id"),
                   Check("bad_gender", "gender", pl.col("gender").is_in(["F", "M"])),
                   Check("bad_age", "age", pl.col("age").is_in(list(layout.ages))),
                   Check("bad_occupation", "occupation", occupation.is_between(0, 20))
                   if layout.coded else _filled("bad_occupation", "occupation")],
        finish=users,
    )  # fmt: skip


def _from(column: str, lowest: int = 0) -> Check:
    import polars as pl

    return Check("bad_id", column, pl.col(column) >= lowest)


def _filled(reason: str, column: str) -> Check:
    import polars as pl

    return Check(reason, column, pl.col(column).str.strip_chars() != "")


class MovielensSource(Source):
    """MovieLens, as an archive or as a folder of its files.

    The CSV layout of ml-latest-small, ml-latest, ml-20m, ml-25m and ml-32m has links and tags but
    no users, ML-10M (``::``, UTF-8) only tags. ML-1M (``::``) and ML-100K (``u.*``), both
    ISO-8859-1 and rated in whole stars, have users but neither links nor tags. ML-100K's release
    dates (a day that mostly stands for the year in the title) and IMDb search addresses are not
    taken.

    Of several ratings of a film by a user the latest stays (then the last in the file); the others
    are filtered as ``repeated_rating``.

    Rows come out as published. Rejected are rows that can't be parsed and, by reason:

    ========================  ==============================================================
    ``wrong_columns``         more or fewer fields than the header
    ``blank_line``            nothing on the line
    ``bad_quotes``            a quoted field that does not end, or with text after its end
    ``bare_return``           a carriage return inside the line
    ``invalid_utf8``          bytes that are not UTF-8
    ``too_long``              a line of more than 1 MiB
    ``bad_id``                an id that is not a whole number from 0 (of TMDB: from 1)
    ``bad_rating``            a rating that is not a number
    ``off_scale``             a rating that is not 0.5, 1.0, ..., 5.0 (or 1, 2, ..., 5)
    ``bad_timestamp``         a time that is not whole seconds (or ISO 8601) from 1990 to 2035
    ``missing_title``         a film without a title
    ``missing_tag``           a tag without text
    ``bad_genre_flag``        a genre flag that is neither 0 nor 1
    ``bad_gender``            a gender that is neither F nor M
    ``bad_age``               an age code of no band, or years beyond 1-120
    ``bad_occupation``        an occupation code of no occupation, or no word
    ``unknown_film``          a rating, link or tag of a film that is not in the list
    ``duplicate_key``         a second row of a film, user, link or tag; the first in the file stays
    ========================  ==============================================================
    """

    name: ClassVar[str] = "movielens"
    expected: ClassVar[str] = EXPECTED
    domains: ClassVar[frozenset[str]] = frozenset({"movies"})
    code_version: ClassVar[str] = "movielens-3"
    datasets: ClassVar[tuple[str, ...]] = (
        "raw.movielens_movies",
        "raw.movielens_ratings",
        "raw.movielens_links",
        "raw.movielens_tags",
        "raw.movielens_users",
        "raw.movielens_rejected",
    )
    licence: ClassVar[Licence] = Licence(
        name="GroupLens research terms",
        url="https://grouplens.org/datasets/movielens/",
        terms="For research, with acknowledgement and without implied endorsement; commercial "
        "use needs GroupLens's permission, and each archive's README says whether it may be "
        "passed on.",
        citation="F. M. Harper, J. A. Konstan. The MovieLens Datasets: History and Context. "
        "ACM TiiS 5(4), 2015. doi:10.1145/2827872",
    )

    def files(self, folder: Path) -> list[Path]:
        """Return the archive, or its files."""
        return self._layout(folder).paths()

    def present(self, folder: Path) -> bool:
        """Whether the folder holds MovieLens files, or a folder for them."""
        return has_folder(_place(folder), EXPECTED)

    def links(self, folder: Path) -> bool:
        """Whether the files link films to TMDB; those of ML-1M and ML-100K do not."""
        layout = self._layout(folder)
        return layout.format == "csv" and "links.csv" in layout.originals()

    def _layout(self, folder: Path) -> Layout:
        # The variant is a choice among what a given folder holds; other worlds hold one.
        given = self.settings.world.folder is not None
        return find_layout(folder, self.settings.world.variant if given else "auto")

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Read films, ratings, links, tags and users, in this order."""
        layout = self._layout(folder)
        originals = layout.originals(work.limits)
        yield from read_tables(LAYOUTS[layout.format], originals, work)
