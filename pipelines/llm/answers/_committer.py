"""Answers on their way to the disk: gathered, and committed every N of them or T seconds."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import StoreError
from pipelines.llm.answers._catalogue import Catalogue
from pipelines.llm.answers._index import Entries
from pipelines.llm.answers._parts import GROUP_ROWS, Part, encode
from pipelines.llm.answers._record import schema
from pipelines.llm.answers._rules import budget
from pipelines.llm.engines import Answer, EngineIdentity, Status

if TYPE_CHECKING:
    import pyarrow as pa
    from numpy.typing import NDArray

_log = logging.getLogger(__name__)


def part_name(oldest: int) -> str:
    """A new name for a part: names sort by the time of the oldest row (microseconds)."""
    return f"part-{oldest:016d}-{uuid.uuid4().hex[:12]}.parquet"


class Committer:
    """Takes rows and commits them as parts.

    A part is written to a temporary file, synced, and given its name: a reader sees all of it or
    nothing. If that fails the rows stay here, and the next try takes them along. The lock guards
    the catalogue too: a timer commits from a thread of its own.
    """

    def __init__(self, catalogue: Catalogue, lock: threading.RLock) -> None:
        self.every = 500
        self.seconds = 30.0
        self.committed: Counter[Status] = Counter()
        self._catalogue = catalogue
        self._lock = lock
        self._rows: list[tuple[Any, ...]] = []
        self._places: dict[bytes, list[int]] = {}
        self._last = 0
        self._batch = 0
        self._timer: threading.Timer | None = None
        self._failure: StoreError | None = None
        self._owner = os.getpid()

    def __len__(self) -> int:
        return len(self._rows)

    def add(
        self,
        identity: EngineIdentity,
        identity_text: str,
        key: str,
        answer: Answer,
        request: str | None,
    ) -> bool:
        """Take one row; whether it is time to commit."""
        self._forget_parents()
        now = max(time.time_ns() // 1000, self._last + 1)
        self._last = now
        raw = bytes.fromhex(key)
        self._places.setdefault(raw, []).append(len(self._rows))
        self._rows.append(
            (
                raw,
                answer.status,
                budget(answer.request.sampling.max_tokens),
                now,
                answer.text,
                answer.probabilities,
                answer.mass,
                answer.finish_reason,
                int(answer.prompt_tokens),
                int(answer.completion_tokens),
                int(answer.cached_tokens),
                float(answer.latency),
                answer.detail,
                identity.engine,
                identity.model,
                identity_text,
                request,
            )
        )
        if len(self._rows) >= self.every:
            return True
        if self._timer is None:
            self._timer = threading.Timer(self.seconds, self._timed, (self._batch,))
            self._timer.daemon = True
            self._timer.start()
        return False

    def commit(self) -> int:
        """Commit all rows as one part; how many.

        Raises :class:`StoreError` if the disk is full or can't be written, now or when the timer
        tried; the rows stay here.
        """
        self._forget_parents()
        if not self._rows:
            self._stop_timer()
            return 0
        failure, self._failure = self._failure, None
        table = _table(self._rows)
        name = part_name(self._rows[0][3])
        path = self._catalogue.folder / name
        try:
            data = encode(table)
            self._catalogue.files.local.put_new(path, data)
        except StoreError as error:
            raise error from failure
        rows, statuses = len(self._rows), Counter[Status](row[1] for row in self._rows)
        self._rows, self._places = [], {}
        self._stop_timer()
        offsets = (*range(0, rows, GROUP_ROWS), rows)
        entries = Entries.of(table)
        self._catalogue.take_own(Part(path, len(data), offsets, ()), entries)
        self.committed += statuses
        return rows

    def raise_failure(self) -> None:
        """Raise what a timed commit failed with."""
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Commit the rest when the store is finalised; a failure can only be logged."""
        with self._lock:
            try:
                self.commit()
            except StoreError as error:
                _log.error("%d answers could not be stored: %s", len(self._rows), error)

    def matching(self, keys: Sequence[bytes]) -> tuple[NDArray[Any], Entries, pa.Table] | None:
        """Rows of these keys that are not committed: positions among them, entries, rows."""
        self._forget_parents()
        if not self._rows:
            return None
        hits = [
            (position, place)
            for position, key in enumerate(keys)
            if key in self._places
            for place in self._places[key]
        ]
        if not hits:
            return None
        table = _table([self._rows[place] for _, place in hits])
        entries = Entries.of(table)
        return np.array([position for position, _ in hits], np.int64), entries, table

    def _timed(self, batch: int) -> None:
        with self._lock:
            if batch != self._batch or not self._rows:
                return
            self._timer = None
            try:
                self.commit()
            except StoreError as error:
                # Raised where the rows come from: no caller waits for this thread.
                self._failure = error

    def _stop_timer(self) -> None:
        self._batch += 1
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _forget_parents(self) -> None:
        """In a forked child, leave the rows that it has a copy of to its parent."""
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._rows, self._places, self._timer = [], {}, None


def _table(rows: Sequence[tuple[Any, ...]]) -> pa.Table:
    import pyarrow as pa

    wanted = schema()
    columns = zip(*rows, strict=True)
    return pa.table(
        [pa.array(column, field.type) for column, field in zip(columns, wanted, strict=True)],
        schema=wanted,
    )
