"""TMDB: film records from a dump or from the live API, as raw tables.

A dump is JSON lines (gzip or plain) of ``/movie/{id}?append_to_response=credits,keywords``
answers. Without one, :class:`TmdbClient` asks the API for every film that MovieLens links to
and keeps the answers on disk, so that a stopped fetch goes on where it was.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Literal

import orjson
import polars as pl
from rapidfuzz import fuzz

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.sources import _values as values
from pipelines.sources._folders import described, pick_files
from pipelines.sources._protocol import Source
from pipelines.sources._reader import Batch, Blocks, Column, Kind, json_rows, record_blocks
from pipelines.sources._tables import Check, Frames, RawTable, Workspace, raw_table
from pipelines.sources.movielens import MovielensSource

__all__ = ["CODE_VERSION", "FIELDS", "TmdbSource", "WantedFilms", "published"]


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
        for tmdb_id, imdb_id, *extra in frame.select(columns).iter_rows():
            if tmdb_id is None:
                continue
            numbers = self._imdb.setdefault(tmdb_id, [])
            number = imdb_number(imdb_id)
            if number is not None:
                numbers.append(number)
            if extra and extra[0]:
                self._titles.setdefault(tmdb_id, []).append(extra[0])

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
        listed = self._titles.get(tmdb_id, [])
        return not any(
            _same_film(title, other, release) for title in listed for other in titles if other
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


def _same_film(title: str, other: str, release: str | None) -> bool:
    match, year = _YEAR.search(title), (release or "")[:4]
    dated = match is not None and year.isdecimal()
    if match is not None and dated and abs(int(match[1]) - int(year)) > SAME_YEAR:
        return False
    return any(
        fuzz.ratio(a, b) >= (SAME_TITLE if dated else 100.0)
        # "Rocky II" and "Rocky III" are alike, but two films.
        and _NUMERAL.findall(a) == _NUMERAL.findall(b)
        for a in title_forms(title)
        for b in title_forms(other)
    )


#: Cast members kept, in billing order.
MAX_CAST = 10
#: C0 controls other than tab and line ends, and DEL: they end strings early in C consumers
#: and terminals, and carry nothing.
_CONTROLS = r"[\x00-\x08\x0B\x0C\x0E-\x1F\x7F]"


def _film(value: Any) -> int:
    number = values.whole_number(value)
    if number < 1:
        raise values.UnreadableError
    return number


def _imdb_id(value: Any) -> str:
    """IMDb's id, which copies write as its number."""
    with suppress(values.UnreadableError):
        return f"tt{values.whole_number(value):07d}"
    return values.text(value)


def _held(value: Any, kind: type) -> Any:
    """A list or an object, in any of its spellings; an empty one for none."""
    held = kind() if values.is_missing(value) else values.structure(value)
    if not isinstance(held, kind):
        raise values.UnreadableError
    return held


def _name(entry: Any) -> str | None:
    """The name of an entry, which is an object or the name alone."""
    name = entry if isinstance(entry, str) else _held(entry, dict).get("name")
    return None if name is None or isinstance(name, float) else _only_text(name)


def _only_text(value: Any) -> str:
    if not isinstance(value, str):
        raise values.UnreadableError
    return value


def _names(value: Any) -> list[str]:
    """Names of a list's entries in order, each once."""
    return list(dict.fromkeys(name for entry in _held(value, list) if (name := _name(entry))))


def _keywords(value: Any) -> list[str]:
    """Keywords, which copies list without the object around them."""
    held = [] if values.is_missing(value) else values.structure(value)
    return _names(held.get("keywords") if isinstance(held, dict) else held)


def _order(person: Any) -> int | None:
    """The place in the credits, if there is one."""
    with suppress(values.UnreadableError):
        return values.whole_number(person.get("order")) if isinstance(person, dict) else None
    return None


def _actors(value: Any) -> list[str]:
    cast = _held(_held(value, dict).get("cast"), list)
    orders = [_order(person) for person in cast]
    if None not in orders:
        cast = sorted(cast, key=_order)  # type: ignore[arg-type]
    return _names(cast)[:MAX_CAST]


def _directors(value: Any) -> list[str]:
    """Only a director's entry is looked into: TMDB lists hundreds of others per film."""
    crew = _held(_held(value, dict).get("crew"), list)
    return _names([p for p in crew if _held(p, dict).get("job") == "Director"])


def _field(key: str, kind: Kind = "text", parse: Any = None, name: str = "") -> Column:
    name = name or key
    return Column(key, name, kind, f"bad_{name}", parse=parse)


#: SUBER's features (table 6) plus keywords, collection, genres, poster and IMDb id, of a record of
#: ``/movie/{id}?append_to_response=credits,keywords``. Of several faults the first field's counts.
FIELDS = (
    Column("id", "tmdb_id", "integer", "bad_id", required=True, parse=_film),
    Column("credits", "actors", "texts", "bad_credits", parse=_actors),
    Column("credits", "directors", "texts", "bad_credits", parse=_directors),
    _field("imdb_id", parse=_imdb_id),
    _field("title"),
    _field("original_title"),
    _field("original_language"),
    _field("overview"),
    _field("genres", "texts", _names),
    _field("keywords", "texts", _keywords),
    _field("belongs_to_collection", parse=lambda held: _name(_held(held, dict)), name="collection"),
    _field("release_date"),
    _field("runtime", "integer"),
    _field("popularity", "number"),
    _field("vote_average", "number"),
    _field("vote_count", "integer"),
    _field("budget", "integer"),
    _field("revenue", "integer"),
    _field("poster_path"),
)


def published(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns of ``raw.tmdb_movies``.

    Control characters are removed from every text; texts of nothing but white space become
    null, and such names are left out of lists.
    """
    named = {column.name: column.kind for column in FIELDS}
    return frame.with_columns(
        _cleaned_lists(frame[name]) if kind == "texts" else _cleaned(frame[name])
        for name, kind in named.items()
        if kind in ("text", "texts")
    )


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


#: Raised when the same records would give other rows.
CODE_VERSION = "3"
#: Answers of the API that are read at a time.
_ANSWERS = 1024
#: Name that stands for the API where a file is named.
API_FILE = "api"
_NAMES = ("movies.jsonl.gz", "movies.jsonl")
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
        dumps = pick_files(
            folder / self.folder_name, lambda name: name.lower() in _NAMES, self.expected
        )
        if len(dumps) > 1:
            raise SourceError(
                "two TMDB dumps", where=str(folder / "tmdb"), hint=f"keep one of {_NAMES}"
            )
        return dumps

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
        mode = self.mode(folder)
        films = _Films(wanted, mode)
        batches: Iterator[Batch] = iter(())
        dump = next(iter(self.files(folder)), None)
        file = f"tmdb/{dump.name}" if dump else API_FILE
        if dump:
            blocks = record_blocks(work.original(dump, file), "one JSON object per line with id")
            batches = json_rows(blocks, FIELDS, check=films.check)
        elif mode == "api":
            batches = json_rows(self._answers(films), FIELDS, check=films.check)
        # Ids are unique: the first usable record of each is taken.
        table = raw_table(
            "raw.tmdb_movies", {file: batches}, work, columns=FIELDS, checks=films.checks,
            key=("tmdb_id",), finish=films.finish, filtered=("not_wanted",),
            # ML-1M and ML-100K link to no TMDB film.
            allow_empty=wanted is not None and not len(wanted),
        )  # fmt: skip
        table.stats, table.filtered["not_wanted"] = films.stats, 0
        table.batches = films.useful(table.batches, table, work, dump)
        yield table
        missing = films.missing("not_in_dump" if dump else "not_fetched")
        yield RawTable(
            "raw.tmdb_missing",
            iter([missing] if missing.height else []),
            stats=dict(missing.group_by("reason").len().sort("reason").rows()),
        )

    def _answers(self, films: _Films) -> Blocks:
        """Answers of the API as lines, in the order of the films."""
        from pipelines.sources.tmdb_api import TmdbClient

        if films.wanted is None:
            raise SourceError("no films to ask TMDB for", hint="ingest movielens first")
        if self.settings.tmdb.token:
            report = TmdbClient(self.settings.tmdb, self.cache).fetch(films.wanted)
            films.stats["api_failed"] = len(report.failed)
        first, lines = 1, list[bytes]()
        for film in films.wanted:
            status, record = self.cache.get(film) or ("", None)
            if record is not None:
                lines.append(orjson.dumps(record))
                if status == "another_film":
                    films.others.add(film)
                    films.lines_of_others.add(first + len(lines) - 1)
            elif status:
                films.unknown.add(film)
            if len(lines) == _ANSWERS:
                yield first, lines
                first, lines = first + len(lines), []
        self.cache.close()
        if lines:
            yield first, lines


class _Films:
    """The wanted films while records are read: which are there, and what is counted."""

    def __init__(self, wanted: WantedFilms | None, mode: Mode) -> None:
        self.wanted = wanted
        self.stats: dict[str, Any] = {"mode": mode}
        if mode != "none":
            names = ("overview", "actors", "directors", "keywords", "release_date", "poster")
            self.stats |= {f"with_{name}": 0 for name in names}
        if wanted is not None:
            self.stats["wanted"] = len(wanted)
        #: Films whose record is another's, and lines of answers with another id.
        self.others: set[int] = set()
        self.lines_of_others: set[int] = set()
        #: Films that the API does not know.
        self.unknown: set[int] = set()
        self._met: set[int] = set()
        self._taken: set[int] = set()

    def check(self, line: int, record: Mapping[str, Any]) -> str | None:
        """The reason not to take the record of a line, by its id."""
        if line in self.lines_of_others:
            return "record_of_another_film"
        try:
            film = FIELDS[0].read(record.get("id"))
        except values.UnreadableError:
            return None
        self._met.add(film)
        return None if self.wanted is None or film in self.wanted else "not_wanted"

    def checks(self, frame: pl.DataFrame) -> list[Check]:
        """Checks that a record is the first of its film, and not another film's."""
        names = ("tmdb_id", "imdb_id", "title", "original_title", "release_date")
        first: list[bool] = []
        same: list[bool] = []
        for film, imdb_id, title, original, release in frame.select(names).iter_rows():
            first.append(film not in self._taken)
            differs = self.wanted is not None and self.wanted.contradicts(film, imdb_id)
            another = (
                self.wanted is not None
                and first[-1]
                and self.wanted.is_another(film, imdb_id, [title, original], release)
            )
            same.append(not another)
            if another:
                self.others.add(film)
            elif first[-1]:
                self._taken.add(film)
                if differs:
                    self.stats["imdb_id_differs"] = self.stats.get("imdb_id_differs", 0) + 1
        return [
            Check("duplicate_id", "tmdb_id", pl.Series(first, dtype=pl.Boolean)),
            Check("record_of_another_film", "imdb_id", pl.Series(same, dtype=pl.Boolean)),
        ]

    def finish(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Count what records have; the columns as published."""
        counts = frame.select(
            with_overview=(pl.col("overview") != "").sum(),
            with_actors=(pl.col("actors").list.len() > 0).sum(),
            with_directors=(pl.col("directors").list.len() > 0).sum(),
            with_keywords=(pl.col("keywords").list.len() > 0).sum(),
            with_release_date=(pl.col("release_date") != "").sum(),
            with_poster=(pl.col("poster_path") != "").sum(),
        )
        for name, count in counts.row(0, named=True).items():
            self.stats[name] += count
        return published(frame)

    def missing(self, absent: str) -> pl.DataFrame:
        """Return the frame of ``raw.tmdb_missing``; complete after the records."""
        rows = []
        for film in self.wanted or ():
            if film in self.others:
                reason = "record_of_another_film"
            elif film in self._met:
                reason = "unusable_record"
            else:
                reason = "not_found" if film in self.unknown else absent
            rows += [] if film in self._taken else [(film, reason)]
        return pl.DataFrame(rows, schema={"tmdb_id": pl.Int64, "reason": pl.String}, orient="row")

    def useful(
        self, batches: Frames, table: RawTable, work: Workspace, dump: Path | None
    ) -> Frames:
        """The table's rows; a dump without any that is wanted is an error."""
        yield from batches
        if dump is None or not self.wanted or self._taken:
            return
        name, rejects = str(table.file), work.rejects
        reasons = {**rejects.reasons(name), **table.filtered}
        counts = ", ".join(f"{why} {n:,}" for why, n in reasons.items() if n)
        first = "; ".join(map(str, rejects.first(name)))
        read = f"{table.rows.total()} records"
        raise SourceError(
            f"none of the dump's {read} is usable for a wanted film: {counts}",
            where=str(dump),
            hint=f"first: {first}" if first else "is it a dump of TMDB movie records?",
        )
