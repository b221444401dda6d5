"""One request to the server: its slot, its tries, and what an answer means."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import httpx
import orjson

from pipelines.config import ServingSettings
from pipelines.errors import EngineError
from pipelines.llm.engines._protocol import Status
from pipelines.llm.engines.openai._address import Address
from pipelines.llm.engines.openai._budget import Budget, Reservation
from pipelines.llm.engines.openai._limiter import ConcurrencyLimiter
from pipelines.llm.engines.openai._verdict import Got, Mode, Try, judge
from pipelines.retrying import backoff

__all__ = ["Connection", "Estimate", "Fault", "Got", "Mode"]

#: Says what is wrong with an object, or "".
Check = Callable[[dict[str, Any]], str]
#: Largest answer that is read (bytes).
MAX_BODY = 64 << 20
#: Requests in a row that failed after all their tries, after which the server counts as dead.
MAX_FAILED = 8


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a request can take at most (tokens)."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Why one request has no answer.

    Attributes
    ----------
    status
        What its rows become: ``invalid``, ``refused`` or ``engine_error``.
    detail
        One line, without secrets.
    code
        HTTP status; 0 if there was none.
    reached
        Whether the server had the request, so that it may be the request's own fault.
    """

    status: Status
    detail: str
    code: int = 0
    reached: bool = True


class Connection:
    """HTTP client with a concurrency limit, a budget and bounded retries.

    To be made and used inside one event loop.

    Parameters
    ----------
    address
        The server.
    serving
        Concurrency, time-outs, retries, waits.
    budget
        What may be spent.
    pause
        First pause between two tries (seconds); doubled each time.
    """

    def __init__(
        self, address: Address, serving: ServingSettings, budget: Budget, *, pause: float = 0.5
    ) -> None:
        self.address = address
        self.limiter = ConcurrencyLimiter(
            serving.concurrency,
            max_wait=serving.max_wait,
            max_pauses=serving.retries + 1,
            where=address.api,
        )
        self.sent = 0
        self.retried = 0
        self._serving = serving
        self._budget = budget
        self._pause = pause
        self._settled = asyncio.Event()
        self._failed_in_a_row = 0
        self._last_answer = -math.inf
        self._client = httpx.AsyncClient(
            headers=address.headers(),
            timeout=serving.timeout,
            limits=httpx.Limits(
                max_connections=serving.concurrency,
                max_keepalive_connections=serving.concurrency,
            ),
            follow_redirects=False,  # the key goes to no other host
            trust_env=not address.loopback,  # no proxy between this machine and itself
            verify=httpx.create_ssl_context(),  # SSL_CERT_FILE counts for loopback too
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._client.aclose()

    async def get(self, url: str, *, mode: Mode = "soft") -> Got | Fault:
        """Ask for a JSON object that costs nothing; two tries."""
        return await self._ask("GET", url, None, Estimate(0, 0), tries=2, mode=mode)

    async def post(
        self,
        url: str,
        body: dict[str, Any],
        estimate: Estimate,
        *,
        mode: Mode = "run",
        tries: int | None = None,
        check: Check | None = None,
    ) -> Got | Fault:
        """Send a request and return what came, or why nothing did.

        Parameters
        ----------
        url
            Full address.
        body
            The JSON object to send.
        estimate
            Tokens that it can take at most.
        mode
            ``run``: what the server does not know ends the run. ``probe``: it may not know the
            address. ``soft``: it may answer with any status, as a page that is not of the
            OpenAI interface does.
        tries
            How often to try; default: as the settings say.
        check
            Says what is wrong with an object that came, or "": then it is as good as garbage.

        Raises
        ------
        EngineError
            If no request can succeed: no server, the key refused, the model unknown, the
            budget spent, the wait too long.
        """
        most = 1 + self._serving.retries if tries is None else tries
        return await self._ask("POST", url, orjson.dumps(body), estimate, most, mode, check)

    async def _ask(
        self,
        method: str,
        url: str,
        content: bytes | None,
        estimate: Estimate,
        tries: int,
        mode: Mode,
        check: Check | None = None,
    ) -> Got | Fault:
        began = asyncio.get_running_loop().time()
        done, again = 0, False
        while True:
            tried = await self._try(method, url, content, estimate, mode, again=again)
            if tried.got is not None:
                wrong = check(tried.got.body) if check else ""
                if not wrong:
                    return tried.got
                tried = Try("lost", detail=self.address.quote(wrong))
            if tried.kind == "final":
                return Fault(tried.status, tried.detail, tried.code)
            self.retried += 1
            again = True
            if tried.kind == "throttled":
                continue  # the limiter holds it, and gives up if need be
            done += 1
            if done >= tries:
                self.retried -= 1
                return self._give_up(tried, began, done)
            await asyncio.sleep(backoff(done, self._pause))

    async def _try(
        self,
        method: str,
        url: str,
        content: bytes | None,
        estimate: Estimate,
        mode: Mode,
        *,
        again: bool,
    ) -> Try:
        loop = asyncio.get_running_loop()
        await self.limiter.acquire(retry=again)
        try:
            reservation = await self._reserve(estimate)
            started = loop.time()
            tried: Try | None = None
            try:
                tried = await self._once(method, url, content, mode)
            finally:
                self._book(reservation, tried)
            self._note(tried, started)
            return tried
        finally:
            self.limiter.release()

    async def _reserve(self, estimate: Estimate) -> Reservation:
        while (held := self._budget.reserve(estimate.prompt, estimate.completion)) is None:
            await self._settled.wait()
        return held

    def _book(self, reservation: Reservation, tried: Try | None) -> None:
        if tried is not None and tried.got is not None and tried.got.usage is not None:
            self._budget.settle(reservation, tried.got.usage)
        elif tried is not None and tried.kind not in ("lost", "got"):
            self._budget.release(reservation)
        elif reservation.completion:
            self._budget.settle(reservation, None)
        else:
            self._budget.release(reservation)
        done, self._settled = self._settled, asyncio.Event()
        done.set()

    def _note(self, tried: Try, started: float) -> None:
        now = asyncio.get_running_loop().time()
        if tried.got is not None:
            self._failed_in_a_row = 0
            self._last_answer = now
            self.limiter.answered()
        elif tried.kind == "throttled":
            self.limiter.throttled(tried.wait, started=started, now=now)

    def _give_up(self, tried: Try, began: float, tries: int) -> Fault:
        self._failed_in_a_row += 1
        silent = self._last_answer < began
        if silent and (not tried.reached or self._failed_in_a_row >= MAX_FAILED):
            raise EngineError(
                f"the server does not answer: {tried.detail} after {tries} tries",
                where=self.address.api,
                hint="start it, or set serving.base_url; answers that came are kept: run again",
            )
        return Fault(
            "engine_error", f"{tried.detail} after {tries} tries", tried.code, tried.reached
        )

    def _unconnected(self, error: httpx.ConnectError) -> str:
        """Why there is no connection.

        Raises
        ------
        EngineError
            If another try can't help: the certificate is not trusted, or no TLS is spoken.
        """
        tls = _tls_error(error)
        if tls is None:
            return "no connection"
        if isinstance(tls, ssl.SSLCertVerificationError):
            raise EngineError(
                f"the server's certificate is not trusted ({tls.verify_message.rstrip('.')})",
                where=self.address.api,
                hint="put the certificate of its authority (PEM) into a file and set "
                "SSL_CERT_FILE to it",
            )
        if tls.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
            raise EngineError(
                "the server does not speak TLS",
                where=self.address.api,
                hint="set serving.base_url to http://, if it is on this machine or network",
            )
        return f"the TLS handshake failed ({tls.reason or type(tls).__name__})"

    async def _once(self, method: str, url: str, content: bytes | None, mode: Mode) -> Try:
        loop = asyncio.get_running_loop()
        started = loop.time()
        self.sent += 1
        try:
            # httpx limits each read; a server that drips bytes would never reach that limit.
            async with (
                asyncio.timeout(self._serving.timeout),
                self._client.stream(
                    method, url, content=content, headers={"Content-Type": "application/json"}
                ) as response,
            ):
                body = await _read(response)
        except httpx.ConnectError as error:
            return Try("transient", detail=self._unconnected(error), reached=False)
        except (TimeoutError, httpx.TimeoutException):
            return Try("lost", detail="timeout")
        except httpx.RequestError as error:
            return Try("lost", detail=f"the connection broke ({type(error).__name__})")
        if body is None:
            return Try("final", detail=f"the answer is larger than {MAX_BODY >> 20} MiB")
        if response.status_code == 200 and self.address.leaks(body):
            # A debugging proxy, or worse: nothing of it may reach a file. Faults may repeat the
            # key, as servers do that refuse it; their words are quoted without it.
            raise EngineError(
                "the server's answer repeats the key; nothing of it was kept",
                where=self.address.api,
                hint="check what answers at serving.base_url",
            )
        return judge(
            self.address,
            response.status_code,
            response.headers,
            body,
            seconds=loop.time() - started,
            mode=mode,
        )


def _tls_error(error: BaseException | None) -> ssl.SSLError | None:
    """The TLS error that an HTTP library's error comes from, if any."""
    while error is not None and not isinstance(error, ssl.SSLError):
        error = error.__cause__ or error.__context__
    return error


async def _read(response: httpx.Response) -> bytes | None:
    """The whole body, or None if it is larger than is read."""
    parts: list[bytes] = []
    size = 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_BODY:
            return None
        parts.append(part)
    return b"".join(parts)
