"""Counts of a run of model calls."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from pipelines.llm.engines import STATUSES, Answer, Status


@dataclass(slots=True)
class Tally:
    """Counts of a run of :func:`pipelines.llm.answers.ask`.

    Attributes
    ----------
    answers
        Requests answered: the sum of the next three.
    calls, hits, duplicates
        Answered by the engine, from the store, or with the answer to an equal request of the run.
    stored
        Answers of this run that are committed, failed calls (`engine_error`) not among them.
    statuses
        Answers by status, hits and duplicates included.
    failures
        Calls by status, those that are not `ok`.
    prompt_tokens, completion_tokens, cached_tokens
        Tokens of the calls; hits and duplicates cost none.
    latency
        Sum of the calls' latencies (seconds).
    seconds
        Since the run began.
    """

    answers: int = 0
    calls: int = 0
    hits: int = 0
    duplicates: int = 0
    stored: int = 0
    statuses: Counter[Status] = field(default_factory=Counter)
    failures: Counter[Status] = field(default_factory=Counter)
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    latency: float = 0.0
    seconds: float = 0.0
    _began: float = field(default_factory=time.perf_counter, repr=False)

    @property
    def failed(self) -> int:
        """Calls whose answer can't be used (count)."""
        return self.failures.total()

    def called(self, answer: Answer) -> None:
        """Count a call."""
        self.calls += 1
        if answer.status != "ok":
            self.failures[answer.status] += 1
        self.prompt_tokens += answer.prompt_tokens
        self.completion_tokens += answer.completion_tokens
        self.cached_tokens += answer.cached_tokens
        self.latency += answer.latency

    def answered(self, answer: Answer) -> None:
        """Count an answer that is handed out."""
        self.answers += 1
        self.statuses[answer.status] += 1
        self.seconds = time.perf_counter() - self._began

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, every status named."""
        return {
            "answers": self.answers,
            "calls": self.calls,
            "hits": self.hits,
            "duplicates": self.duplicates,
            "stored": self.stored,
            "statuses": {s: self.statuses[s] for s in STATUSES},
            "failures": {s: self.failures[s] for s in STATUSES if s != "ok"},
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "cached_tokens": self.cached_tokens,
            "latency": self.latency,
            "seconds": self.seconds,
        }
