"""Rows put into their table's order, out of core, with later copies of a key taken out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.scratch import scratch_errors

if TYPE_CHECKING:
    import polars as pl

__all__ = ["OrderedRows"]

_BATCH = 262_144


class OrderedRows:
    """Takes rows in any order, gives them back ordered by key and one per key.

    Publishers mostly sort their files; then nothing is sorted again. Otherwise DuckDB sorts
    within its memory limit and spills to ``folder``.

    ``key`` identifies a row and is the order of the result. Among the rows of a key the last one by
    ``prefer`` (column, descending) stays; lines of the others are in ``doubled`` after the last
    batch. 0 threads of DuckDB take every core.
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
        self._folder = folder
        self._key = tuple(key)
        self._prefer = tuple(prefer)
        self._memory = memory_limit_mb
        self._threads = threads
        self._parts: list[Path] = []
        self._last: tuple[Any, ...] | None = None
        self._sorted = True
        self.doubled: list[pl.Series] = []

    def append(self, frame: pl.DataFrame) -> None:
        """Take some rows; the frame has ``line`` and at least the key's columns."""
        if not frame.height:
            return
        if self._sorted:
            keys = frame.select(self._key)
            self._sorted = _increasing(keys) and (self._last is None or self._last < keys.row(0))
            self._last = keys.row(-1)
        self._parts.append(self._kept(frame, len(self._parts)))

    def _kept(self, frame: pl.DataFrame, number: int) -> Path:
        """A part on disk: as it lies in memory if it will only be read back, else for DuckDB."""
        part = self._folder / f"{number:06d}.{'arrow' if self._sorted else 'parquet'}"
        with scratch_errors(self._folder):
            if self._sorted:
                frame.write_ipc(part)
            else:
                frame.write_parquet(part, compression="lz4", statistics=False)
        return part

    def batches(self) -> Iterator[pl.DataFrame]:
        """Return the rows in order, one per key; once."""
        import polars as pl

        if self._sorted:
            for part in self._parts:
                with scratch_errors(self._folder):
                    frame = pl.read_ipc(part)
                yield frame
                part.unlink()
            return
        held: pl.DataFrame | None = None
        for frame in self._sorted_batches():
            frame = frame if held is None else pl.concat([held, frame])
            # The last row waits for the next batch, which may start with the same key.
            same = pl.all_horizontal(pl.col(c) == pl.col(c).shift(-1) for c in self._key)
            doubled = frame.select(same=same)["same"].fill_null(value=False)
            if doubled.any():
                self.doubled.append(frame.filter(doubled)["line"])
            head = frame.head(-1).filter(~doubled.head(-1))
            held = frame.tail(1)
            if head.height:
                yield head
        if held is not None:
            yield held

    def _sorted_batches(self) -> Iterator[pl.DataFrame]:
        import duckdb
        import polars as pl

        order = [f'"{c}"' for c in self._key]
        order += [f'"{c}" {"DESC" if down else "ASC"}' for c, down in self._prefer]
        spill = self._folder / "spill"
        config: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": f"{self._memory}MiB",
            "temp_directory": str(spill),
            "preserve_insertion_order": False,
        }
        if self._threads:
            config["threads"] = self._threads
        for number, part in enumerate(self._parts):
            if part.suffix == ".arrow":
                self._parts[number] = self._kept(pl.read_ipc(part), number)
                part.unlink()
        with scratch_errors(self._folder), duckdb.connect(config=config) as connection:
            reader = connection.execute(
                f"SELECT * FROM read_parquet($parts) ORDER BY {', '.join(order)}",  # noqa: S608
                {"parts": [str(p) for p in self._parts]},
            ).to_arrow_reader(_BATCH)
            for batch in reader:
                frame = pl.from_arrow(batch)
                assert isinstance(frame, pl.DataFrame)
                if frame.height:
                    yield frame


def _increasing(keys: pl.DataFrame) -> bool:
    """Whether every key is greater than the one before, compared column by column."""
    import polars as pl

    if keys.height < 2:
        return True
    greater = pl.lit(value=False)
    equal = pl.lit(value=True)
    for name in keys.columns:
        before, here = pl.col(name).shift(1), pl.col(name)
        greater = greater | (equal & (here > before))
        equal = equal & (here == before)
    return bool(keys.select(greater.slice(1).all()).item())
