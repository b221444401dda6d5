"""Anybody's items and ratings: any table format, usual names of columns, any scale."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pipelines.config import Settings
from pipelines.errors import ConfigError, SourceError
from pipelines.licences import Licence
from pipelines.plugins import code_of
from pipelines.sources._folders import check_file, given_files, pick_files, relative_name
from pipelines.sources._protocol import RawTable, Source, Workspace
from pipelines.sources._rejects import Fault
from pipelines.sources.formats import values
from pipelines.sources.formats.delimited import (
    SEPARATORS,
    Column,
    DelimitedReader,
    plain,
    split_record,
    typed,
)
from pipelines.sources.formats.lines import numbered_lines

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
#: Longest value of a further column that is a property of items (characters), and columns taken.
_MAX_VALUE, _MAX_COLUMNS = 60, 12
#: Times of ratings: 1970 to 2100 (seconds).
_LAST_SECOND = 4_102_444_800
#: Row of a table: line, text as read, and its cells.
Row = tuple[int, str, Sequence[str | None]]


@dataclass(slots=True)
class Cells:
    """Some rows of a file as text: ``line``, ``text`` and the named columns."""

    frame: pl.DataFrame
    #: Names of the columns in the file.
    headers: Mapping[str, str]

    def texts(self, mask: pl.Series) -> pl.Series:
        """The rows under the mask as they stand in the file."""
        return self.frame["text"].filter(mask)


@dataclass(slots=True)
class Table:
    """A file of rows: its columns by meaning, and the number of rows read so far."""

    path: Path
    name: str
    kind: Kind
    columns: Mapping[str, str]
    work: Workspace
    rows: int = 0
    chosen: dict[str, str] = field(default_factory=dict)

    def batches(self) -> Iterator[Cells]:
        """Rows, some at a time; those that can't be split into columns are rejected.

        Raises :class:`SourceError` if the file is empty or a column that is needed is not found.
        """
        import polars as pl

        header, frames = self._open()
        self.chosen = self._choose(header)
        names = {meaning: header.index(column) for meaning, column in self.chosen.items()}
        if self.kind == "items":
            others = [n for n in range(len(header)) if n not in names.values()]
            names |= {f"+{header[n]}": n for n in others[:_MAX_COLUMNS]}
        for frame in frames:
            cells = [pl.col(str(n)).str.strip_chars().alias(name) for name, n in names.items()]
            missing = pl.col(list(names)).str.to_lowercase().is_in(sorted(values.MISSING))
            frame = frame.select("line", "text", *cells)
            yield Cells(
                frame.with_columns(pl.when(~missing).then(pl.col(list(names)))), dict(self.chosen)
            )
        if not self.rows:
            raise SourceError("the file has no rows", where=self.name)

    def _open(self) -> tuple[list[str], Iterator[pl.DataFrame]]:
        """Names of the columns, and frames of ``line``, ``text`` and numbered columns of cells."""
        low = self.path.name.lower().removesuffix(".gz")
        if low.endswith((".parquet", ".jsonl", ".ndjson", ".json")):
            header, rows = self._parquet() if low.endswith(".parquet") else self._json()
            return header, _frames(rows, len(header))
        original = self.work.original(self.path, self.name)
        first = next((line for _, line in numbered_lines(original)), b"").decode("utf-8", "replace")
        if not first:
            raise SourceError("the file is empty", where=self.name)
        atomic = Path(low).suffix in _ATOMIC
        pieces = {s: len(first.split(s)) for s in SEPARATORS}
        separator = "\t" if atomic else max(pieces, key=pieces.__getitem__)
        fields = split_record(first, separator)
        header = fields if isinstance(fields, list) else first.split(separator)
        reader = DelimitedReader(
            original,
            [Column(name, str(n)) for n, name in enumerate(header)],
            self.work.reject_frame,
            separator=separator,
            quoted=not atomic and separator != "::",
            lenient=True,
        )

        def frames() -> Iterator[pl.DataFrame]:
            import polars as pl

            for batch in reader:
                every = pl.repeat(True, batch.frame.height, eager=True)
                yield batch.frame.with_columns(text=batch.texts(every))
            self.rows = reader.rows_read

        return [name.strip() for name in header], frames()

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

    def _json(self) -> tuple[list[str], Iterator[Row]]:
        def records() -> Iterator[tuple[int, str, dict[str, Any]]]:
            for number, line in numbered_lines(self.work.original(self.path, self.name)):
                text = line.decode("utf-8", "replace")
                self.rows += 1
                try:
                    record = values.loads(text)
                except ValueError:
                    reason = "not_json" if text.strip() else "blank_line"
                    self.work.reject(self.name, number, reason, text)
                    continue
                if isinstance(record, dict):
                    yield number, text, record
                elif isinstance(record, list) and number == 1:
                    raise SourceError(
                        "the file is one JSON array",
                        where=self.name,
                        hint="expected one record per line; convert it, such as with `jq -c '.[]'`",
                    )
                else:
                    self.work.reject(self.name, number, "not_object", text)

        def rows() -> Iterator[Row]:
            for number, text, record in records():
                yield number, text, [_shown(record.get(name)) for name in header]

        header = list(dict.fromkeys(k for *_, record in islice(records(), 1000) for k in record))
        # The look at the first records has counted and rejected: the pass begins anew.
        self.rows = 0
        self.work.rejects.forget(self.name)
        if not header:
            raise SourceError("the file holds no JSON objects", where=self.name)
        return header, rows()

    def _parquet(self) -> tuple[list[str], Iterator[Row]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(self.path)
        except (pa.ArrowInvalid, OSError) as error:
            raise SourceError(f"no Parquet file ({error})", where=self.name) from None
        header = list(file.schema_arrow.names)

        def rows() -> Iterator[Row]:
            for batch in file.iter_batches(_ROWS):
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    self.rows += 1
                    cells = [_shown(value) for value in row]
                    yield self.rows, ", ".join(c or "" for c in cells), cells

        return header, rows()


def _frames(rows: Iterator[Row], width: int) -> Iterator[pl.DataFrame]:
    """The rows, some at a time."""
    import polars as pl

    cells = dict.fromkeys(map(str, range(width)), pl.String)
    while batch := [(line, text, *fields) for line, text, fields in islice(rows, _ROWS)]:
        yield pl.DataFrame(batch, {"line": pl.Int64, "text": pl.String, **cells}, orient="row")


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
        if abs(time) // unit <= _LAST_SECOND:
            return time // unit
    return time


def _key(column: str) -> pl.Expr:
    """An identifier; pandas writes a whole number as 63.0."""
    import polars as pl

    return pl.col(column).str.replace(r"^([0-9]+)\.0$", "$1")


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
        yield _raw("items", tables["items"], _items(tables["items"]))
        yield _ratings(tables["ratings"], self._scale())
        users = tables.get("users")
        yield (
            RawTable("raw.own_users", iter(()), None, rows_read=lambda: 0)
            if users is None
            else _raw("users", users, _users(users))
        )


def _is_name(name: str) -> bool:
    low = name.lower().removesuffix(".gz")
    stems = {f"{kind}{suffix}" for kind in NEEDED for suffix in _SUFFIXES}
    return low in stems or Path(low).suffix in _ATOMIC


def _kind(name: str) -> Kind:
    low = Path(name.lower().removesuffix(".gz"))
    kinds: dict[str, Kind] = {kind: kind for kind in NEEDED}
    return kinds.get(low.stem) or _ATOMIC[low.suffix]


def _raw(kind: Kind, table: Table, frames: Iterator[pl.DataFrame]) -> RawTable:
    """A table of one row per key; of several the first stays, the others are filtered."""
    key = {"items": "item_id", "users": "user_id"}[kind]
    filtered: Counter[str] = Counter()

    def batches() -> Iterator[pl.DataFrame]:
        rows = table.work.ordered(f"own_{kind}", (key,))
        for frame in frames:
            rows.append(frame)
        for frame in rows.batches():
            yield frame.drop("line")
        filtered.update(
            {f"repeated_{kind[:-1]}": sum(map(len, rows.doubled))} if rows.doubled else {}
        )

    return RawTable(
        dataset=f"raw.own_{kind}",
        batches=batches(),
        file=table.name,
        rows_read=lambda: table.rows,
        filtered=lambda: filtered,
        stats=lambda: {"columns": table.chosen},
    )


def _no_key(column: str) -> Fault:
    import polars as pl

    return Fault("bad_id", column, pl.col(column).is_null())


def _completed(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """The frame with columns of these names; those that it lacks are null."""
    import polars as pl

    absent = [name for name in names if name not in frame.columns]
    return frame.with_columns(pl.lit(None, dtype=pl.String).alias(name) for name in absent)


def _items(table: Table) -> Iterator[pl.DataFrame]:
    import polars as pl

    within: dict[str, str] = {}
    for cells in table.batches():
        frame = table.work.sound(cells, [_no_key("item")], table.name)
        if not frame.height:
            continue
        headers = {"genres": table.chosen["genres"]}
        headers |= {name: name[1:] for name in frame.columns if name.startswith("+")}
        within = within or {
            name: separator_of(frame[name], header) for name, header in headers.items()
        }
        lists = {name: listed(frame[name], separator) for name, separator in within.items()}
        properties = [
            pl.Series(name, series)
            .list.eval(pl.element().filter(pl.element().str.len_chars() <= _MAX_VALUE))
            .list.eval(pl.format(f"{headers[name]}: {{}}", pl.element()))
            for name, series in lists.items()
            if name != "genres"
        ]
        frame = _completed(frame, "title", "year", "description")
        year = typed(frame["year"].str.extract(r"(\d{4})"), values.whole_number, pl.Int64())
        yield frame.select(
            item_id=_key("item"),
            title="title",
            year=pl.Series(year),
            genres=lists["genres"],
            description="description",
            attributes=pl.concat_list(properties).list.sort()
            if properties
            else pl.Series([[]] * frame.height, dtype=pl.List(pl.String)),
            line="line",
        )


def _ratings(table: Table, stated: str) -> RawTable:
    low, high = _ends(stated) if stated else (None, None)
    filtered: Counter[str] = Counter()
    scale: list[float] = []

    def batches() -> Iterator[pl.DataFrame]:
        import polars as pl

        rows = table.work.ordered(
            "own_ratings", ("user_id", "item_id"), (("timestamp", False), ("line", False))
        )
        least, most = float("inf"), float("-inf")
        for cells in table.batches():
            frame = _completed(cells.frame, "timestamp")
            cells.frame = frame.with_columns(
                stars=typed(frame["rating"], values.number, pl.Float64()),
                seconds=typed(frame["timestamp"], seconds, pl.Int64()).map_elements(
                    _in_seconds, return_dtype=pl.Int64
                )
                if frame["timestamp"].is_not_null().any()
                else pl.lit(None, dtype=pl.Int64),
            )
            given = pl.col("timestamp").is_not_null()
            faults = [
                _no_key("user"),
                _no_key("item"),
                Fault("bad_rating", "rating", ~pl.col("stars").is_finite().fill_null(value=False)),
                Fault(
                    "bad_timestamp",
                    "timestamp",
                    given & ~pl.col("seconds").is_between(0, _LAST_SECOND).fill_null(value=False),
                ),
            ]
            if low is not None:
                faults.append(Fault("off_scale", "rating", ~pl.col("stars").is_between(low, high)))
            frame = table.work.sound(cells, faults, table.name)
            if frame.height:
                least = min(least, float(frame["stars"].min()))  # type: ignore[arg-type]
                most = max(most, float(frame["stars"].max()))  # type: ignore[arg-type]
            rows.append(
                frame.select(
                    user_id=_key("user"),
                    item_id=_key("item"),
                    rating="stars",
                    timestamp="seconds",
                    line="line",
                )
            )
        scale[:] = [low, high] if low is not None and high is not None else _scale(least, most)
        for frame in rows.batches():
            yield frame.select(
                "user_id", "item_id", "rating", pl.lit(scale[0]).alias("low"),
                pl.lit(scale[1]).alias("high"), "timestamp",
            )  # fmt: skip
        filtered.update({"repeated_rating": sum(map(len, rows.doubled))} if rows.doubled else {})

    return RawTable(
        dataset="raw.own_ratings",
        batches=batches(),
        file=table.name,
        rows_read=lambda: table.rows,
        filtered=lambda: filtered,
        stats=lambda: {"columns": table.chosen, "scale": scale},
    )


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


def _users(table: Table) -> Iterator[pl.DataFrame]:
    import polars as pl

    for cells in table.batches():
        frame = table.work.sound(cells, [_no_key("user")], table.name)
        frame = _completed(frame, "age", "gender", "occupation")
        years = (
            typed(frame["age"], values.number, pl.Float64()).floor().cast(pl.Int64, strict=False)
        )
        decade = years // 10 * 10
        band = pl.select(
            pl.when(decade.is_between(0, 110))
            .then(pl.format("{}-{}", decade, decade + 9))
            .otherwise(pl.when(years.is_null()).then(frame["age"]))
        ).to_series()
        yield frame.select(
            "line", "gender", "occupation", user_id=_key("user"), age_band=band
        ).select("user_id", "age_band", "gender", "occupation", "line")
