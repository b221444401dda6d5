"""Scores of a cohort in resumable pieces: shards of items, each known by what decides it.

A large cohort is scored block by block: some personas, with the shards of their pairs.

A shard's key is a hash of its pairs, of the rows of the personas and items in them, and of
everything that decides the rater. A shard that was scored before under the same key is taken
from the table, or from the part that a killed run left; only the others are asked for.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import identity_hash
from pipelines.errors import ContractError, EngineError
from pipelines.execution import Advance, Done, Executor, LocalExecutor, Piece, Work, run_pieces
from pipelines.raters._facts import asked_of
from pipelines.raters._score import places, score_pairs
from pipelines.raters.protocol import OK, Ints, Rater
from pipelines.seeding import U64, hash_ids
from pipelines.store.files import LocalFiles, storage_errors

if TYPE_CHECKING:
    from pipelines.store import Snapshot

#: Probabilities that are put in order at once when a table is put together (count; those of one
#: persona at least).
_CHUNK = 1_048_576
#: Rows of a row group of a finished shard (count): those of some personas are read without others.
_GROUP = 8_192
#: Rows of a table that are read for their digests at once (count).
_SLICE = 4_096
#: Pairs before the share of failed ones is judged, as for single calls (count).
_FIRST = 100


def shard_numbers(items: pl.Series, shards: int) -> pl.Series:
    """The shard of each item, 0 to `shards` - 1: by hash, so that a new item moves no other."""
    return pl.Series("shard", (hash_ids(items) % np.uint64(shards)).astype(np.int64))


@dataclass(frozen=True)
class Shard:
    """Pairs that are scored and stored together.

    ``rows`` are row numbers of the cohort's plan, ascending; ``key`` is the SHA-256 (hex) of what
    decides its scores.
    """

    number: int
    rows: Ints
    key: str


@dataclass(frozen=True)
class _Scoring:
    """Scores pieces in this process with an open rater."""

    shards: Shards
    rater: Rater
    options: Mapping[str, Any]

    def __call__(self, piece: Piece, advance: Advance) -> dict[str, Any]:
        return self.shards.score_piece(piece, self.rater, advance=advance, **self.options)

    def probe(self) -> dict[str, Any]:
        return {}


@dataclass
class Shards:
    """Scores of a cohort or of a block of it, shard by shard; one process at a time combines them.

    Counts and durations include those of the blocks before (:meth:`follow`).
    """

    cohort: str
    #: The rows of `score_plan`, in its order: the cohort's, or those of some personas who follow
    #: each other in it.
    plan: pl.DataFrame
    #: Tables with everybody and everything in the plan (else ContractError).
    personas: pl.DataFrame
    items: pl.DataFrame
    #: Further determinants of a score: settings, model, prompt, versions of what the rater learned
    #: from. JSON-ready.
    decides: Mapping[str, Any]
    #: Shards (count).
    count: int
    #: Folder of shards, finished and being scored, until the table is committed; workers share it.
    folder: Path
    #: The table's last version; None if there is none.
    previous: Snapshot | None = None
    #: Further tables by name whose rows about a persona or an item (``persona_id`` or ``item_id``)
    #: decide the scores of just that one's pairs.
    about: Mapping[str, pl.DataFrame] = field(default_factory=dict)
    #: Answers of the scale (count): rows are put in order so many at a time as memory allows.
    answers: int = 10
    #: Number of the block, from 0; those of its shards follow from it.
    number: int = 0
    #: Pairs scored by this object, by status (counts).
    statuses: Counter[str] = field(default_factory=Counter)
    #: Model calls for these scores (counts), as in :func:`asked_of`.
    asked: Counter[str] = field(default_factory=Counter)
    #: Pairs scored by this object in all (count).
    scored: int = 0
    #: Duration of the scoring: on the clock, and in CPU time of the processes that scored.
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    #: Pairs (count).
    planned: int = 0

    def __post_init__(self) -> None:
        if not self.plan.height:
            raise ContractError("there is nothing to score", where=f"cohort {self.cohort}")
        self._failed: set[int] = set()
        self._files = LocalFiles(self.folder)
        self.planned = self.plan.height
        person = places(self.plan, self.personas, "persona_id")
        item = places(self.plan, self.items, "item_id")
        of_item = shard_numbers(self.items["item_id"], self.count).to_numpy()
        number = of_item[item]
        order = np.argsort(number, kind="stable")
        starts = np.searchsorted(number[order], np.arange(self.count + 1))
        self._number_of = dict(zip(self.items["item_id"].to_list(), of_item.tolist(), strict=True))
        sides = [
            (person, *self._known("persona_id", self.personas)),
            (item, *self._known("item_id", self.items)),
        ]
        self.shards = [
            Shard(self.number * self.count + n, rows, self._key(rows, sides))
            for n in range(self.count)
            if len(rows := order[starts[n] : starts[n + 1]])
        ]

    def follow(self, before: Shards) -> None:
        """Count on from the block before."""
        self.statuses, self.asked = before.statuses, before.asked
        self.scored, self.seconds = before.scored, before.seconds
        self.cpu_seconds = before.cpu_seconds
        self.planned += before.planned

    @property
    def keys(self) -> dict[str, str]:
        """Key by number, as it is noted with the table: of shards in which no call failed.

        A row whose call failed (`engine_error`) is asked again by the next run, so its shard
        is not known as done.
        """
        return {str(s.number): s.key for s in self.shards if s.number not in self._failed}

    @property
    def failed(self) -> list[int]:
        """Numbers of the shards that the next run asks again."""
        return sorted(self._failed)

    def missing(self) -> list[Shard]:
        """Shards that neither the table nor a finished part holds."""
        there = {*self._files.names(self.folder)}
        return [s for s in self.shards if not self._in_table(s) and self._part(s).name not in there]

    def score(
        self, rater: Rater, *, progress: Callable[[int, int], None] | None = None, **options: Any
    ) -> None:
        """Score the missing shards in this process; options and errors of :meth:`score_piece`.

        ``progress`` is called with the pairs done and the pairs to do.
        """
        self.run(_Scoring(self, rater, options), progress=progress)

    def run(
        self,
        work: Work,
        executor: Executor | None = None,
        *,
        rounds: int = 1,
        error_budget: float = 1.0,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Have an executor score the missing shards.

        ``work`` calls :meth:`score_piece` of this object, or of an equal one on a worker.
        ``executor`` (default: this process) and ``rounds`` are those of
        :func:`pipelines.execution.run_pieces`, with its errors, ``error_budget`` that of
        :meth:`score_piece`, over all shards of this call. ``progress`` is called with the pairs
        done and the pairs to do.
        """
        began, before, done = time.perf_counter(), self.scored, 0
        missing = self.missing()
        total = sum(len(shard.rows) for shard in missing)

        def advance(pairs: int) -> None:
            nonlocal done
            done += pairs
            if progress is not None:
                progress(done, total)

        with storage_errors(self.folder):
            self._files.make_folder(self.folder)
            _remove(self.folder.glob("*.making"))
        pieces = [Piece(shard.key, shard.number) for shard in missing]
        executor = executor or LocalExecutor()
        try:
            for result in run_pieces(executor, work, pieces, rounds=rounds, advance=advance):
                self._take(result)
                self._judge(self.statuses, error_budget)
                if self.scored - before > done:
                    # A worker reports at the end of a piece only.
                    advance(self.scored - before - done)
        finally:
            self.seconds += time.perf_counter() - began

    def score_piece(
        self,
        piece: Piece,
        rater: Rater,
        *,
        histories: pl.DataFrame | None = None,
        seed: int = 0,
        batch: int = 65_536,
        explain: float = 0.0,
        error_budget: float = 1.0,
        advance: Advance = lambda _: None,
    ) -> dict[str, Any]:
        """Score a shard into its part, which is there whole or not at all.

        A part that is there already, of a worker that was lost after it, is only counted.

        Parameters
        ----------
        piece
            Its key is that of one of the shards.
        rater, histories, seed, batch, explain
            As of :func:`pipelines.raters.score_pairs`, with its errors.
        error_budget
            Share of pairs without a score, of those counted so far and after the first hundred,
            above which scoring stops with an EngineError (0-1). Finished shards stay. A rater
            counts for each batch anew.
        advance
            Called with the pairs of each batch (count).

        Returns
        -------
        ``statuses`` (pairs by status), ``cpu_seconds`` of this process, and ``asked``, what the
        rater's models were asked for it; JSON-ready.
        """
        (shard,) = (s for s in self.shards if s.key == piece.key)
        cpu, before = time.process_time(), asked_of(rater)
        counted: Counter[str] = Counter()
        part = self._part(shard)
        if part.exists():
            statuses = self._files.scan([part]).select("status").collect()["status"]
            counted.update(dict(statuses.value_counts().iter_rows()))
        else:
            frames = score_pairs(
                rater,
                self.plan[shard.rows],
                self.personas,
                self.items,
                histories=histories,
                seed=seed,
                batch=batch,
                explain=explain,
            )
            self._files.make_folder(self.folder)
            making = self.folder / f"{uuid.uuid4().hex}.making"
            try:
                for frame in _written(frames, making):
                    counted.update(dict(frame["status"].value_counts().iter_rows()))
                    self._judge(self.statuses + counted, error_budget)
                    advance(frame.height)
                failed = "engine_error" in counted
                self._files.place_file(making, self._part(shard, failed=failed), replace=failed)
            finally:
                making.unlink(missing_ok=True)
        return {
            "statuses": dict(counted),
            "cpu_seconds": time.process_time() - cpu,
            "asked": dict(asked_of(rater) - before),
        }

    def rows(self) -> Iterator[pl.DataFrame]:
        """The cohort's scores in the table's order, some personas at a time.

        ContractError if a shard is still missing, or does not hold what was planned.
        """
        if self.missing():
            raise ContractError("some shards are not scored", where=f"cohort {self.cohort}")
        kept = [s for s in self.shards if self._in_table(s)]
        scans = [self._files.scan([self._part(s)]) for s in self.shards if not self._in_table(s)]
        if kept:
            scans.append(self._kept(kept))
        people = self.plan.group_by("persona_id").agg(pairs=pl.len()).sort("persona_id")
        rows = max(1, _CHUNK // self.answers)
        chunk = (people["pairs"].cum_sum() - people["pairs"]) // rows
        for part in people.with_columns(chunk=chunk).partition_by("chunk", maintain_order=True):
            first, last = part["persona_id"][0], part["persona_id"][-1]
            chosen = (pl.col("persona_id") >= first) & (pl.col("persona_id") <= last)
            frames = pl.collect_all([scan.filter(chosen) for scan in scans])
            out = pl.concat(frames).sort("persona_id", "item_id")
            if out.height != part["pairs"].sum():
                raise ContractError(
                    f"{out.height} scores for {part['pairs'].sum()} planned pairs",
                    where=f"cohort {self.cohort}",
                    hint=f"remove {self.folder} and run again",
                )
            yield out

    def clear(self) -> None:
        """Remove the finished parts: the table holds them now."""
        with storage_errors(self.folder):
            _remove([*self.folder.glob("*.parquet"), *self.folder.glob("*.making")])

    def _take(self, done: Done) -> None:
        self.statuses.update(done.facts["statuses"])
        self.asked.update(done.facts["asked"])
        self.scored = self.statuses.total()
        self.cpu_seconds += done.facts["cpu_seconds"]
        if "engine_error" in done.facts["statuses"]:
            self._failed.add(done.piece.number)

    def _judge(self, statuses: Counter[str], budget: float) -> None:
        scored = statuses.total()
        failed = scored - statuses[OK]
        if scored < _FIRST or failed <= budget * scored:
            return
        kinds = ", ".join(f"{n} {kind}" for kind, n in statuses.most_common() if kind != OK)
        raise EngineError(
            f"{failed} of {scored} pairs failed ({kinds}), more than the {budget:.0%} of "
            "serving.error_budget",
            where=f"cohort {self.cohort}",
            hint="shards finished before are kept; run again: only the rest is requested",
        )

    def _known(self, key: str, table: pl.DataFrame) -> tuple[U64, npt.NDArray[np.uint8]]:
        """Hash of each row's id, and digest of what is known of it."""
        about = {name: t for name, t in self.about.items() if key in t.columns}
        return hash_ids(table[key]), _digests(table[key], {"": table, **about})

    def _key(self, rows: Ints, sides: list[tuple[Ints, U64, npt.NDArray[np.uint8]]]) -> str:
        pairs, known = hashlib.sha256(), hashlib.sha256()
        for place, ids, digests in sides:
            pairs.update(ids[place[rows]].tobytes())
            there = np.unique(place[rows])
            # By id: the order of the tables' rows decides no score.
            known.update(digests[there[np.argsort(ids[there])]].tobytes())
        return identity_hash(
            {"pairs": pairs.hexdigest(), "known": known.hexdigest(), "decides": dict(self.decides)}
        )

    def _in_table(self, shard: Shard) -> bool:
        noted = self._noted
        return (
            noted.get("count") == self.count
            and noted["keys"].get(str(shard.number)) == shard.key
            # The note may be of a cohort that was deleted in between.
            and self._held[shard.number] == len(shard.rows)
        )

    @cached_property
    def _noted(self) -> dict[str, Any]:
        if self.previous is None:
            return {}
        found: dict[str, Any] = self.previous.manifest.stats.get("shards", {})
        return dict(found.get(self.cohort, {}))

    @cached_property
    def _held(self) -> Counter[int]:
        """Rows of the cohort in the last table, by shard of their item."""
        mine = self._before()
        counts = mine.group_by("item_id").agg(pairs=pl.len()).collect(engine="streaming")
        held: Counter[int] = Counter()
        for item, pairs in counts.iter_rows():
            held[self.number * self.count + self._number_of.get(item, -1)] += pairs
        return held

    def _kept(self, shards: list[Shard]) -> pl.LazyFrame:
        numbers = {s.number - self.number * self.count for s in shards}
        items = [item for item, number in self._number_of.items() if number in numbers]
        return self._before().filter(pl.col("item_id").is_in(items))

    def _before(self) -> pl.LazyFrame:
        """Rows of these personas in the last table."""
        assert self.previous is not None
        ids = self.plan["persona_id"]
        return self.previous.of_cohort(self.cohort).filter(
            pl.col("persona_id").is_between(pl.lit(ids.min()), pl.lit(ids.max()))
        )

    def _part(self, shard: Shard, *, failed: bool = False) -> Path:
        # A part with failed calls is good for the table at hand, not for a later run.
        kind = "failed.parquet" if failed or shard.number in self._failed else "parquet"
        return self.folder / f"{shard.key}.{kind}"


def _digests(ids: pl.Series, tables: Mapping[str, pl.DataFrame]) -> npt.NDArray[np.uint8]:
    """SHA-256 per id of all rows about it, of shape (ids, 32).

    Of the values, not of their bytes in memory: the same rows read from other files have other
    buffers.
    """
    place = {value: n for n, value in enumerate(ids.to_list())}
    hashes = [hashlib.sha256() for _ in place]
    for name, table in tables.items():
        for part in table.select(sorted(table.columns)).iter_slices(_SLICE):
            lines = part.write_ndjson().encode().splitlines()
            for value, line in zip(part[ids.name].to_list(), lines, strict=True):
                n = place.get(value)
                if n is not None:
                    hashes[n].update(b"%s:%s\n" % (name.encode(), line))
    joined = b"".join(h.digest() for h in hashes)
    return np.frombuffer(joined, dtype=np.uint8).reshape(-1, 32)


def _written(frames: Iterable[pl.DataFrame], path: Path) -> Iterator[pl.DataFrame]:
    """The frames, each written to a file that is whole and synced after the last."""
    import pyarrow.parquet as pq

    with storage_errors(path):
        file = path.open("wb")
    with file:
        writer: pq.ParquetWriter | None = None
        try:
            for frame in frames:
                table = frame.to_arrow()
                with storage_errors(path):
                    writer = writer or pq.ParquetWriter(file, table.schema, compression="zstd")
                    writer.write_table(table, row_group_size=_GROUP)
                yield frame
        finally:
            if writer is not None:
                with storage_errors(path):
                    writer.close()
        with storage_errors(path):
            file.flush()
            os.fsync(file.fileno())


def _remove(paths: Iterable[Path]) -> None:
    for path in paths:
        path.unlink(missing_ok=True)
