"""Steam (Kang and McAuley): games, reviews and time played."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.sources._folders import check_file, given_files, pick_files, relative_name
from pipelines.sources._protocol import (
    RawTable,
    Source,
    Workspace,
    in_batches,
)
from pipelines.sources._rejects import Fault, first_fault
from pipelines.sources.formats.json_lines import JsonBatch, JsonField, JsonLinesReader
from pipelines.sources.formats.lines import ahead
from pipelines.sources.formats.literals import as_json

if TYPE_CHECKING:
    import polars as pl

__all__ = ["SteamSource", "as_json"]


Kind = Literal["games", "reviews", "items"]

_FOLDER = "steam"
#: The published names; `.gz` may be missing.
_NAMES: Mapping[Kind, str] = {
    "games": "steam_games.json",
    "reviews": "australian_user_reviews.json",
    "items": "australian_users_items.json",
}
EXPECTED = " or ".join(f"{name}.gz" for name in _NAMES.values())
#: Play time refines what a review says; the others are the domain.
REQUIRED: tuple[Kind, ...] = ("games", "reviews")


@dataclass(frozen=True, slots=True)
class SteamFile:
    """A file: its path, and its name relative to the data folder."""

    path: Path
    name: str


def find_files(folder: Path, settings: Settings) -> dict[Kind, SteamFile]:
    """The Steam files that there are, in the order games, reviews, items.

    That is ``steam/steam_games.json[.gz]`` and so on in the data folder, or what ``data.steam``
    names.

    Raises :class:`SourceError` if there is a packed and a plain file of one kind, if a required one
    is missing beside the other, or if the folder can't be read.
    """
    data = settings.data.steam
    found: dict[Kind, SteamFile] = {}
    for kind, name in _NAMES.items():
        given = getattr(data, kind)
        paths = (
            [check_file(p, name) for p in given_files([given], settings)]
            if given
            else _lying(folder / _FOLDER, name)
        )
        if len(paths) > 1:
            raise SourceError(
                "a packed and a plain file of the same name",
                where=str(paths[0]),
                hint="keep one of them",
            )
        for path in paths:
            found[kind] = SteamFile(path, relative_name(path, folder))
    missing = [kind for kind in REQUIRED if kind not in found]
    if found and missing:
        raise SourceError(
            f"the Steam {missing[0]} are missing",
            where=str(folder / _FOLDER),
            hint=f"expected {_NAMES[missing[0]]}.gz there, or its place in data.steam."
            f"{missing[0]}; found {', '.join(f.name for f in found.values())}",
        )
    return found


def _lying(folder: Path, name: str) -> list[Path]:
    def is_name(found: str) -> bool:
        return re.sub(r"[ -]", "_", found.lower()).removesuffix(".gz") == name

    return pick_files(folder, is_name, f"{name}.gz")


#: Fields whose values are numbers in most records and texts in some.
_MIXED = ("game_id", "price", "discount_price", "metascore")
_LISTS = ("genres", "tags", "specs")
_FIELDS = (
    JsonField("id", "game_id", "json"),
    JsonField("app_name", "app_name"),
    JsonField("title", "title"),
    JsonField("url", "url"),
    JsonField("publisher", "publisher"),
    JsonField("developer", "developer"),
    JsonField("genres", "genres", "texts"),
    JsonField("tags", "tags", "texts"),
    JsonField("specs", "specs", "texts"),
    JsonField("release_date", "release_date"),
    JsonField("price", "price", "json"),
    JsonField("discount_price", "discount_price", "json"),
    JsonField("early_access", "early_access", "boolean"),
    JsonField("sentiment", "sentiment"),
    JsonField("metascore", "metascore", "json"),
)
_ID = "^(?:0|[1-9][0-9]{0,17})$"
#: Spelling of a whole number: of pandas (10.0), and of texts in JSON ("10").
_WHOLE = r'^\s*"?\s*([0-9]+)(?:\.0*)?\s*"?\s*$'


#: A line holds all of a user's games (bytes): of the longest published list about 1 MiB.
_MAX_LITERAL = 16 << 20


def _literal_reader(
    file: SteamFile, fields: Sequence[JsonField], work: Workspace
) -> JsonLinesReader:
    return JsonLinesReader(
        work.original(file.path, file.name),
        fields,
        work.reject_frame,
        threads=work.settings.runtime.threads,
        max_line=_MAX_LITERAL,
        literal=True,
    )


def games_table(file: SteamFile, work: Workspace) -> RawTable:
    """``raw.steam_games``, by number."""
    reader = _literal_reader(file, _FIELDS, work)
    reading = _Games(reader, work)
    return RawTable(
        dataset="raw.steam_games",
        batches=ahead(reading.batches()),
        file=file.name,
        rows_read=lambda: reader.rows_read,
        filtered=reading.filtered,
    )


class _Games:
    def __init__(self, reader: JsonLinesReader, work: Workspace) -> None:
        self._reader = reader
        self._work = work
        self._empty = 0

    def filtered(self) -> Mapping[str, int]:
        return {"empty_record": self._empty} if self._empty else {}

    def batches(self) -> Iterator[pl.DataFrame]:
        import polars as pl

        rows = self._work.ordered("steam_games", ("game_id",))
        for batch in self._reader:
            frame = batch.frame.with_columns(_unquoted(name) for name in _MIXED)
            frame = frame.with_columns(_whole("game_id"), _whole("metascore"))
            empty = frame.select(empty=_nothing())["empty"]
            self._empty += int(empty.sum())
            known = frame["game_id"].str.contains(_ID).fill_null(value=False)
            bad = ~(empty | known)
            self._reader.reject(
                batch,
                frame.filter(bad).select(
                    "line", reason=pl.lit("bad_id"), field=pl.lit("id"), value="game_id"
                ),
            )
            rows.append(frame.filter(known).with_columns(pl.col("game_id").cast(pl.Int64)))
        names = [f.name for f in _FIELDS]
        for frame in rows.batches():
            yield frame.select(names)
        if rows.doubled:
            numbers = pl.concat(rows.doubled).sort().to_numpy()
            for line, text in self._reader.lines(numbers):
                self._work.reject(self._reader.original.name, line, "duplicate_key", text)


def _whole(name: str) -> pl.Expr:
    """The digits of a whole number, however it is spelled; other texts as they are."""
    import polars as pl

    return pl.coalesce(pl.col(name).str.extract(_WHOLE), pl.col(name)).alias(name)


def _unquoted(name: str) -> pl.Expr:
    """The text of a value that is a JSON text or a JSON number."""
    import polars as pl

    value = pl.col(name)
    text = pl.when(value.str.starts_with('"')).then(value)
    return pl.coalesce(text.otherwise(None).str.json_decode(pl.String), value).alias(name)


def _nothing() -> pl.Expr:
    """Whether the record is without any value."""
    import polars as pl

    lists = [pl.col(name).list.len() == 0 for name in _LISTS]
    others = [pl.col(f.name).is_null() for f in _FIELDS if f.name not in _LISTS]
    return pl.all_horizontal(*lists, *others)


_USER = "^[^\\s/]{1,128}$"
_MINUTES = "^[0-9]{1,15}$"
#: Rows handed on at a time (count).
_BATCH = 131_072


@dataclass(frozen=True, slots=True)
class _List:
    """A list of a user's record."""

    #: The list's key in the user's record.
    key: str
    #: Keys of an entry, with DuckDB's types, and the columns they become. ``JSON`` keeps a value's
    #: spelling, so that ``"yes"`` is not taken for true, nor ``1.5`` for 2.
    fields: Mapping[str, tuple[str, str]]
    #: Columns of whole numbers.
    whole: tuple[str, ...]
    #: Faults of an entry.
    faults: Callable[[], Sequence[Fault]]
    #: Columns with another type than text.
    typed: Callable[[], list[pl.Expr]]

    def columns(self) -> list[pl.Expr]:
        """The columns as text; a JSON null is null."""
        import polars as pl

        return [
            (
                pl.when(pl.col(key) != "null").then(pl.col(key)) if kind == "JSON" else pl.col(key)
            ).alias(name)
            for key, (kind, name) in self.fields.items()
        ]

    @property
    def headers(self) -> Mapping[str, str]:
        """Keys of the columns in an entry."""
        return {name: key for key, (_, name) in self.fields.items()}


def _unless(reason: str, column: str, sound: pl.Expr) -> Fault:
    """The fault of an entry that is not sound; an absent value is not."""
    return Fault(reason, column, ~sound.fill_null(value=False))


#: Spellings of JSON's two truth values, in Python, in texts and as numbers.
_TRUTH = {
    spelling: shown
    for shown, spellings in {"true": ("true", "1", "1.0"), "false": ("false", "0", "0.0")}.items()
    for word in spellings
    for spelling in (word, f'"{word}"')
}
#: Years of reviews: the bounds of the checks `rated_from` and `rated_to`.
_YEARS = (1990, 2035)


def _review_faults() -> Sequence[Fault]:
    import polars as pl

    year = pl.col("posted").str.extract(r"\b(\d{4})\b").cast(pl.Int64)
    possible = year.is_between(*_YEARS)
    return [
        _unless("bad_id", "game_id", pl.col("game_id").str.contains(_ID)),
        _unless("bad_recommend", "recommend", pl.col("recommend").is_in(["true", "false"])),
        Fault("bad_timestamp", "posted", ~possible),
    ]


def _review_types() -> list[pl.Expr]:
    import polars as pl

    return [pl.col("game_id").cast(pl.Int64), pl.col("recommend") == "true"]


def _playtime_faults() -> Sequence[Fault]:
    import polars as pl

    recent = pl.col("playtime_2weeks").fill_null("0")
    forever = pl.col("playtime_forever").str.contains(_MINUTES)
    return [
        _unless("bad_id", "game_id", pl.col("game_id").str.contains(_ID)),
        _unless("bad_playtime", "playtime_forever", forever),
        _unless("bad_playtime", "playtime_2weeks", recent.str.contains(_MINUTES)),
    ]


def _playtime_types() -> list[pl.Expr]:
    import polars as pl

    return [pl.col("game_id", "playtime_forever", "playtime_2weeks").cast(pl.Int64)]


_REVIEWS = _List(
    "reviews",
    {
        "item_id": ("VARCHAR", "game_id"),
        "recommend": ("JSON", "recommend"),
        "posted": ("VARCHAR", "posted"),
        "last_edited": ("VARCHAR", "last_edited"),
        "funny": ("VARCHAR", "funny"),
        "helpful": ("VARCHAR", "helpful"),
        "review": ("VARCHAR", "review"),
    },
    ("game_id",),
    _review_faults,
    _review_types,
)
_PLAYTIME = _List(
    "items",
    {
        "item_id": ("VARCHAR", "game_id"),
        "playtime_forever": ("JSON", "playtime_forever"),
        "playtime_2weeks": ("JSON", "playtime_2weeks"),
    },
    ("game_id", "playtime_forever", "playtime_2weeks"),
    _playtime_faults,
    _playtime_types,
)


def entries_table(
    dataset: str, entries: _List, file: SteamFile | None, work: Workspace, *, allow_empty: bool
) -> RawTable:
    """A table of the entries of users' lists, by place; no rows if there is no file."""
    if file is None:
        return RawTable(dataset, iter(()), None, rows_read=lambda: 0)
    reading = _Entries(entries, file, work)
    return RawTable(
        dataset=dataset,
        batches=ahead(reading.batches()),
        file=file.name,
        rows_read=lambda: reading.entries + reading.reader.rejected,
        stats=lambda: {"users": reading.reader.rows_read - reading.reader.rejected},
        allow_empty=allow_empty,
    )


class _Entries:
    """The entries of all users' lists."""

    def __init__(self, entries: _List, file: SteamFile, work: Workspace) -> None:
        types = {key: kind for key, (kind, _) in entries.fields.items()}
        fields = (
            JsonField("user_id", "user_id", "id", "bad_id", required=True),
            JsonField(entries.key, "entries", "records", required=True, entry=types),
        )
        self.reader = _literal_reader(file, fields, work)
        self.entries = 0
        self._list = entries
        self._work = work

    def batches(self) -> Iterator[pl.DataFrame]:
        """Frames with the contract's columns."""
        yield from in_batches(map(self._taken, self.reader), _BATCH)

    def _taken(self, batch: JsonBatch) -> pl.DataFrame:
        """The sound entries of some users."""
        import polars as pl

        users = batch.frame
        known = users["user_id"].str.contains(_USER)
        self.reader.reject(
            batch,
            users.filter(~known).select(
                "line", reason=pl.lit("bad_id"), field=pl.lit("user_id"), value="user_id"
            ),
        )
        count = pl.col("entries").list.len()
        found = (
            users.filter(known & (users["entries"].list.len() > 0))
            .with_columns(position=pl.int_ranges(1, count + 1))
            .explode("entries", "position")
            .unnest("entries")
            .select("line", "position", "user_id", *self._list.columns())
            .with_columns(_whole(name) for name in self._list.whole)
        )
        if "recommend" in found:
            truth = pl.col("recommend").str.to_lowercase().replace(_TRUTH)
            found = found.with_columns(recommend=truth)
        self.entries += found.height
        fault = found.select(fault=first_fault(*self._list.faults())).unnest("fault")
        faulty = fault["reason"].is_not_null()
        if faulty.any():
            self._reject(pl.concat([found, fault], how="horizontal").filter(faulty))
            found = found.filter(~faulty)
        return found.with_columns(self._list.typed())

    def _reject(self, faults: pl.DataFrame) -> None:
        import polars as pl

        names = [name for _, name in self._list.fields.values()]
        nothing = pl.all_horizontal(pl.col(name).is_null() for name in names)
        field = pl.col("column").replace(self._list.headers)
        self._work.reject_frame(
            faults.select(
                "line",
                "value",
                file=pl.lit(self.reader.original.name),
                reason=pl.when(nothing).then(pl.lit("not_object")).otherwise("reason"),
                field=pl.when(~nothing).then(field),
                text=pl.format(
                    f"{self._list.key}[{{}}]: {{}}",
                    "position",
                    pl.struct(names).struct.json_encode(),
                ),
            )
        )


class SteamSource(Source):
    """Steam's games, reviews and, if there, time played: one Python literal a line.

    Lines are Python's or JSON's spelling of a dictionary; they are never evaluated. Games come
    out by number, reviews and time played by their place in the file, all as published. Games
    without any value (the published file begins with thousands) are filtered as
    ``empty_record``. Rejected are lines that hold no dictionary (``blank_line``,
    ``too_long``, ``invalid_utf8``, ``not_json``, ``not_object``) and, by reason:

    =================  =====================================================================
    ``bad_id``         a game or user that is missing or has characters of no id
    ``bad_recommend``  a review that neither recommends nor doesn't
    ``bad_playtime``   a time played that is missing, no whole number, or negative
    ``bad_timestamp``  a review from beyond 1990 to 2035
    ``duplicate_key``  a second record of a game; the first in the file stays
    ``wrong_type``     another field whose value can't be read as what is published
    =================  =====================================================================

    A rejected review or time played has the line of its user; its text begins with its number
    in the user's list. A user whose list is empty makes no row.
    """

    name: ClassVar[str] = "steam"
    expected: ClassVar[str] = EXPECTED
    code_version: ClassVar[str] = "steam-3"
    datasets: ClassVar[tuple[str, ...]] = (
        "raw.steam_games",
        "raw.steam_reviews",
        "raw.steam_playtime",
        "raw.steam_rejected",
    )
    domains: ClassVar[frozenset[str]] = frozenset({"games"})
    licence: ClassVar[Licence] = Licence(
        name="Steam data of Kang and McAuley",
        url="https://cseweb.ucsd.edu/~jmcauley/datasets.html#steam_data",
        terms="For academic use; cite the papers. The reviews are their writers', the store's "
        "texts Valve's and the publishers'.",
        citation="W.-C. Kang, J. McAuley. Self-Attentive Sequential Recommendation. ICDM 2018. "
        "A. Pathak, K. Gupta, J. McAuley. Generating and Personalizing Bundle Recommendations on "
        "Steam. SIGIR 2017.",
    )

    def present(self, folder: Path) -> bool:
        """Whether files are named in the settings or lie in ``folder/steam``."""
        return bool(find_files(folder, self.settings))

    def files(self, folder: Path) -> list[Path]:
        """Return the files that are read: games, reviews and, if there, items."""
        return [file.path for file in find_files(folder, self.settings).values()]

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Read games, reviews and time played."""
        found = find_files(folder, self.settings)
        if not found:
            raise SourceError(
                "no Steam files", where=str(folder / self.name), hint="see docs/data.md"
            )
        yield games_table(found["games"], work)
        yield entries_table(
            "raw.steam_reviews", _REVIEWS, found["reviews"], work, allow_empty=False
        )
        yield entries_table(
            "raw.steam_playtime", _PLAYTIME, found.get("items"), work, allow_empty=True
        )
