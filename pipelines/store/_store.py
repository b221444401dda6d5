"""The store: a folder of immutable snapshots, pointers to the current ones, and releases."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pipelines.errors import ConfigError, IntegrityError, ReleaseError, StoreError
from pipelines.paths import ObjectPath, home_path, release_path
from pipelines.plugins import closing
from pipelines.store._diff import ReleaseDiff, diff_releases
from pipelines.store._layout import Layout
from pipelines.store._lineage import COHORT_LINEAGE, builds_of, resolve_lineage
from pipelines.store._maintenance import (
    GRACE,
    Backup,
    BeforeRemoval,
    Garbage,
    backup,
    collect_garbage,
)
from pipelines.store._manifest import (
    OF_COHORT,
    WITHHELD,
    build_key,
    check_dataset_name,
    cohort_dataset,
    now,
    split_cohort,
)
from pipelines.store._push import Pushed, push_release
from pipelines.store._records import (
    CheckRecord,
    check_format,
    mark_format,
    merge_checks,
    move_pointer,
    open_snapshot,
    read_checks,
    read_version,
)
from pipelines.store._release import (
    Release,
    check_release_name,
    find_release,
    list_releases,
    lock_table,
)
from pipelines.store._snapshot import Snapshot, union
from pipelines.store._verify import VerifyReport, verify_release
from pipelines.store._writer import Provenance, SnapshotWriter, commit_together, contract_of
from pipelines.store.files import LocalFiles
from pipelines.store.locks import PATIENCE, RunLock, mutex

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

    from pipelines.contracts import Contract


#: Reasons shown in the one-line error; all of them are in its details.
_SHOWN = 5


_VERSION = re.compile(r"[0-9a-f]{16}")

Rows: TypeAlias = "pl.DataFrame | pa.Table | pa.RecordBatch"


@dataclass(frozen=True, slots=True)
class Table:
    """A table on its way into the store."""

    #: Name of the table, such as ``movies.items``.
    dataset: str
    #: Its rows in batches, which are read once.
    frames: Iterable[Rows]
    #: Facts for the manifest (JSON); called after the last batch.
    stats: Callable[[], Mapping[str, Any]] = dict
    #: True if the table may be empty.
    allow_empty: bool = False
    #: True if the rows are in the contract's order; if not, there is one batch, which is sorted.
    ordered: bool = True
    #: Plain files that are copied beside the rows; called after the last batch.
    files: Callable[[], Iterable[Path]] = tuple


@dataclass(frozen=True, slots=True)
class Build:
    """Identity of tables that are made together, and how they are made."""

    datasets: tuple[str, ...]
    #: Returns the tables one after another; not called if an equal build is found.
    make: Callable[[], Iterable[Table]]
    #: The three parts of the build key: code, identity settings (JSON), and versions (``dataset ->
    #: version`` or ``file:<name> -> sha256``).
    code_version: str
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    #: True if the tables of an equal build may be used.
    reusable: bool = True

    @property
    def key(self) -> str:
        """The build key."""
        return build_key(self.code_version, self.config, self.inputs)


class Store:
    """The versioned store below one folder of a local disk, which the first write creates.

    ConfigError if the home is an address; StoreError if it was written in a newer format than this
    version knows.

    Examples
    --------
    >>> Store("nowhere").datasets()
    []
    """

    def __init__(self, home: Path | str) -> None:
        self.home = home_path(home)
        self.files = LocalFiles(self.home)
        self._layout = Layout(self.home)
        check_format(self.files)

    def __repr__(self) -> str:
        return f"Store({str(self.home)!r})"

    # -- writing snapshots -------------------------------------------------------------------

    def commit(
        self,
        dataset: str,
        frame: pl.DataFrame | pa.Table,
        *,
        code_version: str,
        config: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str] | None = None,
        run_id: str | None = None,
        stats: Mapping[str, Any] | None = None,
        contract: Contract | None = None,
        allow_empty: bool = False,
    ) -> Snapshot:
        """Check, sort and write a whole table, and make it the current version.

        If the same content was committed before, it is that snapshot, with the provenance it had
        then, and no file of it is written again.

        Parameters
        ----------
        dataset
            Name of the table, such as ``movies.items``.
        frame
            Its rows, in any order; checked against ``contract``.
        code_version, config, inputs
            The three parts of its build key.
        run_id
            The run that made it.
        stats
            Facts for the manifest (JSON).
        contract
            Default: the one in ``pipelines.contracts.CONTRACTS``.
        allow_empty
            True if the table may be empty.

        Raises
        ------
        ContractError
            Rows break the contract, or there are none.
        StoreError
            The disk is full or can't be written; nothing is left behind.
        """
        with self.write(
            dataset,
            code_version=code_version,
            config=config,
            inputs=inputs,
            run_id=run_id,
            contract=contract,
            allow_empty=allow_empty,
        ) as writer:
            writer.append_unordered(frame)
            writer.note(**(stats or {}))
        return writer.snapshot

    def write(
        self,
        dataset: str,
        *,
        code_version: str,
        config: Mapping[str, Any] | None = None,
        inputs: Mapping[str, str] | None = None,
        run_id: str | None = None,
        contract: Contract | None = None,
        allow_empty: bool = False,
    ) -> SnapshotWriter:
        """A writer for a table that comes in batches, in the contract's order.

        See :meth:`commit` for the parameters and :class:`SnapshotWriter` for its use.
        """
        check_dataset_name(dataset)
        mark_format(self.files)
        return SnapshotWriter(
            self.files,
            self._layout,
            dataset,
            contract or contract_of(dataset),
            Provenance(code_version, dict(config or {}), dict(inputs or {}), run_id),
            allow_empty=allow_empty,
        )

    def commit_together(self, writers: Sequence[SnapshotWriter]) -> list[Snapshot]:
        """Commit tables that become visible only after all were written without error.

        Not atomic across tables when the process is killed in the middle of committing: then
        some tables are new and some are old, each of them whole, and a release of such a mixture
        is refused because its lineage is inconsistent.
        """
        return commit_together(writers)

    def point(self, dataset: str, version: str) -> Snapshot:
        """Make an existing version the current one; on a StoreError the pointer stays."""
        with mutex(self._layout.versions_lock, timeout=PATIENCE, shared=True):
            snapshot = self.get(dataset, version)
            move_pointer(self.files, self._layout.ref(dataset), dataset, snapshot.version)
        return snapshot

    def withdraw(self, dataset: str) -> None:
        """Leave an optional dataset without a current version; its snapshots stay.

        A release that is published afterwards is without the table.
        """
        for name in (dataset, *self._cohorts(dataset)):
            self.files.remove(self._layout.ref(check_dataset_name(name)))

    def split_cohorts(self, dataset: str) -> None:
        """Make a current version from before cohorts were snapshots one snapshot per cohort.

        Nothing happens if there is none. A cohort has the code, settings and inputs that its rows
        were committed with.
        """
        ref = self._layout.ref(check_dataset_name(dataset))
        if read_version(self.files, ref) is None:
            return
        with self.lock(f"split-{dataset}", timeout=PATIENCE):
            # Another process may have done it meanwhile.
            if read_version(self.files, ref) is not None:
                self._split(self.current(dataset))
                # Last: until then the whole version is the current one, also after a kill.
                self.files.remove(ref)

    def _split(self, before: Snapshot) -> None:
        import polars as pl

        dataset = before.dataset
        manifest, schema = before.manifest, contract_of(dataset).polars_schema()
        columns = before.scan().collect_schema()
        new = [pl.lit(None, kind).alias(n) for n, kind in schema.items() if n not in columns]
        for cohort in sorted(before.cohorts()):
            facts = {
                name: value[cohort]
                for name, value in manifest.stats.items()
                if isinstance(value, Mapping) and cohort in value
            }
            shared = {name: value for name, value in manifest.stats.items() if name not in facts}
            with self.write(
                cohort_dataset(dataset, cohort),
                code_version=manifest.code_version,
                config=manifest.config.get("cohorts", {}).get(cohort, manifest.config),
                inputs=manifest.inputs,
                run_id=manifest.run_id,
            ) as writer:
                rows = before.of_cohort(cohort).with_columns(new).select(*schema)
                for frame in rows.collect_batches(maintain_order=True):
                    writer.append(frame)
                writer.note(**shared, **{OF_COHORT: facts})

    # -- reading snapshots -------------------------------------------------------------------

    def has(self, dataset: str) -> bool:
        """Return True if the dataset, or one of its cohorts, has a current version."""
        names = (dataset, *self._cohorts(dataset))
        refs = [self._layout.ref(check_dataset_name(name)) for name in names]
        return any(read_version(self.files, ref) is not None for ref in refs)

    def current(self, dataset: str) -> Snapshot:
        """The current version; StoreError if there is none, IntegrityError if it is damaged.

        Of a table that is built by cohort it is the union of its cohorts' current versions;
        ``<table>-<cohort>`` is that of one.
        """
        version = read_version(self.files, self._layout.ref(check_dataset_name(dataset)))
        if version is not None:
            return self.get(dataset, version)
        parts = [self.current(name) for name in self._cohorts(dataset)]
        if parts:
            return union(dataset, parts)
        table, cohort = split_cohort(dataset)
        raise StoreError(
            f"no {table}{f' of cohort {cohort}' if cohort else ''} in this store",
            where=str(self.home),
            hint="run the pipeline first: understudy run",
        )

    def _cohorts(self, dataset: str) -> list[str]:
        """Datasets of the cohorts of a table that have a current version."""
        names = self.files.names(self._layout.refs)
        start = cohort_dataset(dataset, "")
        return [n.removesuffix(".json") for n in names if n.startswith(start)]

    def get(self, dataset: str, version: str) -> Snapshot:
        """A version by its name or a unique prefix of it.

        StoreError if unknown or ambiguous; IntegrityError naming the file if it is damaged.
        """
        folder = self._layout.data / check_dataset_name(dataset)
        names = [n for n in self.files.names(folder) if _VERSION.fullmatch(n)]
        matches = [n for n in names if version and n.startswith(version)]
        if len(matches) != 1:
            raise StoreError(
                f"{len(matches) or 'no'} versions of {dataset} match {version!r}",
                where=str(folder),
                hint=f"known: {', '.join(names[:8]) or 'none'}",
            )
        return open_snapshot(self.files, folder / matches[0])

    def datasets(self) -> list[str]:
        """Names of the datasets that have a current version."""
        names = self.files.names(self._layout.refs)
        tables = (split_cohort(n.removesuffix(".json"))[0] for n in names if n.endswith(".json"))
        return list(dict.fromkeys(tables))

    def versions(self, dataset: str) -> list[str]:
        """The whole versions of a dataset, oldest first; damaged ones are left out."""
        folder = self._layout.data / check_dataset_name(dataset)
        opened = []
        for name in self.files.names(folder):
            if _VERSION.fullmatch(name):
                try:
                    opened.append(open_snapshot(self.files, folder / name))
                except IntegrityError:
                    continue
        return [s.version for s in sorted(opened, key=lambda s: (s.manifest.created_at, s.version))]

    def find_build(self, dataset: str, build_key: str) -> Snapshot | None:
        """Snapshot of an earlier build of the same code, configuration and inputs, if whole.

        A caller that uses it makes it current with :meth:`point`.
        """
        path = self._layout.build(check_dataset_name(dataset), build_key)
        try:
            version = read_version(self.files, path)
            if version is None:
                return None
            return open_snapshot(self.files, self._layout.snapshot(dataset, version))
        except IntegrityError:
            return None  # damaged: build it again, which also repairs it

    def find(self, build: Build) -> dict[str, Snapshot] | None:
        """The tables of an equal build by dataset, or None if one is missing or may not be used."""
        if not build.reusable:
            return None
        candidates = {d: self.find_build(d, build.key) for d in build.datasets}
        usable = {d: snapshot for d, snapshot in candidates.items() if snapshot is not None}
        return usable if len(usable) == len(candidates) else None

    def build(self, build: Build, *, run_id: str | None = None) -> dict[str, Snapshot]:
        """Make the tables of an equal build current, or make and commit them together.

        Returns the snapshot of each table by dataset: the current one, unless its facts say that
        it is withheld. Errors are those of :meth:`commit`; then none of the tables is replaced.
        """
        existing = self.find(build)
        if existing is not None:
            return {
                d: snapshot
                if WITHHELD in snapshot.manifest.stats
                else self.point(d, snapshot.version)
                for d, snapshot in existing.items()
            }
        writers: list[SnapshotWriter] = []
        try:
            for table in build.make():
                writer = self.write(
                    table.dataset,
                    code_version=build.code_version,
                    config=build.config,
                    inputs=build.inputs,
                    run_id=run_id,
                    allow_empty=table.allow_empty,
                )
                writers.append(writer)
                take = writer.append if table.ordered else writer.append_unordered
                with closing(iter(table.frames)) as frames:
                    for frame in frames:
                        take(frame)
                for file in table.files():
                    writer.attach(file)
                writer.note(**table.stats())
                writer.prepare()
            return {s.dataset: s for s in self.commit_together(writers)}
        finally:
            for writer in writers:
                writer.abort()

    # -- checks ------------------------------------------------------------------------------

    def record_checks(self, dataset: str, version: str, checks: Iterable[CheckRecord]) -> None:
        """Add outcomes of checks to those of a snapshot; safe from several processes at once."""
        # A union has no folder that its version could be looked up in.
        if not self._cohorts(dataset):
            version = self.get(dataset, version).version
        merge_checks(self.files, self._layout, dataset, version, checks)

    def checks(self, dataset: str, version: str) -> dict[str, CheckRecord]:
        """The recorded checks of one snapshot by name; empty if there are none."""
        return read_checks(self.files, self._layout, check_dataset_name(dataset), version)

    # -- releases ----------------------------------------------------------------------------

    def publish(
        self,
        name: str,
        tables: Mapping[str, Snapshot],
        *,
        world: str,
        required: Mapping[str, Collection[str]],
        card: str,
        settings: Mapping[str, Any],
        run_id: str | None = None,
    ) -> Release:
        """Lock a set of snapshots as a release and make it the latest of its name.

        If the same content was published before, that release is returned.

        Parameters
        ----------
        name
            Release name: lower-case letters, digits, hyphens.
        tables
            Short name to snapshot.
        world
            The set of sources they come from.
        required
            Dataset to names of checks that must have run on exactly the version in use; for
            pinned datasets and for those they were made from.
        card
            The dataset card (Markdown).
        settings
            Identity settings (JSON).
        run_id
            The run that publishes.

        Raises
        ------
        ReleaseError
            A required check did not run, a check of severity ``error`` failed on a pinned
            snapshot or on one it was made from, or two of them were made from different
            versions of one dataset. All reasons are in ``details["problems"]``; ``latest``
            does not move.
        IntegrityError
            A snapshot is not what was committed; ``latest`` does not move.
        """
        check_release_name(name)
        if not tables:
            raise ReleaseError("a release needs tables", where=name)
        with mutex(self._layout.versions_lock, timeout=PATIENCE, shared=True):
            return self._publish(name, tables, world, required, card, settings, run_id)

    def _publish(
        self,
        name: str,
        tables: Mapping[str, Snapshot],
        world: str,
        required: Mapping[str, Collection[str]],
        card: str,
        settings: Mapping[str, Any],
        run_id: str | None,
    ) -> Release:
        # Opened again by name: what counts is what this store holds, not what the caller holds.
        pinned = {short: self._reopened(snapshot) for short, snapshot in tables.items()}
        lineage, problems, differing = resolve_lineage(
            pinned.values(), builds_of(self.files, self._layout)
        )
        unions = {s.dataset: s.version for s in pinned.values() if s.parts}
        checks: dict[str, dict[str, CheckRecord]] = {}
        for dataset in sorted({*unions, *required, *lineage}):
            version = unions.get(dataset, lineage.get(dataset))
            expected = set(required.get(dataset, ()))
            if version is None:
                problems.append(f"{dataset}: checks are required of it, but nothing pinned uses it")
                continue
            if dataset.startswith("file:"):
                continue
            records = read_checks(self.files, self._layout, dataset, version)
            problems += [
                f"{dataset}: {c} did not run on {version}" for c in sorted(expected - set(records))
            ]
            problems += [
                f"{dataset}: {c.name} failed on {version}" for c in records.values() if c.blocks
            ]
            if records:
                checks[dataset] = records
        for dataset in unions:
            reasons = {c: v for c, v in differing.items() if cohort_dataset(dataset, c) in lineage}
            if reasons:
                text = f"made from other versions: {', '.join(reasons)}"
                facts = {"message": text, "cohorts": reasons}
                record = CheckRecord(COHORT_LINEAGE, False, "warn", "lineage", facts)
                checks.setdefault(dataset, {})[record.name] = record
        if problems:
            more = f"; and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
            raise ReleaseError(
                f"refused: {'; '.join(problems[:_SHOWN])}{more}",
                where=name,
                hint="latest is unchanged; fix the data or the check and run again",
                details={"problems": problems},
            )
        release = Release(
            name=name,
            version="",
            created_at=now(),
            world=world,
            tables={short: lock_table(s) for short, s in pinned.items()},
            lineage=lineage,
            checks=checks,
            settings=dict(settings),
            card_sha256=hashlib.sha256(card.encode()).hexdigest(),
            run_id=run_id,
        ).with_version()
        lock_file = self._layout.release(name, release.version)
        with mutex(self._layout.lock(f"release-{name}"), timeout=PATIENCE):
            if self.files.read(lock_file) is None:
                for snapshot in pinned.values():
                    snapshot.verify()
                # Card, lock, pointer: each is written after the files that it refers to.
                self.files.put(self._layout.card(name, release.version), card.encode())
                self.files.put_new(lock_file, release.to_json())
            published = find_release(self._layout.home, lock_file)
            move_pointer(self.files, self._layout.latest(name), name, published.version)
        return published

    def _reopened(self, snapshot: Snapshot) -> Snapshot:
        if snapshot.parts:
            return union(snapshot.dataset, map(self._reopened, snapshot.parts))
        return open_snapshot(self.files, self._layout.snapshot(snapshot.dataset, snapshot.version))

    def release(self, reference: str | Path) -> Release:
        """A release by ``name``, ``name@latest``, ``name@<version or prefix>`` or lock file.

        ``latest`` alone is the one published last under any name. A lock file in another
        store's ``releases/`` is opened with that store's tables.

        Raises
        ------
        ReleaseError
            Unknown or ambiguous, saying what there is.
        IntegrityError
            The lock file is damaged or was changed.
        """
        return find_release(self.home, reference)

    def releases(self, name: str | None = None) -> list[Release]:
        """All releases (of a name), oldest first; damaged lock files are left out."""
        return list_releases(self.home, name)

    def verify(
        self,
        release: Release | str,
        *,
        lineage: bool = False,
    ) -> VerifyReport:
        """Read every file of a release again and compare hashes.

        With ``lineage`` every snapshot that the tables were made from is read too, raw ones
        included, and recorded builds must still lead from them to the tables.
        """
        return verify_release(self._opened(release), lineage=lineage)

    def push(self, release: Release | str, target: str) -> Pushed:
        """Copy a release to ``s3://<bucket>/<prefix>``, from where ``open_release`` reads it.

        What is there already is not uploaded again, so that a push that was interrupted is
        finished by the next one. `<name>@latest` is then the release that was pushed last.

        Raises
        ------
        ConfigError
            ``target`` is no such address, or the extra `s3` is not installed.
        IntegrityError
            The release is not as published; nothing was uploaded.
        StoreError
            The object store can't be used.
        """
        address = release_path(target)
        if not isinstance(address, ObjectPath):
            raise ConfigError("not an address", where=target, hint="write s3://<bucket>/<prefix>")
        return push_release(self._opened(release), address)

    def diff(
        self,
        a: Release | str,
        b: Release | str,
        *,
        memory_limit_mb: int = 2048,
        force: bool = False,
    ) -> ReleaseDiff:
        """Changes from release ``a`` to release ``b``: rows by key, shifts of columns, causes.

        Joins spill to disk beyond ``memory_limit_mb`` (MiB). ReleaseError if the two are of
        different domains, unless ``force``.
        """
        first, second = self._opened(a), self._opened(b)
        return diff_releases(first, second, memory_limit_mb=memory_limit_mb, force=force)

    def _opened(self, release: Release | str) -> Release:
        return release if isinstance(release, Release) else self.release(release)

    # -- processes ---------------------------------------------------------------------------

    def run_lock(self) -> RunLock:
        """The lock that one pipeline run at a time holds."""
        return RunLock(self._layout.lock("run"))

    def lock(self, name: str, *, timeout: float) -> AbstractContextManager[object]:
        """A lock of this store; LockedError if another process held it for ``timeout`` (s)."""
        return mutex(self._layout.lock(name), timeout=timeout)

    def collect_garbage(
        self,
        *,
        grace: timedelta = GRACE,
        dry_run: bool = False,
        before_removal: BeforeRemoval | None = None,
    ) -> Garbage:
        """Remove versions that are neither current nor pinned nor what pinned ones were made from.

        Kept as well is what current versions were made from, and, for ``grace``, whatever was
        written or was current: a step may still be reading it. Build records and checks of what is
        removed go with it. ``dry_run`` only lists. ``before_removal`` is called once it is known
        what goes, with tables and cohorts of kept and of unneeded versions.

        Raises
        ------
        LockedError
            A run is using the store, or a process is committing or publishing.
        IntegrityError
            A lock file is damaged: what it pins is not known, and nothing is removed.
        """
        return collect_garbage(
            self.files, self._layout, grace=grace, dry_run=dry_run, before_removal=before_removal
        )

    def backup(self, target: Path) -> Backup:
        """Write releases, current versions, what they were made from, and answers to a tar file.

        Runs may go on meanwhile: what the file holds is the state at its start. Worlds,
        downloads, dbt's scratch and Dagster's instance are not in it. StoreError if it can't be
        written; nothing is left behind.
        """
        return backup(self.files, self._layout, target)

    def sweep(self) -> int:
        """Remove what dead processes left half-written; how many things were removed.

        Every write does this first, so that calling it is never necessary.
        """
        return self.files.sweep()
