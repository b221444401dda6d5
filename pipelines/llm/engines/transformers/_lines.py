"""Answers being written: what may come next, what came, and when it is the end."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from pipelines.llm.engines._protocol import Answer
from pipelines.llm.engines.transformers._drawing import draw_tokens
from pipelines.llm.engines.transformers._jobs import Job
from pipelines.llm.engines.transformers._vocabulary import Vocabulary

if TYPE_CHECKING:
    import torch

__all__ = ["Line", "Scribe"]


@dataclass(slots=True, eq=False)
class Line:
    """An answer being written.

    Attributes
    ----------
    job
        What it answers.
    dice
        Its own random numbers, one per token.
    next
        The token that was drawn last and that the model has not read yet.
    over
        Whether the answer was given.
    """

    job: Job
    dice: np.random.Generator
    next: int = 0
    over: bool = False

    @classmethod
    def of(cls, job: Job) -> Line:
        """The empty answer of a job."""
        return cls(job, job.dice())

    @property
    def position(self) -> int:
        """Place of the token that was drawn last."""
        return len(self.job.prompt) + len(self.job.written) - 1


class Scribe:
    """Draws tokens and ends answers.

    Parameters
    ----------
    vocabulary
        The model's tokens.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary

    def draw(self, lines: Sequence[Line], logits: torch.Tensor) -> list[Answer]:
        """Draw one more token of each line that is not over; the answers that end with it.

        Parameters
        ----------
        lines
            Answers being written.
        logits
            Next-token logits of each, shape (lines, vocabulary).
        """
        open_lines = [n for n, line in enumerate(lines) if not line.over]
        if len(open_lines) < len(lines):
            logits, lines = logits[open_lines], [lines[n] for n in open_lines]
        tokens = draw_tokens(
            logits,
            self._allowed(lines),
            [line.job.request.sampling for line in lines],
            [float(line.dice.random()) for line in lines],
        )
        done = [self._take(line, t) for line, t in zip(lines, tokens, strict=True)]
        for line, answer in zip(lines, done, strict=True):
            line.over = answer is not None
        return [answer for answer in done if answer is not None]

    def _allowed(self, lines: Sequence[Line]) -> npt.NDArray[np.bool_] | None:
        matchers = [(n, x.job.matcher) for n, x in enumerate(lines) if x.job.matcher is not None]
        if not matchers:
            return None
        allowed = np.ones((len(lines), self._vocabulary.size), dtype=np.bool_)
        allowed[[n for n, _ in matchers]] = self._vocabulary.allowed([m for _, m in matchers])
        return allowed

    def _take(self, line: Line, token: int) -> Answer | None:
        """Write a token; the answer, if it ends with it."""
        job, matcher = line.job, line.job.matcher
        if token < 0:
            if matcher is None:
                return _failed(job, "engine_error", "the model's logits are not numbers")
            return _failed(job, "invalid", "the tokenizer can't spell what the grammar wants next")
        if token in self._vocabulary.ends:
            return self._done(job, "stop")
        job.written.append(token)
        line.next = token
        if matcher is not None and not matcher.consume_token(token):
            return _failed(job, "invalid", "the answer left the grammar")
        cut = self._stopped(job)
        if cut is not None:
            return self._done(job, "stop", text=cut)
        if matcher is not None and matcher.is_stopped():
            return self._done(job, "stop")
        if len(job.written) >= job.limit:
            return self._done(job, "length")
        return None

    def _stopped(self, job: Job) -> str | None:
        """The text up to a stop string, if one is in it."""
        stops = job.request.sampling.stop
        if not stops:
            return None
        text = self._vocabulary.text(job.written)
        places = [text.index(s) for s in stops if s in text]
        return text[: min(places)] if places else None

    def _done(self, job: Job, reason: str, *, text: str | None = None) -> Answer:
        return Answer(
            job.request,
            "ok" if reason == "stop" else "truncated",
            text=self._vocabulary.text(job.written) if text is None else text,
            finish_reason=reason,
            prompt_tokens=len(job.prompt),
            completion_tokens=len(job.written),
            cached_tokens=job.cached,
            latency=time.perf_counter() - job.began,
        )


def _failed(job: Job, status: Literal["invalid", "engine_error"], detail: str) -> Answer:
    return Answer(
        job.request,
        status,
        prompt_tokens=len(job.prompt),
        completion_tokens=len(job.written),
        cached_tokens=job.cached,
        latency=time.perf_counter() - job.began,
        detail=detail,
    )
