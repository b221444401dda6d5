"""Requests, answers and small engines for tests of the answer store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pipelines.llm.engines import Answer, Choice, EngineIdentity, Message, Request, Sampling, Status

__all__ = ["IDENTITY", "STARS", "LineEngine", "answer", "question", "questions"]

IDENTITY = EngineIdentity(
    engine="test",
    engine_version="1.0",
    model="tiny",
    revision="main",
    weights="ab" * 32,
    tokenizer="cd" * 32,
    dtype="float32",
)
STARS = Choice(("1", "2", "3"))


def question(text: object, *, max_tokens: int = 256, **fields: Any) -> Request:
    """A request of one user's message."""
    fields.setdefault("sampling", Sampling(max_tokens=max_tokens))
    return Request((Message("user", f"Film {text}?"),), **fields)


def questions(count: int, start: int = 0) -> list[Request]:
    """Different requests, tagged with their number."""
    return [question(n, tag=n) for n in range(start, start + count)]


def answer(request: Request, status: Status = "ok", **fields: Any) -> Answer:
    """An answer to a request that repeats its text."""
    if status in ("ok", "truncated"):
        fields.setdefault("text", request.messages[0].content if request.messages else "-")
    if status == "ok" and isinstance(request.constraint, Choice):
        options = request.constraint.options
        fields["text"] = options[0]
        fields.setdefault("probabilities", (1.0, *([0.0] * (len(options) - 1))))
    defaults = {"finish_reason": "stop", "prompt_tokens": 7, "completion_tokens": 2}
    return Answer(request, status, **(defaults | fields))


class LineEngine:
    """Answers in order by a rule, one at a time; remembers what it was asked.

    The simplest engine that there can be: its window is one request.
    """

    def __init__(
        self,
        rule: Callable[[Request], Answer] = answer,
        *,
        identity: EngineIdentity = IDENTITY,
    ) -> None:
        self.asked: list[Request] = []
        self.left_early = 0
        self._rule = rule
        self._identity = identity

    @property
    def identity(self) -> EngineIdentity:
        """Identity of the scripted engine."""
        return self._identity

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """Answer each as it is drawn."""
        done = False
        try:
            for request in requests:
                self.asked.append(request)
                yield self._rule(request)
            done = True
        finally:
            self.left_early += not done

    def metadata(self) -> dict[str, Any]:
        """Its window."""
        return {"window": 1}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""
