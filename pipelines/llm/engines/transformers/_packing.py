"""Jobs laid out in rows, and the rows run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipelines.llm.engines.transformers._forest import Forest, Ids, common_prefix, sort_key
from pipelines.llm.engines.transformers._jobs import Job
from pipelines.llm.engines.transformers._model import KeysValues, Model, RowResult
from pipelines.llm.engines.transformers._plan import MIN_BASE, Row, plan_rows
from pipelines.llm.engines.transformers._prefixes import Prefixes

__all__ = ["PackedRow", "Packer"]


@dataclass(slots=True)
class PackedRow:
    """A row with its prompts laid out; a caller may add branches before running it.

    Attributes
    ----------
    forest
        The row.
    leaves
        Per prompt: its number among the jobs given, and the place of its last token.
    paths
        Per prompt, the places of its tokens behind the base.
    """

    model: Model
    kv: KeysValues | None
    forest: Forest
    leaves: list[tuple[int, int]] = field(default_factory=list)
    paths: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def run(self, reads: Sequence[int], *, keep: bool = False) -> RowResult:
        """The forward pass."""
        return self.model.row(self.kv, self.forest, reads, keep=keep)


class Packer:
    """Lays out prompts so that what they begin with alike is computed once.

    Parameters
    ----------
    model
        The model.
    row_tokens
        Tokens of a row (count).
    kept_tokens
        Tokens of prefixes whose keys and values are kept for later prompts (count).
    """

    def __init__(self, model: Model, row_tokens: int, kept_tokens: int) -> None:
        self._model = model
        self.row_tokens = row_tokens
        self.prefixes = Prefixes(model, kept_tokens)

    @property
    def part_tokens(self) -> int:
        """Most tokens to read behind one prompt in one row (count)."""
        return max(1, min(self.row_tokens // 2, self._model.row_reads))

    def rows(self, jobs: Sequence[Job], extra: Sequence[int]) -> Iterator[PackedRow]:
        """Rows that hold every job once, laid out and not yet run.

        Parameters
        ----------
        jobs
            In any order; a job may come several times.
        extra
            Tokens that the caller will add behind each (count).

        Yields
        ------
        PackedRow
            To be run before the next is asked for. Each job's `began` and `cached` are set.
        """
        order = sorted(range(len(jobs)), key=lambda n: sort_key(jobs[n].prompt))
        prompts = [jobs[n].prompt for n in order]
        plan = plan_rows(
            prompts,
            [extra[n] for n in order],
            row_tokens=self.row_tokens,
            row_reads=self._model.row_reads,
        )
        for row in plan:
            yield self._laid_out(row, order, prompts, jobs)

    def _laid_out(
        self, row: Row, order: list[int], prompts: list[Ids], jobs: Sequence[Job]
    ) -> PackedRow:
        began = time.perf_counter()
        first, last = prompts[row.start], prompts[row.stop - 1]
        base = row.base or self._known_base(first, last, prompts[row.start : row.stop])
        kv, known = self.prefixes.get(first[:base]) if base else (None, 0)
        packed = PackedRow(self._model, kv, Forest(base))
        uncounted = base - known
        for place in range(row.start, row.stop):
            prompt, job = prompts[place], jobs[order[place]]
            before = len(packed.forest.ids)
            leaf = packed.forest.add(prompt)
            packed.leaves.append((order[place], leaf))
            packed.paths.append(packed.forest.path())
            # The first prompt of a row pays for what the others share.
            if not job.began:
                job.began = began
                job.cached = len(prompt) - uncounted - (len(packed.forest.ids) - before)
            uncounted = 0
        return packed

    def _known_base(self, first: Ids, last: Ids, prompts: Sequence[Ids]) -> int:
        """Tokens that all prompts of a row begin with and that are known already (count)."""
        # In sorted order the first and the last prompt differ earliest.
        shared = min(common_prefix(first, last), min(len(p) for p in prompts) - 1)
        known = min(self.prefixes.longest(first), shared)
        return known if known >= MIN_BASE else 0
