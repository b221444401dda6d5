"""Ingest: a source's original files become committed raw snapshots, every row accounted for."""

from __future__ import annotations

import ctypes
import platform
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.config import Settings
from pipelines.errors import SourceError
from pipelines.progress import advance
from pipelines.scratch import scratch_folder
from pipelines.seams import SOURCES
from pipelines.sources._files import sha256_of
from pipelines.sources._protocol import Source, open_source
from pipelines.sources._rejects import Rejection, RejectLog
from pipelines.sources._tables import RawTable, Workspace
from pipelines.sources._world import GENERATED, World
from pipelines.store import Build, Snapshot, Store, Table

if TYPE_CHECKING:
    import polars as pl

#: `M_TRIM_THRESHOLD` and `M_MMAP_THRESHOLD` of glibc's `mallopt`.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
#: Size of the blocks that go back to the system during an ingest, and the most that glibc itself
#: comes to (bytes).
_LARGE, _LARGEST = 1 << 20, 32 << 20


@contextmanager
def large_blocks_given_back() -> Iterator[bool]:
    """Have blocks of memory from 1 MiB on returned to the system as soon as they are freed.

    glibc maps large blocks on their own, but each one that is freed raises the size from which it
    does (up to 32 MiB). Then blocks of a few MiB, made in one thread and freed in another, come
    from heaps that only shrink at their end: reading 1.3 GB of packed JSON lines took 2.3 GiB,
    and more the longer the file. With a fixed size it takes 0.7 GiB. Setting it is safe at any
    time and concerns this process only.

    Afterwards the size is 32 MiB. Left at 1 MiB, the system maps pages anew for each product of a
    model that runs in this process: SmolLM2-135M scored 6 pairs a second instead of 8 to 9.

    Yields
    ------
    bool
        Whether the size was set; other C libraries than glibc need nothing of the kind.
    """
    if platform.libc_ver()[0] != "glibc":
        yield False
        return
    libc = ctypes.CDLL(None)
    try:
        yield bool(libc.mallopt(_MMAP_THRESHOLD, _LARGE))
    finally:
        libc.mallopt(_MMAP_THRESHOLD, _LARGEST)
        libc.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST)


_INVENTORY_VERSION = "world-files-1"
#: Names of unread files that the inventory lists.
_MAX_UNREAD = 1000


def ingest(
    source: str,
    world: World,
    store: Store,
    settings: Settings,
    *,
    run_id: str | None = None,
) -> dict[str, Snapshot]:
    """Read one source's files into the store, all of its tables together.

    If the same files were read before by the same code and settings, nothing is read: the
    tables of then become current.

    Returns
    -------
    dict
        The current snapshot of each of the source's datasets. ``manifest.stats`` has, for
        each: ``file``, ``rows_read``, ``rejected`` (count), ``reasons``, ``filtered``,
        ``licence``, ``world`` and what the source adds.

    Raises
    ------
    SourceError
        If a file is missing, corrupt or has no rows, or more than
        ``ingest.max_rejected_share`` of the rows of a file are rejected.
    StoreError
        If the disk is full, or a table that the source needs is not in the store.
    LockedError
        If another process is ingesting the same source into this store.
    """
    with ingest_build(source, world, store, settings) as build:
        return store.build(build, run_id=run_id)


@contextmanager
def ingest_build(source: str, world: World, store: Store, settings: Settings) -> Iterator[Build]:
    """The build behind :func:`ingest`, for the time that it takes."""
    reader = open_source(source, settings)
    files = reader.files(world.folder)
    before = _stamps(files)
    inputs = {f"file:{world.relative(p)}": sha256_of(p) for p in files}
    inputs |= {dataset: store.current(dataset).version for dataset in reader.needs}
    config: dict[str, Any] = {
        "source": source,
        **reader.identity(world.folder),
        **settings.identity("ingest"),
    }

    def make() -> Iterator[Table]:
        scratch = stack.enter_context(scratch_folder(store.home, f"ingest-{source}"))
        work = Workspace(
            scratch=scratch / "work",
            settings=settings,
            rejects=RejectLog(scratch / "rejects"),
            wanted_tmdb=_wanted_tmdb(reader, store),
        )
        work.scratch.mkdir()
        yield from _tables(reader, world, work, has_files=bool(files))
        if _stamps(files) != before:
            raise SourceError(
                "a file changed while it was read",
                where=", ".join(str(p) for p in files),
                hint="run again when nothing writes to it",
            )

    with ExitStack() as stack:
        stack.enter_context(large_blocks_given_back())
        yield Build(
            tuple(reader.datasets),
            make,
            reader.code_version,
            config,
            inputs,
            reusable=reader.reusable(world.folder),
        )


def _tables(reader: Source, world: World, work: Workspace, *, has_files: bool) -> Iterator[Table]:
    """A source's tables, and the table of rejected rows; every row is accounted for."""
    facts = {"licence": _licence(reader, world), "world": world.name}
    rejects = work.rejects
    read: list[_Accounted] = []
    for table in reader.read(world.folder, work):
        # Without any file (an unreachable API, say) there may be nothing to read.
        empty = table.allow_empty or table.file is None or not has_files
        read.append(_Accounted(table, work, facts, empty))
        yield Table(table.dataset, read[-1].batches(), read[-1].stats, empty)
    accounted = sum(table.rejected for table in read)
    if [t.table.dataset for t in read] != list(reader.datasets[:-1]) or (
        accounted != rejects.count()
    ):
        raise SourceError(
            f"rows lost: {rejects.count()} rejected, {accounted} accounted for",
            where=reader.name,
            hint="this is a fault of the loader: please report it",
        )
    yield Table(
        reader.rejected_dataset,
        rejects.batches(),
        lambda: {**facts, "rejected": rejects.count(), "reasons": rejects.reasons()},
        allow_empty=True,
    )


@dataclass
class _Accounted:
    """A table whose rows are counted on their way out."""

    table: RawTable
    work: Workspace
    facts: dict[str, Any]
    may_be_empty: bool
    rows: int = 0
    rejected: int = 0

    def batches(self) -> Iterator[pl.DataFrame]:
        for batch in self.table.batches:
            self.rows += batch.height
            yield batch

    def stats(self) -> dict[str, Any]:
        account = _account(
            self.table, self.rows, self.work.rejects, self.may_be_empty, self.work.settings
        )
        self.rejected = account.get("rejected", 0)
        return {**self.facts, **account}


def inventory_build(world: World, settings: Settings) -> Build:
    """The build of the list of the world's original files with their checksums and terms.

    Raises :class:`SourceError` if a file is empty or can't be read.
    """
    import polars as pl

    listed = [(name, path) for name, paths in world.files.items() for path in paths]
    rows = []
    for n, (name, path) in enumerate(listed):
        advance("checking files", n, len(listed))
        (_, size, _) = _stamps([path])[0]
        if not size:
            raise SourceError("the file is empty", where=str(path))
        rows.append(
            {
                "file": world.relative(path),
                "sha256": sha256_of(path),
                "bytes": size,
                "source": name,
                "origin": world.origin,
                "licence": _licence(open_source(name, settings), world),
            }
        )
    advance("checking files", len(listed), len(listed))
    stats = {
        "world": world.name,
        "origin": world.origin,
        "unread_files": len(world.unread),
        "unread": list(world.unread[:_MAX_UNREAD]),
        "unused": list(world.unused),
    }
    dataset = "raw.world_files"
    return Build(
        (dataset,),
        lambda: [Table(dataset, [pl.DataFrame(rows)], lambda: stats, ordered=False)],
        _INVENTORY_VERSION,
        {"world": world.name, "origin": world.origin},
        {f"file:{row['file']}": str(row["sha256"]) for row in rows},
    )


def _licence(source: Source, world: World) -> str:
    if world.origin == GENERATED:
        return f"Generated by Understudy in the format of {source.name}; no third party's terms."
    return source.licence.line


def _stamps(files: Sequence[Path]) -> list[tuple[int, int, int]]:
    """Attributes that change when a file is replaced or written to."""
    try:
        stats = [p.stat() for p in files]
    except OSError as error:
        raise SourceError(
            f"a file vanished ({error.strerror or type(error).__name__})", where=str(error.filename)
        ) from None
    return [(s.st_ino, s.st_size, s.st_mtime_ns) for s in stats]


def _wanted_tmdb(source: Source, store: Store) -> pl.DataFrame | None:
    """Films to look for in TMDB, with their MovieLens titles to distinguish films."""
    if "raw.movielens_links" not in source.needs:
        return None
    links = store.current("raw.movielens_links").read(["movie_id", "tmdb_id", "imdb_id"])
    if "raw.movielens_movies" not in source.needs:
        return links
    titles = store.current("raw.movielens_movies").read(["movie_id", "title"])
    return links.join(titles, on="movie_id", how="left", maintain_order="left")


def _account(
    table: RawTable, rows_out: int, rejects: RejectLog, may_be_empty: bool, settings: Settings
) -> dict[str, Any]:
    """Check that every row of the file went somewhere; return the table's facts."""
    if table.file is None:
        return table.stats
    read, filtered = table.rows.total(), dict(table.filtered)
    rejected = sum(map(rejects.count, table.rows))
    if read != rows_out + rejected + sum(filtered.values()):
        raise SourceError(
            f"rows lost: {read} read, {rows_out} out, {rejected} rejected, "
            f"{sum(filtered.values())} filtered",
            where=table.file,
            hint="this is a fault of the loader: please report it",
        )
    for file, rows in table.rows.items():
        _refuse_over_limit(file, rows, rejects, settings.ingest.max_rejected_share)
    if not rows_out and not may_be_empty:
        raise SourceError("the file has no usable rows", where=table.file)
    reasons: Counter[str] = Counter()
    for file in table.rows:
        reasons.update(rejects.reasons(file))
    stats: dict[str, Any] = {
        "file": table.file,
        "rows_read": read,
        "rejected": rejected,
        "reasons": dict(sorted(reasons.items())),
        "filtered": filtered,
    }
    if list(table.rows) != [table.file]:
        stats["files"] = {
            file: {"rows_read": rows, "rejected": rejects.count(file)}
            for file, rows in table.rows.items()
        }
    return stats | table.stats


def _refuse_over_limit(file: str, read: int, rejects: RejectLog, limit: float) -> None:
    rejected, reasons = rejects.count(file), rejects.reasons(file)
    # A single wrong time stops no file, however small; a limit of 0 means none at all.
    spared = min(1, reasons.get("bad_timestamp", 0)) if limit else 0
    if rejected - spared <= limit * read:
        return
    first = rejects.first(file)
    shown = "; ".join(map(str, first))
    counts = ", ".join(f"{why} {n:,}" for why, n in reasons.items())
    raise SourceError(
        f"{rejected:,} of {read:,} rows rejected, over the limit of {limit:.2%}: {counts}",
        where=file,
        hint=f"first: {shown}; the limit is ingest.max_rejected_share",
        details={
            "reasons": dict(reasons),
            "rows": [row._asdict() for row in first],
        },
    )


#: Rejected rows of a file that are shown, and the longest text of one (characters).
_SHOWN_ROWS, _SHOWN_CHARACTERS = 3, 80


def rejected_rows(store: Store, sources: Iterable[str]) -> list[dict[str, Any]]:
    """Files of the present world with rejected rows, of these sources.

    Returns
    -------
    list of dict
        JSON-ready: ``file``, ``rejected`` and ``rows`` (counts), ``share``, ``reasons`` (counts by
        code) and ``first`` (up to three rejected rows: ``line``, ``reason``, ``text``, cut).
    """
    import polars as pl

    if not store.has("raw.world_files"):
        return []
    shown = pl.col(pl.String).str.slice(0, _SHOWN_CHARACTERS)
    listed = set(store.current("raw.world_files").read(["file"])["file"])
    out = []
    for name in sources:
        *tables, dataset = SOURCES[name].datasets
        if not store.has(dataset) or not (rejects := store.current(dataset)).rows:
            continue
        files = {k.removeprefix("file:") for k in rejects.manifest.inputs if k.startswith("file:")}
        if not files <= listed:
            continue  # of an earlier world: this one has no files of the source
        read = Counter[str]()
        for table in tables:
            stats = store.current(table).manifest.stats
            parts = stats.get("files") or {str(stats.get("file")): stats}
            read |= Counter({file: part.get("rows_read", 0) for file, part in parts.items()})
        reasons: dict[str, Counter[str]] = {}
        counts = rejects.scan().group_by("file", "reason").len().sort("file", "reason").collect()
        for file, reason, count in counts.iter_rows():
            reasons.setdefault(file, Counter())[reason] = count
        rows = rejects.scan().group_by("file", maintain_order=True).head(_SHOWN_ROWS).collect()
        for file, by_reason in reasons.items():
            number = by_reason.total()
            first = rows.filter(file=file).drop("file").with_columns(shown).to_dicts()
            out.append(
                {
                    "file": file,
                    "rejected": number,
                    "rows": max(read[file], number),
                    "share": number / max(read[file], number),
                    "reasons": dict(by_reason),
                    "first": first,
                }
            )
    return out


def rejected_line(entry: Mapping[str, Any]) -> str:
    """One line on the rejected rows of a file, of an entry of :func:`rejected_rows`.

    >>> first = [{"line": 7, "reason": "off_scale", "text": "1,2,9.0,3"}]
    >>> rejected_line({"file": "r.csv", "rejected": 1, "rows": 40, "share": 1 / 40, "first": first})
    'r.csv: 1 of 40 rows rejected (2.50%): line 7 off_scale: 1,2,9.0,3'
    """
    share = f"{entry['share']:.2%}" if entry["share"] >= 0.0001 else "under 0.01%"
    shown = "; ".join(str(Rejection(**row)) for row in entry["first"])
    more = "; …" if entry["rejected"] > len(entry["first"]) else ""
    counts = f"{entry['rejected']:,} of {entry['rows']:,} rows rejected ({share})"
    return f"{entry['file']}: {counts}: {shown}{more}"
