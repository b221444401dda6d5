"""Client of the two endpoints: the openai SDK for HTTP, and what it does not promise.

The SDK sends one attempt. Retries (tenacity), the budget, the cool-down after a 429, the
classification of responses and the redaction of the key are here; the reasons are in
docs/decisions/0013.
"""

from __future__ import annotations

import asyncio
import base64
import heapq
import ipaddress
import itertools
import logging
import math
import operator
import re
import ssl
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import httpx2
import numpy as np
import openai
import orjson
from pydantic import SecretStr
from tenacity import AsyncRetrying, RetryCallState, retry_if_result, stop_after_attempt

from pipelines.config import ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines._protocol import Message
from pipelines.llm.engines.openai._budget import Budget, Reservation, Usage, is_over_budget
from pipelines.retrying import backoff, retry_after
from pipelines.statuses import Status

_log = logging.getLogger("pipelines.llm.engines.openai")

#: The environment variable that holds the key.
KEY_VARIABLE = "UNDERSTUDY_SERVING__API_KEY"
#: Beginning of the part of an answer's detail that names the model that answered.
SERVED_BY = "served by "
#: Log-probability that stands for none (servers write -inf as null, -9999 or -Infinity).
FLOOR = -9999.0
#: Longest text of a server that is repeated in a message (characters).
MAX_QUOTED = 200
#: Largest response that is read (bytes, decompressed).
MAX_BODY = 64 << 20
#: Requests in a row that failed after all their tries, after which the server counts as dead.
MAX_FAILED = 8
#: Names of models, and fingerprints, that are kept (count).
MAX_NAMES = 16

#: Headers that are sent; the SDK adds others, some of them from its environment variables.
_HEADERS = frozenset(
    {"accept", "accept-encoding", "authorization", "connection"}
    | {"content-length", "content-type", "host", "user-agent"}
)
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
#: Names of the finish of an answer that was cut by the limit.
_CUT = frozenset({"length", "max_tokens", "max_length", "model_length"})
#: Codes of servers for a request or an answer that their rules forbid, and for an empty account.
_FILTERED = ("content_filter", "content_policy", "moderation", "responsibleaipolicy")
_NO_CREDIT = ("insufficient_quota", "billing_hard_limit", "insufficient_credit")
_INNER_SUFFIXES = (".local", ".internal", ".lan", ".svc", ".cluster.local", ".localhost")
_ID = "token_id:"

#: Meaning of a status that no further try can change. ``run``: the end of the run. ``probe``:
#: the server may not know the address. ``soft``: any status is an answer, as of a page that is
#: not of the OpenAI interface.
Mode = Literal["run", "probe", "soft"]

T = TypeVar("T")


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

    def check_leak(self, content: str | bytes) -> None:
        """Refuse a response that repeats the key, as a debugging proxy does."""
        secret = self.key.get_secret_value() if self.key else None
        if secret is None:
            return
        if secret.encode() in content if isinstance(content, bytes) else secret in content:
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


# Concurrency ---------------------------------------------------------------------------------


class HalvingSemaphore:
    """Slots for requests in flight, halved by a 429, and the cool-down that follows it.

    One slot comes back for as many answers as there are slots. Requests sent before the last
    halving only extend its cool-down, which is at most ``max_wait`` seconds; ``max_cooldowns`` in a
    row without an answer end the run. Retries are served before new requests. To be used inside
    one event loop.
    """

    def __init__(self, max_slots: int, *, max_wait: float, max_cooldowns: int, where: str) -> None:
        self.max_slots = self.limit = max_slots
        self.cuts, self.paused = 0, 0.0  # halvings; seconds for which requests were held
        self._max_wait, self._max_cooldowns, self._where = max_wait, max_cooldowns, where
        self._in_flight = self._answers = self._cooldowns = 0
        self._last_cut = self._until = -math.inf
        self._timer: asyncio.TimerHandle | None = None
        self._order = itertools.count()
        #: Whether it is a new request, its number, and the future that it waits for.
        self._waiting: list[tuple[bool, int, asyncio.Future[None]]] = []

    @asynccontextmanager
    async def slot(self, *, retry: bool) -> AsyncIterator[None]:
        """Hold a slot; wait for it, and for the end of a cool-down. Retries are served first."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (not retry, next(self._order), future))
        self._grant()
        try:
            await future
            yield
        finally:
            if future.done() and not future.cancelled():
                self._in_flight -= 1
                self._grant()

    def cooldown_left(self, now: float) -> float:
        """Seconds until requests may be sent; 0 if they may now."""
        return max(0.0, self._until - now)

    def answered(self) -> None:
        """Note an answer."""
        self._cooldowns = 0
        self._answers += 1
        if self._answers >= self.limit:
            self._answers = 0
            self.limit = min(self.limit + 1, self.max_slots)

    def throttled(self, wait: float | None, *, started: float, now: float) -> None:
        """Halve the slots and hold all requests for the seconds that the server asks for.

        ``wait`` is None where it does not say; ``started`` is when the refused request was sent
        (seconds on the loop's clock). Raises :class:`EngineError` if the cool-down is longer than
        is honoured, or one too many in a row.
        """
        if started > self._last_cut:
            self.limit = max(1, self.limit // 2)
            self._last_cut, self._answers = now, 0
            self.cuts += 1
            self._cooldowns += 1
        if wait is None:
            wait = min(backoff(self._cooldowns, 1.0), self._max_wait)
        hint = "run again later: received answers are stored; or "
        if wait > self._max_wait:
            raise EngineError(
                f"the server asks to wait {wait:.0f} s, longer than serving.max_wait "
                f"({self._max_wait:.0f} s)",
                where=self._where,
                hint=hint + "raise serving.max_wait",
            )
        if self._cooldowns > self._max_cooldowns:
            raise EngineError(
                f"the server still limits the rate after {self._max_cooldowns} pauses in a row",
                where=self._where,
                hint=hint + "lower serving.concurrency",
            )
        until = max(self._until, now + wait)
        self.paused += until - max(self._until, now)
        self._until = until

    def _grant(self) -> None:
        """Give free slots to waiting requests, unless a cool-down holds them."""
        loop = asyncio.get_running_loop()
        left = self.cooldown_left(loop.time())
        if left > 0:
            if self._timer is None:
                self._timer = loop.call_later(left, self._resume)
            return
        while self._waiting and self._in_flight < self.limit:
            future = heapq.heappop(self._waiting)[-1]
            if not future.done():
                self._in_flight += 1
                future.set_result(None)

    def _resume(self) -> None:
        self._timer = None
        self._grant()


# Responses -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Failure:
    """Why one request, or one attempt, has no answer.

    Attributes
    ----------
    detail
        One line, without secrets.
    code
        HTTP status; 0 if there was none.
    reached
        Whether the server had the request, so that it may be the request's own fault.
    again
        Effect of another attempt. ``no``: none. ``lost``: the server worked, and billed,
        but its answer can't be used. ``throttled``: after a cool-down.
    wait
        Seconds that the server asks to wait, if any.
    """

    status: Status
    detail: str
    code: int = 0
    reached: bool = True
    again: Literal["no", "transient", "throttled", "lost"] = "no"
    wait: float | None = None


#: Failure of a prompt that was not sent because the budget is spent: no answer at all.
NOT_ASKED = Failure("engine_error", "not asked: the budget is spent", reached=False)


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens, longest latency (seconds) and answering models of one or several requests."""

    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    served_by: tuple[str, ...] = ()

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.usage + other.usage,
            max(self.seconds, other.seconds),
            tuple(dict.fromkeys(self.served_by + other.served_by)),
        )

    def describe(self, detail: str = "") -> str:
        """Return an answer's detail: a fault or note, if any, and who served it."""
        origin = SERVED_BY + ", ".join(self.served_by) if self.served_by else ""
        return "; ".join(filter(None, (detail, origin)))


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion in a response, in one form for both endpoints.

    ``ids`` and ``texts`` are log-probabilities of the ranked tokens at the first position, by token
    id from vLLM's completions, else by text; texts that two tokens share are summed. ``thought``
    says that the model thought before it answered; thoughts are no part of the text. ``cost`` is
    the answer's share of the request's.
    """

    text: str | None
    finish: str
    refusal: str = ""
    thought: bool = False
    ids: dict[int, float] = field(default_factory=dict)
    texts: dict[str, float] = field(default_factory=dict)
    cost: Cost = field(default_factory=Cost)


@dataclass(frozen=True, slots=True)
class Response:
    """A JSON object that the server sent; its answers where some were asked for."""

    body: dict[str, Any]
    usage: Usage | None
    completions: Sequence[Completion] = ()
    seconds: float = 0.0


#: Outcome of one attempt.
Attempt = Response | Failure


def classify_response(
    address: Address, code: int, headers: Mapping[str, str], body: bytes, mode: Mode
) -> Attempt:
    """Classify a response; in mode ``run`` or ``probe``, raise if no request can succeed."""
    try:
        decoded = orjson.loads(body)
    except orjson.JSONDecodeError:
        decoded = None
    parsed = decoded if isinstance(decoded, dict) else None
    if code == 200:
        if parsed is None:
            return Failure("engine_error", _not_json(headers, body), code, again="lost")
        if parsed.get("error") is None:
            return Response(parsed, _usage(parsed))
        # Some routers say 200 and put the fault, and its code, into the body.
        inner = parsed["error"]
        given = inner.get("code") if isinstance(inner, dict) else None
        code = given if isinstance(given, int) and 400 <= given < 600 else 502
    message = address.quote(_message(parsed, body))
    detail = f"HTTP {code}: {message}" if message else f"HTTP {code}"
    words = _codes(parsed)
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
    if code in _OF_THE_REQUEST or mode == "soft" or (mode == "probe" and code in _UNKNOWN):
        return Failure("invalid", detail, code)
    raise _unusable(address, code, detail)


def _unusable(address: Address, code: int, detail: str) -> EngineError:
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
    return EngineError(what, where=address.api, hint=hint)


def _not_json(headers: Mapping[str, str], body: bytes) -> str:
    if not body.strip():
        return "the answer is empty"
    kind = headers.get("Content-Type", "").split(";")[0].strip().lower()
    if kind == "text/html" or body.lstrip()[:1] == b"<":
        return "the answer is an HTML page"
    if kind == "text/event-stream":
        return "the answer is an event stream, which was not requested"
    return "the answer is not a JSON object"


def _message(parsed: dict[str, Any] | None, body: bytes) -> str:
    if parsed is None:
        if body.lstrip()[:1] == b"<":
            return "an HTML page"
        return body[: 4 * MAX_QUOTED].decode("utf-8", "replace")
    error = parsed.get("error", parsed.get("detail", parsed.get("message", "")))
    if isinstance(error, dict):
        error = error.get("message") or error
    return error if isinstance(error, str) else orjson.dumps(error).decode() if error else ""


def _codes(parsed: dict[str, Any] | None) -> str:
    """The code and type of an error, in lower case."""
    error = parsed.get("error") if parsed else None
    if not isinstance(error, dict):
        return ""
    inner = error.get("innererror")
    codes = [error.get("code"), error.get("type")]
    codes.append(inner.get("code") if isinstance(inner, dict) else None)
    return " ".join(str(word).lower() for word in codes if word)


def _usage(parsed: dict[str, Any]) -> Usage | None:
    usage = parsed.get("usage")
    if not isinstance(usage, dict):
        return None
    details = usage.get("prompt_tokens_details")
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return None if prompt is None else Usage(prompt, completion or 0, min(cached or 0, prompt))


def _count(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def read_completions(body: dict[str, Any], count: int) -> list[Completion] | str:
    """The answers of a response in the order of its prompts, or what is wrong with it.

    >>> body = {"choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]}
    >>> read_completions(body, 1)[0].text
    'Hi'
    >>> read_completions({"choices": []}, 1)
    'the response has 0 answers where 1 were requested'
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not all(isinstance(c, dict) for c in choices):
        return "the response has no answers"
    if len(choices) != count:
        return f"the response has {len(choices)} answers where {count} were requested"
    order = [c.get("index") for c in choices] if count > 1 else [0]
    if sorted(o for o in order if isinstance(o, int)) != list(range(count)):
        return "the response numbers its answers wrongly"
    ranked = sorted(zip(order, choices, strict=True), key=operator.itemgetter(0))
    usage = body.get("usage")
    details = usage.get("completion_tokens_details") if isinstance(usage, dict) else None
    hidden = bool(isinstance(details, dict) and _count(details.get("reasoning_tokens")))
    return [_completion(choice, hidden) for _, choice in ranked]


def _completion(choice: dict[str, Any], hidden: bool) -> Completion:
    message, finish, refusal = choice.get("message"), choice.get("finish_reason"), ""
    text = choice.get("text")
    thought = hidden
    if isinstance(message, dict):
        text = message.get("content")
        refusal = message.get("refusal") or ""
        refusal = refusal if isinstance(refusal, str) else "the model declined"
        thought |= any(message.get(name) for name in _THOUGHT_FIELDS)
    if isinstance(text, list):
        # Parts: thoughts have a type of their own, and no `text`.
        parts = [part for part in text if isinstance(part, dict)]
        spoken = [p.get("text") for p in parts if p.get("type") in ("text", "output_text")]
        thought |= len(spoken) < len(parts)
        text = "".join(part for part in spoken if isinstance(part, str))
    if isinstance(text, str):
        answer = strip_thought(text)
        thought |= answer != text
        text = answer
    if finish == "content_filter" and not refusal:
        refusal = "the server's content filter"
    finish = finish if isinstance(finish, str) else ""
    parsed = Completion(
        text=text if isinstance(text, str) else None,
        finish="length" if finish.lower() in _CUT else finish,
        refusal=refusal,
        thought=thought,
    )
    for token, value in _first_ranks(choice.get("logprobs")):
        if token.startswith(_ID) and token[len(_ID) :].isdecimal():
            parsed.ids[int(token[len(_ID) :])] = value
        else:
            before = parsed.texts.get(token)
            parsed.texts[token] = value if before is None else float(np.logaddexp(before, value))
    return parsed


#: Fields of a message in which servers put the thought.
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking", "thinking_blocks")
_NAME = r"(?:\w+:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|analysis|scratchpad)"
_OPEN = re.compile(rf"[<\[◁]\|?{_NAME}\|?[>\]▷]|<\|(?:begin_of_|start_){_NAME}\|>", re.IGNORECASE)
_CLOSE = re.compile(rf"[<\[◁]\|?/{_NAME}\|?[>\]▷]|<\|(?:/|end_of_|end_){_NAME}\|>", re.IGNORECASE)
_CHANNEL, _FINAL = "<|channel|>", re.compile(r"<\|channel\|>\s*final\b[^<]*<\|message\|>")
_MARK = re.compile(r"<\|(?:end|return|start|message|channel)\|>")


def strip_thought(text: str) -> str:
    r"""A reply without what the model thought before it; empty if that is all.

    >>> strip_thought("<think>\nWell.\n</think>\n\n8"), strip_thought("Well.[/THINK]8")
    ('8', '8')
    >>> strip_thought("<|channel|>analysis<|message|>Well.<|end|>"
    ...     "<|start|>assistant<|channel|>final<|message|>8<|return|>")
    '8'
    >>> strip_thought("<thinking>Well, this person"), strip_thought(" 8 [/10]")
    ('', ' 8 [/10]')
    """
    if _CHANNEL in text:
        final = list(_FINAL.finditer(text))
        return _MARK.split(text[final[-1].end() :])[0].strip() if final else ""
    answer = text
    if closed := list(_CLOSE.finditer(answer)):
        # The first tag may stand in the prompt: all before the last closing one is a thought,
        # but for what was said before an opening one.
        opened = _OPEN.search(answer)
        said = answer[: opened.start()] if opened and opened.start() < closed[0].start() else ""
        answer = said + answer[closed[-1].end() :]
    if opened := _OPEN.search(answer):
        answer = answer[: opened.start()]
    return text if answer == text else answer.strip()


def _first_ranks(logprobs: Any) -> list[tuple[str, float]]:
    """Token and log-probability of the ranked tokens at the first position, of either endpoint."""
    if not isinstance(logprobs, dict):
        return []
    content, tops = logprobs.get("content"), logprobs.get("top_logprobs")
    ranks: list[tuple[Any, Any]] = []
    if isinstance(content, list) and content and isinstance(content[0], dict):
        listed = content[0].get("top_logprobs") or ()
        ranks = [(r.get("token"), r.get("logprob")) for r in listed if isinstance(r, dict)]
    elif isinstance(tops, list) and tops and isinstance(tops[0], dict):
        ranks = [*tops[0].items()]
    return [(token, _logprob(value)) for token, value in ranks if isinstance(token, str)]


def _logprob(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return FLOOR
    return max(float(value), FLOOR)


def split_usage(usage: Usage | None, prompts: Sequence[int], written: Sequence[int]) -> list[Usage]:
    """Divide a request's usage (None: unknown) among rows with prompts and answers of such sizes.

    The parts add up to the whole.

    >>> split_usage(Usage(10, 3, 5), [1, 1], [2, 1])
    [Usage(prompt=5, completion=2, cached=2), Usage(prompt=5, completion=1, cached=3)]
    """
    if usage is None:
        return [Usage()] * len(prompts)
    shares = zip(
        _split(usage.prompt, prompts),
        _split(usage.completion, written),
        _split(usage.cached, prompts),
        strict=True,
    )
    return [Usage(p, c, min(k, p)) for p, c, k in shares]


def _split(total: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers in proportion to weights, with the given sum."""
    weights = weights if any(weights) else [1] * len(weights)
    ends = [total * end // sum(weights) for end in itertools.accumulate(weights)]
    return [end - begin for begin, end in itertools.pairwise([0, *ends])]


# Requests ------------------------------------------------------------------------------------


class _TooLargeError(Exception):
    """A response larger than `MAX_BODY`."""


class _HttpClient(openai.DefaultAsyncHttpxClient):
    """HTTP client of the SDK that sends only these headers and reads bounded bodies."""

    def __init__(self, headers: frozenset[str], **options: Any) -> None:
        super().__init__(**options)
        self._sent = headers

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request and read its response; `stream` has no effect."""
        for name in set(request.headers) - self._sent:
            del request.headers[name]
        response = await super().send(request, **options | {"stream": True})
        parts, size = [], 0
        try:
            async for part in response.aiter_bytes():
                size += len(part)
                if size > MAX_BODY:
                    raise _TooLargeError
                parts.append(part)
        finally:
            await response.aclose()
        headers = response.headers.copy()
        for name in ("content-encoding", "content-length", "transfer-encoding"):
            headers.pop(name, None)
        return httpx2.Response(
            response.status_code, headers=headers, content=b"".join(parts), request=request
        )


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
        key = address.key.get_secret_value() if address.key else ""
        self._sdk = openai.AsyncOpenAI(
            api_key=key or "none",  # and no header then
            base_url=address.api,
            max_retries=0,  # the budget must know of every request
            timeout=serving.timeout,
            default_headers={"User-Agent": "understudy", "Authorization": f"Bearer {key}"},
            http_client=_HttpClient(
                _HEADERS if key else _HEADERS - {"authorization"},
                timeout=serving.timeout,
                limits=httpx2.Limits(
                    max_connections=serving.concurrency,
                    max_keepalive_connections=serving.concurrency,
                ),
                follow_redirects=False,  # the key goes to no other host
                trust_env=not address.loopback,  # no proxy between this machine and itself
                verify=httpx2.create_ssl_context(),  # SSL_CERT_FILE counts for loopback too
            ),
        )

    async def close(self) -> None:
        """Close every connection."""
        await self._sdk.close()

    async def complete(
        self,
        prompts: Sequence[Sequence[int]],
        fields: dict[str, Any],
        limit: int,
        *,
        tries: int | None = None,
        mode: Mode = "run",
        divide: bool = True,
    ) -> list[Completion | Failure]:
        """Send prompts (token ids) in one request; return a completion or failure for each.

        ``fields`` go into the body, ``limit`` is the longest answer (tokens). With ``divide``, a
        request that fails is divided, so that only the prompt at fault fails.
        """
        body = {"model": self.model, "prompt": [list(p) for p in prompts], **fields}
        sizes = [len(p) for p in prompts]
        bound = Usage(sum(sizes), limit * len(prompts))
        sent = await self._ask("/completions", body, bound, sizes, limit, tries, mode)
        if not isinstance(sent, Failure):
            return [*sent]
        over = sent is NOT_ASKED
        if len(prompts) == 1 or not divide or not (over or _one_may_be_at_fault(sent)):
            return [sent] * len(prompts)
        if sent.status == "engine_error" and not over:
            tries = 1
        half = len(prompts) // 2
        halves = [
            self.complete(part, fields, limit, tries=tries, mode=mode)
            for part in (prompts[:half], prompts[half:])
        ]
        # Over the budget, one after the other, so that they fit best.
        done = [await h for h in halves] if over else await gather(halves)
        return [completion for part in done for completion in part]

    async def chat(
        self,
        messages: Sequence[Message],
        fields: dict[str, Any],
        limit: int,
        *,
        tries: int | None = None,
        mode: Mode = "run",
    ) -> Completion | Failure:
        """The completion of a conversation."""
        body = {"model": self.model, "messages": [_turn(m) for m in messages], **fields}
        # A token is at least a byte.
        texts = sum(len(m.content.encode()) + _TURN for m in messages)
        images = sum(len(m.images) for m in messages)
        bound = Usage(texts + _IMAGE * images, limit)
        sent = await self._ask("/chat/completions", body, bound, [1], limit, tries, mode)
        return sent if isinstance(sent, Failure) else sent[0]

    async def request(
        self,
        url: str,
        body: dict[str, Any] | None = None,
        *,
        bound: Usage = Usage(),  # noqa: B008 (frozen)
        mode: Mode = "soft",
        tries: int | None = None,
        count: int | None = None,
    ) -> Response | Failure:
        """Send a request (``body`` None: GET), tried at most ``tries`` times (default: settings).

        ``bound`` is the upper bound of its tokens. A response that does not hold ``count``
        completions counts as lost. Raises :class:`EngineError` if no request can succeed: no
        server, the key refused, the model unknown, the budget spent, the wait too long.
        """
        began = asyncio.get_running_loop().time()
        content = None if body is None else orjson.dumps(body)
        max_tries = 1 + self._serving.retries if tries is None else tries
        retry = False

        async def attempt() -> Attempt:
            nonlocal retry
            while True:
                self.retried += retry
                done = await self._attempt(url, content, bound, mode, count, retry=retry)
                retry = True
                if isinstance(done, Response) or done.again != "throttled":
                    return done  # the semaphore bounds the others

        def wait(state: RetryCallState) -> float:
            return backoff(state.attempt_number, self._pause)

        done: Attempt = await AsyncRetrying(
            stop=stop_after_attempt(max_tries),
            wait=wait,
            retry=retry_if_result(lambda a: isinstance(a, Failure) and a.again != "no"),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )(attempt)
        if isinstance(done, Response) or done.again == "no":
            return done
        return self._give_up(done, began, max_tries)

    async def _ask(
        self,
        path: str,
        body: dict[str, Any],
        bound: Usage,
        sizes: Sequence[int],
        limit: int,
        tries: int | None,
        mode: Mode,
    ) -> list[Completion] | Failure:
        url = self.address.api + path
        refused: dict[str, str] = {}
        first: Failure | None = None
        while True:
            unsent = {*self.left_out, *refused}
            accepted = {name: value for name, value in body.items() if name not in unsent}
            try:
                sent = await self.request(
                    url, accepted, bound=bound, mode=mode, tries=tries, count=len(sizes)
                )
            except EngineError as error:
                if not is_over_budget(error):
                    raise
                self.spent = error
                return NOT_ASKED
            if not isinstance(sent, Failure):
                break
            first = first or sent
            if (name := refused_field(sent, accepted)) is None:
                return first
            refused[name] = sent.detail
        for name, words in refused.items():
            self.leave_out(name, words)
        served_by = self._origin(sent.body)
        for completion in sent.completions:
            self.address.check_leak(f"{completion.text}{completion.refusal}{completion.finish}")
        written = [_length(completion, limit) for completion in sent.completions]
        parts = split_usage(sent.usage, sizes, written)
        return [
            replace(completion, cost=Cost(usage, sent.seconds, served_by))
            for completion, usage in zip(sent.completions, parts, strict=True)
        ]

    def leave_out(self, name: str, words: str) -> None:
        """Send an optional field no longer; ``words`` are the server's."""
        if name not in self.left_out:
            self.left_out[name] = words
            _log.warning("%s is left out: the server refuses it (%s)", name, words)

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
                _log.warning(
                    "%s answers as %s, not as the requested model (%s)",
                    self.address.api,
                    model,
                    self.model,
                )
        if model.startswith("/"):
            model = model.rsplit("/", 1)[-1]  # llama.cpp names the model by its path
        origin = f"{model} ({mark})" if model and mark else model or mark
        return (origin,) if origin else ()

    async def _attempt(
        self,
        url: str,
        content: bytes | None,
        bound: Usage,
        mode: Mode,
        count: int | None,
        *,
        retry: bool,
    ) -> Attempt:
        """Send a request once, in a slot and inside the budget."""
        loop = asyncio.get_running_loop()
        async with self.semaphore.slot(retry=retry):
            while (held := self._budget.reserve(bound.prompt, bound.completion)) is None:
                await self._settled.wait()
            started = loop.time()
            attempt: Attempt | None = None
            try:
                attempt = await self._send(url, content, mode, count)
            finally:
                self._book(held, attempt)
            now = loop.time()
            if isinstance(attempt, Response):
                self._failed_in_a_row, self._last_answer = 0, now
                self.semaphore.answered()
                return replace(attempt, seconds=now - started)
            if attempt.again == "throttled":
                self.semaphore.throttled(attempt.wait, started=started, now=now)
            return attempt

    def _book(self, held: Reservation, attempt: Attempt | None) -> None:
        if isinstance(attempt, Response) and attempt.usage is not None:
            self._budget.settle(held, attempt.usage)
        elif held.completion and not (isinstance(attempt, Failure) and attempt.again != "lost"):
            self._budget.settle(held, None)  # answered without a count, lost, or cancelled
        else:
            self._budget.release(held)
        done, self._settled = self._settled, asyncio.Event()
        done.set()

    def _give_up(self, failure: Failure, began: float, tries: int) -> Failure:
        self._failed_in_a_row += 1
        detail = f"{failure.detail} after {tries} tries"
        silent = self._last_answer < began
        if silent and (not failure.reached or self._failed_in_a_row >= MAX_FAILED):
            raise EngineError(
                f"the server does not answer: {detail}",
                where=self.address.api,
                hint="start it, or set serving.base_url; received answers are stored: run again",
            )
        return replace(failure, detail=detail, again="no")

    async def _send(
        self, url: str, content: bytes | None, mode: Mode, count: int | None
    ) -> Attempt:
        self.sent += 1
        broken: BaseException | None
        try:
            # The SDK limits each read; a server that drips bytes would never reach that limit.
            async with asyncio.timeout(self._serving.timeout):
                if content is None:
                    response = await self._sdk.get(url, cast_to=httpx2.Response)
                else:
                    response = await self._sdk.post(url, cast_to=httpx2.Response, content=content)
            broken = None
        except openai.APIStatusError as error:
            response, broken = error.response, None
        except (TimeoutError, openai.APITimeoutError):
            return Failure("engine_error", "timeout", again="lost")
        except _TooLargeError:
            return Failure("engine_error", f"the answer is larger than {MAX_BODY >> 20} MiB")
        except openai.APIConnectionError as error:
            broken = error.__cause__ or error
        # Outside of the handlers: the SDK's errors repeat the server's words, key and all.
        if isinstance(broken, httpx2.ConnectError):
            detail = self._unconnected(broken)
            return Failure("engine_error", detail, reached=False, again="transient")
        if broken is not None:
            detail = f"the connection broke ({type(broken).__name__})"
            return Failure("engine_error", detail, again="lost")
        body = response.content
        if response.status_code == 200:
            self.address.check_leak(body)
        attempt = classify_response(
            self.address, response.status_code, response.headers, body, mode
        )
        if isinstance(attempt, Failure) or count is None:
            return attempt
        completions = read_completions(attempt.body, count)
        if isinstance(completions, str):
            return Failure("engine_error", self.address.quote(completions), again="lost")
        return replace(attempt, completions=completions)

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
