"""Compaction: merge small parts and drop superseded rows.

Parts are sorted into classes by size, each class holding parts up to 16 times as large as the
one before; when a class has 16 parts, they become one. So a store of any size has some dozens
of parts, and every row is rewritten about once per class: a few microseconds per answer.

The new part names those it replaces. It is complete and visible before they are removed, and
readers that see both ignore the old ones: a kill at any moment loses nothing and counts nothing
twice.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import IntegrityError, LockedError
from pipelines.llm.answers._catalogue import Catalogue, Problem
from pipelines.llm.answers._committer import part_name
from pipelines.llm.answers._index import Entries
from pipelines.llm.answers._parts import CorruptPartError, Part, PartFile
from pipelines.llm.answers._record import STATUS_CODE, schema
from pipelines.llm.answers._rules import keep
from pipelines.llm.answers._uses import words
from pipelines.llm.engines import Status
from pipelines.store.locks import holder_record

if TYPE_CHECKING:
    from numpy.typing import NDArray

_log = logging.getLogger(__name__)

#: Parts of one class that become one.
FAN_IN = 16
#: No merged part is meant to have more rows than this (count).
LARGEST = 2_000_000

_Plan = list[tuple[int, Part]]


@dataclass(frozen=True, slots=True)
class GcReport:
    """Outcome of a collection, or of its dry run (then the figures after are those before)."""

    #: Rows before (count).
    answers: int
    #: Rows dropped because another of their key serves every call that they serve.
    superseded: int
    #: Rows of failed calls dropped: those are asked again anyway.
    failed: int
    #: Rows dropped because their status was named.
    forgotten: int
    #: Rows dropped because only removed tables had asked for them.
    unused: int
    #: Parts (count) and their size.
    parts_before: int
    parts_after: int
    bytes_before: int
    bytes_after: int
    #: Corrupt parts, moved to ``answers/corrupt``.
    set_aside: tuple[Problem, ...]
    #: Whether the run only reported, without changing the store.
    dry_run: bool


def merge_due(catalogue: Catalogue) -> None:
    """Merge parts while a class has too many, unless another process is at it."""
    if _due(catalogue) is None:
        return
    try:
        with catalogue.merging(timeout=0):
            catalogue.refresh()
            _remove_replaced(catalogue)
            while (plan := _due(catalogue)) is not None:
                _rewrite(catalogue, plan, None)
    except LockedError as error:
        _log.debug("not compacting: %s", error)


def collect(
    catalogue: Catalogue,
    forget: Collection[Status],
    *,
    dry_run: bool,
    unused: NDArray[Any] | None = None,
    since: datetime | None = None,
) -> GcReport:
    """Drop rows that serve no call, forget those of some statuses, and compact small parts.

    With ``unused``, only rows with one of these keys that were stored after ``since`` are dropped.
    """
    with catalogue.merging(timeout=30.0):
        catalogue.refresh()
        entries = catalogue.index.all()
        dropped = 0
        if unused is None:
            drop, counts = unneeded(entries, forget)
        else:
            drop, counts = np.zeros(len(entries), bool), (0, 0, 0)
            if since is not None:
                drop = np.isin(words(entries.high, entries.low), unused)
                drop &= entries.stored_at >= int(since.timestamp() * 1e6)
            dropped = int(drop.sum())
        before = catalogue.ordered()
        corrupt = tuple(catalogue.problems.values())
        sizes = len(before), sum(part.size for _, part in before)
        after = sizes
        if not dry_run:
            _remove_replaced(catalogue)
            _set_aside(catalogue, corrupt)
            deleted = {n: _mask(entries, drop, n, part) for n, part in before}
            del entries, drop
            for plan in _batches(before, deleted):
                _rewrite(catalogue, plan, deleted)
            after = len(catalogue.parts), sum(part.size for part in catalogue.parts.values())
        superseded, failed, forgotten = counts
        return GcReport(
            answers=sum(part.rows for _, part in before),
            superseded=superseded,
            failed=failed,
            forgotten=forgotten,
            unused=dropped,
            parts_before=sizes[0],
            parts_after=after[0],
            bytes_before=sizes[1],
            bytes_after=after[1],
            set_aside=corrupt,
            dry_run=dry_run,
        )


def unneeded(
    entries: Entries, forget: Collection[Status]
) -> tuple[NDArray[Any], tuple[int, int, int]]:
    """Entries of a store to drop, and the counts of superseded, failed and forgotten ones."""
    named = np.isin(entries.status, [STATUS_CODE[s] for s in forget])
    order = np.lexsort((entries.low, entries.high))
    high, low = entries.high[order], entries.low[order]
    group = np.empty(len(order), np.int64)
    new = np.ones(len(order), bool)
    new[1:] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    group[order] = np.cumsum(new)
    place = (entries.part.astype(np.uint64) << np.uint64(32)) | entries.row
    useful = keep(group, entries.status, entries.made, entries.stored_at, place)
    failed = (entries.status == STATUS_CODE["engine_error"]) & ~named
    superseded = ~useful & ~failed & ~named
    return ~useful | named, (int(superseded.sum()), int(failed.sum()), int(named.sum()))


def _due(catalogue: Catalogue) -> _Plan | None:
    """Parts of the smallest class of a folder that has too many."""
    classes: dict[tuple[int, Path], _Plan] = {}
    for number, part in catalogue.ordered():
        if part.rows < LARGEST // 2:
            place = _size_class(part.rows), part.path.parent
            classes.setdefault(place, []).append((number, part))
    for _, members in sorted(classes.items()):
        if len(members) >= FAN_IN:
            plan: _Plan = []
            for member in members:
                if len(plan) > 1 and sum(p.rows for _, p in plan) + member[1].rows > LARGEST:
                    break
                plan.append(member)
            return plan
    return None


def _size_class(rows: int) -> int:
    """Class of a part: 0 up to 15 rows, 1 up to 255, 2 up to 4095 ..."""
    return (max(rows, 1).bit_length() - 1) // 4


def _batches(parts: _Plan, deleted: dict[int, NDArray[Any]]) -> list[_Plan]:
    """Parts of a folder to rewrite together, by age; what is large and clean is left alone."""
    out: list[_Plan] = []
    batch: _Plan = []
    rows = 0
    for number, part in sorted(parts, key=lambda one: (one[1].path.parent, one[1].name)):
        kept = part.rows - int(deleted[number].sum())
        if part.rows >= LARGEST // 2 and kept == part.rows:
            continue
        moved = batch and batch[-1][1].path.parent != part.path.parent
        if moved or (batch and rows + kept > LARGEST):
            out.append(batch)
            batch, rows = [], 0
        batch.append((number, part))
        rows += kept
    if batch:
        out.append(batch)
    return [b for b in out if len(b) > 1 or deleted[b[0][0]].any()]


def _mask(entries: Entries, drop: NDArray[Any], number: int, part: Part) -> NDArray[Any]:
    """Rows of a part to drop, as booleans by row."""
    mask = np.zeros(part.rows, bool)
    mask[entries.row[drop & (entries.part == number)]] = True
    return mask


def _rewrite(catalogue: Catalogue, plan: _Plan, deleted: dict[int, NDArray[Any]] | None) -> None:
    """Put the rows of some parts, but the deleted ones, into one new part."""
    names = [part.name for _, part in plan]
    oldest = int(names[0].split("-")[1])
    files = catalogue.files
    staging = files.local.stage(holder_record())
    try:
        target = plan[0][1].path.with_name(part_name(oldest))
        file = PartFile(staging.path / target.name, names)
        try:
            rows = 0
            for number, part in plan:
                try:
                    rows += _copy(part, file, deleted[number] if deleted else None)
                except CorruptPartError as error:
                    catalogue.report(part.path, error)
                    raise IntegrityError(
                        "a part can't be read",
                        where=str(part.path),
                        hint="the others are intact; run again, and this part is skipped",
                    ) from error
            file.close()
        except BaseException:
            file.abort()
            raise
        with catalogue.swapping():
            if rows:
                files.local.place(file.path, target)
            _remove(catalogue, [part.path for _, part in plan])
    finally:
        staging.drop()
    catalogue.refresh()


def _copy(part: Part, file: PartFile, deleted: NDArray[Any] | None) -> int:
    """Copy a part's rows; how many."""
    import pyarrow as pa

    wanted = schema()
    at = copied = 0
    for table in part.groups(wanted.names):
        end = at + table.num_rows
        if deleted is not None and deleted[at:end].any():
            table = table.filter(pa.array(~deleted[at:end]))
        at = end
        copied += table.num_rows
        file.write(table.cast(wanted))
    return copied


def _remove_replaced(catalogue: Catalogue) -> None:
    """Remove merged parts that a killed process left behind."""
    if catalogue.replaced:
        with catalogue.swapping():
            there = catalogue.files.listed(catalogue.scope)
            _remove(catalogue, [there[name] for name in sorted(catalogue.replaced & there.keys())])
        catalogue.refresh()


def _remove(catalogue: Catalogue, paths: Sequence[Path]) -> None:
    catalogue.files.remove(paths)


def _set_aside(catalogue: Catalogue, corrupt: Sequence[Problem]) -> None:
    """Move corrupt parts aside: they may be repaired."""
    for problem in corrupt:
        catalogue.files.set_aside(problem.path)
    if corrupt:
        catalogue.refresh()
