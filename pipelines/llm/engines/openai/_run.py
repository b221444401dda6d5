"""One call of `submit`: requests drawn, gathered into batches, sent, answered."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipelines.errors import EngineError
from pipelines.llm.engines._protocol import Answer, Choice, Request
from pipelines.llm.engines.constraints import request_fault
from pipelines.llm.engines.openai._budget import is_over_budget
from pipelines.llm.engines.openai._client import NOT_ASKED, Client, together
from pipelines.llm.engines.openai._encodings import constraint_kind
from pipelines.llm.engines.openai._http import Failure
from pipelines.llm.engines.openai._loop import LoopThread
from pipelines.llm.engines.openai._probe import CapabilityProbe
from pipelines.llm.engines.openai._read import read_choices
from pipelines.llm.engines.openai._texts import Row, drawn_seed, endpoint_of, failed_answer, write

__all__ = ["Run"]

#: Most requests of one group in one batch.
BATCH = 64


@dataclass(slots=True)
class _Batch:
    """Requests that can share one body."""

    key: Any
    requests: list[Request] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Came:
    """What one batch brought: answers, and what ends the run."""

    answers: list[Answer]
    fault: Exception | None = None


class Run:
    """Draws requests in the caller's thread and has them answered in the engine's.

    Parameters
    ----------
    loop
        The engine's thread.
    client
        The server.
    probe
        For constraints on an endpoint that has not been probed yet.
    window
        Most requests in flight or waiting.
    """

    def __init__(
        self, loop: LoopThread, client: Client, probe: CapabilityProbe, window: int
    ) -> None:
        self._loop = loop
        self._client = client
        self._probe = probe
        self._window = window
        self._done: queue.SimpleQueue[_Came] = queue.SimpleQueue()
        self._tasks: set[asyncio.Task[_Came]] = set()
        self._flying = 0
        self._batch: _Batch | None = None

    def answers(self, requests: Iterator[Request]) -> Iterator[Answer]:
        """One answer per request, as they come.

        Raises
        ------
        EngineError
            If the run can't go on; answers that came before it have been yielded.
        """
        held, more = 0, True
        try:
            while more or held:
                if more and held < self._window:
                    more = self._draw(requests)
                    held += more
                    came = self._came()
                else:
                    if not more or not self._flying:
                        self._send()
                    came = self._done.get()
                if came is None:
                    continue
                self._flying -= 1
                held -= len(came.answers)
                yield from came.answers
                if came.fault is not None:
                    yield from self._rest(came.fault)
                    raise came.fault
        finally:
            self._cancel()

    def _draw(self, requests: Iterator[Request]) -> bool:
        """Draw one request; False if there is none left."""
        try:
            request = next(requests)
        except StopIteration:
            return False
        fault = request_fault(request)
        if fault:
            self._flying += 1
            self._done.put(_Came([Answer(request, "invalid", detail=fault)]))
            return True
        key = self._key(request)
        if self._batch is not None and (self._batch.key != key or key is None):
            self._send()
        if self._batch is None:
            self._batch = _Batch(key)
        self._batch.requests.append(request)
        if len(self._batch.requests) >= BATCH:
            self._send()
        return True

    def _key(self, request: Request) -> Any:
        """What requests must have in common to share a body; None: nothing can."""
        can = self._client.capabilities
        if not can.many:
            return None
        if isinstance(request.constraint, Choice):
            shared = can.choice_endpoint == "completions" and can.reading != "draws"
            return ("choice", request.group, request.constraint) if shared else None
        if can.endpoint != "completions" or request.group is None:
            return None
        sampling = request.sampling
        seed = drawn_seed(request.seed, request.replicate) if sampling.temperature > 0 else 0
        return ("text", request.group, request.constraint, sampling, seed)

    def _send(self) -> None:
        if self._batch is None:
            return
        batch, self._batch = self._batch, None
        if not self._loop.call(lambda: self._start(batch.requests)):
            raise _closed()
        self._flying += 1

    def _came(self) -> _Came | None:
        try:
            return self._done.get_nowait()
        except queue.Empty:
            return None

    def _rest(self, fault: BaseException) -> Iterator[Answer]:
        """What has come by now; if only the budget is spent, also what is in flight."""
        wait = is_over_budget(fault)
        while self._flying:
            try:
                came = self._done.get() if wait else self._done.get_nowait()
            except queue.Empty:
                return
            self._flying -= 1
            yield from came.answers

    # In the engine's thread ---------------------------------------------------------------

    def _start(self, requests: list[Request]) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(requests))
        self._tasks.add(task)
        task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[_Came]) -> None:
        # Here, since a task that is cancelled before it begins never runs a line of its own.
        self._tasks.discard(task)
        self._done.put(_Came([], _closed()) if task.cancelled() else task.result())

    async def _serve(self, requests: list[Request]) -> _Came:
        try:
            answers = await self._answered(requests)
        except Exception as fault:  # noqa: BLE001 (the caller's thread raises it)
            return _Came([], fault)
        asked = [a for a in answers if a.detail != NOT_ASKED.detail]
        return _Came(asked, self._client.spent if len(asked) < len(answers) else None)

    async def _answered(self, requests: list[Request]) -> list[Answer]:
        answers: list[Answer] = []
        rows: list[Row] = []
        for made in await together([self._row(r) for r in requests]):
            if isinstance(made, Answer):
                answers.append(made)
            else:
                rows.append(made)
        for asked in ([r for r in rows if r.ids is None], [r for r in rows if r.ids is not None]):
            if asked:
                answers += await self._asked(asked)
        return answers

    async def _row(self, request: Request) -> Row | Answer:
        can = self._client.capabilities
        choice = isinstance(request.constraint, Choice)
        endpoint = can.choice_endpoint if choice else can.endpoint
        if request.tokens:
            if can.tokens is None or (choice and endpoint == "chat"):
                return Answer(request, "invalid", detail="the server takes no token ids")
            return self._fitting(Row(request, request.tokens))
        if endpoint == "chat" or can.tokens is None:
            if request.messages[-1].role == "assistant":
                detail = "the server's chat endpoint does not go on from a begun answer"
                return Answer(request, "invalid", detail=detail)
            return Row(request, None)
        ids = await can.tokens.render(request.messages)
        if isinstance(ids, Failure):
            return failed_answer(request, ids)
        return self._fitting(Row(request, tuple(ids)))

    def _fitting(self, row: Row) -> Row | Answer:
        context = self._client.capabilities.context
        size = len(row.ids or ())
        if context is None or size < context:
            return row
        detail = f"the prompt of {size} tokens is longer than the context of {context}"
        return Answer(row.request, "invalid", detail=detail)

    async def _asked(self, rows: list[Row]) -> list[Answer]:
        constraint = rows[0].request.constraint
        choice = isinstance(constraint, Choice)
        if constraint is None or (choice and self._client.capabilities.reading != "draws"):
            extra: dict[str, Any] = {}
        else:
            kind = constraint_kind(constraint)
            encoding = await self._client.capabilities.encoding(
                endpoint_of(rows[0]), kind, self._probe.find_encoding
            )
            if encoding is None and not choice:
                detail = f"the server honours no way to give a constraint of this kind ({kind})"
                return [Answer(row.request, "invalid", detail=detail) for row in rows]
            extra = encoding.fields(constraint) if encoding else {}
        if choice:
            return await read_choices(self._client, rows, extra)
        return await write(self._client, rows, extra)

    def _cancel(self) -> None:
        """Stop what is still in flight."""
        tasks = self._tasks

        def cancel() -> None:
            for task in tuple(tasks):
                task.cancel()

        self._loop.call(cancel)


def _closed() -> EngineError:
    return EngineError("the engine was closed while it worked", hint="open it again")
