"""Client of the two endpoints: HTTP with bounded retries, a budget and a secret key.

httpx sends one attempt. Retries, the budget, the cool-down after a 429, the classification of
responses and the redaction of the key are here; the reasons are in docs/decisions/0013.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import math
import re
import ssl
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, TypeVar

import httpx2
import orjson
from pydantic import SecretStr

from pipelines.config import ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines._protocol import Message
from pipelines.llm.engines.openai._limits import Budget, HalvingSemaphore, Usage, is_over_budget
from pipelines.llm.engines.openai._replies import (
    Completion,
    Failure,
    Reply,
    read_completions,
    read_usage,
    split_usage,
)
from pipelines.retrying import backoff, retry_after

_log = logging.getLogger("pipelines.llm.engines.openai")

#: The environment variable that holds the key.
KEY_VARIABLE = "UNDERSTUDY_SERVING__API_KEY"
#: Longest text of a server that is repeated in a message (characters).
MAX_QUOTED = 200
#: Largest response that is read (bytes, decompressed).
MAX_BODY = 64 << 20
#: Requests in a row that failed after all their tries, after which the server counts as dead.
MAX_FAILED = 8
#: Names of models, and fingerprints, that are kept (count).
MAX_NAMES = 16

#: Tokens that a chat template may add to the bytes of a message.
_TURN = 64
#: Tokens of a picture at most: the limit of Qwen2-VL, the most of the models in use.
_IMAGE = 16_384
#: Below 500; from there on all but the unknown ones are worth another try.
_TRANSIENT = frozenset({408, 409, 425})
_UNKNOWN = frozenset({404, 405, 501, 505})
_OF_THE_REQUEST = frozenset({400, 413, 422})
#: Optional fields of a request in the order in which they are given up where a server refuses
#: several together, and the value under which each changes nothing.
OPTIONAL: dict[str, Any] = {
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "top_p": 1.0,
    "seed": None,
    "temperature": 1.0,
    "stop": None,
}
#: Codes of servers for a request or an answer that their rules forbid, and for an empty account.
_FILTERED = ("content_filter", "content_policy", "moderation", "responsibleaipolicy")
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit", "insufficient_credit")
_INNER_SUFFIXES = (".local", ".internal", ".lan", ".svc", ".cluster.local", ".localhost")
_PROBE_TRIES = 2
_JSON = {"Content-Type": "application/json"}

Ids = Sequence[int]
T = TypeVar("T")

#: Failure of a prompt that was not sent because the budget is spent: no answer at all.
NOT_ASKED = Failure("engine_error", "not asked: the budget is spent", reached=False)


# Address and key -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Address:
    """A server's address as it is configured (``api``), and the key for it, or None."""

    api: str
    loopback: bool
    key: SecretStr | None

    @property
    def root(self) -> str:
        """The address without its last ``/v1``."""
        return self.api.removesuffix("/v1")

    def check_leak(self, content: bytes) -> None:
        """Refuse a response that repeats the key, as a debugging proxy does."""
        if self.key is not None and self.key.get_secret_value().encode() in content:
            raise EngineError(
                "the server's response contains the key; it was discarded",
                where=self.api,
                hint="check what answers at serving.base_url",
            )

    def quote(self, text: str) -> str:
        """Redact a server's own words for a message: one line, short, without the key."""
        if self.key is not None:
            text = text.replace(self.key.get_secret_value(), "[key]")
        text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        return text if len(text) <= MAX_QUOTED else text[:MAX_QUOTED] + " ..."


def open_address(serving: ServingSettings) -> Address:
    """Check the settings and return the address.

    Raises
    ------
    ConfigError
        If the address is not an http(s) URL, holds credentials or a query, or would carry the
        key unencrypted over a public network; if the key has characters that no header carries.
    """
    try:
        url = httpx2.URL(serving.base_url.strip().rstrip("/"))
    except httpx2.InvalidURL:
        raise ConfigError("serving.base_url is not an address") from None
    if url.userinfo or url.query or url.fragment:
        # The value is not shown: it may hold a secret.
        raise ConfigError(
            "serving.base_url must hold no credentials or query",
            hint=f"put the key into {KEY_VARIABLE}",
        )
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigError("serving.base_url is not an http(s) address", where=serving.base_url)
    key = serving.api_key.get_secret_value().strip() if serving.api_key else ""
    if key and not re.fullmatch(r"[\x21-\x7e]+", key):
        # Checked here because the HTTP library's own message would show the value.
        raise ConfigError("the server's key contains invalid characters", where=KEY_VARIABLE)
    try:
        ip = ipaddress.ip_address(url.host)
        loopback, private = ip.is_loopback, ip.is_private
    except ValueError:
        loopback = url.host == "localhost"
        private = "." not in url.host or url.host.endswith(_INNER_SUFFIXES)
    if key and url.scheme == "http" and not private:
        raise ConfigError(
            "serving.base_url must be https: the key would be sent unencrypted", where=str(url)
        )
    return Address(str(url), loopback, SecretStr(key) if key else None)


# Responses -----------------------------------------------------------------------------------


def classify_response(
    address: Address, code: int, headers: Mapping[str, str], body: bytes, probe: bool
) -> dict[str, Any] | Failure:
    """The JSON object of a response, or its failure; raise if no request can succeed.

    ``probe``: the server may not know the address.
    """
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        decoded = None
    parsed = decoded if isinstance(decoded, dict) else {}
    fault = parsed.get("error")
    if code == httpx2.codes.OK:
        if not isinstance(decoded, dict):
            return Failure("engine_error", _not_json(headers, body), code, again="lost")
        if fault is None:
            return parsed
        # Some routers say 200 and put the fault, and its code, into the body.
        inner = fault.get("code") if isinstance(fault, dict) else None
        code = inner if isinstance(inner, int) and 400 <= inner < 600 else 502
    message = address.quote(_message(parsed, body))
    detail = f"HTTP {code}: {message}" if message else f"HTTP {code}"
    words = _codes(fault)
    if 400 <= code < 500 and any(word in words for word in _FILTERED):
        return Failure("refused", detail, code)
    if code in (429, 503):
        if any(word in words for word in _NO_CREDIT):
            raise EngineError(
                f"the account has no credit left ({detail})",
                where=address.api,
                hint="received answers are stored: run again once it has credit",
            )
        exact = retry_after(headers.get("Retry-After-Ms"))
        wait = retry_after(headers.get("Retry-After")) if exact is None else exact / 1000.0
        if code == 429 or wait is not None:
            return Failure("engine_error", detail, code, again="throttled", wait=wait)
    if code in _TRANSIENT or (code >= 500 and code not in _UNKNOWN):
        return Failure("engine_error", detail, code, again="transient")
    if code in _OF_THE_REQUEST or (probe and code in _UNKNOWN):
        return Failure("invalid", detail, code)
    what, hint = f"the server can't be used ({detail})", "check serving.base_url"
    if 300 <= code < 400:
        # Not followed: the key goes to no other host.
        what = f"the server redirects (HTTP {code})"
        hint = "set serving.base_url to the final address"
    elif code in (401, 403):
        what = f"the server refuses the key (HTTP {code})"
        hint = f"set {KEY_VARIABLE} to a valid key"
    elif code in _UNKNOWN:
        what = f"the server does not know the endpoint or the model ({detail})"
        hint = "check serving.base_url and engine.model"
    raise EngineError(what, where=address.api, hint=hint)


def _not_json(headers: Mapping[str, str], body: bytes) -> str:
    if not body.strip():
        return "the answer is empty"
    kind = headers.get("Content-Type", "").split(";")[0].strip().lower()
    if kind == "text/html" or body.lstrip()[:1] == b"<":
        return "the answer is an HTML page"
    if kind == "text/event-stream":
        return "the answer is an event stream, which was not requested"
    return "the answer is not a JSON object"


def _message(parsed: dict[str, Any], body: bytes) -> str:
    if not parsed:
        html = body.lstrip()[:1] == b"<"
        return "an HTML page" if html else body[: 4 * MAX_QUOTED].decode("utf-8", "replace")
    error = parsed.get("error", parsed.get("detail", parsed.get("message", "")))
    if isinstance(error, dict):
        error = error.get("message") or error
    return error if isinstance(error, str) else orjson.dumps(error).decode() if error else ""


def _codes(error: Any) -> str:
    """The code and type of an error, in lower case."""
    if not isinstance(error, dict):
        return ""
    inner = error.get("innererror")
    codes = [error.get("code"), error.get("type"), isinstance(inner, dict) and inner.get("code")]
    return " ".join(str(word).lower() for word in codes if word)


# Requests ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Call:
    """A request: its address, body (None: GET), upper bound of tokens, and completions (count).

    A response that does not hold as many counts as lost. ``probe``: the server may not know it.
    """

    url: str
    body: dict[str, Any] | None
    bound: Usage
    count: int
    probe: bool


@dataclass(frozen=True, slots=True)
class Response:
    """A JSON object that the server sent, its usage, and its answers where it has to have some."""

    body: dict[str, Any]
    usage: Usage | None
    completions: Sequence[Completion] = ()
    seconds: float = 0.0


class Client:
    """Client of the two endpoints, with bounded retries inside a budget and one event loop.

    Parameters
    ----------
    pause
        First pause between two tries (seconds); doubled each time.
    exact
        Whether a reply by another model than the one asked for ends the run
        (``engine.require_model``).

    Attributes
    ----------
    model
        The model's name on the server.
    spent
        The error that ends the run, once a request did not fit into the budget.
    sent, retried
        HTTP requests, and those of them that repeat another (counts).
    answered_by, fingerprints
        Models and configurations that the server's replies name.
    left_out
        Optional fields that the server refused, which are no longer sent, and its words.
    """

    def __init__(
        self,
        address: Address,
        serving: ServingSettings,
        budget: Budget,
        *,
        pause: float = 0.5,
        exact: bool = False,
    ) -> None:
        self.address = address
        self.semaphore = HalvingSemaphore(
            serving.concurrency,
            max_wait=serving.max_wait,
            max_cooldowns=serving.retries + 1,
            where=address.api,
        )
        self.model = ""
        self.spent: EngineError | None = None
        self.sent = self.retried = 0
        self.answered_by: set[str] = set()
        self.fingerprints: set[str] = set()
        self.left_out: dict[str, str] = {}
        self._serving, self._budget, self._pause, self._exact = serving, budget, pause, exact
        self._settled = asyncio.Event()
        self._failed_in_a_row = 0
        self._last_answer = -math.inf
        key = address.key and address.key.get_secret_value()
        sent = {"User-Agent": "understudy", "Accept": "application/json"}
        self._http = httpx2.AsyncClient(
            headers=sent | ({"Authorization": f"Bearer {key}"} if key else {}),
            timeout=serving.timeout,
            limits=httpx2.Limits(
                max_connections=serving.concurrency,
                max_keepalive_connections=serving.concurrency,
            ),
            cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),  # none are sent back
            follow_redirects=False,  # the key goes to no other host
            trust_env=not address.loopback,  # no proxy between this machine and itself
            verify=httpx2.create_ssl_context(),  # SSL_CERT_FILE counts for loopback too
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def complete(
        self, prompts: Sequence[Ids], fields: dict[str, Any], limit: int, *, probe: bool = False
    ) -> list[Reply]:
        """Send prompts (token ids) in one request; return a completion or failure for each.

        ``fields`` go into the body, ``limit`` is the longest answer (tokens). Unless it is a probe,
        the prompts of a request that fails are sent one by one, so that only the one at fault
        fails.
        """
        body = {"model": self.model, "prompt": [list(p) for p in prompts], **fields}
        sizes = [len(p) for p in prompts]
        bound = Usage(sum(sizes), limit * len(prompts))
        sent = await self._ask(
            _Call(self.address.api + "/completions", body, bound, len(prompts), probe), sizes, limit
        )
        if not isinstance(sent, Failure):
            return [*sent]
        over = sent is NOT_ASKED
        if len(prompts) == 1 or probe or not (over or _one_may_be_at_fault(sent)):
            return [sent] * len(prompts)
        alone = [self.complete([prompt], fields, limit) for prompt in prompts]
        # Over the budget, one after the other, so that they fit best.
        done = [await call for call in alone] if over else await gather(alone)
        return [reply for [reply] in done]

    async def chat(
        self,
        messages: Sequence[Message],
        fields: dict[str, Any],
        limit: int,
        *,
        probe: bool = False,
    ) -> Reply:
        """The completion of a conversation."""
        body = {"model": self.model, "messages": [_turn(m) for m in messages], **fields}
        # A token is at least a byte.
        texts = sum(len(m.content.encode()) + _TURN for m in messages)
        images = sum(len(m.images) for m in messages)
        bound = Usage(texts + _IMAGE * images, limit)
        sent = await self._ask(
            _Call(self.address.api + "/chat/completions", body, bound, 1, probe), [1], limit
        )
        return sent if isinstance(sent, Failure) else sent[0]

    async def page(self, url: str, body: dict[str, Any] | None = None) -> dict[str, Any] | Failure:
        """The JSON object of a page (``body`` None: GET), which costs no tokens."""
        sent = await self._request(_Call(url, body, Usage(), 0, probe=body is None))
        return sent if isinstance(sent, Failure) else sent.body

    def leave_out(self, name: str, words: str) -> None:
        """Send an optional field no longer; ``words`` are the server's."""
        if name not in self.left_out:
            self.left_out[name] = words
            _log.warning("%s is left out: the server refuses it (%s)", name, words)

    async def _ask(
        self, call: _Call, sizes: Sequence[int], limit: int
    ) -> list[Completion] | Failure:
        """One completion per prompt; optional fields that the server refuses are left out."""
        refused: dict[str, str] = {}
        body = call.body or {}
        first: Failure | None = None
        while True:
            unsent = {*self.left_out, *refused}
            accepted = {name: value for name, value in body.items() if name not in unsent}
            try:
                sent = await self._request(replace(call, body=accepted))
            except EngineError as error:
                if not is_over_budget(error):
                    raise
                self.spent = error
                return NOT_ASKED
            if isinstance(sent, Response):
                break
            first = first or sent
            if (name := refused_field(sent, accepted)) is None:
                return first
            refused[name] = sent.detail
        for name, words in refused.items():
            self.leave_out(name, words)
        served_by = self._origin(sent.body)
        for completion in sent.completions:
            words = f"{completion.text}{completion.refusal}{completion.finish}"
            self.address.check_leak(words.encode(errors="replace"))
        written = [_length(completion, limit) for completion in sent.completions]
        parts = split_usage(sent.usage, sizes, written)
        return [
            replace(reply, usage=replace(usage, seconds=sent.seconds, served_by=served_by))
            for reply, usage in zip(sent.completions, parts, strict=True)
        ]

    def _origin(self, body: dict[str, Any]) -> tuple[str, ...]:
        """Model and fingerprint that a response names; note them, and compare the model."""
        named = (body.get("model"), body.get("system_fingerprint"))
        model, mark = (self.address.quote(n) if isinstance(n, str) else "" for n in named)
        if self._exact and model != self.model:
            raise EngineError(
                f"the server answers as {model or 'no model by name'}, not as {self.model}",
                where=f"engine.require_model is exact; {self.address.api}",
                hint=f"set engine.model to {model}" if model else "set engine.require_model to any",
            )
        if mark and len(self.fingerprints) < MAX_NAMES:
            self.fingerprints.add(mark)
        if model and model not in self.answered_by and len(self.answered_by) < MAX_NAMES:
            self.answered_by.add(model)
            if model != self.model:
                words = "%s answers as %s, not as the requested model (%s)"
                _log.warning(words, self.address.api, model, self.model)
        if model.startswith("/"):
            model = model.rsplit("/", 1)[-1]  # llama.cpp names the model by its path
        origin = f"{model} ({mark})" if model and mark else model or mark
        return (origin,) if origin else ()

    async def _request(self, call: _Call) -> Response | Failure:
        """Send a request until it is answered or out of tries; a throttled one costs none.

        Raises :class:`EngineError` if no request can succeed: no server, the key refused, the model
        unknown, the budget spent, the wait too long.
        """
        began = asyncio.get_running_loop().time()
        content = None if call.body is None else orjson.dumps(call.body)
        max_tries = _PROBE_TRIES if call.probe else 1 + self._serving.retries
        tries, retry = 1, False
        while True:
            done = await self._attempt(call, content, retry=retry)
            if isinstance(done, Response) or done.again == "no":
                return done
            if done.again != "throttled":  # those are bounded by the semaphore
                if tries == max_tries:
                    break
                await asyncio.sleep(backoff(tries, self._pause))
                tries += 1
            retry = True
            self.retried += 1
        self._failed_in_a_row += 1
        detail = f"{done.detail} after {tries} tries"
        silent = self._last_answer < began
        if silent and (not done.reached or self._failed_in_a_row >= MAX_FAILED):
            raise EngineError(
                f"the server does not answer: {detail}",
                where=self.address.api,
                hint="start it, or set serving.base_url; received answers are stored: run again",
            )
        return replace(done, detail=detail, again="no")

    async def _attempt(
        self, call: _Call, content: bytes | None, *, retry: bool
    ) -> Response | Failure:
        """Send a request once, in a slot and inside the budget."""
        loop = asyncio.get_running_loop()
        async with self.semaphore.slot(retry=retry):
            while not self._budget.reserve(call.bound):
                await self._settled.wait()
            started = loop.time()
            attempt: Response | Failure | None = None
            try:
                attempt = await self._send(call, content)
            finally:
                self._book(call.bound, attempt)
            now = loop.time()
            if isinstance(attempt, Response):
                self._failed_in_a_row, self._last_answer = 0, now
                self.semaphore.answered()
                return replace(attempt, seconds=now - started)
            if attempt.again == "throttled":
                self.semaphore.throttled(attempt.wait, started=started, now=now)
            return attempt

    def _book(self, bound: Usage, attempt: Response | Failure | None) -> None:
        if isinstance(attempt, Failure) and attempt.again != "lost":
            used: Usage | None = Usage()
        else:  # answered without a count, lost, or cancelled: in full
            used = attempt.usage if isinstance(attempt, Response) else None
        self._budget.settle(bound, used if used or bound.completion else Usage())
        done, self._settled = self._settled, asyncio.Event()
        done.set()

    async def _send(self, call: _Call, content: bytes | None) -> Response | Failure:
        self.sent += 1
        body = bytearray()
        method, kind = ("GET", {}) if content is None else ("POST", _JSON)
        try:
            # httpx limits each read; a server that drips bytes would never reach that limit.
            async with (
                asyncio.timeout(self._serving.timeout),
                self._http.stream(method, call.url, content=content, headers=kind) as response,
            ):
                async for part in response.aiter_bytes():
                    body += part
                    if len(body) > MAX_BODY:
                        detail = f"the answer is larger than {MAX_BODY >> 20} MiB"
                        return Failure("engine_error", detail)
        except (TimeoutError, httpx2.TimeoutException):
            return Failure("engine_error", "timeout", again="lost")
        except httpx2.ConnectError as error:
            detail = _unconnected(self.address, error)
            return Failure("engine_error", detail, reached=False, again="transient")
        except httpx2.RequestError as error:
            detail = f"the connection broke ({type(error).__name__})"
            return Failure("engine_error", detail, again="lost")
        code, raw = response.status_code, bytes(body)
        if code == httpx2.codes.OK:
            self.address.check_leak(raw)
        parsed = classify_response(self.address, code, response.headers, raw, call.probe)
        if isinstance(parsed, Failure):
            return parsed
        completions = read_completions(parsed, call.count) if call.count else []
        if isinstance(completions, str):
            return Failure("engine_error", self.address.quote(completions), again="lost")
        return Response(parsed, read_usage(parsed), completions)


def _unconnected(address: Address, error: httpx2.ConnectError) -> str:
    """Why there is no connection; raise where no further try can help."""
    tls: BaseException | None = error
    while tls is not None and not isinstance(tls, ssl.SSLError):
        tls = tls.__cause__ or tls.__context__
    if tls is None:
        return "no connection"
    if isinstance(tls, ssl.SSLCertVerificationError):
        raise EngineError(
            f"the server's certificate is not trusted ({tls.verify_message.rstrip('.')})",
            where=address.api,
            hint="put the certificate of its authority (PEM) into a file and set "
            "SSL_CERT_FILE to it",
        ) from None
    if tls.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        raise EngineError(
            "the server does not speak TLS",
            where=address.api,
            hint="set serving.base_url to http://, if it is on this machine or network",
        ) from None
    return f"the TLS handshake failed ({tls.reason or type(tls).__name__})"


def refused_field(failure: Failure, body: Mapping[str, Any]) -> str | None:
    """Optional field of a request that a server's refusal names; None if it names none.

    Of several the one that changes nothing goes first.

    >>> words = "`temperature` and `top_p` cannot both be specified"
    >>> refused_field(Failure("invalid", words, 400), {"temperature": 1.0, "top_p": 0.9})
    'temperature'
    """
    if failure.code not in _OF_THE_REQUEST or failure.status != "invalid":
        return None
    named = [
        name
        for name in OPTIONAL
        if name in body and re.search(rf"(?<![\w-]){name}(?![\w-])", failure.detail)
    ]
    return min(named, key=lambda name: body[name] != OPTIONAL[name], default=None)


def _length(completion: Completion, limit: int) -> int:
    """About how long an answer is, for its share of the request's tokens."""
    text = len((completion.text or "").encode()) // 3 + 1
    return limit if completion.finish == "length" else min(limit, text)


def _one_may_be_at_fault(failure: Failure) -> bool:
    """Whether a request may have failed because of one of its prompts."""
    if failure.status in ("invalid", "refused"):
        return True
    return failure.reached and (failure.code >= 500 or failure.code == 0)


async def gather(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """All results in order; the first exception cancels the rest and is raised as it is."""
    tasks = [asyncio.ensure_future(w) for w in work]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def _turn(message: Message) -> dict[str, Any]:
    """A message as the chat endpoint takes it: pictures as data addresses after the text."""
    if not message.images:
        return {"role": message.role, "content": message.content}
    parts: list[dict[str, Any]] = [{"type": "text", "text": message.content}]
    for image in message.images:
        data = base64.b64encode(image.data).decode()
        address = f"data:{image.media_type};base64,{data}"
        parts.append({"type": "image_url", "image_url": {"url": address}})
    return {"role": message.role, "content": parts}
