"""An immutable version of a table, opened for reading: a snapshot, or the union of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.errors import IntegrityError, StoreError
from pipelines.forks import check_polars
from pipelines.progress import add
from pipelines.store._manifest import MANIFEST, OF_COHORT, Manifest, hash16, split_cohort
from pipelines.store.files import Files

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa
    import pyarrow.dataset as pads


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A version of a table: its folder and :class:`~pipelines.store.Manifest`.

    ``place`` reads its files. Of a table that is built by cohort it is the union of ``parts``, one
    snapshot per cohort; its folder is that of the first.
    """

    dataset: str
    version: str
    path: Path
    manifest: Manifest
    place: Files = field(compare=False, repr=False)
    parts: tuple[Snapshot, ...] = ()

    @property
    def rows(self) -> int:
        """Rows (count)."""
        return self.manifest.rows

    @property
    def bytes(self) -> int:
        """Size of its files (bytes)."""
        return self.manifest.bytes

    @property
    def snapshots(self) -> tuple[Snapshot, ...]:
        """The snapshots that it is the union of, or itself."""
        return self.parts or (self,)

    def files(self) -> list[Path]:
        """Its Parquet files, in row order; plain files beside them are in `path`."""
        if self.parts:
            return [file for part in self.parts for file in part.files()]
        entries = (f for f in self.manifest.files if f.name.endswith(".parquet"))
        return [self.place.part(self.path, entry) for entry in entries]

    def cohorts(self) -> set[str]:
        """Cohorts of personas that it has rows of."""
        from pipelines.cohorts import cohort_of

        if named := {split_cohort(part.dataset)[1] for part in self.snapshots} - {""}:
            return named
        # Written before a cohort was a snapshot.
        frame = self.scan().select(cohort_of().alias("cohort")).unique().collect(engine="streaming")
        return set(frame["cohort"])

    def of_cohort(self, cohort: str) -> pl.LazyFrame:
        """A lazy frame of one cohort's rows, whose other files are not opened."""
        from pipelines.cohorts import in_cohort

        named = [part for part in self.parts if split_cohort(part.dataset)[1] == cohort]
        return (named[0] if named else self).scan().filter(in_cohort(cohort))

    def scan(self) -> pl.LazyFrame:
        """A lazy polars frame; nothing is read yet. ConfigError where Polars can't run."""
        check_polars(f"{self.dataset}, version {self.version}")
        return self.place.scan(self.files())

    def read(self, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """The rows (of the named columns, else StoreError) as a polars frame."""
        frame = self.scan()
        if columns is not None:
            frame = frame.select(self._known(columns))
        with self.place.reading(self.path):
            return frame.collect()

    def arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows (of the named columns, else StoreError) as an Arrow table."""
        names = None if columns is None else self._known(columns)
        with self.place.reading(self.path):
            return self.arrow_dataset().to_table(columns=names)

    def arrow_dataset(self) -> pads.Dataset:
        """The files as one Arrow dataset, for streaming and filters."""
        return self.place.dataset(self.files())

    def check(self) -> None:
        """Check that every file is there with its size; IntegrityError names the first."""
        for part in self.parts:
            part.check()
        if self.parts:
            return
        places = [self.place.part(self.path, entry) for entry in self.manifest.files]
        sizes = {folder: self.place.sizes(folder) for folder in {file.parent for file in places}}
        for file, entry in zip(places, self.manifest.files, strict=True):
            size = sizes[file.parent].get(file.name)
            if size is None:
                raise self._damaged("a file is missing", file)
            if size != entry.bytes:
                raise self._damaged(f"{size:,} bytes, not {entry.bytes:,}", file)

    def verify(self) -> None:
        """Read every byte again and compare with the manifest.

        IntegrityError names the first file that differs, is missing, or doesn't belong there.
        """
        for problem in self.problems():
            raise problem

    def problems(self) -> list[IntegrityError]:
        """All faults that :meth:`verify` could find."""
        if self.parts:
            return [problem for part in self.parts for problem in part.problems()]
        faults = []
        manifest = self.path / MANIFEST
        try:
            data = self.place.read(manifest)
            if data is None:
                faults.append(self._damaged("the manifest is missing", manifest))
            elif Manifest.from_json(data, manifest) != self.manifest:
                faults.append(
                    self._damaged("the manifest has changed since it was opened", manifest)
                )
        except IntegrityError as error:
            faults.append(error)
        except StoreError as error:
            faults.append(self._damaged(error.what, manifest))
        for entry in self.manifest.files:
            file = self.place.part(self.path, entry)
            try:
                digest = self.place.digest(file)
            except StoreError as error:
                faults.append(self._damaged(error.what, file))
            else:
                if digest is None:
                    faults.append(self._damaged("a file is missing", file))
                elif digest != entry.sha256:
                    faults.append(self._damaged("the content is not what was committed", file))
            add(entry.bytes)
        listed = {f.name for f in self.manifest.files}
        faults += [
            self._damaged("a file that was never committed", self.path / name)
            for name in self.place.names(self.path)
            if name.endswith(".parquet") and name not in listed
        ]
        return faults

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


def union(dataset: str, snapshots: Iterable[Snapshot]) -> Snapshot:
    """The table whose rows are those of its cohorts' snapshots, of which there is at least one.

    Its version follows from theirs. Its manifest has the newest one's code and facts; settings
    and facts of a cohort are by its name.
    """
    # As a text, `a` comes before `a-b` only with the colon that follows it in a persona's id.
    parts = sorted(snapshots, key=lambda part: f"{part.dataset}:")
    newest = max(parts, key=lambda part: part.manifest.created_at).manifest
    stats = {name: value for name, value in newest.stats.items() if name != OF_COHORT}
    configs: dict[str, Any] = {}
    inputs: dict[str, str] = {}
    for part in parts:
        cohort = split_cohort(part.dataset)[1]
        configs[cohort] = part.manifest.config
        inputs |= part.manifest.inputs
        for name, value in part.manifest.stats.get(OF_COHORT, {}).items():
            stats.setdefault(name, {})[cohort] = value
    manifest = replace(
        newest,
        dataset=dataset,
        version=hash16([[part.dataset, part.version] for part in parts]),
        rows=sum(part.rows for part in parts),
        bytes=sum(part.bytes for part in parts),
        files=tuple(entry for part in parts for entry in part.manifest.files),
        config={"cohorts": configs},
        inputs=inputs | newest.inputs,
        stats=stats,
    )
    first = parts[0]
    return Snapshot(dataset, manifest.version, first.path, manifest, first.place, tuple(parts))
