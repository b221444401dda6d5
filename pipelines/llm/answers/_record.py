"""A stored answer: its columns, and what may go into them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

import orjson

from pipelines.errors import EngineError
from pipelines.llm.answers._file import Row, checksum, packed, unpacked
from pipelines.llm.answers._rules import budget
from pipelines.llm.engines import STATUSES, Answer, EngineIdentity, Request, Status, answer_fault

#: Columns that an answer is restored from.
PAYLOAD = (
    "status",
    "text",
    "probabilities",
    "mass",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
    "latency",
    "detail",
)

#: Shapes of keys that servers repeat in their messages.
_KEYLIKE = re.compile(r"(?i)(\bbearer\s+)\S+|\b(?:sk|pk|hf|gsk|xai)[-_][A-Za-z0-9_\-*.]{6,}")


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """A stored answer: the fields of :class:`pipelines.llm.engines.Answer`, and these."""

    #: See :func:`pipelines.llm.answers.answer_key` (64 hexadecimal digits).
    key: str
    status: Status
    text: str | None
    probabilities: tuple[float, ...] | None
    mass: float | None
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    latency: float
    detail: str
    #: Budget of the call (tokens).
    max_tokens: int
    #: Time of storage (UTC).
    stored_at: datetime
    #: The engine that answered.
    identity: EngineIdentity
    #: The question as canonical JSON, where it was kept (``serving.keep_requests``).
    request: str | None = None

    def answer(self, request: Request) -> Answer:
        """The answer to a request that has this key."""
        return Answer(request, *(getattr(self, name) for name in PAYLOAD))

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; the identity and the request as objects."""
        return {
            **{f: getattr(self, f) for f in ("key", *PAYLOAD, "max_tokens")},
            "stored_at": self.stored_at.isoformat(),
            "identity": asdict(self.identity),
            "request": None if self.request is None else json.loads(self.request),
        }


def identity_json(identity: EngineIdentity) -> str:
    """An identity as canonical JSON."""
    return orjson.dumps(asdict(identity), option=orjson.OPT_SORT_KEYS).decode()


@cache
def identity_of(document: str) -> EngineIdentity:
    """An identity from its JSON."""
    return EngineIdentity(**orjson.loads(document))


def clean(answer: Answer, secrets: Sequence[str] = ()) -> Answer:
    """The answer as it may be stored: without secrets, and usable if its status is `ok`.

    Failed answers lose their distribution and, unless they are `truncated`, their text: such a row
    can't be taken for a rating. What is `ok` but has no text, or no distribution where one was
    asked for, becomes `invalid`. An unknown status is an :class:`EngineError`.
    """
    if answer.status not in STATUSES:
        raise EngineError(
            f"the engine gave an answer of unknown status {answer.status!r}",
            hint=f"one of {', '.join(STATUSES)}",
        )
    fault = answer_fault(answer) if answer.status == "ok" else ""
    status: Status = "invalid" if fault else answer.status
    text = answer.text if status in ("ok", "truncated") else None
    ok = status == "ok"
    return replace(
        answer,
        status=status,
        text=None if text is None else without_secrets(text, secrets),
        probabilities=tuple(map(float, answer.probabilities))
        if ok and answer.probabilities is not None
        else None,
        mass=float(answer.mass) if ok and answer.mass is not None else None,
        finish_reason=one_line(answer.finish_reason, secrets),
        detail=one_line(fault or answer.detail, secrets),
    )


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """The text without secrets and without unpaired surrogates, which no UTF-8 file can hold."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, "[secret]")
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def one_line(text: str, secrets: Sequence[str]) -> str:
    """Fault in a single line, without anything that looks like an API key."""
    if not text:
        return ""
    safe = _KEYLIKE.sub(lambda m: (m[1] or "") + "[secret]", without_secrets(text, secrets))
    return " ".join(safe.split())


def row_of(answer: Answer, key: str, identity: int, moment: int, request: str | None) -> Row:
    """The row of a clean answer."""
    columns = (
        bytes.fromhex(key),
        packed(answer.probabilities),
        answer.status,
        budget(answer.request.sampling.max_tokens),
        moment,
        answer.text,
        answer.mass,
        answer.finish_reason,
        int(answer.prompt_tokens),
        int(answer.completion_tokens),
        int(answer.cached_tokens),
        float(answer.latency),
        answer.detail,
        identity,
        request,
    )
    return Row(*columns, checksum(columns))


def answer_of(row: Row, request: Request) -> Answer:
    """The answer to a request, from the row of its key."""
    return Answer(request, row.status, row.text, unpacked(row.probabilities), *row[6:13])


def stored_of(row: Row, document: str) -> StoredAnswer:
    """The stored answer of a row and its identity's JSON."""
    return StoredAnswer(
        row.key.hex(),
        row.status,
        row.text,
        unpacked(row.probabilities),
        *row[6:13],
        max_tokens=row.max_tokens,
        stored_at=datetime.fromtimestamp(row.stored_at / 1e6, UTC),
        identity=identity_of(document),
        request=row.request,
    )
