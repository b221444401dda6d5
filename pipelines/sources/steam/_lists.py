"""The files with one user a line: a list of reviews, or of games and the time played."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pipelines.sources._json_lines import JsonField
from pipelines.sources._lines import ahead
from pipelines.sources._protocol import RawTable, Workspace
from pipelines.sources.steam._layout import SteamFile
from pipelines.sources.steam._reading import LiteralReader

if TYPE_CHECKING:
    import duckdb
    import polars as pl

__all__ = ["playtime_table", "reviews_table"]

_USER = "^[^\\s/]{1,128}$"
_ID = "^[1-9][0-9]{0,17}$"
_MINUTES = "^[0-9]{1,15}$"
#: Rows handed on at a time (count): the store checks and writes large batches faster.
_BATCH = 65_536


@dataclass(frozen=True, slots=True)
class _List:
    """What is in a user's list.

    Attributes
    ----------
    key
        The list's key in the user's record.
    fields
        Keys of an entry, with DuckDB's types, and the columns they become. ``JSON`` keeps a
        value's spelling, so that ``"yes"`` is not taken for true, nor ``1.5`` for 2.
    faults
        The reason why an entry is rejected, or null.
    typed
        Columns with another type than text.
    """

    key: str
    fields: Mapping[str, tuple[str, str]]
    faults: Callable[[], pl.Expr]
    typed: Callable[[], list[pl.Expr]]


def _reason(*faults: tuple[str, pl.Expr]) -> pl.Expr:
    import polars as pl

    none = pl.lit(None, dtype=pl.String)
    return pl.coalesce(
        *(
            pl.when(is_fault.fill_null(value=True)).then(pl.lit(reason)).otherwise(none)
            for reason, is_fault in faults
        )
    )


def _review_faults() -> pl.Expr:
    import polars as pl

    return _reason(
        ("bad_id", ~pl.col("game_id").str.contains(_ID)),
        ("bad_recommend", ~pl.col("recommend").is_in(["true", "false"])),
    )


def _review_types() -> list[pl.Expr]:
    import polars as pl

    return [pl.col("game_id").cast(pl.Int64), pl.col("recommend") == "true"]


def _playtime_faults() -> pl.Expr:
    import polars as pl

    recent = pl.col("playtime_2weeks").fill_null("0")
    return _reason(
        ("bad_id", ~pl.col("game_id").str.contains(_ID)),
        ("bad_playtime", ~pl.col("playtime_forever").str.contains(_MINUTES)),
        ("bad_playtime", ~recent.str.contains(_MINUTES)),
    )


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
    _playtime_faults,
    _playtime_types,
)


def reviews_table(file: SteamFile, work: Workspace) -> RawTable:
    """``raw.steam_reviews``, by place."""
    return _table("raw.steam_reviews", _REVIEWS, file, work, allow_empty=False)


def playtime_table(file: SteamFile | None, work: Workspace) -> RawTable:
    """``raw.steam_playtime``, by place; no rows if there is no file."""
    if file is None:
        return RawTable("raw.steam_playtime", iter(()), None, rows_read=lambda: 0)
    return _table("raw.steam_playtime", _PLAYTIME, file, work, allow_empty=True)


def _table(
    dataset: str, entries: _List, file: SteamFile, work: Workspace, *, allow_empty: bool
) -> RawTable:
    reading = _Entries(entries, file, work)
    return RawTable(
        dataset=dataset,
        batches=ahead(reading.batches()),
        file=file.name,
        rows_read=lambda: reading.entries + reading.reader.rejected,
        stats=lambda: {"users": reading.reader.lines - reading.reader.rejected},
        allow_empty=allow_empty,
    )


class _Entries:
    """The entries of all users' lists."""

    def __init__(self, entries: _List, file: SteamFile, work: Workspace) -> None:
        fields = (
            JsonField("user_id", "user_id", "text", "bad_id", required=True),
            JsonField(entries.key, "entries", "json", "wrong_type", required=True),
        )
        self.reader = LiteralReader(file, fields, work)
        self.entries = 0
        self._list = entries
        self._work = work
        # `?` would need the structure as a parameter of every call; it is declared in code.
        structure = ", ".join(f'"{key}": "{kind}"' for key, (kind, _) in entries.fields.items())
        columns = ", ".join(
            f"""cast(nullif(entry."{k}", 'null') as varchar) as "{n}\""""
            for k, (_, n) in entries.fields.items()
        )
        self._query = f"""
            with lists as (
                select line, user_id, from_json(entries, '[{{{structure}}}]') as made from block
            ),
            entries as (
                select
                    line, user_id, unnest(made) as entry, generate_subscripts(made, 1) as position
                from lists
            )
            select line, position, user_id, {columns}
            from entries
        """  # noqa: S608

    def batches(self) -> Iterator[pl.DataFrame]:
        """Frames with the contract's columns."""
        import duckdb
        import polars as pl

        held: list[pl.DataFrame] = []
        config: dict[str, str | bool | int | float | list[str]] = {"memory_limit": "1GiB"}
        if self._work.settings.runtime.threads:
            config["threads"] = self._work.settings.runtime.threads
        with duckdb.connect(config=config) as connection:
            for batch in self.reader:
                held.append(self._taken(connection, batch.frame))
                if sum(f.height for f in held) >= _BATCH:
                    yield pl.concat(held)
                    held = []
        if held:
            yield pl.concat(held)
        self.reader.close()

    def _taken(self, connection: duckdb.DuckDBPyConnection, users: pl.DataFrame) -> pl.DataFrame:
        """The sound entries of some users."""
        import polars as pl

        wrong = users.select(
            "line",
            reason=pl.when(~pl.col("user_id").str.contains(_USER))
            .then(pl.lit("bad_id"))
            .when(~pl.col("entries").str.starts_with("["))
            .then(pl.lit("wrong_type")),
        )
        self.reader.reject(wrong.drop_nulls("reason"))
        connection.register("block", users.filter(wrong["reason"].is_null()).to_arrow())
        found = pl.from_arrow(connection.execute(self._query).to_arrow_table())
        assert isinstance(found, pl.DataFrame)
        self.entries += found.height
        reason = found.select(reason=self._list.faults())["reason"]
        if reason.null_count() < len(reason):
            self._reject(found.with_columns(reason=reason).drop_nulls("reason"))
            found = found.filter(reason.is_null())
        return found.with_columns(self._list.typed())

    def _reject(self, faults: pl.DataFrame) -> None:
        import polars as pl

        names = [name for _, name in self._list.fields.values()]
        nothing = pl.all_horizontal(pl.col(name).is_null() for name in names)
        self._work.reject_frame(
            faults.select(
                "line",
                file=pl.lit(self.reader.name),
                reason=pl.when(nothing).then(pl.lit("not_object")).otherwise("reason"),
                text=pl.format(
                    f"{self._list.key}[{{}}]: {{}}",
                    "position",
                    pl.struct(names).struct.json_encode(),
                ),
            )
        )
