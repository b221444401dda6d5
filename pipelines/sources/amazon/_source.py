"""The loader of Amazon's review and product files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.sources._given import given_files
from pipelines.sources._json_lines import JsonBatch, JsonLinesReader
from pipelines.sources._lines import ahead
from pipelines.sources._protocol import RawTable, Source, Workspace
from pipelines.sources.amazon._fields import TABLES, Table
from pipelines.sources.amazon._layout import (
    BOOK_CATEGORIES,
    EXPECTED,
    AmazonFile,
    Kind,
    find_files,
)

if TYPE_CHECKING:
    import polars as pl

__all__ = ["AmazonSource"]

#: Rows handed on at a time (count): the store checks and writes large batches faster.
_BATCH = 131_072


class AmazonSource(Source):
    """Amazon reviews and products, editions 2018 and 2023, JSON lines, plain or gzip.

    Rows come out as published, by file and line; repeated records and mark-up in titles are
    dbt's to clean and count. Rejected are lines that the JSON-lines reader can't take
    (``blank_line``, ``too_long``, ``invalid_utf8``, ``not_json``, ``not_object``) and, by reason:

    =================  =====================================================================
    ``bad_id``         a user or item that is missing, no text, or has characters of no id
    ``bad_rating``     a rating that is missing or no number
    ``off_scale``      a rating that is not 1, 2, 3, 4 or 5
    ``bad_timestamp``  a time that is missing, no whole number, or not from 1970 to 2100
    ``wrong_type``     another field with a value of another type than published
    =================  =====================================================================
    """

    name: ClassVar[str] = "amazon"
    expected: ClassVar[str] = EXPECTED
    code_version: ClassVar[str] = "amazon-1"
    datasets: ClassVar[tuple[str, ...]] = (
        *(table.dataset for table in TABLES.values()),
        "raw.amazon_rejected",
    )
    domains: ClassVar[frozenset[str]] = frozenset({"books", "products"})
    licence: ClassVar[Licence] = Licence(
        name="Amazon review data of the McAuley lab",
        url="https://cseweb.ucsd.edu/~jmcauley/datasets.html",
        terms="For academic use; cite the paper of the edition. The reviews are their writers'.",
        citation="J. Ni, J. Li, J. McAuley. Justifying Recommendations using Distantly-Labeled "
        "Reviews and Fine-Grained Aspects. EMNLP 2019 (2018 edition). Y. Hou, J. Li, Z. He, "
        "A. Yan, X. Chen, J. McAuley. Bridging Language and Items for Retrieval and "
        "Recommendation. arXiv:2403.03952, 2024 (2023 edition).",
    )

    def present(self, folder: Path) -> bool:
        """Whether files are named in the settings or lie in ``folder/amazon``."""
        data = self.settings.data.amazon
        return bool(data.reviews or data.meta or self._found(folder))

    def files(self, folder: Path) -> list[Path]:
        """Return the files that are read, by name."""
        return [file.path for file in self._found(folder)]

    def feeds(self, folder: Path) -> frozenset[str]:
        """Books if there are products of a category of books, products if there are others."""
        return frozenset(_domain(f) for f in self._found(folder) if f.kind == "meta")

    def lacks(self, folder: Path) -> SourceError | None:
        """Name reviews of a domain that has no product records at all."""
        found = self._found(folder)
        known = {_domain(f) for f in found if f.kind == "meta"}
        alone = [f for f in found if _domain(f) not in known]
        if not alone:
            return None
        records = dict.fromkeys(f"meta_{f.category}" for f in alone)
        return SourceError(
            "reviews without product records",
            where=", ".join(f.name for f in alone),
            hint=f"put {', '.join(records)} (.json.gz or .jsonl.gz) beside them or name it in "
            "data.amazon.meta; data.amazon.categories leaves categories out",
        )

    def identity(self, folder: Path) -> Mapping[str, Any]:
        """Return how each file is read: its edition is a setting where its name leaves it open."""
        return {"editions": {file.name: file.edition for file in self._found(folder)}}

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Read reviews and products of 2018, then of 2023."""
        found = self._found(folder)
        if not found:
            raise SourceError(
                "no Amazon files", where=str(folder / self.name), hint="see docs/data.md"
            )
        for (edition, kind), table in TABLES.items():
            files = [f for f in found if (f.edition, f.kind) == (edition, kind)]
            reading = _Reading(table, files, work)
            yield RawTable(
                dataset=table.dataset,
                batches=ahead(reading.batches()),
                file=f"amazon/{edition} {kind}",
                rows_read=lambda r=reading: sum(r.rows_read.values()),  # type: ignore[misc]
                stats=reading.stats,
                allow_empty=not files,
                files=lambda r=reading: dict(r.rows_read),  # type: ignore[misc]
            )

    def _found(self, folder: Path) -> list[AmazonFile]:
        data = self.settings.data.amazon
        given: dict[Kind, list[Path]] = {
            "reviews": given_files(data.reviews, self.settings, progress=self.progress),
            "meta": given_files(data.meta, self.settings, progress=self.progress),
        }
        return find_files(folder, data, given)


def _domain(file: AmazonFile) -> str:
    return "books" if file.category in BOOK_CATEGORIES else "products"


class _Reading:
    """One pass over the files of a table."""

    def __init__(self, table: Table, files: Sequence[AmazonFile], work: Workspace) -> None:
        self.rows_read: dict[str, int] = {f.name: 0 for f in files}
        self._table = table
        self._files = files
        self._work = work
        self._filled: Counter[str] = Counter()

    def batches(self) -> Iterator[pl.DataFrame]:
        """Frames with the contract's columns."""
        import polars as pl

        held: list[pl.DataFrame] = []
        for frame in self._frames():
            held.append(frame)
            if sum(f.height for f in held) >= _BATCH:
                yield pl.concat(held)
                held = []
        if held:
            yield pl.concat(held)

    def _frames(self) -> Iterator[pl.DataFrame]:
        import polars as pl

        names = ["category", "file", "line", *(f.name for f in self._table.fields)]
        for file in self._files:
            reader = JsonLinesReader(
                self._work.original(file.path, file.name),
                self._table.fields,
                self._work.reject_frame,
                progress=self._work.progress,
                threads=self._work.settings.runtime.threads,
            )
            for batch in reader:
                frame = self._sound(batch, file)
                self.rows_read[file.name] = reader.rows_read
                self._count(frame)
                if frame.height:
                    yield frame.with_columns(
                        category=pl.lit(file.category), file=pl.lit(file.name)
                    ).select(names)

    def _sound(self, batch: JsonBatch, file: AmazonFile) -> pl.DataFrame:
        """The rows without faults; the others are rejected."""
        import polars as pl

        reason = batch.frame.select(reason=self._table.faults())["reason"]
        if reason.null_count() == len(reason):
            return batch.frame
        bad = reason.is_not_null()
        lines = batch.frame["line"].filter(bad)
        faults = {"line": lines, "reason": reason.filter(bad), "text": batch.at(lines)}
        self._work.reject_frame(pl.DataFrame(faults).with_columns(file=pl.lit(file.name)))
        return batch.frame.filter(~bad)

    def _count(self, frame: pl.DataFrame) -> None:
        import polars as pl

        filled = {
            f.name: (pl.col(f.name).list.len() > 0).sum()
            if f.kind == "texts"
            else pl.col(f.name).is_not_null().sum()
            for f in self._table.fields
        }
        self._filled.update(frame.select(**filled).row(0, named=True))

    def stats(self) -> dict[str, Any]:
        """Rows that have a value, by column."""
        return {"filled": dict(self._filled)}
