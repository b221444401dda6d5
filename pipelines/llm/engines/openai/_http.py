"""HTTP requests to the server: slots, attempts, and what a response means."""

from __future__ import annotations

import asyncio
import math
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import httpx
import orjson

from pipelines.config import ServingSettings
from pipelines.errors import EngineError
from pipelines.llm.engines._protocol import Status
from pipelines.llm.engines.openai._address import KEY_VARIABLE, Address
from pipelines.llm.engines.openai._budget import Budget, Reservation, Usage
from pipelines.llm.engines.openai._limiter import ConcurrencyLimiter
from pipelines.retrying import backoff, retry_after

__all__ = ["Connection", "Estimate", "Failure", "Mode", "Response"]

#: Says what is wrong with an object, or "".
Check = Callable[[dict[str, Any]], str]
#: Largest answer that is read (bytes).
MAX_BODY = 64 << 20
#: Requests in a row that failed after all their tries, after which the server counts as dead.
MAX_FAILED = 8


#: What a status that no further try can change means. ``run``: the end of the run. ``probe``:
#: the server may not know the address. ``soft``: any status is an answer, as of a page that is
#: not of the OpenAI interface.
Mode = Literal["run", "probe", "soft"]

#: Below 500; from there on all but these are worth another try.
_TRANSIENT = frozenset({408, 409, 425})
_UNKNOWN = frozenset({404, 405, 501, 505})
_OF_THE_REQUEST = frozenset({400, 413, 422})
#: Codes of servers for a request or an answer that their rules forbid, and for an empty account.
_FILTERED = ("content_filter", "content_policy", "moderation", "responsibleaipolicy")
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit", "insufficient_credit")


@dataclass(frozen=True, slots=True)
class Response:
    """A JSON object that the server sent.

    Attributes
    ----------
    body
        The object.
    usage
        Its token counts; None where it has none.
    seconds
        From sending to the last byte.
    """

    body: dict[str, Any]
    usage: Usage | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """Outcome of one attempt.

    Attributes
    ----------
    kind
        ``answered``; ``final``: another attempt gives the same; ``transient``; ``throttled``;
        ``lost``: the server worked, and billed, but its answer can't be used.
    response
        The response.
    detail
        One line about what is wrong.
    status
        What the rows of a final fault become.
    code
        HTTP status, or 0.
    wait
        Seconds that the server asks to wait, if it says.
    reached
        Whether the server received the request.
    """

    kind: Literal["answered", "final", "transient", "throttled", "lost"]
    response: Response | None = None
    detail: str = ""
    status: Status = "engine_error"
    code: int = 0
    wait: float | None = None
    reached: bool = True


@dataclass(frozen=True, slots=True)
class Estimate:
    """Upper bound of the tokens of a request."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class Failure:
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

    async def get(self, url: str, *, mode: Mode = "soft") -> Response | Failure:
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
    ) -> Response | Failure:
        """Send a request; return the response, or the failure.

        Parameters
        ----------
        url
            Full address.
        body
            The JSON object to send.
        estimate
            Upper bound of its tokens.
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
        max_tries = 1 + self._serving.retries if tries is None else tries
        return await self._ask("POST", url, orjson.dumps(body), estimate, max_tries, mode, check)

    async def _ask(
        self,
        method: str,
        url: str,
        content: bytes | None,
        estimate: Estimate,
        tries: int,
        mode: Mode,
        check: Check | None = None,
    ) -> Response | Failure:
        began = asyncio.get_running_loop().time()
        done, again = 0, False
        while True:
            attempt = await self._try(method, url, content, estimate, mode, again=again)
            if attempt.response is not None:
                wrong = check(attempt.response.body) if check else ""
                if not wrong:
                    return attempt.response
                attempt = Attempt("lost", detail=self.address.quote(wrong))
            if attempt.kind == "final":
                return Failure(attempt.status, attempt.detail, attempt.code)
            self.retried += 1
            again = True
            if attempt.kind == "throttled":
                continue  # the limiter holds it, and gives up if need be
            done += 1
            if done >= tries:
                self.retried -= 1
                return self._give_up(attempt, began, done)
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
    ) -> Attempt:
        loop = asyncio.get_running_loop()
        await self.limiter.acquire(retry=again)
        try:
            reservation = await self._reserve(estimate)
            started = loop.time()
            attempt: Attempt | None = None
            try:
                attempt = await self._once(method, url, content, mode)
            finally:
                self._book(reservation, attempt)
            self._note(attempt, started)
            return attempt
        finally:
            self.limiter.release()

    async def _reserve(self, estimate: Estimate) -> Reservation:
        while (held := self._budget.reserve(estimate.prompt, estimate.completion)) is None:
            await self._settled.wait()
        return held

    def _book(self, reservation: Reservation, attempt: Attempt | None) -> None:
        if (
            attempt is not None
            and attempt.response is not None
            and attempt.response.usage is not None
        ):
            self._budget.settle(reservation, attempt.response.usage)
        elif attempt is not None and attempt.kind not in ("lost", "answered"):
            self._budget.release(reservation)
        elif reservation.completion:
            self._budget.settle(reservation, None)
        else:
            self._budget.release(reservation)
        done, self._settled = self._settled, asyncio.Event()
        done.set()

    def _note(self, attempt: Attempt, started: float) -> None:
        now = asyncio.get_running_loop().time()
        if attempt.response is not None:
            self._failed_in_a_row = 0
            self._last_answer = now
            self.limiter.answered()
        elif attempt.kind == "throttled":
            self.limiter.throttled(attempt.wait, started=started, now=now)

    def _give_up(self, attempt: Attempt, began: float, tries: int) -> Failure:
        self._failed_in_a_row += 1
        silent = self._last_answer < began
        if silent and (not attempt.reached or self._failed_in_a_row >= MAX_FAILED):
            raise EngineError(
                f"the server does not answer: {attempt.detail} after {tries} tries",
                where=self.address.api,
                hint="start it, or set serving.base_url; received answers are stored: run again",
            )
        return Failure(
            "engine_error", f"{attempt.detail} after {tries} tries", attempt.code, attempt.reached
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

    async def _once(self, method: str, url: str, content: bytes | None, mode: Mode) -> Attempt:
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
            return Attempt("transient", detail=self._unconnected(error), reached=False)
        except (TimeoutError, httpx.TimeoutException):
            return Attempt("lost", detail="timeout")
        except httpx.RequestError as error:
            return Attempt("lost", detail=f"the connection broke ({type(error).__name__})")
        if body is None:
            return Attempt("final", detail=f"the answer is larger than {MAX_BODY >> 20} MiB")
        if response.status_code == 200 and self.address.leaks(body):
            # A debugging proxy, or worse: nothing of it may reach a file. Faults may repeat the
            # key, as servers do that refuse it; their words are quoted without it.
            raise EngineError(
                "the server's answer repeats the key; nothing of it was kept",
                where=self.address.api,
                hint="check what answers at serving.base_url",
            )
        return classify_response(
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


def classify_response(
    address: Address,
    code: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    seconds: float,
    mode: Mode,
) -> Attempt:
    """Classification of a response.

    Raises
    ------
    EngineError
        If, in mode ``run`` or ``probe``, no request can succeed.
    """
    parsed = _parse(body)
    if code == 200:
        if parsed is None:
            return Attempt("lost", detail=_not_json(headers, body), code=code)
        if parsed.get("error") is None:
            return Attempt("answered", Response(parsed, _usage(parsed), seconds))
        # Some routers say 200 and put the fault, and its code, into the body.
        inner = parsed["error"]
        found = inner.get("code") if isinstance(inner, dict) else None
        code = found if isinstance(found, int) and 400 <= found < 600 else 502
    said = address.quote(_message(parsed, body))
    detail = f"HTTP {code}: {said}" if said else f"HTTP {code}"
    words = _codes(parsed)
    if 400 <= code < 500 and any(word in words for word in _FILTERED):
        return Attempt("final", detail=detail, status="refused", code=code)
    if code in (429, 503):
        return _throttled(address, code, headers, detail, words)
    if code in _TRANSIENT or (code >= 500 and code not in _UNKNOWN):
        return Attempt("transient", detail=detail, code=code)
    if code in _OF_THE_REQUEST or mode == "soft" or (mode == "probe" and code in _UNKNOWN):
        return Attempt("final", detail=detail, status="invalid", code=code)
    raise _end(address, code, detail)


def _throttled(
    address: Address, code: int, headers: Mapping[str, str], detail: str, words: str
) -> Attempt:
    if any(word in words for word in _NO_CREDIT):
        raise EngineError(
            f"the account has no credit left ({detail})",
            where=address.api,
            hint="received answers are stored: run again when it has",
        )
    wait = _wait(headers)
    if code == 429 or wait is not None:
        return Attempt("throttled", detail=detail, code=code, wait=wait)
    return Attempt("transient", detail=detail, code=code)


def _end(address: Address, code: int, detail: str) -> EngineError:
    what, hint = f"the server can't be used ({detail})", "check serving.base_url"
    if 300 <= code < 400:
        # Not followed: the key goes to no other host.
        what = f"the server redirects (HTTP {code})"
        hint = "set serving.base_url to where it really is"
    elif code in (401, 403):
        what = f"the server refuses the key (HTTP {code})"
        hint = f"set {KEY_VARIABLE} to a key that it takes"
    elif code in _UNKNOWN:
        what = f"the server does not know what it is asked ({detail})"
        hint = "check serving.base_url and engine.model"
    return EngineError(what, where=address.api, hint=hint)


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _not_json(headers: Mapping[str, str], body: bytes) -> str:
    if not body.strip():
        return "the answer is empty"
    kind = headers.get("Content-Type", "").split(";")[0].strip().lower()
    if kind == "text/html" or body.lstrip()[:1] == b"<":
        return "the answer is an HTML page"
    if kind == "text/event-stream":
        return "the answer is a stream of events, which was not asked for"
    return "the answer is not a JSON object"


def _message(parsed: dict[str, Any] | None, body: bytes) -> str:
    if parsed is None:
        return "an HTML page" if body.lstrip()[:1] == b"<" else ""
    error = parsed.get("error", parsed.get("detail", parsed.get("message", "")))
    if isinstance(error, dict):
        error = error.get("message", "")
    return error if isinstance(error, str) else ""


def _codes(parsed: dict[str, Any] | None) -> str:
    """The machine's words for a fault: its code and type, in lower case."""
    error = parsed.get("error") if parsed else None
    if not isinstance(error, dict):
        return ""
    inner = error.get("innererror")
    found = [error.get("code"), error.get("type")]
    found.append(inner.get("code") if isinstance(inner, dict) else None)
    return " ".join(str(word).lower() for word in found if word)


def _wait(headers: Mapping[str, str]) -> float | None:
    exact = retry_after(headers.get("Retry-After-Ms"))
    return retry_after(headers.get("Retry-After")) if exact is None else exact / 1000.0


def _usage(parsed: dict[str, Any]) -> Usage | None:
    usage = parsed.get("usage")
    if not isinstance(usage, dict):
        return None
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None:
        return None
    details = usage.get("prompt_tokens_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(prompt, completion or 0, min(cached or 0, prompt))


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None
