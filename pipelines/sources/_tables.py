"""A publisher's table: rows of its files, checked, in order, every one accounted for."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

from pipelines.config import Settings
from pipelines.progress import advance
from pipelines.scratch import scratch_errors
from pipelines.sources._files import Original, UnpackLimits, any_file
from pipelines.sources._reader import Batch, Column
from pipelines.sources._rejects import RejectLog

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")
Frames: TypeAlias = Iterator["pl.DataFrame"]

#: The first row in the file stays among those of a key: last in descending order of lines.
FIRST = (("line", True),)
#: 1990-01-01 and 2035-12-31, the bounds of the checks `rated_from` and `rated_to`: another time
#: counts in another unit, or is nonsense.
_FIRST_SECOND, _LAST_SECOND = 631_152_000, 2_082_758_399
#: Rows handed on at a time, and read at a time where they are put in order (count).
_ROWS, _BATCH = 131_072, 262_144


@dataclass(slots=True)
class RawTable:
    """A table being read; its batches are consumed once, in order."""

    #: Name of the raw dataset, such as ``raw.movielens_ratings``.
    dataset: str
    #: Frames with exactly the contract's columns, types and order of rows.
    batches: Frames = field(default_factory=lambda: iter(()))
    #: Name of the original file (or ``api``) as it stands in rejections, or of several together;
    #: ``None`` for a table that is derived and has no rows of its own to account for.
    file: str | None = None
    #: Whether the table may come out without rows; an empty table is an error otherwise.
    allow_empty: bool = False
    #: Data rows read by file; complete after the last batch, as all counts.
    rows: Counter[str] = field(default_factory=Counter)
    #: Rows left out on purpose, by reason (not faults). Rows read are rows out, rejections and
    #: these, which is checked.
    filtered: Counter[str] = field(default_factory=Counter)
    #: Further JSON-ready facts for the snapshot's manifest.
    stats: dict[str, Any] = field(default_factory=dict)


class Check(NamedTuple):
    """A condition that a row must fulfil; rows for which it is false are rejected."""

    #: Reason code.
    reason: str
    #: Column at fault where it is false.
    column: str
    #: Whether a row fulfils it; null counts as true.
    holds: pl.Expr | pl.Series


#: Makes the checks of rows of typed columns.
Checks: TypeAlias = "Callable[[pl.DataFrame], Sequence[Check]]"


def check_time(column: str, per_second: int = 1, *, zero: bool = False) -> Check:
    """The check that a time is of 1990 to 2035, in units of which a second has so many.

    With ``zero``, 0 passes: exports in MovieLens' layout write it where no time is known.
    """
    import polars as pl

    first, last = _FIRST_SECOND * per_second, (_LAST_SECOND + 1) * per_second - 1
    within = pl.col(column).is_between(first, last)
    return Check("bad_timestamp", column, within | (pl.col(column) == 0) if zero else within)


@dataclass(slots=True)
class Workspace:
    """Resources of a source while it reads."""

    #: An empty folder on the store's disk; removed afterwards.
    scratch: Path
    #: The settings tree.
    settings: Settings
    #: Log of rejected rows.
    rejects: RejectLog
    #: Films to find in TMDB: ``movie_id`` (int64), ``tmdb_id`` (int64, null if unknown),
    #: ``imdb_id`` (string, null if unknown). Only for sources that need ``raw.movielens_links``.
    wanted_tmdb: pl.DataFrame | None = None

    @property
    def limits(self) -> UnpackLimits:
        """Limits of compressed files, from the settings."""
        data = self.settings.data
        return UnpackLimits(data.max_unpack_ratio, round(data.max_unpacked_gb * 1e9))

    def original(self, path: Path, name: str) -> Original:
        """Open a file, plain or gzip, within the configured limits of unpacking.

        Raises SourceError if it is missing, unreadable or not a regular file.
        """
        return any_file(path, name, self.limits)


def raw_table(
    dataset: str,
    parts: Mapping[str, Iterable[Batch]],
    work: Workspace,
    *,
    columns: Sequence[Column] = (),
    checks: Checks = lambda _: (),
    file: str = "",
    key: tuple[str, ...] = (),
    prefer: tuple[tuple[str, bool], ...] = FIRST,
    repeated: str = "duplicate_key",
    finish: Callable[[pl.DataFrame], pl.DataFrame] = lambda frame: frame,
    filtered: Collection[str] = (),
    allow_empty: bool = False,
) -> RawTable:
    """A table of the rows of one file, of several that ``file`` names together, or of none.

    Parameters
    ----------
    dataset
        Name of the raw dataset.
    parts
        Rows by the file's name.
    work
        Scratch folder, settings and the log of rejected rows.
    columns
        Columns whose fields name what is at fault in a rejected row.
    checks
        Makes the checks of typed rows.
    file
        Name of several files together.
    key, prefer
        Columns that identify a row and are the table's order, and which row of a key stays
        (:class:`OrderedRows`). Without a key, rows come in the order of the files.
    repeated
        Reason of the other rows of a key.
    finish
        Makes the contract's columns of those that were read and of ``line`` and ``file``; called
        for each frame that comes out.
    filtered
        Reasons of rows that are counted and not rejected.
    allow_empty
        Whether the table may come out without rows.
    """
    from pipelines.contracts import RAW

    names = list(RAW[dataset].polars_schema())
    fields = {column.name: column.field for column in columns}
    table = RawTable(dataset, file=file or next(iter(parts), None), allow_empty=allow_empty)
    with_text = bool(key) and repeated not in filtered

    def reject(name: str, line: int, reason: str, text: str, *more: str | None) -> None:
        if reason in filtered:
            table.filtered[reason] += 1
        else:
            work.rejects.add(name, line, reason, text, *more)

    def sound(name: str, batch: Batch) -> pl.DataFrame:
        """The rows of a batch that pass all checks; the others are rejected."""
        import polars as pl

        frame, faults = batch.frame.with_row_index("row"), batch.faults
        frame = frame.filter(~pl.col("row").is_in(list(faults))) if faults else frame
        listed = checks(frame)
        failed = frame.select((~c.holds).alias(str(n)) for n, c in enumerate(listed))
        for check, mask in zip(listed, failed, strict=True):
            if mask.any():
                values = frame.filter(mask).select("row", pl.col(check.column).cast(pl.String))
                column = fields.get(check.column, check.column)
                for row, value in values.iter_rows():
                    faults.setdefault(row, (check.reason, column, value))
        if faults:
            lines = batch.frame["line"]
            for row in sorted(faults):
                reason, *more = faults[row]
                reject(name, lines[row], reason, batch.text(row), *more)
            frame = frame.filter(~pl.col("row").is_in(list(faults)))
        if with_text:
            frame = frame.with_columns(
                text=pl.Series(map(batch.text, frame["row"]), dtype=pl.String)
            )
        return frame.drop("row").with_columns(file=pl.lit(name))

    def rows() -> Frames:
        for name, batches in parts.items():
            table.rows[name] = 0
            for batch in batches:
                table.rows[name] += batch.frame.height
                frame = sound(name, batch)
                if frame.height:
                    yield frame

    def ordered() -> Frames:
        (name,) = parts
        runtime = work.settings.runtime
        held = OrderedRows(
            work.scratch / dataset,
            key,
            prefer,
            memory_limit_mb=runtime.memory_limit_mb,
            threads=runtime.threads,
        )
        for frame in rows():
            held.append(frame)
        done = 0
        for frame in held.batches():
            done += frame.height
            advance(f"ordering {name}", done, table.rows[name])
            yield frame
        for frame in held.doubled:
            texts = frame["text"] if with_text else [""] * frame.height
            for line, text in zip(frame["line"], texts, strict=True):
                reject(name, line, repeated, text)

    if parts:
        frames = ordered() if key else _in_batches(rows())
        table.batches = ahead(finish(frame).select(names) for frame in frames)
    return table


def _in_batches(frames: Frames) -> Frames:
    """The same rows in frames of at least ``_ROWS``: the store writes large ones faster."""
    import polars as pl

    held: list[pl.DataFrame] = []
    for frame in frames:
        held.append(frame)
        if sum(f.height for f in held) >= _ROWS:
            yield pl.concat(held)
            held = []
    if held:
        yield pl.concat(held)


def ahead(items: Iterator[T], depth: int = 1) -> Iterator[T]:
    """The same items, made by a thread that works up to ``depth`` items ahead.

    Errors of the iterator are raised here, after the items before it. A consumer that stops
    early stops the thread. Who listens to the caller (:mod:`pipelines.progress`) hears the thread.

    >>> list(ahead(iter("abc")))
    ['a', 'b', 'c']
    """
    end, context = object(), copy_context()

    def following() -> T | object:
        return context.run(next, items, end)

    with ThreadPoolExecutor(1, thread_name_prefix="read-ahead") as pool:
        try:
            futures = deque(pool.submit(following) for _ in range(depth))
            while (item := futures.popleft().result()) is not end:
                futures.append(pool.submit(following))
                yield item  # type: ignore[misc]  # not the sentinel
        finally:
            pool.shutdown(cancel_futures=True)
            if isinstance(items, Generator):
                items.close()


class OrderedRows:
    """Takes rows in any order, gives them back ordered by key and one per key, out of core.

    Publishers mostly sort their files; then nothing is sorted again. Otherwise DuckDB sorts
    within its memory limit and spills to ``folder``.

    ``key`` identifies a row and is the order of the result. Among the rows of a key the last one by
    ``prefer`` (column, descending) stays; the others are in ``doubled`` after the last batch. 0
    threads of DuckDB take every core.
    """

    def __init__(
        self,
        folder: Path,
        key: Sequence[str],
        prefer: Sequence[tuple[str, bool]],
        *,
        memory_limit_mb: int,
        threads: int = 0,
    ) -> None:
        folder.mkdir(parents=True)
        self._folder, self._key, self._prefer = folder, tuple(key), tuple(prefer)
        self._memory, self._threads = memory_limit_mb, threads
        self._parts: list[Path] = []
        self._last: tuple[Any, ...] | None = None
        self._sorted = True
        self.doubled: list[pl.DataFrame] = []

    def append(self, frame: pl.DataFrame) -> None:
        """Take some rows; the frame has ``line`` and at least the key's columns."""
        if self._sorted:
            keys = frame.select(self._key)
            rises = keys.equals(keys.sort(self._key)) and not keys.is_duplicated().any()
            self._sorted = rises and (self._last is None or self._last < keys.row(0))
            self._last = keys.row(-1)
        part = self._folder / f"{len(self._parts):06d}.parquet"
        with scratch_errors(self._folder):
            frame.write_parquet(part, compression="lz4", statistics=False)
        self._parts.append(part)

    def batches(self) -> Frames:
        """Return the rows in order, one per key; once."""
        import polars as pl

        if self._sorted:
            for part in self._parts:
                with scratch_errors(self._folder):
                    frame = pl.read_parquet(part)
                yield frame
            return
        held: pl.DataFrame | None = None
        for frame in self._sorted_frames():
            frame = frame if held is None else pl.concat([held, frame])
            # The last row waits for the next batch, which may start with the same key.
            same = pl.all_horizontal(pl.col(c) == pl.col(c).shift(-1) for c in self._key)
            doubled = frame.select(same=same)["same"].fill_null(value=False)
            if doubled.any():
                self.doubled.append(frame.filter(doubled))
            head = frame.head(-1).filter(~doubled.head(-1))
            held = frame.tail(1)
            if head.height:
                yield head
        if held is not None:
            yield held

    def _sorted_frames(self) -> Frames:
        import duckdb
        import polars as pl

        order = [f'"{c}"' for c in self._key]
        order += [f'"{c}" {"DESC" if down else "ASC"}' for c, down in self._prefer]
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self._memory}MiB",
            "temp_directory": str(self._folder / "spill"),
            "preserve_insertion_order": False,
        }
        if self._threads:
            config["threads"] = self._threads
        with scratch_errors(self._folder), duckdb.connect(config=config) as connection:
            reader = connection.execute(
                f"SELECT * FROM read_parquet($parts) ORDER BY {', '.join(order)}",  # noqa: S608
                {"parts": [str(p) for p in self._parts]},
            ).to_arrow_reader(_BATCH)
            for batch in reader:
                if batch.num_rows:
                    frame = pl.from_arrow(batch)
                    assert isinstance(frame, pl.DataFrame)
                    yield frame
