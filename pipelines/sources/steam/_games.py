"""``steam_games.json``: one game a line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pipelines.sources._json_lines import JsonField
from pipelines.sources._lines import ahead
from pipelines.sources._ordered import OrderedRows
from pipelines.sources._protocol import RawTable, Workspace
from pipelines.sources.steam._layout import SteamFile
from pipelines.sources.steam._reading import LiteralReader

if TYPE_CHECKING:
    import polars as pl

__all__ = ["games_table"]

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
_ID = "^[1-9][0-9]{0,17}$"


def games_table(file: SteamFile, work: Workspace) -> RawTable:
    """``raw.steam_games``, by number."""
    reader = LiteralReader(file, _FIELDS, work)
    reading = _Games(reader, work)
    return RawTable(
        dataset="raw.steam_games",
        batches=ahead(reading.batches()),
        file=file.name,
        rows_read=lambda: reader.lines,
        filtered=reading.filtered,
    )


class _Games:
    def __init__(self, reader: LiteralReader, work: Workspace) -> None:
        self._reader = reader
        self._work = work
        self._empty = 0

    def filtered(self) -> Mapping[str, int]:
        return {"empty_record": self._empty} if self._empty else {}

    def batches(self) -> Iterator[pl.DataFrame]:
        import polars as pl

        runtime = self._work.settings.runtime
        rows = OrderedRows(
            self._work.scratch / "steam_games",
            ("game_id",),
            (("line", True),),
            memory_limit_mb=runtime.memory_limit_mb,
            threads=runtime.threads,
        )
        for batch in self._reader:
            frame = batch.frame.with_columns(_unquoted(name) for name in _MIXED)
            empty = frame.select(empty=_nothing())["empty"]
            self._empty += int(empty.sum())
            known = frame["game_id"].str.contains(_ID).fill_null(value=False)
            bad = ~(empty | known)
            self._reader.reject(frame.filter(bad).select("line", reason=pl.lit("bad_id")))
            rows.append(frame.filter(known).with_columns(pl.col("game_id").cast(pl.Int64)))
        names = [f.name for f in _FIELDS]
        for frame in rows.batches():
            yield frame.select(names)
        for doubled in rows.doubled:
            self._reader.reject(doubled.to_frame().with_columns(reason=pl.lit("duplicate_key")))
        self._reader.close()


def _unquoted(name: str) -> pl.Expr:
    """The text of a value that is a JSON text or a JSON number."""
    import polars as pl

    value = pl.col(name)
    text = pl.when(value.str.starts_with('"')).then(value)
    return pl.coalesce(text.otherwise(None).str.json_decode(pl.String), value).alias(name)


def _nothing() -> pl.Expr:
    """Whether the record says nothing at all."""
    import polars as pl

    lists = [pl.col(name).list.len() == 0 for name in _LISTS]
    others = [pl.col(f.name).is_null() for f in _FIELDS if f.name not in _LISTS]
    return pl.all_horizontal(*lists, *others)
