"""MovieLens tables: rows read, judged, ordered, and one per key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from pipelines.scales import RatingScale
from pipelines.sources._lines import ahead
from pipelines.sources._ordered import OrderedRows
from pipelines.sources._protocol import RawTable, Workspace
from pipelines.sources._rows import CsvReader

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Films", "absent_table", "first_reason", "movie_faults", "raw_table", "user_faults"]

#: 2100-01-01; a later time is milliseconds or nonsense.
_LAST_SECOND = 4_102_444_800

#: The first row in the file stays: last in descending order of lines.
_FIRST = (("line", True),)

Faults = Callable[[], "pl.Expr"]


def raw_table(
    dataset: str,
    reader: CsvReader,
    faults: Faults,
    work: Workspace,
    *,
    key: tuple[str, ...],
    prefer: tuple[tuple[str, bool], ...] = _FIRST,
    seen: Callable[[pl.DataFrame], None] | None = None,
    finish: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
    allow_empty: bool = False,
) -> RawTable:
    """A table of one file.

    Parameters
    ----------
    dataset
        Name of the raw dataset.
    reader
        Its file's rows.
    faults
        Makes the expression of a row's reason, null if it is fine.
    work
        Where rejected rows go.
    key
        Columns that identify a row; the order of the table.
    prefer
        Which row of a key stays, as for :class:`OrderedRows`.
    seen
        Told of every batch.
    finish
        Makes a batch into the contract's columns.
    allow_empty
        Whether the table may have no rows.
    """
    original, columns = reader.original, reader.columns

    def batches() -> Iterator[pl.DataFrame]:
        import polars as pl

        rows = OrderedRows(
            work.scratch / dataset,
            key,
            prefer,
            memory_limit_mb=work.settings.runtime.memory_limit_mb,
            threads=work.settings.runtime.threads,
        )
        for batch in reader:
            reason = batch.frame.select(reason=faults())["reason"]
            if reason.null_count() < len(reason):
                bad = reason.is_not_null()
                work.reject_frame(
                    pl.DataFrame(
                        {
                            "line": batch.frame["line"].filter(bad),
                            "reason": reason.filter(bad),
                            "text": batch.texts(bad),
                        }
                    ).with_columns(file=pl.lit(original.name))
                )
                rows.append(batch.frame.filter(~bad))
            else:
                rows.append(batch.frame)
        names = [c.name for c in columns]
        total, done = reader.rows_read, 0
        for frame in rows.batches():
            done += frame.height
            work.progress(f"ordering {original.name}", done, total)
            out = frame.select(names)
            if seen is not None:
                seen(out)
            yield out if finish is None else finish(out)
        _reject_doubled(reader, rows.doubled, work)

    return RawTable(
        dataset=dataset,
        batches=ahead(batches()),
        file=original.name,
        rows_read=lambda: reader.rows_read,
        allow_empty=allow_empty,
    )


def absent_table(dataset: str) -> RawTable:
    """A table that this variant has no file for: no rows."""
    return RawTable(dataset, iter(()), None, rows_read=lambda: 0)


def _reject_doubled(reader: CsvReader, doubled: list[pl.Series], work: Workspace) -> None:
    if not doubled:
        return
    import polars as pl

    # Only now is it known which rows lose; their text is fetched in one more pass.
    numbers = pl.concat(doubled).sort().to_numpy()
    for line, row in reader.lines(numbers):
        work.reject(reader.original.name, line, "duplicate_key", row)


def first_reason(*faults: tuple[str, pl.Expr]) -> pl.Expr:
    """Build the reason of the first condition that holds, or null."""
    import polars as pl

    none = pl.lit(None, dtype=pl.String)
    return pl.coalesce(
        *(pl.when(is_fault).then(pl.lit(reason)).otherwise(none) for reason, is_fault in faults)
    )


def _below_one(*names: str) -> pl.Expr:
    import polars as pl

    return pl.any_horizontal(pl.col(name) < 1 for name in names)


def _bad_time() -> pl.Expr:
    import polars as pl

    return ~pl.col("timestamp").is_between(0, _LAST_SECOND)


def movie_faults() -> pl.Expr:
    """Faults of a film's row."""
    import polars as pl

    return first_reason(
        ("bad_id", _below_one("movie_id")),
        ("missing_title", pl.col("title").str.strip_chars() == ""),
    )


def user_faults(ages: frozenset[int] | range, occupations: range | None) -> pl.Expr:
    """Faults of a user's row whose age, and occupation if it is a number, must be one of these."""
    import polars as pl

    occupation = pl.col("occupation")
    return first_reason(
        ("bad_id", _below_one("user_id")),
        ("bad_gender", ~pl.col("gender").is_in(["F", "M"])),
        ("bad_age", ~pl.col("age").is_in(sorted(ages))),
        (
            "bad_occupation",
            occupation.str.strip_chars() == ""
            if occupations is None
            else ~occupation.is_in(list(occupations)),
        ),
    )


class Films:
    """The films of the world, for the files that refer to them."""

    def __init__(self) -> None:
        self._batches: list[pl.Series] = []
        self._known: pl.Series | None = None

    def add(self, frame: pl.DataFrame) -> None:
        """Know the films of a batch."""
        self._batches.append(frame["movie_id"])

    def close(self) -> None:
        """Say that there are no more."""
        import polars as pl

        self._known = pl.concat(self._batches) if self._batches else pl.Series(dtype=pl.Int64)
        self._batches = []

    def _unknown(self) -> pl.Expr:
        import polars as pl

        assert self._known is not None, "films are read first"
        return ~pl.col("movie_id").is_in(self._known.implode())

    def rating_faults(self, scale: RatingScale) -> pl.Expr:
        """Faults of a rating on this scale."""
        import polars as pl

        rating = pl.col("rating")
        steps = (rating - scale.low) / scale.step
        off = ~rating.is_between(scale.low, scale.high) | (steps != steps.round())
        return first_reason(
            ("bad_id", _below_one("user_id", "movie_id")),
            ("off_scale", off),
            ("bad_timestamp", _bad_time()),
            ("unknown_film", self._unknown()),
        )

    def link_faults(self) -> pl.Expr:
        """Faults of a link."""
        import polars as pl

        return first_reason(
            ("bad_id", _below_one("movie_id")),
            ("bad_id", ~pl.col("imdb_id").str.contains("^[0-9]*$")),
            ("bad_id", (pl.col("tmdb_id") < 1).fill_null(value=False)),
            ("unknown_film", self._unknown()),
        )

    def tag_faults(self) -> pl.Expr:
        """Faults of a tag."""
        import polars as pl

        return first_reason(
            ("bad_id", _below_one("user_id", "movie_id")),
            ("missing_tag", pl.col("tag").str.strip_chars() == ""),
            ("bad_timestamp", _bad_time()),
            ("unknown_film", self._unknown()),
        )
