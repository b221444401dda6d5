"""The list of rejected rows: counted, in bounded memory, spilled to disk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.scratch import scratch_errors

if TYPE_CHECKING:
    import polars as pl

#: Longest text of a rejected row that is kept (characters); the size of a longer one is added.
MAX_TEXT = 500
_SPILL_ROWS = 50_000


def first_reason(*faults: tuple[str, pl.Expr]) -> pl.Expr:
    """The reason code of the first condition that holds, or null."""
    import polars as pl

    none = pl.lit(None, dtype=pl.String)
    return pl.coalesce(
        *(pl.when(is_fault).then(pl.lit(reason)).otherwise(none) for reason, is_fault in faults)
    )


class RejectLog:
    """Rejected rows of one source.

    A row (file, line) is rejected once, for the first reason found. Many rows are spilled to
    ``folder``.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = RejectLog(Path(folder))
    ...     log.add("ratings.csv", 7, "bad_rating", "1,2,nine,3")
    ...     log.count("ratings.csv"), log.reasons("ratings.csv")
    (1, {'bad_rating': 1})
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._rows: list[tuple[str, int, str, str]] = []
        self._parts: list[Path] = []
        self._counts: dict[str, Counter[str]] = {}
        self._first: dict[str, list[tuple[int, str, str]]] = {}

    def add(self, file: str, line: int, reason: str, text: str) -> None:
        """Reject one row."""
        if len(text) > MAX_TEXT:
            text = f"{text[:MAX_TEXT]}… ({len(text)} characters)"
        self._note(file, line, reason, text)
        self._counts.setdefault(file, Counter())[reason] += 1
        self._rows.append((file, line, reason, text))
        if len(self._rows) >= _SPILL_ROWS:
            self._spill()

    def extend(self, frame: pl.DataFrame) -> None:
        """Reject many rows: ``file``, ``line`` (int), ``reason``, ``text``."""
        import polars as pl

        if not frame.height:
            return
        text = pl.col("text").cast(pl.String).fill_null("")
        size = text.str.len_chars()
        frame = frame.select(
            pl.col("file").cast(pl.String),
            pl.col("line").cast(pl.Int64),
            pl.col("reason").cast(pl.String),
            text=pl.when(size > MAX_TEXT)
            .then(pl.format("{}… ({} characters)", text.str.slice(0, MAX_TEXT), size))
            .otherwise(text),
        )
        for file, reason, count in frame.group_by("file", "reason").len().iter_rows():
            self._counts.setdefault(file, Counter())[reason] += count
        first = frame.sort("file", "line").group_by("file", maintain_order=True).head(3)
        for file, line, reason, text in first.iter_rows():
            self._note(file, line, reason, text)
        self._write(frame)

    def count(self, file: str | None = None) -> int:
        """Rejected rows of one file, or of all."""
        files = self._counts if file is None else [file]
        return sum(sum(self._counts.get(f, Counter()).values()) for f in files)

    def reasons(self, file: str | None = None) -> Mapping[str, int]:
        """Rejected rows by reason, of one file or of all; reasons in alphabetical order."""
        total: Counter[str] = Counter()
        for name, counts in self._counts.items():
            if file is None or name == file:
                total.update(counts)
        return dict(sorted(total.items()))

    def first(self, file: str) -> list[tuple[int, str, str]]:
        """Up to three rejected rows of a file with the lowest lines: line, reason, text."""
        return list(self._first.get(file, []))

    def batches(self, rows: int = _SPILL_ROWS) -> Iterator[pl.DataFrame]:
        """All rejected rows in the order file, line, reason, text."""
        import polars as pl

        self._spill()
        if not self._parts:
            return
        # The streaming engine sorts out of core, so a file of nothing but faults fits too.
        merged = self._folder / "rejects-sorted.parquet"
        ordered = pl.scan_parquet(self._parts, glob=False).sort("file", "line", "reason", "text")
        with scratch_errors(self._folder):
            ordered.sink_parquet(merged)
        import pyarrow.parquet as pq

        with pq.ParquetFile(merged) as file:
            for batch in file.iter_batches(batch_size=rows):
                frame = pl.from_arrow(batch)
                assert isinstance(frame, pl.DataFrame)
                yield frame
        merged.unlink()

    def _note(self, file: str, line: int, reason: str, text: str) -> None:
        kept = self._first.setdefault(file, [])
        if len(kept) < 3 or line < kept[-1][0]:
            kept.append((line, reason, text))
            kept.sort()
            del kept[3:]

    def _spill(self) -> None:
        import polars as pl

        if self._rows:
            rows, self._rows = self._rows, []
            self._write(
                pl.DataFrame(
                    rows,
                    schema={
                        "file": pl.String,
                        "line": pl.Int64,
                        "reason": pl.String,
                        "text": pl.String,
                    },
                    orient="row",
                )
            )

    def _write(self, frame: pl.DataFrame) -> None:
        part = self._folder / f"rejects-{len(self._parts):06d}.parquet"
        with scratch_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            frame.write_parquet(part)
        self._parts.append(part)
