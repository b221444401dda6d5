"""Anybody's items and ratings: any table format, usual names of columns, any scale."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pipelines.config import Settings
from pipelines.errors import ConfigError, SourceError
from pipelines.licences import Licence
from pipelines.plugins import code_of
from pipelines.sources import _values as values
from pipelines.sources._files import MAX_LINE, line_blocks, line_text
from pipelines.sources._folders import check_file, given_files, pick_files, relative_name
from pipelines.sources._protocol import Source
from pipelines.sources._reader import (
    SEPARATORS,
    Batch,
    Blocks,
    Column,
    RowError,
    Separated,
    json_rows,
    parsed,
    plain,
    record_blocks,
    split_record,
)
from pipelines.sources._tables import Check, RawTable, Workspace, raw_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["OwnSource"]

Kind = Literal["items", "ratings", "users"]

#: Usual names of each meaning, without case and separators, in order of preference.
USUAL: Mapping[str, tuple[str, ...]] = {
    "user": ("user", "userid", "uid", "reviewerid", "customerid", "memberid", "username"),
    "item": (
        "item", "itemid", "iid", "movieid", "bookid", "isbn", "recipeid", "productid",
        "parentasin", "asin", "trackid", "songid", "artistid", "gameid", "animeid", "businessid",
    ),
    "rating": ("rating", "score", "stars", "overall", "bookrating", "userrating"),
    "timestamp": (
        "timestamp", "time", "date", "ratedat", "createdat", "dateadded", "unixreviewtime",
        "reviewtime", "submitted",
    ),
    "title": ("title", "name", "itemtitle", "movietitle", "booktitle", "producttitle", "trackname"),
    "genres": (
        "genres", "genre", "categories", "category", "class", "tags", "cuisine", "kind", "type",
        "authors", "author", "bookauthor", "artist", "brand", "publisher",
    ),
    "year": ("year", "releaseyear", "yearofpublication", "originalpublicationyear"),
    "description": ("description", "overview", "plot", "summary", "about", "instructions"),
    "age": ("age", "agegroup", "ageband"),
    "gender": ("gender", "sex"),
    "occupation": ("occupation", "job", "profession"),
}  # fmt: skip
#: Meanings of each file: those that it must state, then those that it may.
NEEDED: Mapping[Kind, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "items": (("item", "genres"), ("title", "year", "description")),
    "ratings": (("user", "item", "rating"), ("timestamp",)),
    "users": (("user",), ("age", "gender", "occupation")),
}
#: Scales that ratings are usually on; the smallest that holds all of them is theirs.
SCALES = ((0, 1), (1, 5), (0.5, 5), (0, 5), (1, 7), (1, 10), (0, 10), (1, 100), (0, 100))

_SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".parquet", ".jsonl", ".ndjson", ".json")
_ATOMIC: Mapping[str, Kind] = {".inter": "ratings", ".item": "items", ".user": "users"}
#: Separators within a cell, and the share of cells that must have the one that is taken.
_WITHIN, _SHARE = ("|", ";", "/", ","), 0.02
#: Names of people and firms hold commas: only these separate several of them.
_NAMES = frozenset(("authors", "author", "bookauthor", "artist", "brand", "publisher"))
_ROWS = 100_000
#: Records whose keys are columns (count).
_LOOKED_AT = 1000
#: Longest value of a further column that is a property of items (characters), and columns taken.
_MAX_VALUE, _MAX_COLUMNS = 60, 12
#: Times of ratings: 1970 to 2100 (seconds).
_LAST_SECOND = 4_102_444_800


@dataclass(slots=True)
class Table:
    """A file of rows, and the columns of its meanings."""

    path: Path
    name: str
    kind: Kind
    columns: Mapping[str, str]
    work: Workspace
    #: Headers by meaning; filled when the file is opened.
    chosen: dict[str, str] = field(default_factory=dict)

    def batches(self) -> Iterator[Batch]:
        """Rows with a column for each meaning and, of items, for each further column.

        Raises :class:`SourceError` if the file is empty or a column that is needed is not found.
        """
        import polars as pl

        header, batches = self._open()
        self.chosen |= self._choose(header)
        names = {meaning: header.index(column) for meaning, column in self.chosen.items()}
        if self.kind == "items":
            others = [n for n in range(len(header)) if n not in names.values()]
            names |= {f"+{header[n]}": n for n in others[:_MAX_COLUMNS]}
        needed, optional = NEEDED[self.kind]
        absent = [
            pl.lit(None, pl.Int64 if m == "timestamp" else pl.String).alias(m)
            for m in (*needed, *optional)
            if m not in names
        ]
        typed = [Column(self.chosen[m], m, *_TYPED[m]) for m in names if m in _TYPED]
        # pandas writes an identifier that is a whole number as 63.0.
        keys = pl.col([m for m in ("user", "item") if m in names])
        for frame, faults, text in batches:
            cells = [pl.col(str(n)).str.strip_chars().alias(name) for name, n in names.items()]
            missing = pl.col(list(names)).str.to_lowercase().is_in(sorted(values.MISSING))
            frame = frame.select("line", *cells).with_columns(
                pl.when(~missing).then(pl.col(list(names)))
            )
            series = [column.of_cells(frame[column.name], faults) for column in typed]
            frame = frame.with_columns(*series, *absent)
            frame = frame.with_columns(keys.str.replace(r"^([0-9]+)\.0$", "$1"))
            yield Batch(frame, faults, text)

    def _open(self) -> tuple[list[str], Iterator[Batch]]:
        """Names of the columns, and rows of numbered columns of cells."""
        low = self.path.name.lower().removesuffix(".gz")
        if low.endswith(".parquet"):
            return self._parquet()
        if low.endswith((".jsonl", ".ndjson", ".json")):
            return self._json()
        original = self.work.original(self.path, self.name)
        _, lines = next(line_blocks(original), (0, [b""]))
        first = line_text(lines[0])
        if not first:
            raise SourceError("the file is empty", where=self.name)
        atomic = Path(low).suffix in _ATOMIC
        pieces = {s: len(first.split(s)) for s in SEPARATORS}
        separator = "\t" if atomic else max(pieces, key=pieces.__getitem__)
        try:
            header = split_record(first, separator)
        except RowError:
            header = first.split(separator)
        quoted = not atomic and separator != "::"
        rows = Separated(separator, quoted, lenient=True).rows(
            original, [Column(name, str(n)) for n, name in enumerate(header)]
        )
        return [name.strip() for name in header], rows

    def _choose(self, header: Sequence[str]) -> dict[str, str]:
        """The column of each meaning."""
        needed, optional = NEEDED[self.kind]
        by_plain = {plain(name): name for name in reversed(header)}
        chosen: dict[str, str] = {}
        for meaning in (*needed, *optional):
            given = self.columns.get(meaning)
            usual = [by_plain[u] for u in USUAL[meaning] if u in by_plain]
            if meaning == "item" and self.kind == "items" and "id" in by_plain:
                usual.append(by_plain["id"])
            column = given if given in header else None if given else next(iter(usual), None)
            if column is not None and column not in chosen.values():
                chosen[meaning] = column
        absent = [meaning for meaning in needed if meaning not in chosen]
        if absent:
            mapped = ", ".join(f"{m}: {self.columns.get(m, 'COLUMN')}" for m in absent)
            raise SourceError(
                f"no column of {' and '.join(absent)} in the file of {self.kind}",
                where=f"{self.name}:1",
                hint=f"its columns are {', '.join(header)[:300]}; name one in --columns ({mapped})",
            )
        return chosen

    def _json(self) -> tuple[list[str], Iterator[Batch]]:
        original = self.work.original(self.path, self.name)

        def blocks() -> Blocks:
            for first, lines in record_blocks(original, "one record per line"):
                yield first, [line.decode("utf-8", "replace").encode() for line in lines]

        _, lines = next(iter(blocks()))
        records, *_ = parsed(lines, MAX_LINE)
        header = list(dict.fromkeys(key for record in records[:_LOOKED_AT] for key in record))
        if not header:
            raise SourceError("the file holds no JSON objects", where=self.name)
        columns = [Column(name, str(n), parse=_shown) for n, name in enumerate(header)]
        return header, json_rows(blocks(), columns)

    def _parquet(self) -> tuple[list[str], Iterator[Batch]]:
        import polars as pl
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(self.path)
        except (pa.ArrowInvalid, OSError) as error:
            raise SourceError(f"no Parquet file ({error})", where=self.name) from None

        def rows() -> Iterator[Batch]:
            line = 1
            for batch in file.iter_batches(_ROWS):
                columns = [
                    pl.Series(str(n), map(_shown, column.to_pylist()), pl.String)
                    for n, column in enumerate(batch.columns)
                ]
                cells = pl.DataFrame(columns)
                frame = cells.with_columns(line=pl.int_range(line, line + cells.height))
                text = pl.concat_str(pl.all().fill_null(""), separator=", ")
                texts = cells.select(text=text)["text"]
                yield Batch(frame, {}, texts.__getitem__)
                line += cells.height

        return list(file.schema_arrow.names), rows()


def _shown(value: Any) -> str | None:
    """A value as a cell; members of a list are separated by ``|``."""
    if isinstance(value, list):
        return "|".join(filter(None, map(_shown, value)))
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return values.shown(value) if value is None or isinstance(value, str | dict) else str(value)


def seconds(cell: str) -> int:
    """Seconds since 1970 of a time in seconds, milliseconds or microseconds, or of a date.

    >>> seconds("2003-02-17"), seconds("1045440000000"), seconds("Mon Feb 17 00:00:00 +0000 2003")
    (1045440000, 1045440000, 1045440000)
    """
    try:
        return _in_seconds(values.timestamp(cell, 1))
    except values.UnreadableError:
        for form in ("%a %b %d %H:%M:%S %z %Y", "%m/%d/%Y %z", "%B %d, %Y %z"):
            try:
                stated = cell if "%H" in form else f"{cell} +0000"
                return int(datetime.strptime(stated, form).astimezone(UTC).timestamp())
            except ValueError:
                continue
        raise


def _in_seconds(time: int) -> int:
    for unit in (1, 1000, 1_000_000, 1_000_000_000):
        if 0 <= time // unit <= _LAST_SECOND:
            return time // unit
    raise values.UnreadableError


#: Kind, reason, whether it is needed, and reader of columns that are not optional texts.
_TYPED: Mapping[str, tuple[Any, ...]] = {
    "user": ("text", "bad_id", True),
    "item": ("text", "bad_id", True),
    "rating": ("number", "bad_rating", True),
    "timestamp": ("seconds", "bad_timestamp", False, seconds),
}


def separator_of(cells: pl.Series, header: str) -> str:
    """The separator of several values in a cell; empty if there is none."""
    if header.endswith("_seq"):
        return " "
    filled = cells.drop_nulls()
    names = plain(header) in _NAMES
    counts = {
        s: filled.str.contains(s, literal=True).sum() for s in (_WITHIN[:2] if names else _WITHIN)
    }
    best = max(counts, key=counts.__getitem__)
    return best if counts[best] > _SHARE * len(filled) else ""


def listed(cells: pl.Series, separator: str) -> pl.Series:
    """Cells as lists of distinct texts, alphabetical; a list may be JSON or a Python literal."""
    import polars as pl

    texts: dict[str, list[str]] = {}
    for cell in cells.drop_nulls().unique():
        members: Sequence[str | None] = cell.split(separator) if separator else [cell]
        if cell[:1] in "[{":
            with contextlib.suppress(values.UnreadableError):
                members = values.texts(cell)
        texts[cell] = sorted({m.strip(" '\"[]") for m in members if m} - {""})
    rows = [texts.get(cell, []) if cell is not None else [] for cell in cells]
    return pl.Series(cells.name, rows, dtype=pl.List(pl.String))


class OwnSource(Source):
    """Items and ratings of one's own: CSV, TSV, Parquet, JSON lines or RecBole's atomic files.

    Columns are known by their usual names, or by ``data.own.columns``. Rows of a user and an item
    that come again are filtered (the latest stays), and so are repeated items and users (the first
    stays). Rejected are, by reason: ``wrong_columns``, ``blank_line``, ``bad_quotes``,
    ``bare_return``, ``too_long``, ``not_json``, ``not_object``, ``bad_id`` (no user or item),
    ``bad_rating`` (no number), ``off_scale`` (beyond ``data.own.scale``) and ``bad_timestamp``.

    A subclass declares a publisher: its names of files, columns, scale and terms. It is named in
    ``data.own.source``, as an entry point of the group ``understudy.sources`` or by its place.

    >>> class Cookbook(OwnSource):
    ...     file_names = {"items": "RAW_recipes.csv", "ratings": "RAW_interactions.csv"}
    ...     columns = {"item": "id", "genres": "tags"}
    ...     scale = "0-5"
    """

    #: Names of a publisher's files; of one's own: items, ratings and users, with any suffix.
    file_names: ClassVar[Mapping[Kind, str]] = {}
    #: Columns by meaning, where their names are not usual.
    columns: ClassVar[Mapping[str, str]] = {}
    #: Lowest and highest rating, such as ``0-5``; empty: the smallest usual scale.
    scale: ClassVar[str] = ""

    name: ClassVar[str] = "own"
    expected: ClassVar[str] = f"items, ratings and users as {', '.join((*_SUFFIXES, *_ATOMIC))}"
    domains: ClassVar[frozenset[str]] = frozenset({"own"})
    code_version: ClassVar[str] = "own-1"
    datasets: ClassVar[tuple[str, ...]] = (
        "raw.own_items",
        "raw.own_ratings",
        "raw.own_users",
        "raw.own_rejected",
    )
    licence: ClassVar[Licence] = Licence(
        name="Terms of the data's owner",
        url="",
        terms="Files given by the user; their makers' terms hold.",
    )

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        terms = settings.data.own.terms
        if terms:
            self.licence = Licence("Terms of the data's owner", "", terms)  # type: ignore[misc]

    def present(self, folder: Path) -> bool:
        """Whether files are named in the settings or lie in ``folder/own``."""
        return bool(self._tables(folder))

    def files(self, folder: Path) -> list[Path]:
        """Return the files of items, ratings and, if there, users."""
        return list(self._tables(folder).values())

    def identity(self, folder: Path) -> Mapping[str, Any]:
        """Return what each file is read as."""
        kinds = {kind: path.name for kind, path in self._tables(folder).items()}
        code = code_of(type(self))
        return {"files": kinds, "columns": self._columns(), "scale": self._scale(), "code": code}

    def _columns(self) -> dict[str, str]:
        return {**self.columns, **self.settings.data.own.columns}

    def _scale(self) -> str:
        return self.settings.data.own.scale or self.scale

    def _tables(self, folder: Path) -> dict[Kind, Path]:
        data = self.settings.data.own
        named: dict[Kind, str] = {"items": data.items, "ratings": data.ratings, "users": data.users}
        if any(named.values()):
            tables = {k: given_files([name], self.settings)[0] for k, name in named.items() if name}
        else:
            published = {name.lower(): kind for kind, name in self.file_names.items()}
            tables = {}
            for path in pick_files(
                folder / "own", lambda n: n.lower() in published or _is_name(n), self.expected
            ):
                tables.setdefault(published.get(path.name.lower()) or _kind(path.name), path)
        missing = [kind for kind in ("items", "ratings") if kind not in tables]
        if tables and missing:
            raise SourceError(
                f"no file of {missing[0]}",
                where=str(folder / "own"),
                hint=f"name it with --{missing[0]}; expected {self.expected}",
            )
        for path in tables.values():
            check_file(path, self.expected)
        unknown = set(self._columns()) - set(USUAL)
        if unknown:
            raise ConfigError(
                f"unknown meaning of a column: {', '.join(sorted(unknown))}",
                where="data.own.columns",
                hint=f"known: {', '.join(USUAL)}",
            )
        return tables

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Read items, ratings and users."""
        paths = self._tables(folder)
        if not paths:
            raise SourceError("no files of items and ratings", where=str(folder))
        tables = {
            kind: Table(path, relative_name(path, folder), kind, self._columns(), work)
            for kind, path in paths.items()
        }
        yield _items(tables["items"])
        yield _ratings(tables["ratings"], self._scale())
        yield _users(tables.get("users"))


def _is_name(name: str) -> bool:
    low = name.lower().removesuffix(".gz")
    stems = {f"{kind}{suffix}" for kind in NEEDED for suffix in _SUFFIXES}
    return low in stems or Path(low).suffix in _ATOMIC


def _kind(name: str) -> Kind:
    low = Path(name.lower().removesuffix(".gz"))
    kinds: dict[str, Kind] = {kind: kind for kind in NEEDED}
    return kinds.get(low.stem) or _ATOMIC[low.suffix]


def _items(table: Table) -> RawTable:
    import polars as pl

    within: dict[str, str] = {}

    def finish(frame: pl.DataFrame) -> pl.DataFrame:
        headers = {"genres": table.chosen["genres"]}
        headers |= {name: name[1:] for name in frame.columns if name.startswith("+")}
        if not within:
            within.update({name: separator_of(frame[name], h) for name, h in headers.items()})
        lists = {name: listed(frame[name], separator) for name, separator in within.items()}
        properties = [
            series.list.eval(
                pl.element().filter(pl.element().str.len_chars() <= _MAX_VALUE)
            ).list.eval(pl.format(f"{headers[name]}: {{}}", pl.element()))
            for name, series in lists.items()
            if name != "genres"
        ]
        none = pl.Series([[]] * frame.height, dtype=pl.List(pl.String))
        return frame.with_columns(
            item_id="item",
            year=pl.col("year").str.extract(r"(\d{4})").cast(pl.Int64),
            genres=lists["genres"],
            attributes=pl.concat_list(properties).list.sort() if properties else none,
        )

    return _raw(table, ("item",), "repeated_item", finish=finish)


def _ratings(table: Table, stated: str) -> RawTable:
    import polars as pl

    scale: list[float] = [*_ends(stated)] if stated else []
    ends: list[float] = []

    def checks(frame: pl.DataFrame) -> list[Check]:
        if stated:
            low, high = scale
            return [Check("off_scale", "rating", pl.col("rating").is_between(low, high))]
        if frame.height:
            row = frame.select(low=pl.col("rating").min(), high=pl.col("rating").max()).row(0)
            ends[:] = min(*ends, *row), max(*ends, *row)
        return []

    def finish(frame: pl.DataFrame) -> pl.DataFrame:
        scale[:] = scale or _scale(*ends)
        low, high = map(pl.lit, scale)
        return frame.with_columns(user_id="user", item_id="item", low=low, high=high)

    prefer = (("timestamp", False), ("line", False))
    out = _raw(
        table, ("user", "item"), "repeated_rating", prefer=prefer, checks=checks, finish=finish
    )
    out.stats["scale"] = scale
    return out


def _users(table: Table | None) -> RawTable:
    import polars as pl

    def finish(frame: pl.DataFrame) -> pl.DataFrame:
        years = Column("age", "age", "number").of_cells(frame["age"], {})
        years = years.floor().cast(pl.Int64, strict=False)
        decade = years // 10 * 10
        band = (
            pl.when(decade.is_between(0, 110))
            .then(pl.format("{}-{}", decade, decade + 9))
            .otherwise(pl.when(years.is_null()).then(pl.col("age")))
        )
        return frame.with_columns(user_id="user", age_band=band)

    return (
        _raw(table, ("user",), "repeated_user", finish=finish)
        if table
        else RawTable("raw.own_users")
    )


def _raw(table: Table, key: tuple[str, ...], repeated: str, **more: Any) -> RawTable:
    """A table of one row per key; the others are counted."""
    out = raw_table(
        f"raw.own_{table.kind}", {table.name: table.batches()}, table.work,
        key=key, repeated=repeated, filtered=(repeated,), **more,
    )  # fmt: skip
    out.stats["columns"] = table.chosen
    return out


def _ends(scale: str) -> tuple[float, float]:
    low, _, high = scale.rpartition("-")
    ends = float(low), float(high)
    if ends[0] >= ends[1]:
        raise ConfigError("the scale ends below its beginning", where=f"data.own.scale {scale}")
    return ends


def _scale(least: float, most: float) -> list[float]:
    """The smallest usual scale that holds both, or the two themselves.

    >>> _scale(2, 4), _scale(0, 9), _scale(-3, 8)
    ([1.0, 5.0], [0.0, 10.0], [-3.0, 8.0])
    """
    usual = [s for s in SCALES if s[0] <= least and most <= s[1]]
    low, high = min(usual, key=lambda s: s[1] - s[0]) if usual else (least, most)
    return [float(low), float(high if high > low else low + 1)]
