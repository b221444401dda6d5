"""An immutable version of a table, opened for reading."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.errors import IntegrityError, StoreError
from pipelines.store._manifest import MANIFEST, Manifest
from pipelines.store.files import sha256_of

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as pads


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of a table: its folder and :class:`~pipelines.store.Manifest`."""

    dataset: str
    version: str
    path: Path
    manifest: Manifest

    @property
    def rows(self) -> int:
        """Rows (count)."""
        return self.manifest.rows

    @property
    def bytes(self) -> int:
        """Size of its files (bytes)."""
        return self.manifest.bytes

    def files(self) -> list[Path]:
        """Its Parquet files, in row order; plain files beside them are in `path`."""
        return [self.path / f.name for f in self.manifest.files if f.name.endswith(".parquet")]

    def scan(self) -> pl.LazyFrame:
        """A lazy polars frame; nothing is read yet."""
        import polars as pl

        return pl.scan_parquet(self.files(), hive_partitioning=False, glob=False)

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows (of the named columns, else StoreError) as a polars frame."""
        frame = self.scan()
        if columns is not None:
            frame = frame.select(self._known(columns))
        return frame.collect()

    def arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows (of the named columns, else StoreError) as an Arrow table."""
        known = None if columns is None else self._known(columns)
        return self.arrow_dataset().to_table(columns=known)

    def arrow_dataset(self) -> pads.Dataset:
        """The files as one Arrow dataset, for streaming and filters."""
        import pyarrow.dataset as pads

        return pads.dataset([str(f) for f in self.files()], format="parquet")

    def check(self) -> None:
        """Check that every file is there with its size; IntegrityError names the first."""
        for entry in self.manifest.files:
            file = self.path / entry.name
            try:
                size = file.stat().st_size
            except OSError:
                raise self._damaged("a file is missing", file) from None
            if size != entry.bytes:
                raise self._damaged(f"{size:,} bytes, not {entry.bytes:,}", file)

    def verify(self) -> None:
        """Read every byte again and compare with the manifest.

        IntegrityError names the first file that differs, is missing, or doesn't belong there.
        """
        for problem in self.problems():
            raise problem

    def problems(self, progress: Callable[[Path, int], None] | None = None) -> list[IntegrityError]:
        """All faults that :meth:`verify` could find; ``progress`` gets each file and its bytes."""
        found = []
        manifest = self.path / MANIFEST
        try:
            if Manifest.from_json(manifest.read_bytes(), manifest) != self.manifest:
                found.append(
                    self._damaged("the manifest has changed since it was opened", manifest)
                )
        except OSError:
            found.append(self._damaged("the manifest is missing", manifest))
        except IntegrityError as error:
            found.append(error)
        for entry in self.manifest.files:
            file = self.path / entry.name
            try:
                digest = sha256_of(file)
            except FileNotFoundError:
                found.append(self._damaged("a file is missing", file))
            except OSError as error:
                found.append(self._damaged(f"it can't be read ({error.strerror})", file))
            else:
                if digest != entry.sha256:
                    found.append(self._damaged("the content is not what was committed", file))
            if progress is not None:
                progress(file, entry.bytes)
        listed = {f.name for f in self.manifest.files}
        found += [
            self._damaged("a file that was never committed", file)
            for file in sorted(self.path.glob("*.parquet"))
            if file.name not in listed
        ]
        return found

    def _known(self, columns: Sequence[str]) -> list[str]:
        names = [c["name"] for c in self.manifest.schema]
        for column in columns:
            if column not in names:
                raise StoreError(
                    f"no column {column!r}",
                    where=f"{self.dataset}@{self.version}",
                    hint=f"it has {', '.join(names)}",
                )
        return list(columns)

    def _damaged(self, what: str, file: Path) -> IntegrityError:
        return IntegrityError(
            f"{self.dataset}@{self.version} is damaged: {what}",
            where=str(file),
            hint="remove its folder and build the table again, or restore it from a copy",
        )
