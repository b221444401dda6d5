"""Two ways to run vLLM: its scheduler in this process, or replicas in processes of their own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import queue
import threading
from collections import OrderedDict
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from vllm import EngineArgs, RequestOutput, SamplingParams
    from vllm.exceptions import VLLMClientError

#: Longest that a step of replicas waits before it looks whether they live (seconds).
_LOOK = 5.0
#: Groups whose replica is remembered (count), and by how many requests that one may be busier
#: than the idlest before a request of the group goes elsewhere: one huge group keeps all busy.
_GROUPS, _SPILL = 4096, 64


class Driver(Protocol):
    """Takes requests, gives finished ones. Any exception of `step` means that it is dead."""

    def add(self, name: str, prompt: list[int], params: SamplingParams, group: str | None) -> None:
        """Queue a request; one that vLLM does not take comes back from `step` with the reason."""

    def step(self) -> list[tuple[str, RequestOutput | VLLMClientError]]:
        """Work until something has happened; what is finished, by name (maybe nothing)."""

    def abort(self, names: Sequence[str]) -> None:
        """Forget requests; they never come back from `step`."""

    def close(self) -> None:
        """Release the model."""

    @property
    def config(self) -> Any:
        """Configuration, as vLLM describes it (``VllmConfig``)."""


#: Engines in this process that are open. They share vLLM's distributed state, which is taken
#: down with the last of them.
_OPEN: set[int] = set()


class InProcess:
    """vLLM's scheduler and worker in this process; tensor and pipeline ranks are its children."""

    def __init__(self, args: EngineArgs) -> None:
        from vllm.v1.engine.llm_engine import LLMEngine

        self._engine = LLMEngine.from_engine_args(args, enable_multiprocessing=False)
        _OPEN.add(id(self))
        self._refused: list[tuple[str, RequestOutput | VLLMClientError]] = []
        self._inner: dict[str, str] = {}

    @property
    def config(self) -> Any:
        """Configuration, as vLLM describes it."""
        return self._engine.vllm_config

    def add(self, name: str, prompt: list[int], params: SamplingParams, group: str | None) -> None:
        """Queue a request."""
        from vllm.exceptions import VLLMClientError
        from vllm.inputs.engine import tokens_input

        del group  # one scheduler, one cache
        try:
            self._inner[name] = self._engine.add_request(name, tokens_input(prompt), params)
        except VLLMClientError as error:
            self._refused.append((name, error))

    def step(self) -> list[tuple[str, RequestOutput | VLLMClientError]]:
        """Run one pass of the scheduler."""
        done, self._refused = self._refused, []
        if self._engine.has_unfinished_requests():
            done += [(o.request_id, o) for o in self._engine.step() if o.finished]
        for name, _ in done:
            self._inner.pop(name, None)
        return done

    def abort(self, names: Sequence[str]) -> None:
        """Forget requests."""
        ids = [inner for n in names if (inner := self._inner.pop(n, None)) is not None]
        if ids:
            self._engine.abort_request(ids, internal=True)

    def close(self) -> None:
        """Release the model."""
        _OPEN.discard(id(self))
        client = self._engine.engine_core
        if _OPEN:
            client._finalizer.detach()
            core = client.engine_core
            core.structured_output_manager.clear_backend()
            core.model_executor.shutdown()
            core.scheduler.shutdown()
        else:
            client.shutdown()
        del self._engine
        gc.collect()


class Replicas:
    """Data-parallel replicas, each a process with a scheduler and a prefix cache of its own.

    All requests of a group go to one replica, so that its prefix is computed once.
    """

    def __init__(self, args: EngineArgs) -> None:
        from vllm.v1.engine.async_llm import AsyncLLM

        self._count = args.data_parallel_size
        self._load = [0] * self._count
        self._home: OrderedDict[str, int] = OrderedDict()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._done: queue.SimpleQueue[tuple[str, int, Any]] = queue.SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="vllm-replicas", daemon=True
        )
        self._thread.start()

        async def start() -> AsyncLLM:
            return AsyncLLM.from_engine_args(args)

        try:
            self._engine = self._wait(start())
        except BaseException:
            self._stop_loop()
            raise

    @property
    def config(self) -> Any:
        """Configuration, as vLLM describes it."""
        return self._engine.vllm_config

    def add(self, name: str, prompt: list[int], params: SamplingParams, group: str | None) -> None:
        """Queue a request at the replica of its group, else at the one with least to do."""
        rank = self._rank(group)
        self._load[rank] += 1

        def begin() -> None:
            self._tasks[name] = self._loop.create_task(self._serve(name, prompt, params, rank))

        self._loop.call_soon_threadsafe(begin)

    def _rank(self, group: str | None) -> int:
        idlest = min(range(self._count), key=self._load.__getitem__)
        if group is None:
            return idlest
        home = self._home.pop(group, idlest)
        self._home[group] = home
        if len(self._home) > _GROUPS:
            self._home.popitem(last=False)
        return home if self._load[home] - self._load[idlest] < _SPILL else idlest

    async def _serve(self, name: str, prompt: list[int], params: SamplingParams, rank: int) -> None:
        from vllm.inputs.engine import tokens_input

        result: Any = None
        try:
            stream = self._engine.generate(
                tokens_input(prompt), params, name, data_parallel_rank=rank
            )
            async for output in stream:
                result = output
        except asyncio.CancelledError:
            result = None
        except Exception as error:  # noqa: BLE001 (handed to `step`, which raises it)
            result = error
        self._tasks.pop(name, None)
        self._done.put((name, rank, result))

    def step(self) -> list[tuple[str, RequestOutput | VLLMClientError]]:
        """Wait for an answer, then take all that are there."""
        from vllm.exceptions import VLLMClientError
        from vllm.v1.engine.exceptions import EngineDeadError

        taken = []
        with contextlib.suppress(queue.Empty):
            taken.append(self._done.get(timeout=_LOOK))
            while True:
                taken.append(self._done.get_nowait())
        if not taken and self._engine.errored:
            raise EngineDeadError
        done: list[tuple[str, RequestOutput | VLLMClientError]] = []
        for name, rank, result in taken:
            self._load[rank] -= 1
            if isinstance(result, Exception) and not isinstance(result, VLLMClientError):
                raise result
            if result is not None:
                done.append((name, result))
        return done

    def abort(self, names: Sequence[str]) -> None:
        """Forget requests."""

        def cancel() -> None:
            for name in names:
                if (task := self._tasks.get(name)) is not None:
                    task.cancel()

        self._loop.call_soon_threadsafe(cancel)

    def close(self) -> None:
        """End the replicas."""

        async def end() -> None:
            for task in list(self._tasks.values()):
                task.cancel()
            self._engine.shutdown()

        self._wait(end())
        self._stop_loop()

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _stop_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
