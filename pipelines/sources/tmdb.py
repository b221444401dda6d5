"""TMDB: film records from a dump or from the live API, as raw tables.

A dump is JSON lines (gzip or plain) of ``/movie/{id}?append_to_response=credits,keywords``
answers. Without one, :class:`TmdbClient` asks the API for every film that MovieLens links to
and keeps the answers on disk, so that a stopped fetch goes on where it was.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import orjson
import polars as pl
from pydantic import AfterValidator, BaseModel, BeforeValidator, ValidationError
from rapidfuzz import fuzz

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.progress import advance
from pipelines.sources._folders import described, pick_files
from pipelines.sources._protocol import RawTable, Source, Workspace
from pipelines.sources.formats import values
from pipelines.sources.formats.lines import MAX_LINE, numbered_lines
from pipelines.sources.movielens import MovielensSource

__all__ = ["CODE_VERSION", "RecordFaultError", "TmdbSource", "WantedFilms", "flatten", "to_frame"]


#: Least similarity (0-100, normalised indel) of two titles of the same film, if the years fit;
#: without a year to go by, only equal titles count.
SAME_TITLE = 85.0
#: Largest difference of two release years of the same film (festival against general release;
#: censored films were released years later).
SAME_YEAR = 3

_YEAR = re.compile(r"\((\d{4})\)\s*$")
_BRACKETS = re.compile(r"\(([^()]*)\)")
_ARTICLE = re.compile(
    r"^(.*), (the|a|an|la|le|les|l'|il|lo|el|los|las|der|die|das|un|une|en|ett|den|det)$"
)
_NUMERAL = re.compile(r"\d+|\b[ivx]+\b")
_IMDB = re.compile(r"(?:tt)?0*(\d+)")


class WantedFilms:
    """The films to find, by TMDB id, with MovieLens' ids and titles.

    ``frame`` has ``tmdb_id`` (int64; null rows are dropped), ``imdb_id`` (string, null if unknown)
    and, where available, ``title`` (MovieLens title with the year in brackets).

    >>> import polars as pl
    >>> films = WantedFilms(pl.DataFrame(
    ...     {"tmdb_id": [862], "imdb_id": ["0114709"], "title": ["Toy Story (1995)"]}))
    >>> films.is_another(862, "tt0114709", ["Anything"], None)
    False
    >>> films.is_another(862, "tt0113277", ["Heat"], "1995-12-15")
    True
    >>> films.is_another(862, "tt9999999", ["Toy Story"], "1995-10-30")
    False
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        self._imdb: dict[int, list[int]] = {}
        self._titles: dict[int, list[str]] = {}
        titled = "title" in frame.columns
        columns = ["tmdb_id", "imdb_id", *(["title"] if titled else [])]
        for tmdb_id, imdb_id, *rest in frame.select(columns).iter_rows():
            if tmdb_id is None:
                continue
            numbers = self._imdb.setdefault(tmdb_id, [])
            number = imdb_number(imdb_id)
            if number is not None:
                numbers.append(number)
            if rest and rest[0]:
                self._titles.setdefault(tmdb_id, []).append(rest[0])

    def __contains__(self, tmdb_id: object) -> bool:
        return tmdb_id in self._imdb

    def __iter__(self) -> Iterator[int]:
        """TMDB ids, ascending."""
        return iter(sorted(self._imdb))

    def __len__(self) -> int:
        return len(self._imdb)

    def contradicts(self, tmdb_id: int, imdb_id: str | None) -> bool:
        """Whether the record's IMDb id differs from that of every film linked to the TMDB id.

        An unknown id on either side contradicts nothing.
        """
        number = imdb_number(imdb_id)
        linked = self._imdb.get(tmdb_id)
        return bool(linked) and number is not None and number not in (linked or ())

    def is_another(
        self, tmdb_id: int, imdb_id: str | None, titles: list[str | None], release: str | None
    ) -> bool:
        """Whether a record filed under ``tmdb_id`` is about some other film.

        IMDb and TMDB merge and renumber entries, so an IMDb id that differs from MovieLens'
        is no proof: the record is refused only if, besides, no title of it resembles a
        MovieLens title of the film, or the release years are more than ``SAME_YEAR`` apart (a
        remake). If no MovieLens title is known, the IMDb id decides alone.

        Measured on ml-latest-small: of 194,660 records put under a random film's id, 2 pass
        (namesakes without a date); had every IMDb id been renumbered, no film of 9,733 would
        have lost its record.
        """
        if not self.contradicts(tmdb_id, imdb_id):
            return False
        known = self._titles.get(tmdb_id, [])
        return not any(
            _same_film(title, other, release) for title in known for other in titles if other
        )


def imdb_number(value: str | None) -> int | None:
    """Return the number in an IMDb id, with or without ``tt`` and leading zeros; else ``None``.

    >>> imdb_number("tt0114709"), imdb_number("114709"), imdb_number("nm0000001")
    (114709, 114709, None)
    """
    match = _IMDB.fullmatch((value or "").strip())
    return int(match[1]) if match else None


@lru_cache(maxsize=1024)
def title_forms(title: str) -> tuple[str, ...]:
    """Return comparable forms of a title: without year, accents and punctuation; article first.

    Names in brackets (``a.k.a.`` and originals) are forms of their own.

    >>> title_forms("City of Lost Children, The (Cité des enfants perdus, La) (1995)")
    ('the city of lost children', 'la cite des enfants perdus')
    """
    title = _YEAR.sub("", title)
    inner = [re.sub(r"^a\.?k\.?a\.? ", "", part.strip()) for part in _BRACKETS.findall(title)]
    forms = (_plain(part) for part in (_BRACKETS.sub(" ", title), *inner))
    return tuple(dict.fromkeys(form for form in forms if form))


def _plain(text: str) -> str:
    text = unicodedata.normalize("NFKD", text).casefold().strip()
    text = "".join(c for c in text if not unicodedata.combining(c))
    match = _ARTICLE.match(text)
    if match:
        text = f"{match[2]} {match[1]}"
    return " ".join(re.sub(r"[\W_]+", " ", text.replace("&", " and ")).split())


def _same_film(known: str, other: str, release: str | None) -> bool:
    match, year = _YEAR.search(known), (release or "")[:4]
    dated = match is not None and year.isdecimal()
    if match is not None and dated and abs(int(match[1]) - int(year)) > SAME_YEAR:
        return False
    return any(
        fuzz.ratio(a, b) >= (SAME_TITLE if dated else 100.0)
        # "Rocky II" and "Rocky III" are alike, but two films.
        and _NUMERAL.findall(a) == _NUMERAL.findall(b)
        for a in title_forms(known)
        for b in title_forms(other)
    )


#: Cast members kept, in billing order.
MAX_CAST = 10
_INT64_MAX = 2**63 - 1


def _read(read: Callable[[Any], Any]) -> BeforeValidator:
    """Read a value in any of its known spellings (:mod:`values`); none is None."""
    return BeforeValidator(lambda value: None if values.is_missing(value) else read(value))


def _title(value: Any) -> Any:
    return values.text(value) if type(value) is int else value


def _imdb_id(value: Any) -> Any:
    """IMDb's id, which copies write as its number."""
    with suppress(values.UnreadableError):
        return f"tt{values.whole_number(value):07d}"
    return value


def _order(value: Any) -> int | None:
    """The place in the credits, if there is one."""
    with suppress(values.UnreadableError):
        return values.whole_number(value)
    return None


def _directors(crew: Any) -> Any:
    """Only a director's entry is looked into: TMDB lists hundreds of others per film."""
    crew = values.structure(crew)
    if type(crew) is not list:
        return crew
    return [p for p in crew if type(p) is not dict or p.get("job") == "Director"]


def _named(value: Any) -> Any:
    """An entry of a list of names: an object, or the name alone."""
    return {"name": value} if isinstance(value, str) else value


def _listed(value: Any) -> Any:
    """Keywords, which copies list without the object around them."""
    value = values.structure(value)
    return {"keywords": value} if isinstance(value, list) else value


_Text = Annotated[
    str | None,
    BeforeValidator(lambda text: None if type(text) is float and text != text else text),
    AfterValidator(lambda text: text or None),
]
_Title = Annotated[_Text, BeforeValidator(_title)]
_Whole = Annotated[int | None, _read(values.whole_number)]
_Real = Annotated[float | None, _read(values.number)]


class _Named(BaseModel, strict=True):
    name: _Text = None
    order: Annotated[int | None, BeforeValidator(_order)] = None


_Names = Annotated[list[Annotated[_Named, BeforeValidator(_named)]] | None, _read(values.structure)]


class _Keywords(BaseModel, strict=True):
    keywords: _Names = None


class _Credits(BaseModel, strict=True):
    cast: _Names = None
    crew: Annotated[list[_Named] | None, _read(_directors)] = None


class _Record(BaseModel, strict=True):
    """Fields read from a record; of several faults the first field's counts."""

    credits: Annotated[_Credits | None, _read(values.structure)] = None
    imdb_id: Annotated[_Text, BeforeValidator(_imdb_id)] = None
    title: _Title = None
    original_title: _Title = None
    original_language: _Text = None
    overview: _Text = None
    genres: _Names = None
    keywords: Annotated[_Keywords | None, _read(_listed)] = None
    belongs_to_collection: Annotated[_Named | None, _read(values.structure)] = None
    release_date: _Text = None
    runtime: _Whole = None
    popularity: _Real = None
    vote_average: _Real = None
    vote_count: _Whole = None
    budget: _Whole = None
    revenue: _Whole = None
    poster_path: _Text = None


#: A flattened record: values in the order of the columns of ``raw.tmdb_movies``.
FilmRow = tuple[Any, ...]

#: C0 controls other than tab and line ends, and DEL: they end strings early in C consumers
#: and terminals, and carry nothing.
_CONTROLS = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F]"


class RecordFaultError(ValueError):
    """A record that can't be taken; ``reason`` is the code in the list of rejections.

    ``field`` and ``value`` are those at fault, if it is one field's.
    """

    def __init__(self, reason: str, field: str | None = None, value: object = None) -> None:
        self.reason = reason
        self.field = field
        self.value = values.shown(value)
        super().__init__(reason)


def record_id(record: object) -> int:
    """Return the record's TMDB id.

    Raises :class:`RecordFaultError`: ``not_an_object``, ``missing_id`` or ``bad_id``.
    """
    if not isinstance(record, dict):
        raise RecordFaultError("not_an_object")
    value = record.get("id")
    if values.is_missing(value):
        raise RecordFaultError("missing_id", "id", value)
    with suppress(values.UnreadableError):
        number = values.whole_number(value)
        if number >= 1:
            return number
    raise RecordFaultError("bad_id", "id", value)


def flatten(record: object) -> FilmRow:
    """Return SUBER's features (table 6) plus keywords, collection, genres, poster and IMDb id.

    Absent keys, nulls and empty strings become null (lists: empty). Numbers may be texts, and lists
    and objects JSON text or Python literals (:mod:`values`); a value that can't be read is a fault,
    because the rest of such a record can't be trusted either. The record is a parsed
    answer of ``/movie/{id}?append_to_response=credits,keywords``, the row in the column order of
    ``raw.tmdb_movies``.

    Raises :class:`RecordFaultError`: ``not_an_object``, ``missing_id``, or ``bad_<field>``.

    >>> row = flatten({"id": 7, "title": "A Film", "runtime": 0, "genres": [{"name": "Drama"}]})
    >>> row[0], row[2], row[6], row[12]
    (7, 'A Film', ['Drama'], 0)
    """
    tmdb_id = record_id(record)
    try:
        found = _Record.model_validate(record)
    except ValidationError as error:
        field = str(error.errors(include_input=False)[0]["loc"][0])
        value = record.get(field) if isinstance(record, dict) else None
        raise RecordFaultError(f"bad_{field.removeprefix('belongs_to_')}", field, value) from None
    credit, series = found.credits or _Credits(), found.belongs_to_collection
    cast = credit.cast or []
    if all(person.order is not None for person in cast):
        cast = sorted(cast, key=lambda person: person.order or 0)
    return (
        tmdb_id,
        found.imdb_id,
        found.title,
        found.original_title,
        found.original_language,
        found.overview,
        _names(found.genres),
        _names(found.keywords.keywords if found.keywords else None),
        _names(cast)[:MAX_CAST],
        _names(credit.crew),
        series and series.name,
        found.release_date,
        found.runtime,
        found.popularity,
        found.vote_average,
        found.vote_count,
        found.budget,
        found.revenue,
        found.poster_path,
    )


def to_frame(rows: Sequence[FilmRow]) -> pl.DataFrame:
    """Rows of :func:`flatten` as a frame with the schema of ``raw.tmdb_movies``.

    Control characters are removed from every text; texts of nothing but white space become
    null, and such names are left out of lists.
    """
    from pipelines.contracts import RAW

    schema = RAW["raw.tmdb_movies"].polars_schema()
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else ([] for _ in schema)
    series = []
    for (name, dtype), column in zip(schema.items(), columns, strict=True):
        if dtype == pl.List(pl.String):
            series.append(_cleaned_lists(_nested(column)).alias(name))
        else:
            one = pl.Series(name, list(column), dtype=dtype, strict=True)
            series.append(_cleaned(one) if dtype == pl.String else one)
    return pl.DataFrame(series)


def _nested(lists: Sequence[list[str]]) -> pl.Series:
    """Build a series of lists through Arrow, in a tenth of the time of the direct way."""
    import pyarrow

    offsets = pyarrow.array([0, *accumulate(map(len, lists))], pyarrow.int64())
    flat = pyarrow.array(list(chain.from_iterable(lists)), pyarrow.large_string())
    series = pl.from_arrow(pyarrow.LargeListArray.from_arrays(offsets, flat))
    assert isinstance(series, pl.Series)
    return series


def _cleaned(texts: pl.Series) -> pl.Series:
    """Remove control characters; null where nothing is left but white space."""
    # Hardly any batch has one, and looking is much cheaper than replacing.
    if texts.str.contains(_CONTROLS).any():
        texts = texts.str.replace_all(_CONTROLS, "")
    blank = texts.str.strip_chars() == ""
    return texts.set(blank, None) if blank.any() else texts


def _cleaned_lists(lists: pl.Series) -> pl.Series:
    """Clean the names; leave out those of nothing but white space."""
    flat = lists.explode(empty_as_null=False, keep_nulls=False)
    if flat.equals(_cleaned(flat), null_equal=True):
        return lists
    element = pl.element().map_batches(_cleaned, return_dtype=pl.String)
    return lists.list.eval(element.drop_nulls())


def _names(items: Sequence[_Named] | None) -> list[str]:
    """Names in order, each once."""
    return list(dict.fromkeys(item.name for item in items or () if item.name))


#: Raised when the same records would give other rows.
CODE_VERSION = "2"
#: Records that are held as Python objects at a time.
BATCH_ROWS = 4096
#: Name that stands for the API where a file is named.
API_FILE = "api"
_NAMES = ("movies.jsonl.gz", "movies.jsonl")
#: Positions in a flattened row; see the contract ``raw.tmdb_movies``.
_IMDB_ID, _TITLE, _ORIGINAL, _RELEASE = 1, 2, 3, 11

Mode = Literal["dump", "api", "none"]


class TmdbSource(Source):
    """Film records of The Movie Database for the films that MovieLens links to.

    A data folder's ``tmdb/movies.jsonl[.gz]`` is read if it is there. If not, the API is asked
    (given a token) and what earlier runs cached is used. Without either, every film is
    missing (``not_fetched``); films stay in the catalogue all the same, with nulls.

    >>> from pathlib import Path
    >>> TmdbSource(Settings()).files(Path("a folder without a dump"))
    []
    """

    name: ClassVar[str] = "tmdb"
    expected: ClassVar[str] = " or ".join(_NAMES)
    domains: ClassVar[frozenset[str]] = frozenset({"movies"})
    licence: ClassVar[Licence] = Licence(
        name="TMDB API terms of use",
        url="https://www.themoviedb.org/api-terms-of-use",
        terms=(
            "Non-commercial use with attribution; content may be kept for at most six months. "
            "This product uses the TMDB API but is not endorsed or certified by TMDB."
        ),
        citation="The Movie Database (TMDB), https://www.themoviedb.org",
    )
    datasets: ClassVar[tuple[str, ...]] = (
        "raw.tmdb_movies",
        "raw.tmdb_missing",
        "raw.tmdb_rejected",
    )
    needs: ClassVar[tuple[str, ...]] = ("raw.movielens_links", "raw.movielens_movies")
    code_version: ClassVar[str] = CODE_VERSION

    def __init__(self, settings: Settings) -> None:
        from pipelines.sources.tmdb_api import TmdbCache  # it loads httpx: the terms need none

        super().__init__(settings)
        self.cache = TmdbCache(settings.runtime.folder / "cache" / "tmdb.sqlite")

    def feeds(self, folder: Path) -> frozenset[str]:  # noqa: ARG002 - records alone are no domain
        """None: it adds to the films of another source."""
        return frozenset()

    def present(self, folder: Path) -> bool:  # noqa: ARG002 - absent records are rows too
        """Say yes: without a dump and a token, every film is listed as missing."""
        return True

    def files(self, folder: Path) -> list[Path]:
        """Return the dump, or nothing.

        Raises :class:`SourceError` if there are a packed and a plain dump: they might differ.
        """
        found = pick_files(
            folder / self.folder_name, lambda name: name.lower() in _NAMES, self.expected
        )
        if len(found) > 1:
            raise SourceError(
                "two TMDB dumps", where=str(folder / "tmdb"), hint=f"keep one of {_NAMES}"
            )
        return found

    def lacks(self, folder: Path) -> SourceError | None:
        """Error that says which features of films are null, where links lead to no records."""
        films = MovielensSource(self.settings)
        if self.mode(folder) != "none" or not films.present(folder) or not films.links(folder):
            return None
        place = folder / self.folder_name
        return SourceError(
            "no TMDB records: plots, casts, directors and other features of films are null"
            + described(place),
            where=str(place),
            hint=f"expected {self.expected}, or a token in UNDERSTUDY_TMDB__TOKEN; "
            "see docs/data.md",
        )

    def mode(self, folder: Path) -> Mode:
        """Source of records: ``dump``, ``api`` (with its cache), or ``none``."""
        if self.files(folder):
            return "dump"
        return "api" if self.settings.tmdb.token or self.cache else "none"

    def identity(self, folder: Path) -> Mapping[str, Any]:
        """Return the mode; nothing of the client's settings changes what is read."""
        return {"mode": self.mode(folder)}

    def reusable(self, folder: Path) -> bool:
        """Not if the API is asked: its records change."""
        return self.mode(folder) != "api"

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """``raw.tmdb_movies``, then ``raw.tmdb_missing``.

        ``work.wanted_tmdb`` may have a column ``title`` (the MovieLens title), which lets a
        record with a renumbered IMDb id be distinguished from a record of another film. Without the
        frame every record of a dump is taken.

        Raises :class:`SourceError` if the dump is broken, empty, or of none of the wanted films;
        for what the client raises see :meth:`TmdbClient.fetch`.
        """
        wanted = None if work.wanted_tmdb is None else WantedFilms(work.wanted_tmdb)
        reading = _Reading(self, folder, work, wanted)
        yield RawTable(
            "raw.tmdb_movies",
            reading.movies(),
            reading.file,
            rows_read=lambda: reading.rows_read,
            filtered=lambda: {"not_wanted": reading.not_wanted},
            stats=reading.stats,
            # ML-1M and ML-100K link to no TMDB film.
            allow_empty=wanted is not None and not len(wanted),
        )
        missing = reading.missing()
        yield RawTable(
            "raw.tmdb_missing",
            iter([missing] if missing.height else []),
            None,
            rows_read=lambda: missing.height,
            stats=lambda: dict(missing.group_by("reason").len().sort("reason").rows()),
        )


class _Reading:
    """A pass over the records, and its counts."""

    def __init__(
        self, source: TmdbSource, folder: Path, work: Workspace, wanted: WantedFilms | None
    ) -> None:
        self._source = source
        self._work = work
        self._wanted = wanted
        self._mode = source.mode(folder)
        self._dump = source.files(folder)[0] if self._mode == "dump" else None
        self.file = f"tmdb/{self._dump.name}" if self._dump else API_FILE
        self.rows_read = 0
        self.not_wanted = 0
        self._taken: set[int] = set()
        self._faulty: dict[int, str] = {}
        self._reasons: dict[int, str] = {}  # of films that the API gave no record for
        self._counts: Counter[str] = Counter()
        self._fetch: dict[str, Any] = {}

    def movies(self) -> Iterator[pl.DataFrame]:
        """Frames of ``raw.tmdb_movies``, by ``tmdb_id``."""
        if self._dump is not None:
            yield from self._sorted(self._frames(self._from_dump(self._dump)))
            self._refuse_useless(self._dump)
        elif self._mode == "api":
            yield from self._frames(self._from_api())  # asked for in order

    def missing(self) -> pl.DataFrame:
        """Return the frame of ``raw.tmdb_missing``; complete after :meth:`movies`."""
        absent = "not_in_dump" if self._mode == "dump" else "not_fetched"
        rows = [
            (film, self._faulty.get(film) or self._reasons.get(film, absent))
            for film in self._wanted or ()
            if film not in self._taken
        ]
        return pl.DataFrame(rows, schema={"tmdb_id": pl.Int64, "reason": pl.String}, orient="row")

    def stats(self) -> dict[str, Any]:
        """Return the counts for the manifest."""
        wanted = {} if self._wanted is None else {"wanted": len(self._wanted)}
        return {"mode": self._mode, **wanted, **dict(sorted(self._counts.items())), **self._fetch}

    def _from_dump(self, path: Path) -> Iterator[FilmRow]:
        for line, text in numbered_lines(self._work.original(path, self.file)):
            if not text.strip():
                continue
            self.rows_read += 1
            if self.rows_read == 1 and text.lstrip().startswith(b"["):
                raise SourceError(
                    "the dump is one JSON array; expected one record per line",
                    where=str(path),
                    hint="convert it, for instance with `jq -c '.[]'`",
                )
            if self.rows_read % BATCH_ROWS == 0:
                advance("tmdb", self.rows_read, None)
            if len(text) > MAX_LINE:
                self._reject(line, "too_long", text)
                continue
            try:
                record = values.loads(text)
            except ValueError:
                self._reject(line, "not_json", text)
                continue
            row = self._take(record, line, text)
            if row is not None:
                yield row
        advance("tmdb", self.rows_read, self.rows_read)

    def _from_api(self) -> Iterator[FilmRow]:
        from pipelines.sources.tmdb_api import TmdbClient

        if self._wanted is None:
            raise SourceError("no films to ask TMDB for", hint="ingest movielens first")
        settings = self._source.settings.tmdb
        cache = self._source.cache
        if settings.token:
            report = TmdbClient(settings, cache).fetch(self._wanted)
            self._fetch = {"api_failed": len(report.failed)}
        for position, film in enumerate(self._wanted, start=1):
            status, record = cache.get(film) or ("", None)
            if status == "not_found":
                self._reasons[film] = status
            if record is None:
                continue
            self.rows_read += 1
            text = orjson.dumps(record)
            if status == "another_film":
                self._faulty[film] = "record_of_another_film"
                self._reject(position, "record_of_another_film", text)
                continue
            row = self._take(record, position, text)
            if row is not None:
                yield row
        cache.close()

    def _take(self, record: object, line: int, text: bytes) -> FilmRow | None:
        """Return the flattened record if it is wanted, new and usable; else account for it."""
        film: int | None = None
        try:
            film = record_id(record)
            if self._wanted is not None and film not in self._wanted:
                self.not_wanted += 1
                return None
            if film in self._taken:
                raise RecordFaultError("duplicate_id", "id", film)
            row = flatten(record)
            if self._of_another_film(film, row):
                raise RecordFaultError("record_of_another_film", "imdb_id", row[_IMDB_ID])
        except RecordFaultError as fault:
            self._reject(line, fault.reason, text, fault.field, fault.value)
            if film is not None:
                another = fault.reason == "record_of_another_film"
                self._faulty[film] = fault.reason if another else "unusable_record"
            return None
        self._taken.add(film)
        return row

    def _of_another_film(self, film: int, row: FilmRow) -> bool:
        if self._wanted is None or not self._wanted.contradicts(film, row[_IMDB_ID]):
            return False
        titles = [row[_TITLE], row[_ORIGINAL]]
        if self._wanted.is_another(film, row[_IMDB_ID], titles, row[_RELEASE]):
            return True
        self._counts["imdb_id_differs"] += 1
        return False

    def _reject(
        self,
        line: int,
        reason: str,
        text: bytes,
        field: str | None = None,
        value: str | None = None,
    ) -> None:
        shown = text.decode("utf-8", errors="replace").replace("\x00", "").strip()
        value = value and value.replace("\x00", "")
        self._work.reject(self.file, line, reason, shown, field, value)

    def _frames(self, rows: Iterator[FilmRow]) -> Iterator[pl.DataFrame]:
        held: list[FilmRow] = []
        for row in rows:
            held.append(row)
            if len(held) >= BATCH_ROWS:
                yield self._counted(to_frame(held))
                held = []
        if held:
            yield self._counted(to_frame(held))

    def _counted(self, frame: pl.DataFrame) -> pl.DataFrame:
        counts = frame.select(
            with_overview=pl.col("overview").is_not_null().sum(),
            with_actors=(pl.col("actors").list.len() > 0).sum(),
            with_directors=(pl.col("directors").list.len() > 0).sum(),
            with_keywords=(pl.col("keywords").list.len() > 0).sum(),
            with_release_date=pl.col("release_date").is_not_null().sum(),
            with_poster=pl.col("poster_path").is_not_null().sum(),
        )
        self._counts.update({k: int(v) for k, v in counts.row(0, named=True).items()})
        return frame

    def _sorted(self, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """Yield the rows by ``tmdb_id``, through the scratch folder: a dump has no order."""
        # Ids are unique already: the first usable record of each was taken.
        rows = self._work.ordered("tmdb", ("tmdb_id",), ())
        for frame in frames:
            rows.append(frame)
        yield from rows.batches()

    def _refuse_useless(self, path: Path) -> None:
        if self.rows_read == 0:
            raise SourceError("the dump holds no records", where=str(path))
        if self._wanted is not None and len(self._wanted) and not self._taken:
            rejects = self._work.rejects
            reasons = {**rejects.reasons(self.file), "not_wanted": self.not_wanted}
            counts = ", ".join(f"{why} {n:,}" for why, n in reasons.items() if n)
            first = "; ".join(map(str, rejects.first(self.file)))
            records = f"{self.rows_read} records"
            raise SourceError(
                f"none of the dump's {records} is usable for a wanted film: {counts}",
                where=str(path),
                hint=f"first: {first}" if first else "is it a dump of TMDB movie records?",
            )
