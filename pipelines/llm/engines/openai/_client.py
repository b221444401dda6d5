"""HTTP client of a server: bounded retries inside a budget, and a key that is never shown.

httpx sends one attempt; docs/decisions/0013 says why what is around it is here.
"""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import logging
import re
import ssl
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Any, NamedTuple, TypeVar

import httpx2
import orjson

from pipelines.config import ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines._protocol import Message
from pipelines.llm.engines.openai._limits import Budget, RateLimiter
from pipelines.llm.engines.openai._replies import (
    Completion,
    Failure,
    Reply,
    Usage,
    read_completions,
    read_usage,
)
from pipelines.retrying import backoff, retry_after

_log = logging.getLogger("pipelines.llm.engines.openai")

#: The environment variable that holds the key.
KEY_VARIABLE = "UNDERSTUDY_SERVING__API_KEY"
#: Longest text of a server that is repeated in a message (characters).
MAX_QUOTED = 200
#: Optional fields of a request in the order in which they are given up where a server refuses
#: several together, and the value under which each changes nothing.
OPTIONAL: dict[str, Any] = {
    "max_tokens": None,  # `max_completion_tokens` is sent in its place
    "top_k": 0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "top_p": 1.0,
    "seed": None,
    "temperature": 1.0,
    "stop": None,
}
#: Failure of a prompt that was not sent because the budget is spent: no answer at all.
NOT_ASKED = Failure("engine_error", "not asked: the budget is spent")

#: Tokens that a chat template may add to the bytes of a message.
_TURN = 64
#: Tokens of a picture at most: the limit of Qwen2-VL, the most of the models in use.
_IMAGE = 16_384
_PROBE_TRIES = 2
_UNKNOWN = frozenset({404, 405, 501, 505})
_OF_THE_REQUEST = frozenset({400, 413, 422})
_TRANSIENT = frozenset({408, 409, 425, *range(500, 600)}) - _UNKNOWN
#: Codes of servers for a request or an answer that their rules forbid, and for an empty account.
_FILTERED = ("content_filter", "content_policy", "moderation", "responsibleaipolicy")
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit", "insufficient_credit")
_INNER_SUFFIXES = (".local", ".internal", ".lan", ".svc", ".cluster.local", ".localhost")

T = TypeVar("T")


# Address and key -----------------------------------------------------------------------------


class Address(NamedTuple):
    """A server's address as it is configured (``api``), and the key for it, or ""."""

    api: str
    loopback: bool
    key: str = ""


def quote(text: str) -> str:
    """A server's own words for a message: one line, bounded."""
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
    return Address(str(url), loopback, key)


# Responses -----------------------------------------------------------------------------------


def classify_response(
    address: str, code: int, wait: float | None, raw: bytes, *, optional: bool
) -> dict[str, Any] | Failure:
    """The JSON object of a response, or its failure; raise if no request can succeed.

    ``wait`` are the seconds of its ``Retry-After``, ``optional`` that the server may not have the
    page.
    """
    body: Any = None
    with suppress(orjson.JSONDecodeError):
        body = orjson.loads(raw)
    body = body if isinstance(body, dict) else None
    fault = body.get("error") if body else None
    if code == httpx2.codes.OK:
        if body is None:
            return Failure("engine_error", f"the answer is {_described(raw)}", again="lost")
        if fault is None:
            return body  # type: ignore[no-any-return]
        # Some routers say 200 and put the fault, and its code, into the body.
        inner = fault.get("code") if isinstance(fault, dict) else None
        code = inner if isinstance(inner, int) and 400 <= inner < 600 else 502
    words = quote(_message(body, raw))
    detail = f"HTTP {code}: {words}" if words else f"HTTP {code}"
    names = ("code", "type", "innererror") if isinstance(fault, dict) else ()
    codes = " ".join(str(fault.get(name, "")) for name in names if fault).lower()
    if code < 500 and any(word in codes for word in _FILTERED):
        return Failure("refused", detail)
    no_credit = code == 429 and any(word in codes for word in _NO_CREDIT)
    if (code == 429 and not no_credit) or (code == 503 and wait is not None):
        return Failure("engine_error", detail, again="throttled", wait=wait)
    if code in _TRANSIENT:
        return Failure("engine_error", detail, again="retry")
    if code in _OF_THE_REQUEST or (optional and code in _UNKNOWN):
        return Failure("invalid", detail)
    what, hint = f"the server can't be used ({detail})", "check serving.base_url"
    if no_credit:
        what = f"the account has no credit left ({detail})"
        hint = "received answers are stored: run again once it has credit"
    elif 300 <= code < 400:
        # Not followed: the key goes to no other host.
        what = f"the server redirects (HTTP {code})"
        hint = "set serving.base_url to the final address"
    elif code in (401, 403):
        what = f"the server refuses the key (HTTP {code})"
        hint = f"set {KEY_VARIABLE} to a valid key"
    elif code in _UNKNOWN:
        what = f"the server does not know the endpoint or the model ({detail})"
        hint = "check serving.base_url and engine.model"
    raise EngineError(what, where=address, hint=hint)


def _described(raw: bytes) -> str:
    """A body that is no JSON object, in words."""
    if not raw.strip():
        return "empty"
    return "an HTML page" if raw.lstrip()[:1] == b"<" else "not a JSON object"


def _message(body: dict[str, Any] | None, raw: bytes) -> str:
    """The server's own words in an error."""
    if body is None:
        html = raw.lstrip()[:1] == b"<"
        return _described(raw) if html else raw[: 4 * MAX_QUOTED].decode("utf-8", "replace")
    error = body.get("error") or body.get("detail") or body.get("message") or ""
    if isinstance(error, dict):
        error = error.get("message") or error
    return error if isinstance(error, str) else orjson.dumps(error).decode()


def refused_field(failure: Failure, body: Mapping[str, Any]) -> str | None:
    """Optional field of a request that a server's refusal names; None if it names none.

    Of several the one that changes nothing goes first.

    >>> words = "`temperature` and `top_p` cannot both be specified"
    >>> refused_field(Failure("invalid", words), {"temperature": 1.0, "top_p": 0.9})
    'temperature'
    """
    if failure.status != "invalid":
        return None
    named = [
        name
        for name in OPTIONAL
        if name in body and re.search(rf"(?<![\w-]){name}(?![\w-])", failure.detail)
    ]
    if "prompt" in body and "max_tokens" in named:
        named.remove("max_tokens")  # the completions endpoint knows no other name
    return min(named, key=lambda name: body[name] != OPTIONAL[name], default=None)


# Requests ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Call:
    """A request: its address, body (None: GET), and completions (count; 0: a page without any).

    ``bound`` is the most that it can use. ``probe``: tried less often, and the server may not have
    the page.
    """

    url: str
    body: dict[str, Any] | None
    count: int
    bound: Usage
    probe: bool


@dataclass(frozen=True, slots=True)
class _Response:
    body: dict[str, Any]
    completions: Sequence[Completion]
    usage: Usage | None
    seconds: float = 0.0


class Client:
    """Client of the two endpoints, to be used inside one event loop.

    Parameters
    ----------
    pause
        First pause between two tries (seconds); doubled each time.
    exact
        Whether a reply by another model than the requested one ends the run
        (``engine.require_model``).

    Attributes
    ----------
    model
        The model's name on the server.
    over_budget
        The error that ends the run, once a request did not fit into the budget.
    answered_by, fingerprints
        Models and configurations that the server's replies name.
    left_out
        Optional fields that the server refused, which are no longer sent, and its words.
    """

    def __init__(self, serving: ServingSettings, *, pause: float, exact: bool) -> None:
        address = open_address(serving)
        self.address, self.root = address.api, address.api.removesuffix("/v1")
        self.budget = Budget(serving)
        self.limiter = RateLimiter(
            serving.concurrency,
            max_wait=serving.max_wait,
            max_cooldowns=serving.retries + 1,
            where=self.address,
        )
        self.model = ""
        self.over_budget: EngineError | None = None
        self.sent = self.retried = 0  # HTTP requests, and those that repeat another
        self.answered_by: set[str] = set()
        self.fingerprints: set[str] = set()
        self.left_out: dict[str, str] = {}
        self._serving, self._pause, self._exact = serving, pause, exact
        self._key = address.key.encode()
        self._settled = asyncio.Event()
        headers = {"User-Agent": "understudy", "Accept": "application/json"}
        if address.key:
            headers["Authorization"] = f"Bearer {address.key}"
        self._http = httpx2.AsyncClient(
            headers=headers,
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
        self,
        prompts: Sequence[Sequence[int]],
        fields: dict[str, Any],
        limit: int,
        *,
        probe: bool = False,
    ) -> list[Reply]:
        """Send prompts (token ids) in one request; return a completion or failure for each.

        ``fields`` go into the body, ``limit`` is the longest answer (tokens). Unless it is a probe,
        the prompts of a request that fails are sent one by one, so that only the one at fault, or
        those that don't fit into the budget, fail.
        """
        body = {"prompt": [list(p) for p in prompts], **fields}
        bound = Usage(sum(map(len, prompts)), limit * len(prompts))
        replies = await self._post("/completions", body, len(prompts), bound, probe)
        if not isinstance(replies, Failure):
            return [*replies]
        if len(prompts) == 1 or probe:
            return [replies] * len(prompts)
        alone = await gather([self.complete([prompt], fields, limit) for prompt in prompts])
        return [reply for [reply] in alone]

    async def chat(
        self,
        messages: Sequence[Message],
        fields: dict[str, Any],
        limit: int,
        *,
        probe: bool = False,
    ) -> Reply:
        """The completion of a conversation."""
        body = {"messages": [_turn(m) for m in messages], **fields}
        # A token is at least a byte.
        texts = sum(len(m.content.encode()) + _TURN for m in messages)
        images = sum(len(m.images) for m in messages)
        bound = Usage(texts + _IMAGE * images, limit)
        replies = await self._post("/chat/completions", body, 1, bound, probe)
        return replies if isinstance(replies, Failure) else replies[0]

    async def page(self, url: str, body: dict[str, Any] | None = None) -> dict[str, Any] | Failure:
        """The JSON object of a page (``body`` None: GET), which costs no tokens."""
        response = await self._request(_Call(url, body, 0, Usage(), probe=body is None))
        return response if isinstance(response, Failure) else response.body

    def leave_out(self, name: str, words: str) -> None:
        """Send an optional field no longer; ``words`` are the server's."""
        if name not in self.left_out:
            self.left_out[name] = words
            _log.warning("%s is left out: the server refuses it (%s)", name, words)

    async def _post(
        self, path: str, body: dict[str, Any], count: int, bound: Usage, probe: bool
    ) -> list[Completion] | Failure:
        """Completions of a request; optional fields that the server refuses are left out."""
        refused: dict[str, str] = {}
        body = {"model": self.model, **body}
        first: Failure | None = None
        while True:
            unsent = {*self.left_out, *refused}
            accepted = {name: value for name, value in body.items() if name not in unsent}
            if "max_tokens" in unsent:
                limit = "max_tokens" if "prompt" in body else "max_completion_tokens"
                accepted[limit] = body["max_tokens"]
            call = _Call(self.address + path, accepted, count, bound, probe)
            response = await self._request(call)
            if isinstance(response, _Response):
                break
            first = first or response
            if (name := refused_field(response, accepted)) is None:
                return first
            refused[name] = response.detail
        for name, words in refused.items():
            self.leave_out(name, words)
        origin = self._origin(response.body)
        usage = replace(response.usage or Usage(), seconds=response.seconds, served_by=origin)
        replies = zip(response.completions, usage.split(count), strict=True)
        return [replace(completion, usage=share) for completion, share in replies]

    def _origin(self, body: dict[str, Any]) -> tuple[str, ...]:
        """Model and fingerprint that a response names; note them, and compare the model."""
        named = (body.get("model"), body.get("system_fingerprint"))
        model, mark = (quote(n) if isinstance(n, str) else "" for n in named)
        if self._exact and model != self.model:
            raise EngineError(
                f"the server answers as {model or 'no model by name'}, not as {self.model}",
                where=f"engine.require_model is exact; {self.address}",
                hint=f"set engine.model to {model}" if model else "set engine.require_model to any",
            )
        self.fingerprints |= {mark} - {""}
        if model not in {*self.answered_by, self.model, ""}:
            words = "%s answers as %s, not as the requested model (%s)"
            _log.warning(words, self.address, model, self.model)
        self.answered_by |= {model} - {""}
        if model.startswith("/"):
            model = model.rsplit("/", 1)[-1]  # llama.cpp names the model by its path
        origin = f"{model} ({mark})" if model and mark else model or mark
        return (origin,) if origin else ()

    async def _request(self, call: _Call) -> _Response | Failure:
        """Send a request until it is answered or out of tries; a throttled one costs none.

        Raises :class:`EngineError` if no request can succeed: no server, the key refused, the model
        unknown, the wait too long.
        """
        max_tries, tries = _PROBE_TRIES if call.probe else 1 + self._serving.retries, 1
        content = None if call.body is None else orjson.dumps(call.body)
        while True:
            reply = await self._attempt(call, content)
            if isinstance(reply, _Response) or reply.again == "no":
                return reply
            if reply.again != "throttled":  # those are bounded by the limiter
                if tries == max_tries:
                    break
                await asyncio.sleep(backoff(tries, self._pause))
                tries += 1
            self.retried += 1
        detail = f"{reply.detail} after {tries} tries"
        if reply.again == "unreachable":
            raise EngineError(
                f"the server does not answer: {detail}",
                where=self.address,
                hint="start it, or set serving.base_url; received answers are stored: run again",
            )
        return replace(reply, detail=detail, again="no")

    async def _attempt(self, call: _Call, content: bytes | None) -> _Response | Failure:
        """Send a request once, in a slot and inside the budget."""
        loop = asyncio.get_running_loop()
        async with self.limiter.slot():
            try:
                while not self.budget.reserve(call.bound):
                    await self._settled.wait()
            except EngineError as error:
                self.over_budget = error
                return NOT_ASKED
            started = loop.time()
            # An answer without a count, a lost or a cancelled one counts in full.
            used = None if call.count else Usage()
            try:
                reply = await self._send(call, content)
                if isinstance(reply, _Response):
                    used = reply.usage or used
                elif reply.again != "lost":
                    used = Usage()
            finally:
                self.budget.settle(call.bound, used)
                self._settled.set()  # wakes those that wait now
                self._settled.clear()
            if isinstance(reply, _Response):
                self.limiter.answered()
                return replace(reply, seconds=loop.time() - started)
            if reply.again == "throttled":
                self.limiter.throttled(reply.wait, started=started, now=loop.time())
            return reply

    async def _send(self, call: _Call, content: bytes | None) -> _Response | Failure:
        self.sent += 1
        method = "GET" if content is None else "POST"
        headers = {} if content is None else {"Content-Type": "application/json"}
        try:
            # httpx limits each read; a server that drips bytes would never reach that limit.
            async with asyncio.timeout(self._serving.timeout):
                response = await self._http.request(
                    method, call.url, content=content, headers=headers
                )
        except (TimeoutError, httpx2.TimeoutException):
            return Failure("engine_error", "timeout", again="lost")
        except httpx2.ConnectError as error:
            return Failure("engine_error", self._unconnected(error), again="unreachable")
        except httpx2.RequestError as error:
            detail = f"the connection broke ({type(error).__name__})"
            return Failure("engine_error", detail, again="lost")
        # A debugging proxy may repeat the key; from here on there is none.
        raw = response.content.replace(self._key, b"[key]") if self._key else response.content
        code, wait = response.status_code, retry_after(response.headers.get("Retry-After"))
        body = classify_response(self.address, code, wait, raw, optional=call.probe)
        if isinstance(body, Failure):
            return body
        completions = read_completions(body, call.count) if call.count else []
        if isinstance(completions, str):
            return Failure("engine_error", completions, again="lost")
        return _Response(body, completions, read_usage(body))

    def _unconnected(self, error: httpx2.ConnectError) -> str:
        """Why there is no connection; raise where no further try can help."""
        tls: BaseException | None = error
        while tls is not None and not isinstance(tls, ssl.SSLError):
            tls = tls.__cause__ or tls.__context__
        if tls is None:
            return "no connection"
        if isinstance(tls, ssl.SSLCertVerificationError):
            raise EngineError(
                f"the server's certificate is not trusted ({tls.verify_message.rstrip('.')})",
                where=self.address,
                hint="put the certificate of its authority (PEM) into a file and set "
                "SSL_CERT_FILE to it",
            ) from None
        return f"no TLS connection ({tls.reason or type(tls).__name__}; is it an http:// address?)"


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
