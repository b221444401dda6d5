"""Answers on their way to the disk: gathered, and committed every N of them or T seconds."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter

from pipelines.errors import StoreError
from pipelines.llm.answers._file import AnswerFile, Row
from pipelines.llm.answers._rules import replaces
from pipelines.llm.engines import Status

_log = logging.getLogger(__name__)


class Writer:
    """Takes rows and commits them to a file.

    If a commit fails the rows stay here, and the next try takes them along. The lock guards the
    file too: a timer commits from a thread of its own.
    """

    def __init__(self, file: AnswerFile, lock: threading.RLock) -> None:
        self.file = file
        self.every = 500
        self.seconds = 30.0
        self.committed: Counter[Status] = Counter()
        self._lock = lock
        self._rows: dict[bytes, Row] = {}
        self._identities: dict[int, str] = {}
        self._last = 0
        self._timer: threading.Timer | None = None
        self._failure: StoreError | None = None
        self._owner = os.getpid()

    @property
    def rows(self) -> dict[bytes, Row]:
        """Rows that are not committed, by key; those of a parent process are left to it."""
        if self._owner != os.getpid():
            self._owner = os.getpid()
            self._rows, self._timer = {}, None
        return self._rows

    def moment(self) -> int:
        """The time (microseconds since 1970), another one at each call."""
        self._last = max(time.time_ns() // 1000, self._last + 1)
        return self._last

    def add(self, row: Row, document: str) -> None:
        """Take a row, and commit when it is time; raises what a timed commit failed with."""
        self._raise_failure()
        stored = self.rows.get(row.key)
        if stored is None or replaces(row.status, stored.status):
            self.rows[row.key] = row
            self._identities[row.identity] = document
        if len(self.rows) >= self.every:
            self.commit()
        elif self._timer is None:
            self._timer = threading.Timer(self.seconds, self._timed)
            self._timer.daemon = True
            self._timer.start()

    def commit(self) -> int:
        """Commit all rows; how many. On a StoreError they stay here."""
        rows = list(self.rows.values())
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if rows:
            failure, self._failure = self._failure, None
            try:
                self.file.store(rows, self._identities)
            except StoreError as error:
                raise error from failure
            self._rows = {}
            self.committed.update(row.status for row in rows)
        return len(rows)

    def close(self) -> None:
        """Commit the rest when the store is finalised; a failure can only be logged."""
        with self._lock:
            try:
                self.commit()
            except StoreError as error:
                _log.error("%d answers could not be stored: %s", len(self.rows), error)

    def _timed(self) -> None:
        with self._lock:
            if threading.current_thread() is not self._timer:
                return  # committed meanwhile
            self._timer = None
            try:
                self.commit()
            except StoreError as error:
                # Raised where the rows come from: no caller waits for this thread.
                self._failure = error

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
