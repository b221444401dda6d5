"""Asking many requests: from the store where it knows the answer, else from the engine."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, Self, TypeVar

from pipelines.config import ServingSettings
from pipelines.errors import EngineError, StoreError, UnderstudyError
from pipelines.llm.answers._key import answer_key, answer_keys
from pipelines.llm.answers._record import clean, one_line
from pipelines.llm.answers._rules import serves
from pipelines.llm.answers._store import AnswerStore
from pipelines.llm.engines import STATUSES, Answer, Engine, EngineIdentity, Request, Status
from pipelines.progress import advance


@dataclass(slots=True)
class Tally:
    """Counts of a run of :func:`pipelines.llm.answers.ask`."""

    #: Requests answered: the sum of the next three.
    answers: int = 0
    #: Answered by the engine, from the store, or with the answer to an equal request of the run.
    calls: int = 0
    hits: int = 0
    duplicates: int = 0
    #: Answers of this run that are committed, failed calls (`engine_error`) not among them.
    stored: int = 0
    #: Answers by status, hits and duplicates included.
    statuses: Counter[Status] = field(default_factory=Counter)
    #: Calls by status, those that are not `ok`.
    failures: Counter[Status] = field(default_factory=Counter)
    #: Tokens of the calls; hits and duplicates cost none.
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    #: Sum of the calls' latencies (seconds).
    latency: float = 0.0
    #: Since the run began.
    seconds: float = 0.0
    _began: float = field(default_factory=time.perf_counter, repr=False)

    @property
    def failed(self) -> int:
        """Calls whose answer can't be used (count)."""
        return self.failures.total()

    def called(self, answer: Answer) -> None:
        """Count a call."""
        self.calls += 1
        if answer.status != "ok":
            self.failures[answer.status] += 1
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        self.cached_tokens += answer.cached_tokens
        self.latency += answer.latency

    def answered(self, answer: Answer) -> None:
        """Count an answer that is handed out."""
        self.answers += 1
        self.statuses[answer.status] += 1
        self.seconds = time.perf_counter() - self._began

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, every status named."""
        return {
            "answers": self.answers,
            "calls": self.calls,
            "hits": self.hits,
            "duplicates": self.duplicates,
            "stored": self.stored,
            "statuses": {s: self.statuses[s] for s in STATUSES},
            "failures": {s: self.failures[s] for s in STATUSES if s != "ok"},
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "latency": self.latency,
            "seconds": self.seconds,
        }


_T = TypeVar("_T")

#: A request, its key, and the answer to it.
Row = tuple[Request, str, Answer]

#: Requests looked up at once (count).
_CHUNK = 8192
#: Answers found while the engine waits for work; with more, it is let run dry first.
_MOST_READY = 2 * _CHUNK
#: The step that is heard while a model answers: answers so far, found ones too.
ANSWERS = "answers"
#: Calls before the share of failed ones is judged.
_FIRST = 100


def ask(
    engine: Engine,
    requests: Iterable[Request],
    store: AnswerStore | None,
    *,
    serving: ServingSettings,
    tally: Tally | None = None,
) -> Iterator[Row]:
    """Answer requests, calling the engine only for what the store can't serve.

    Requests are drawn lazily and in bounded chunks; each answer is stored before it is handed out,
    and committed with the others every ``serving.commit_every`` answers or
    ``serving.commit_seconds`` seconds. Equal requests are asked once. Stopping in any way (an
    error, Ctrl-C, leaving the iteration) commits what is there; running the same again asks only
    the rest.

    Parameters
    ----------
    engine
        Answers what is missing.
    requests
        Any number; one that can't be served is one `invalid` answer.
    store
        Answer store. None: answers are kept in memory, for this call only.
    serving
        When to commit; ``error_budget``: the share of calls that may fail.
    tally
        Counts to go on from, for a caller that wants to see them.

    Yields
    ------
    tuple of Request, str, Answer
        One row per request, in no particular order. The answer's request is the one that was
        passed, with its tag. Only `ok` may be used; the others are row faults to list and count.

    Raises
    ------
    EngineError
        The engine can't go on, or more than ``serving.error_budget`` of the calls (after the
        first hundred) failed. The message states what is stored and how to go on.
    StoreError
        The store can't be read or written.
    """
    yield from _Run(engine, requests, store, serving, tally or Tally()).rows()


class Asking:
    """Base of classes that ask one model through the answer store (:func:`ask`) and close both."""

    def __init__(
        self,
        engine: Engine,
        store: AnswerStore | None = None,
        serving: ServingSettings | None = None,
    ) -> None:
        self._engine, self._store = engine, store
        self._serving = serving or ServingSettings()
        self.tally = Tally()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the model and commit what the store still holds back."""
        try:
            self._engine.close()
        finally:
            if self._store is not None:
                self._store.close()

    def ask_all(self, requests: Iterable[Request]) -> Iterator[Row]:
        """Answers of requests in the order of their arrival; see :func:`ask`."""
        return self._ask(requests)

    def _ask(self, requests: Iterable[Request]) -> Iterator[Row]:
        return ask(
            self._engine,
            requests,
            self._store,
            serving=self._serving,
            tally=self.tally,
        )


class _InMemory:
    """Answers of one call, so that equal requests are asked once without a store too."""

    def __init__(self, serving: ServingSettings) -> None:
        key = serving.api_key
        self.secrets = (key.get_secret_value(),) if key and key.get_secret_value() else ()
        self._answers: dict[str, Answer] = {}

    def look_up(self, requests: list[Request], keys: list[str]) -> list[Answer | None]:
        out: list[Answer | None] = []
        for request, key in zip(requests, keys, strict=True):
            stored = self._answers.get(key)
            usable = stored is not None and _serves(stored, request)
            out.append(replace(stored, request=request) if stored and usable else None)
        return out

    def add(self, identity: EngineIdentity, answer: Answer, key: str) -> Answer:
        del identity
        self._answers[key] = clean(answer, self.secrets)
        return self._answers[key]

    def flush(self) -> None:
        pass

    def stored(self) -> Counter[Status]:
        return Counter()

    def usable(self) -> int:
        """Stored answers of this call, without failed ones (count); asked once per answer."""
        return 0

    def waiting(self) -> int:
        return 0

    def place(self) -> str:
        return "because no store was given"


class _OnDisk(_InMemory):
    """Answers in the answer store."""

    def __init__(self, store: AnswerStore, serving: ServingSettings) -> None:
        super().__init__(serving)
        store.configure(serving)
        self._store = store
        self._before, self._usable = store.committed_statuses, store.usable

    def look_up(self, requests: list[Request], keys: list[str]) -> list[Answer | None]:
        return self._store.look_up(requests, keys)

    def add(self, identity: EngineIdentity, answer: Answer, key: str) -> Answer:
        return self._store.add(identity, [answer], [key])[0]

    def flush(self) -> None:
        self._store.flush()

    def stored(self) -> Counter[Status]:
        return self._store.committed_statuses - self._before

    def usable(self) -> int:
        return self._store.usable - self._usable

    def waiting(self) -> int:
        return self._store.waiting

    def place(self) -> str:
        return f"in {self._store.folder}"


class _Run:
    """The state of one call of :func:`ask`.

    An engine may draw requests in a thread of its own, so drawing and taking exclude each
    other.
    """

    def __init__(
        self,
        engine: Engine,
        requests: Iterable[Request],
        store: AnswerStore | None,
        serving: ServingSettings,
        tally: Tally,
    ) -> None:
        self._engine = engine
        self._identity = engine.identity
        self._requests = iter(requests)
        self._backend = _InMemory(serving) if store is None else _OnDisk(store, serving)
        self._serving = serving
        self._tally = tally
        self._before = replace(tally, failures=tally.failures.copy())
        self._lock = threading.RLock()
        self._ready: deque[Row] = deque()
        self._pending: deque[tuple[str, Request]] = deque()
        #: Requests that wait for the answer to an equal one, by key.
        self._waiting: dict[str, list[Request]] = {}
        #: Requests in the engine, by key, and their keys by identity.
        self._asked: dict[str, Request] = {}
        self._keys: dict[int, str] = {}
        self._failed: dict[str, Answer] = {}
        self._last_detail = ""
        self._foreign: BaseException | None = None

    def rows(self) -> Iterator[Row]:
        try:
            try:
                yield from self._rounds()
            except StoreError:
                raise
            except BaseException:
                # Ctrl-C, an error of the caller's, or the iteration was left.
                self._flush()
                raise
            self._flush()
        except StoreError as error:
            raise self._unstored(error) from error
        finally:
            advance(ANSWERS, self._tally.answers)

    def _rounds(self) -> Iterator[Row]:
        while True:
            while not self._pending and self._draw():
                yield from self._drain()
            yield from self._drain()
            if not self._pending:
                return
            yield from self._round()

    def _round(self) -> Iterator[Row]:
        """Let the engine work until it has answered what it drew."""
        stream: Iterator[Answer] | None = None
        try:
            stream = self._guarded(lambda: self._engine.submit(self._feed()))
            while (answer := self._guarded(partial(next, stream, None))) is not None:
                self._take(answer)
                yield from self._drain()
                self._judge()
            if self._asked:
                raise EngineError(f"the engine stopped without {len(self._asked)} of its answers")
        except EngineError as error:
            raise self._resumable(error) from error
        finally:
            close = getattr(stream, "close", None)
            if close is not None:
                close()

    # -- drawing -----------------------------------------------------------------------------

    def _draw(self) -> bool:
        """Look up the next chunk; whether there was one."""
        try:
            chunk = list(islice(self._requests, _CHUNK))
        except BaseException as error:
            self._foreign = error
            raise
        keys = answer_keys(self._identity, chunk)
        if chunk:
            answers = self._backend.look_up(chunk, keys)
            for request, key, answer in zip(chunk, keys, answers, strict=True):
                if answer is not None:
                    self._tally.hits += 1
                    self._ready.append((request, key, answer))
                elif key in self._failed:
                    self._duplicate(request, key, self._failed[key])
                else:
                    self._want(request, key)
        return bool(chunk)

    def _want(self, request: Request, key: str) -> None:
        """Ask a request, or let it wait for an equal one."""
        if key in self._waiting:
            self._waiting[key].append(request)
        else:
            self._waiting[key] = []
            self._pending.append((key, request))

    def _feed(self) -> Iterator[Request]:
        """Requests for the engine; ends early where found answers pile up meanwhile."""
        while True:
            with self._lock:
                while not self._pending:
                    if len(self._ready) >= _MOST_READY or not self._draw():
                        return
                key, request = self._pending.popleft()
                self._asked[key] = request
                self._keys[id(request)] = key
            yield request

    # -- taking ------------------------------------------------------------------------------

    def _take(self, answer: Answer) -> None:
        """Store an answer and hand it to everyone who waits for it."""
        with self._lock:
            # An engine in another process gives back an equal request, not the same one.
            key = self._keys.get(id(answer.request)) or answer_key(self._identity, answer.request)
            request = self._asked.pop(key, None)
            if request is None:
                raise EngineError("the engine returned an unknown or a duplicate answer")
            del self._keys[id(request)]
            waiters = self._waiting.pop(key)
            stored = self._backend.add(self._identity, replace(answer, request=request), key)
            self._tally.called(stored)
            self._ready.append((request, key, stored))
            if stored.status != "ok":
                self._last_detail = stored.detail or stored.status
            if stored.status == "engine_error":
                self._failed[key] = stored
            for waiter in waiters:
                if stored.status == "engine_error" or _serves(stored, waiter):
                    self._duplicate(waiter, key, stored)
                else:
                    self._want(waiter, key)

    def _duplicate(self, request: Request, key: str, answer: Answer) -> None:
        self._tally.duplicates += 1
        self._ready.append((request, key, replace(answer, request=request)))

    def _drain(self) -> Iterator[Row]:
        """Hand out what is ready."""
        while self._ready:
            row = self._ready.popleft()
            self._tally.answered(row[2])
            self._count_stored()
            advance(ANSWERS, self._tally.answers)
            yield row

    # -- faults ------------------------------------------------------------------------------

    def _guarded(self, step: Callable[[], _T]) -> _T:
        """Do what the engine does, and give its death a name."""
        try:
            return step()
        except UnderstudyError:
            raise
        except Exception as error:
            # An engine can die of anything: CUDA, a worker process, a library's own errors.
            if error is self._foreign:
                raise
            line = one_line(f"{type(error).__name__}: {error}", self._backend.secrets)
            raise EngineError(f"the engine died ({line})", where=self._name()) from error

    def _judge(self) -> None:
        """Stop when too many calls fail."""
        allowed = self._serving.error_budget
        calls = self._tally.calls - self._before.calls
        failures = self._tally.failures - self._before.failures
        if calls < _FIRST or failures.total() <= allowed * calls:
            return
        kinds = ", ".join(f"{n} {status}" for status, n in failures.most_common())
        raise EngineError(
            f"{failures.total()} of {calls} calls failed ({kinds}), more than the "
            f"{allowed:.0%} of serving.error_budget",
            where=self._name(),
            hint=f"the last one: {self._last_detail}",
        )

    def _resumable(self, error: EngineError) -> EngineError:
        """The same error, with what is stored and how to go on."""
        self._flush()
        stored = self._stored_text(self._backend.place())
        hint = f"{stored}; run again: only the rest is requested"
        return EngineError(
            one_line(error.what, self._backend.secrets),
            where=error.where,
            hint=f"{error.hint}; {hint}" if error.hint else hint,
            details={**error.details, "tally": self._tally.to_dict()},
        )

    def _unstored(self, error: StoreError) -> StoreError:
        """The same error, with what is stored and how to go on."""
        self._count_stored()
        stored = f"{self._stored_text()}, {self._backend.waiting()} are not"
        hint = f"{stored}; run again: only the rest is requested"
        return type(error)(
            error.what,
            where=error.where,
            hint=f"{error.hint}; {hint}" if error.hint else hint,
            details={**error.details, "tally": self._tally.to_dict()},
        )

    def _stored_text(self, place: str = "") -> str:
        """Say how many answers are stored; failed calls, which are asked again, are none."""
        stored = self._backend.stored()
        failed = stored.pop("engine_error", 0)
        kinds = ", ".join(f"{n} {status}" for status, n in stored.most_common() if n)
        text = f"{stored.total()} answers of this run are stored {place}".rstrip()
        text += f" ({kinds})" if stored.total() > stored["ok"] else ""
        return text + (f"; {failed} failed calls are repeated" if failed else "")

    def _flush(self) -> None:
        self._backend.flush()
        self._count_stored()

    def _count_stored(self) -> None:
        self._tally.stored = self._before.stored + self._backend.usable()

    def _name(self) -> str:
        return f"{self._identity.engine}:{self._identity.model}"


def _serves(answer: Answer, request: Request) -> bool:
    return serves(answer.status, answer.request.sampling.max_tokens, request.sampling.max_tokens)
