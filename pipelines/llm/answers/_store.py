"""The answer store: every model call that was ever paid for, by content."""

from __future__ import annotations

import logging
import re
import threading
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from pipelines.config import ServingSettings
from pipelines.errors import ConfigError, StoreError
from pipelines.llm.answers._catalogue import Catalogue, Found, Problem
from pipelines.llm.answers._committer import Committer
from pipelines.llm.answers._index import key_words
from pipelines.llm.answers._key import answer_keys, canonical_request
from pipelines.llm.answers._merge import GcReport, collect, merge_due, unneeded
from pipelines.llm.answers._parts import CorruptPartError
from pipelines.llm.answers._places import Scope
from pipelines.llm.answers._record import (
    PAYLOAD,
    StoredAnswer,
    clean,
    identity_json,
    schema,
    stored_of,
    without_secrets,
)
from pipelines.llm.answers._rules import budget
from pipelines.llm.answers._stats import AnswerStats, Figures
from pipelines.llm.answers._uses import UnusedReport, active_scope, unused_keys, words
from pipelines.llm.engines import Answer, EngineIdentity, Status
from pipelines.paths import home_path

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)
#: Hexadecimal digits of a key, and those that its first eight bytes hold.
_DIGITS, _PREFIX_DIGITS = 64, 16
_START = re.compile(r"[0-9a-f]{0,64}")


def _fitting(table: pa.Table, key: str, statuses: Collection[Status], model: str) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    if key:
        raw = b"".join(table.column("key").to_pylist())
        words = key_words(raw)[0]
        low = np.uint64(int(key[:_PREFIX_DIGITS].ljust(_PREFIX_DIGITS, "0"), 16))
        high = np.uint64(int(key[:_PREFIX_DIGITS].ljust(_PREFIX_DIGITS, "f"), 16))
        table = table.filter(pa.array((words >= low) & (words <= high)))
        whole = [k.hex().startswith(key) for k in table.column("key").to_pylist()]
        table = table.filter(pa.array(whole, pa.bool_()))
    if statuses:
        named = pc.cast(table.column("status"), pa.string())
        table = table.filter(pc.is_in(named, pa.array(list(statuses))))
    if model:
        table = table.filter(pc.match_substring(table.column("model"), model))
    return table


class AnswerStore:
    """Answers below ``<home>/answers``, found by :func:`~pipelines.llm.answers.answer_key`.

    Append-only Parquet parts, each committed whole by fsync and rename. Any number of processes may
    write and read at once; a part that can't be read is left out and listed in :attr:`problems`. A
    killed process loses what it had not committed: at most ``serving.commit_every`` answers, none
    older than ``serving.commit_seconds``. The API key of the settings is never stored.

    Examples
    --------
    >>> import tempfile
    >>> from pipelines.llm.answers import answer_key
    >>> from pipelines.llm.engines import Answer, EngineIdentity, Message, Request
    >>> identity = EngineIdentity("scripted", "1", "demo")
    >>> question = Request((Message("user", "Well?"),))
    >>> with tempfile.TemporaryDirectory() as home, AnswerStore(home) as store:
    ...     _ = store.add(identity, [Answer(question, "ok", text="Yes.")])
    ...     [found] = store.get([answer_key(identity, question)]).values()
    >>> found.text
    'Yes.'
    """

    def __init__(self, home: Path | str, serving: ServingSettings | None = None) -> None:
        self.home = home_path(home)
        self._lock = threading.RLock()
        self._catalogue = Catalogue(self.home, active_scope(self.home))
        self._committer = Committer(self._catalogue, self._lock)
        self._identities: dict[EngineIdentity, str] = {}
        self._merging = True
        self._keep_requests = False
        self._secrets: tuple[str, ...] = ()
        self.configure(serving or ServingSettings())
        # Also when the process ends while somebody still holds the store.
        self._finalizer = weakref.finalize(self, self._committer.close)

    def __repr__(self) -> str:
        return f"AnswerStore({str(self.home)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def folder(self) -> Path:
        """Place of the parts."""
        return self._catalogue.files.folder

    @property
    def scope(self) -> Scope | None:
        """Scope that new answers are stored in, and that look-ups are limited to; None: no limit.

        A store that is opened while a table is built begins with the scope of table and cohort.
        """
        return self._catalogue.scope

    def enter(self, scope: Scope | None) -> None:
        """Change the scope; what is waiting is committed to the one before.

        Raises :class:`StoreError` if the disk is full or can't be written.
        """
        with self._lock:
            self.flush()
            self._catalogue.scope = scope

    @property
    def committed(self) -> int:
        """Rows that this object has committed, of any status (count)."""
        return self._committer.committed.total()

    @property
    def committed_statuses(self) -> Counter[Status]:
        """The same by status (count)."""
        return self._committer.committed.copy()

    @property
    def usable(self) -> int:
        """Rows that this object has committed, without failed calls (count)."""
        counts = self._committer.committed
        return sum(counts.values()) - counts["engine_error"]

    @property
    def waiting(self) -> int:
        """Answers that are taken and not yet committed (count)."""
        return len(self._committer)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Corrupt parts, which are left out, as of the last look-up."""
        with self._lock:
            return tuple(self._catalogue.problems.values())

    def configure(self, serving: ServingSettings) -> None:
        """Take over when to commit, whether to keep requests, and which key is secret."""
        with self._lock:
            self._committer.every = serving.commit_every
            self._committer.seconds = serving.commit_seconds
            self._keep_requests = serving.keep_requests
            if serving.api_key is not None and serving.api_key.get_secret_value():
                found = {*self._secrets, serving.api_key.get_secret_value()}
                self._secrets = tuple(sorted(found))

    # -- writing -----------------------------------------------------------------------------

    def add(
        self, identity: EngineIdentity, answers: Iterable[Answer], keys: Iterable[str] | None = None
    ) -> list[Answer]:
        """Store answers of any status, and commit when it is time.

        Returns them as they are stored: without secrets, and without distribution where they
        failed. ``keys`` saves computing them again.

        Raises
        ------
        StoreError
            The disk is full or can't be written. The answers stay in memory: `flush` tries again.
        """
        answers = list(answers)
        made = answer_keys(identity, (a.request for a in answers)) if keys is None else list(keys)
        out = []
        with self._lock:
            self._committer.raise_failure()
            identity_text = self._identity(identity)
            due = False
            for answer, key in zip(answers, made, strict=True):
                kept = clean(answer, self._secrets)
                due |= self._committer.add(identity, identity_text, key, kept, self._question(kept))
                out.append(kept)
            if due:
                self.flush()
        return out

    def flush(self) -> int:
        """Commit what is waiting; how many answers. On a StoreError nothing is lost yet."""
        with self._lock:
            count = self._committer.commit()
            if count and self._merging:
                try:
                    merge_due(self._catalogue)
                except StoreError as error:
                    # The answers are safe, and a store of many parts is only slower: no reason
                    # to end a run. `gc` merges later and reports the fault.
                    self._merging = False
                    _log.warning("the answer store was not compacted: %s", error)
            return count

    def close(self) -> None:
        """Commit what is waiting; the store may be used again."""
        self.flush()

    # -- reading -----------------------------------------------------------------------------

    def find(
        self,
        keys: Sequence[str],
        max_tokens: Sequence[int] | None = None,
        columns: Sequence[str] = PAYLOAD,
    ) -> Found:
        """Stored rows of many keys (64 hexadecimal digits each) at once, as columns.

        At most one row per key. A million keys among ten million rows take seconds and some hundred
        MiB. ``max_tokens`` is the budget of each call: only rows that serve it count. None takes
        the best row of each key, whatever it is.

        Raises
        ------
        StoreError
            The store can't be read. (Corrupt parts are no error: see :attr:`problems`.)
        """
        data = _key_bytes(keys)
        wanted = None
        if max_tokens is not None:
            wanted = np.array([budget(n) for n in max_tokens], np.int64)
        with self._lock:
            self._catalogue.refresh()
            pending = None
            if len(self._committer):
                raw = [data[at : at + 32] for at in range(0, len(data), 32)]
                pending = self._committer.matching(raw)
            return self._catalogue.find(key_words(data), wanted, columns, pending)

    def get(self, keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """The best stored answer of each key that has one."""
        found = self.find(list(dict.fromkeys(keys)), columns=schema().names)
        return {answer.key: answer for answer in stored_of(found.table)}

    def select(
        self, *, key: str = "", statuses: Collection[Status] = (), model: str = "", limit: int = 20
    ) -> list[StoredAnswer]:
        """Committed rows for people to read, newest first, superseded ones among them.

        ``key`` is the start of the key (ConfigError if it is not hexadecimal) and ``model`` a part
        of the model's name; no ``statuses`` takes all.
        """
        if not _START.fullmatch(key):
            raise ConfigError("not a key prefix", where=key, hint="up to 64 hexadecimal digits")
        out: list[StoredAnswer] = []
        for table in self.scan(newest_first=True):
            fitting = _fitting(table, key, statuses, model)
            rows = stored_of(fitting.slice(max(0, fitting.num_rows - (limit - len(out)))))
            out += reversed(rows)
            if len(out) >= limit:
                break
        return out

    def scan(
        self, columns: Sequence[str] | None = None, *, newest_first: bool = False
    ) -> Iterator[pa.Table]:
        """All committed rows, some ten thousand at a time, superseded ones among them.

        With ``newest_first`` the newest tables come first; within each, rows stay in the order in
        which they were stored. Corrupt parts are no error: see :attr:`problems`.
        """
        with self._lock:
            parts = self._catalogue.open_all()
        with ExitStack() as opened:
            for _, file in parts:
                opened.enter_context(file)
            for part, file in reversed(parts) if newest_first else parts:
                try:
                    yield from part.groups(
                        columns or schema().names, backwards=newest_first, opened=file
                    )
                except CorruptPartError as error:
                    with self._lock:
                        self._catalogue.report(part.path, error)

    def stats(self) -> AnswerStats:
        """Figures over everything that is committed."""
        with self._lock:
            figures = Figures()
            for table in self.scan(Figures.columns):
                figures.add(table)
            _, (superseded, failed, _) = unneeded(self._catalogue.index.all(), ())
            parts = self._catalogue.parts.values()
            oldest, newest = figures.span()
            return AnswerStats(
                answers=sum(part.rows for part in parts),
                superseded=superseded,
                failed=failed,
                parts=len(parts),
                size=sum(part.size for part in parts),
                oldest=oldest,
                newest=newest,
                models=figures.models(),
                problems=self.problems,
            )

    def gc(self, *, forget: Collection[Status] = (), dry_run: bool = False) -> GcReport:
        """Drop rows that serve no call, compact small parts, and set corrupt ones aside.

        Rows of the statuses ``forget`` are dropped altogether, so that those calls are asked again.

        Raises
        ------
        LockedError
            Another process compacts parts.
        StoreError
            The disk is full or can't be written; nothing is lost.
        """
        with self._lock:
            self.flush()
            report = collect(self._catalogue, forget, dry_run=dry_run)
            self._merging = True
            return report

    def gc_unused(
        self, kept: Iterable[str], removed: Iterable[str], *, dry_run: bool = False
    ) -> UnusedReport:
        """Drop (``dry_run``: only count) the answers that only removed tables had asked for.

        ``kept`` and ``removed`` are files of recorded keys (:func:`files_named`) that kept and
        removed tables name.

        Raises
        ------
        LockedError
            Another process compacts parts, or looks up answers for very long.
        StoreError
            The disk is full or can't be written; nothing is lost.
        """
        with self._lock, unused_keys(self.home, kept, removed, forget=not dry_run) as found:
            report = collect(
                self._catalogue, (), dry_run=dry_run, unused=found.unused, since=found.since
            )
            entries = self._catalogue.index.all()
            keys = words(entries.high, entries.low)
            attributed = int(np.isin(keys, found.attributed).sum())
            left = len(keys) - (report.unused if dry_run else 0)
            return UnusedReport(report.unused, attributed, left - attributed)

    # -- inside ------------------------------------------------------------------------------

    def _identity(self, identity: EngineIdentity) -> str:
        if identity not in self._identities:
            self._identities[identity] = identity_json(identity)
        return self._identities[identity]

    def _question(self, answer: Answer) -> str | None:
        if not self._keep_requests:
            return None
        return without_secrets(canonical_request(answer.request), self._secrets)


def _key_bytes(keys: Sequence[str]) -> bytes:
    """Keys as bytes, one after the other (32 each)."""
    if any(len(key) != _DIGITS for key in keys):
        raise ValueError(f"a key has {_DIGITS} hexadecimal digits")
    return bytes.fromhex("".join(keys))
