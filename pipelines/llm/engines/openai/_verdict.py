"""What one response means: an answer, a fault of the request, a wait, or the end of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from pipelines.errors import EngineError
from pipelines.llm.engines._protocol import Status
from pipelines.llm.engines.openai._address import KEY_VARIABLE, Address
from pipelines.llm.engines.openai._budget import Usage
from pipelines.retrying import retry_after

__all__ = ["Got", "Mode", "Try", "judge"]

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
class Got:
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
class Try:
    """How one try ended.

    Attributes
    ----------
    kind
        ``got`` an answer; ``final``: another try gives the same; ``transient``; ``throttled``;
        ``lost``: the server worked, and billed, but its answer can't be used.
    got
        The answer.
    detail
        One line about what is wrong.
    status
        What the rows of a final fault become.
    code
        HTTP status, or 0.
    wait
        Seconds that the server asks to wait, if it says.
    reached
        Whether the request came through to the server.
    """

    kind: Literal["got", "final", "transient", "throttled", "lost"]
    got: Got | None = None
    detail: str = ""
    status: Status = "engine_error"
    code: int = 0
    wait: float | None = None
    reached: bool = True


def judge(
    address: Address,
    code: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    seconds: float,
    mode: Mode,
) -> Try:
    """What a response means.

    Raises
    ------
    EngineError
        If, in mode ``run`` or ``probe``, no request can succeed.
    """
    parsed = _parse(body)
    if code == 200:
        if parsed is None:
            return Try("lost", detail=_not_json(headers, body), code=code)
        if parsed.get("error") is None:
            return Try("got", Got(parsed, _usage(parsed), seconds))
        # Some routers say 200 and put the fault, and its code, into the body.
        inner = parsed["error"]
        found = inner.get("code") if isinstance(inner, dict) else None
        code = found if isinstance(found, int) and 400 <= found < 600 else 502
    said = address.quote(_message(parsed, body))
    detail = f"HTTP {code}: {said}" if said else f"HTTP {code}"
    words = _codes(parsed)
    if 400 <= code < 500 and any(word in words for word in _FILTERED):
        return Try("final", detail=detail, status="refused", code=code)
    if code in (429, 503):
        return _throttled(address, code, headers, detail, words)
    if code in _TRANSIENT or (code >= 500 and code not in _UNKNOWN):
        return Try("transient", detail=detail, code=code)
    if code in _OF_THE_REQUEST or mode == "soft" or (mode == "probe" and code in _UNKNOWN):
        return Try("final", detail=detail, status="invalid", code=code)
    raise _end(address, code, detail)


def _throttled(
    address: Address, code: int, headers: Mapping[str, str], detail: str, words: str
) -> Try:
    if any(word in words for word in _NO_CREDIT):
        raise EngineError(
            f"the account has no credit left ({detail})",
            where=address.api,
            hint="answers that came are kept: run again when it has",
        )
    wait = _wait(headers)
    if code == 429 or wait is not None:
        return Try("throttled", detail=detail, code=code, wait=wait)
    return Try("transient", detail=detail, code=code)


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
