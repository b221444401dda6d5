"""Writing answers token by token, many at a time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from pipelines.llm.engines._protocol import Answer
from pipelines.llm.engines.transformers._cache import Batch
from pipelines.llm.engines.transformers._jobs import Job
from pipelines.llm.engines.transformers._lines import Line, Scribe
from pipelines.llm.engines.transformers._model import Model
from pipelines.llm.engines.transformers._packing import Packer

__all__ = ["Writer", "write_plainly"]


def write_plainly(model: Model, scribe: Scribe, job: Job) -> Answer:
    """Write one answer by itself, with the model's own cache, nothing packed or padded."""
    job.began = time.perf_counter()
    line, cache, ids = Line.of(job), model.start(), job.prompt.tolist()
    while True:
        for answer in scribe.draw([line], model.go_on(cache, ids)):
            return answer
        ids = [line.next]


class Writer:
    """Answers that are written together; new ones join when others are done.

    Parameters
    ----------
    model, scribe
        What computes and draws.
    packer
        Lays out prompts.
    budget
        Most tokens of keys and values at a time (count): answers times the longest of them.
    """

    def __init__(self, model: Model, scribe: Scribe, packer: Packer, budget: int) -> None:
        self._model = model
        self._scribe = scribe
        self._packer = packer
        self._budget = budget
        self._lines: list[Line] = []
        self._batch: Batch | None = None

    def __len__(self) -> int:
        return sum(not line.over for line in self._lines)

    def room_for(self, jobs: list[Job]) -> list[Job]:
        """The first of these jobs that may join now; at least one if nothing is being written."""
        going = [line.job for line in self._lines if not line.over]
        # A join copies what is cached: it waits until a quarter of the room is free.
        if going and 4 * _size(going) > 3 * self._budget:
            return []
        longest = max((_longest(job) for job in going), default=0)
        count = len(going)
        joined: list[Job] = []
        for job in jobs:
            longest, count = max(longest, _longest(job)), count + 1
            if count > 1 and longest * count > self._budget:
                break
            joined.append(job)
        return joined

    def join(self, jobs: list[Job]) -> Iterator[Answer]:
        """Read prompts and draw each answer's first token; answers that end with it are given."""
        import torch

        for row in self._packer.rows(jobs, [0] * len(jobs)):
            found = row.run([leaf for _, leaf in row.leaves], keep=True)
            assert found.kv is not None
            base = torch.arange(row.forest.base)
            places = [torch.cat([base, torch.from_numpy(p) + len(base)]) for p in row.paths]
            lines = [Line.of(jobs[n]) for n, _ in row.leaves]
            done = self._scribe.draw(lines, found.logits)
            self._compact()
            if len(done) < len(lines):
                batch = Batch.of_rows(found.kv, places)
                self._batch = batch if self._batch is None else self._batch.join(batch)
                self._lines += lines
            yield from done

    def step(self) -> Iterator[Answer]:
        """Write one more token of every answer; those that end with it are given."""
        over = sum(line.over for line in self._lines)
        if 4 * over >= len(self._lines):
            self._compact()
        batch = self._batch
        assert batch is not None
        logits = self._model.step(
            batch.cache,
            [line.next for line in self._lines],
            [line.position for line in self._lines],
            batch.grow(),
        )
        yield from self._scribe.draw(self._lines, logits)

    def _compact(self) -> None:
        """Forget what is cached of answers that are over."""
        left = [n for n, line in enumerate(self._lines) if not line.over]
        if len(left) == len(self._lines):
            return
        assert self._batch is not None
        self._batch = self._batch.keep(left) if left else None
        self._lines = [self._lines[n] for n in left]


def _longest(job: Job) -> int:
    return len(job.prompt) + job.limit


def _size(jobs: list[Job]) -> int:
    """Tokens of keys and values when all are as long as the longest may get (count)."""
    return len(jobs) * max(_longest(job) for job in jobs)
