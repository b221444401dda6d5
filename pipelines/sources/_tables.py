"""A publisher's table as a declaration: its files, its columns, the faults of a row, its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pipelines.progress import advance
from pipelines.sources._protocol import FIRST, Batch, RawTable, Workspace, in_batches
from pipelines.sources._rejects import Fault
from pipelines.sources.formats.files import Original
from pipelines.sources.formats.lines import ahead

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

__all__ = ["Faults", "Reader", "raw_table"]

#: Makes the faults for which a row of typed columns is rejected all the same.
Faults = Callable[[], Sequence[Fault]]

#: Rows handed on at a time (count).
_BATCH = 131_072


class Reader(Protocol):
    """Rows of a file, whatever its format."""

    original: Original
    rows_read: int

    @property
    def headers(self) -> Mapping[str, str]: ...

    def __iter__(self) -> Iterator[Batch]: ...

    def lines(self, numbers: np.ndarray[Any, Any]) -> Iterator[tuple[int, str]]: ...


def raw_table(
    dataset: str,
    readers: Sequence[Reader],
    faults: Faults,
    work: Workspace,
    *,
    files: str = "",
    key: tuple[str, ...] = (),
    prefer: tuple[tuple[str, bool], ...] = FIRST,
    seen: Callable[[pl.DataFrame], None] | None = None,
    finish: Callable[[pl.DataFrame], pl.DataFrame] | None = None,
    allow_empty: bool = False,
    repeated: str | None = None,
    filtered: Callable[[], Mapping[str, int]] = dict,
    stats: Callable[[], Mapping[str, Any]] = dict,
) -> RawTable:
    """A table of one file, of several that ``files`` names together, or of none: no rows then.

    ``faults`` makes the faults of a row; rejected rows go to ``work``. ``key`` identifies a row and
    is the table's order, ``prefer`` selects the row of a key that stays (:class:`OrderedRows`); the
    others are rejected, or filtered and counted as ``repeated``. Without a key, rows come in the
    order of the files, with ``file`` and ``line``. ``finish`` makes a batch into the contract's
    columns, and ``seen`` is called with it before.
    """
    if not readers and not files:
        return RawTable(dataset, iter(()), None, rows_read=lambda: 0)
    doubled: dict[str, int] = {}

    def rows() -> Iterator[pl.DataFrame]:
        import polars as pl

        for reader in readers:
            for batch in reader:
                frame = work.sound(batch, faults(), reader.original.name)
                if frame.height:
                    yield frame if key else frame.with_columns(file=pl.lit(reader.original.name))

    def ordered() -> Iterator[pl.DataFrame]:
        (reader,) = readers
        held = work.ordered(dataset, key, prefer)
        for frame in rows():
            held.append(frame)
        total, done = reader.rows_read, 0
        for frame in held.batches():
            done += frame.height
            advance(f"ordering {reader.original.name}", done, total)
            yield frame.select(list(reader.headers))
        if repeated is None:
            _reject_doubled(reader, held.doubled, work)
        elif held.doubled:
            doubled[repeated] = sum(map(len, held.doubled))

    def batches() -> Iterator[pl.DataFrame]:
        for frame in ordered() if key else in_batches(rows(), _BATCH):
            if seen is not None:
                seen(frame)
            yield frame if finish is None else finish(frame)

    return RawTable(
        dataset=dataset,
        batches=ahead(batches()),
        file=files or readers[0].original.name,
        rows_read=lambda: sum(reader.rows_read for reader in readers),
        filtered=lambda: {**doubled, **filtered()},
        stats=stats,
        allow_empty=allow_empty,
        files=(lambda: {r.original.name: r.rows_read for r in readers}) if files else None,
    )


def _reject_doubled(reader: Reader, doubled: list[pl.Series], work: Workspace) -> None:
    if not doubled:
        return
    import polars as pl

    # Only now is it known which rows lose; their text is fetched in one more pass.
    numbers = pl.concat(doubled).sort().to_numpy()
    for line, row in reader.lines(numbers):
        work.reject(reader.original.name, line, "duplicate_key", row)
