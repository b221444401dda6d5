"""The answer store: every model call that was ever paid for, by content."""

from __future__ import annotations

import logging
import re
import threading
import weakref
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pipelines.config import ServingSettings
from pipelines.errors import ConfigError, IntegrityError
from pipelines.llm.answers._file import AnswerFile, Row, identity_number
from pipelines.llm.answers._key import answer_keys, canonical_request
from pipelines.llm.answers._parquet import adopt_parts, write_parquet
from pipelines.llm.answers._record import (
    StoredAnswer,
    answer_of,
    clean,
    identity_json,
    identity_of,
    row_of,
    stored_of,
    without_secrets,
)
from pipelines.llm.answers._rules import serves
from pipelines.llm.answers._scope import Scope, open_scope
from pipelines.llm.answers._stats import AnswerStats, GcReport, ModelStats, Problem, UnusedReport
from pipelines.llm.answers._writer import Writer
from pipelines.llm.engines import Answer, EngineIdentity, Request, Status
from pipelines.paths import home_path
from pipelines.store.files import LocalFiles

_log = logging.getLogger(__name__)
_START = re.compile(r"[0-9a-f]{0,64}")
#: File of the answers of no table.
_GENERAL = "answers.sqlite"


class AnswerStore:
    """Answers below ``<home>/answers``, found by :func:`~pipelines.llm.answers.answer_key`.

    One SQLite file per table and cohort. Any number of processes may write and read at once. A row
    that is no longer what was stored is left out and asked for again. A killed process loses what
    it had not committed: at most ``serving.commit_every`` answers, none older than
    ``serving.commit_seconds``. The API key of the settings is never stored.

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
        #: Place of the files.
        self.folder = self.home / "answers"
        self._lock = threading.RLock()
        self._scope = open_scope(self.home)
        self._files: dict[str, AnswerFile] = {}
        self._identities: dict[EngineIdentity, tuple[int, str]] = {}
        self._documents: dict[int, str] = {}
        self._problems: dict[Path, Problem] = {}
        self._keep_requests = False
        self._secrets: tuple[str, ...] = ()
        adopt_parts(self.home, self._file)
        self._writer = Writer(self._file(self._scope), self._lock)
        self.configure(serving or ServingSettings())
        # Also when the process ends while somebody still holds the store.
        self._finalizer = weakref.finalize(self, self._writer.close)

    def __repr__(self) -> str:
        return f"AnswerStore({str(self.home)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def scope(self) -> Scope | None:
        """Scope that new answers are stored in, and that look-ups are limited to; None: no limit.

        A store that is opened within `answers_of` begins with its scope. The answers of no table
        serve every scope.
        """
        return self._scope

    def enter(self, scope: Scope | None) -> None:
        """Change the scope; what is waiting is committed to the one before.

        Raises :class:`StoreError` if the disk is full or can't be written.
        """
        with self._lock:
            self.flush()
            self._scope = scope
            self._writer.file = self._file(scope)

    @property
    def committed(self) -> int:
        """Rows that this object has committed, of any status (count)."""
        return self._writer.committed.total()

    @property
    def committed_statuses(self) -> Counter[Status]:
        """The same by status (count)."""
        return self._writer.committed.copy()

    @property
    def usable(self) -> int:
        """Rows that this object has committed, without failed calls (count)."""
        return self.committed - self._writer.committed["engine_error"]

    @property
    def waiting(self) -> int:
        """Answers that are taken and not yet committed (count)."""
        return len(self._writer.rows)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Files with rows that are no longer what was stored, or that can't be read, so far."""
        return tuple(self._problems.values())

    def configure(self, serving: ServingSettings) -> None:
        """Take over when to commit, whether to keep requests, and which key is secret."""
        with self._lock:
            self._writer.every = serving.commit_every
            self._writer.seconds = serving.commit_seconds
            self._keep_requests = serving.keep_requests
            if serving.api_key is not None and serving.api_key.get_secret_value():
                secrets = {*self._secrets, serving.api_key.get_secret_value()}
                self._secrets = tuple(sorted(secrets))

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
        if keys is None:
            keys = answer_keys(identity, (answer.request for answer in answers))
        out = []
        with self._lock:
            number, document = self._identity(identity)
            for answer, key in zip(answers, keys, strict=True):
                cleaned = clean(answer, self._secrets)
                request = self._question(cleaned.request)
                row = row_of(cleaned, key, number, self._writer.moment(), request)
                self._writer.add(row, document)
                out.append(cleaned)
        return out

    def flush(self) -> int:
        """Commit what is waiting; how many answers. On a StoreError nothing is lost yet."""
        with self._lock:
            return self._writer.commit()

    def close(self) -> None:
        """Commit what is waiting; the store may be used again."""
        with self._lock:
            self.flush()
            for file in self._files.values():
                file.close()

    # -- reading -----------------------------------------------------------------------------

    def look_up(self, requests: Sequence[Request], keys: Sequence[str]) -> list[Answer | None]:
        """The stored answer that serves each request under its budget, or None.

        Raises :class:`StoreError` if the store can't be read, or where an answer is missing and
        can't be stored, :class:`IntegrityError` if a file is damaged.
        """
        digests = _bytes_of(keys)
        rows = self._find(digests)
        if len(rows) < len(set(keys)):
            with self._lock:
                # Before the others are asked and paid for: can they be stored?
                self._writer.file.create()
        out: list[Answer | None] = []
        for digest, request in zip(digests, requests, strict=True):
            row = rows.get(digest)
            limit = request.sampling.max_tokens
            useful = row and (row.status == "ok" or serves(row.status, row.max_tokens, limit))
            out.append(answer_of(row, request) if row and useful else None)
        return out

    def get(self, keys: Sequence[str]) -> dict[str, StoredAnswer]:
        """The stored answer of each key that has one; errors as of `look_up`."""
        rows = self._find(_bytes_of(list(dict.fromkeys(keys))))
        return {digest.hex(): self._stored(row) for digest, row in rows.items()}

    def select(
        self, *, key: str = "", statuses: Collection[Status] = (), model: str = "", limit: int = 20
    ) -> list[StoredAnswer]:
        """Committed rows for people to read, newest first.

        ``key`` is the start of the key (ConfigError if it is not hexadecimal) and ``model`` a part
        of the model's name; no ``statuses`` takes all.
        """
        if not _START.fullmatch(key):
            raise ConfigError("not a key prefix", where=key, hint="up to 64 hexadecimal digits")
        low, high = (bytes.fromhex(key.ljust(64, digit)) for digit in "0f")
        out = []
        for file in self._every():
            words, values = _condition(file, statuses, model)
            words = f"{words} AND key BETWEEN ? AND ? ORDER BY rowid DESC LIMIT ?"
            for _, row in file.rows(words, [*values, low, high, limit]):
                if row:
                    out.append(self._stored(row))
        return sorted(out, key=lambda stored: stored.stored_at, reverse=True)[:limit]

    def rows(self) -> Iterator[StoredAnswer]:
        """All committed rows that are what was stored, file by file."""
        for file in self._every():
            for _, row in file.rows():
                if row:
                    yield self._stored(row)

    def stats(self) -> AnswerStats:
        """Figures over everything that is committed."""
        models: dict[str, ModelStats] = {}
        moments: list[int] = []
        files = self._every()
        for file in files:
            for number, status, count, *sums, oldest, newest in file.query(_FIGURES):
                document = file.identities()[number]
                model = models.setdefault(document, ModelStats(identity_of(document)))
                model.statuses[status] += count
                model.prompt_tokens += sums[0]
                model.completion_tokens += sums[1]
                model.cached_tokens += sums[2]
                model.seconds += sums[3]
                moments += [oldest, newest]
        return AnswerStats(
            files=len(files),
            size=sum(file.size() for file in files),
            oldest=_moment(min(moments)) if moments else None,
            newest=_moment(max(moments)) if moments else None,
            models=tuple(sorted(models.values(), key=lambda m: (-m.answers, str(m.identity)))),
            problems=self.problems,
        )

    def export(self, target: Path) -> int:
        """Write all rows to a Parquet file; how many. StoreError if it can't be written."""
        with self._lock:
            self.flush()
        return write_parquet(self.rows(), target)

    # -- removing ----------------------------------------------------------------------------

    def gc(
        self, *, forget: Collection[Status] = (), model: str = "", dry_run: bool = False
    ) -> GcReport:
        """Drop rows of failed calls, those that are no longer what was stored, and forgotten ones.

        Rows of the statuses ``forget``, and of models whose name contains ``model``, are forgotten,
        so that those calls are asked again. Damaged files are built anew from what can be read.

        Raises :class:`StoreError` if the disk is full or can't be written; nothing is lost.
        """
        self.flush()
        answers = failed = forgotten = corrupt = 0
        damaged: list[AnswerFile] = []
        files = self._every(damaged=True)
        before = sum(file.size() for file in files)
        for file in files:
            try:
                named, values = _condition(file, forget, model)
                wrong = [key for key, row in file.rows() if row is None]
                answers += _count(file)
                errors = _count(file, _FAILED)
                named = f"NOT ({_FAILED}) AND {named}" if forget or model else "false"
                chosen = _count(file, named, values) if values else 0
            except IntegrityError as error:
                self._report(file, error.what)
                damaged.append(file)
                continue
            failed, forgotten, corrupt = failed + errors, forgotten + chosen, corrupt + len(wrong)
            if not dry_run:
                file.drop(wrong)
                file.remove(f"{_FAILED} OR ({named})", values)
        problems = tuple(self._problems[file.path] for file in damaged)
        if not dry_run:
            for file in damaged:
                file.rebuild()
            self._problems.clear()
        after = sum(file.size() for file in files)
        return GcReport(answers, failed, forgotten, corrupt, before, after, problems, dry_run)

    def gc_tables(
        self, kept: Collection[Scope], removed: Collection[Scope], *, dry_run: bool = False
    ) -> UnusedReport:
        """Drop (``dry_run``: only count) the answers of tables' cohorts that have no version left.

        ``kept`` and ``removed`` are those of versions that are kept and that were removed.
        """
        self.flush()
        counts: Counter[str] = Counter()
        for file in self._every():
            scope = Scope.of_file(file.path.name)
            gone = scope in removed and scope not in kept
            kind = "removed" if gone else "attributed" if scope in kept else "unattributed"
            counts[kind] += _count(file)
            if gone and not dry_run:
                self._files.pop(file.path.name, None)
                file.discard()
        return UnusedReport(counts["removed"], counts["attributed"], counts["unattributed"])

    # -- inside ------------------------------------------------------------------------------

    def _find(self, keys: Sequence[bytes]) -> dict[bytes, Row]:
        """Rows of keys: of those that are waiting, of this scope and of no table, the best."""
        with self._lock:
            waiting = self._writer.rows
            best = {key: waiting[key] for key in keys if key in waiting} if waiting else {}
            for file in self._readable():
                missing = [k for k in keys if k not in best or best[k].status != "ok"]
                rows, wrong = file.find(missing)
                if best:
                    rows = [min(row, best.get(row.key, row), key=_preference) for row in rows]
                best.update(zip([row.key for row in rows], rows, strict=True))
                if wrong:
                    self._report(file, f"{len(wrong)} answers were damaged: they are asked again")
                    file.drop(wrong)
        return best

    def _readable(self) -> list[AnswerFile]:
        """Files that a look-up reads."""
        if self._scope is None:
            return self._every(damaged=True)
        return [self._file(self._scope), self._file(None)]

    def _every(self, *, damaged: bool = False) -> list[AnswerFile]:
        """All files, without those that can't be read unless ``damaged``."""
        with self._lock:
            names = [n for n in LocalFiles(self.home).names(self.folder) if n.endswith(_SUFFIX)]
            files = [self._file_at(self.folder / name) for name in names]
            return files if damaged else [file for file in files if self._is_whole(file)]

    def _is_whole(self, file: AnswerFile) -> bool:
        try:
            file.check()
        except IntegrityError as error:
            self._report(file, error.what)
            return False
        return True

    def _file(self, scope: Scope | None) -> AnswerFile:
        return self._file_at(self.folder / (_GENERAL if scope is None else scope.file))

    def _file_at(self, path: Path) -> AnswerFile:
        if path.name not in self._files:
            self._files[path.name] = AnswerFile(path, self.home)
        return self._files[path.name]

    def _report(self, file: AnswerFile, reason: str) -> None:
        _log.warning("%s: %s", file.path, reason)
        self._problems[file.path] = Problem(file.path.name, reason, file.path)

    def _stored(self, row: Row) -> StoredAnswer:
        number = row.identity
        if number not in self._documents:
            with self._lock:
                for file in self._every():
                    self._documents.update(file.identities())
        if number not in self._documents:
            raise IntegrityError("the model of an answer is unknown", where=row.key.hex())
        return stored_of(row, self._documents[number])

    def _identity(self, identity: EngineIdentity) -> tuple[int, str]:
        if identity not in self._identities:
            document = identity_json(identity)
            self._identities[identity] = (identity_number(document), document)
            self._documents[identity_number(document)] = document
        return self._identities[identity]

    def _question(self, request: Request) -> str | None:
        if not self._keep_requests:
            return None
        return without_secrets(canonical_request(request), self._secrets)


_SUFFIX = ".sqlite"
_FAILED = "status = 'engine_error'"
_FIGURES = """
SELECT identity, status, count(*), sum(prompt_tokens), sum(completion_tokens), sum(cached_tokens),
    sum(latency), min(stored_at), max(stored_at)
FROM answers GROUP BY identity, status
"""
#: Of rows of one key in several files, the one to take first.
_RANK = {"ok": 0, "truncated": 1, "refused": 2, "invalid": 3, "engine_error": 4}


def _bytes_of(keys: Sequence[str]) -> list[bytes]:
    digests = list(map(bytes.fromhex, keys))
    if any(len(digest) != 32 for digest in digests):
        raise ValueError("a key has 64 hexadecimal digits")
    return digests


def _preference(row: Row) -> tuple[int, int, int]:
    longest = -row.max_tokens if row.status == "truncated" else 0
    return _RANK[row.status], longest, row.stored_at


def _condition(
    file: AnswerFile, statuses: Collection[Status], model: str
) -> tuple[str, list[object]]:
    """Condition of rows of some statuses (none: all) and models, and its values."""
    words, values = ["true"], list[object](statuses)
    if statuses:
        words.append(f"status IN ({','.join('?' * len(statuses))})")
    if model:
        documents = file.identities().items()
        numbers = [number for number, text in documents if model in identity_of(text).model]
        words.append(f"identity IN ({','.join('?' * len(numbers))})")
        values += numbers
    return " AND ".join(words), values


def _count(file: AnswerFile, words: str = "true", values: Sequence[object] = ()) -> int:
    rows = file.query(f"SELECT count(*) FROM answers WHERE {words}", values)  # noqa: S608
    return int(rows[0][0]) if rows else 0


def _moment(micros: int) -> datetime:
    return datetime.fromtimestamp(micros / 1e6, UTC)
