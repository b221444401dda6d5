"""Ways in which a model's server misbehaves, for `support.llm_server`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = [
    "Fault",
    "drip",
    "edit",
    "hang_up",
    "raw",
    "redirect",
    "reset",
    "slow",
    "status",
    "truncated",
]

Body = dict[str, Any]


@dataclass(frozen=True)
class Fault:
    """Fault to show one request instead of the right answer."""

    kind: str
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    content_type: str = "application/json"
    seconds: float = 0.0
    change: Callable[[Body], Body] | None = None


def status(
    code: int,
    *,
    retry_after: float | str | None = None,
    message: str = "",
    error: dict[str, Any] | None = None,
) -> Fault:
    """Answer with a status and an error in OpenAI's form."""
    headers = () if retry_after is None else (("Retry-After", str(retry_after)),)
    payload = {"error": {"message": message or f"status {code}", "type": "test", **(error or {})}}
    return Fault("answer", status=code, headers=headers, body=json.dumps(payload).encode())


def redirect(address: str) -> Fault:
    """Point to another address."""
    return Fault("answer", status=307, headers=(("Location", address),))


def raw(
    content: bytes,
    content_type: str = "application/json",
    code: int = 200,
    headers: tuple[tuple[str, str], ...] = (),
) -> Fault:
    """Answer with these bytes."""
    return Fault("answer", status=code, headers=headers, body=content, content_type=content_type)


def edit(change: Callable[[Body], Body]) -> Fault:
    """Answer rightly, but changed."""
    return Fault("edit", change=change)


def truncated() -> Fault:
    """Send the first half of the right body, declared as if it were whole."""
    return Fault("truncated")


def reset() -> Fault:
    """Send half of the body, then reset the connection."""
    return Fault("reset")


def hang_up() -> Fault:
    """Close the connection without an answer."""
    return Fault("hang_up")


def slow(seconds: float) -> Fault:
    """Answer rightly, but only after a while."""
    return Fault("slow", seconds=seconds)


def drip(seconds: float) -> Fault:
    """Send the right body byte by byte, with a pause before each."""
    return Fault("drip", seconds=seconds)
