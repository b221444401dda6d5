"""Requests made ready for the model: tokens, what to read, how far to go."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import Answer, Choice, Request
from pipelines.llm.engines.chat import render
from pipelines.llm.engines.choices import OptionTree
from pipelines.llm.engines.constraints import request_fault
from pipelines.llm.engines.transformers._forest import Ids
from pipelines.llm.engines.transformers._vocabulary import Vocabulary

if TYPE_CHECKING:
    from llguidance import LLMatcher

__all__ = ["Job", "Preparer"]


@dataclass(slots=True, eq=False)
class Job:
    """A request that the model can serve.

    Attributes
    ----------
    request
        What was asked.
    prompt
        Token ids, at least one.
    tree
        For a choice, its options as tokens; else None.
    matcher
        For another constraint, where the answer stands in it; else None.
    limit
        Most tokens of the answer (count): ``max_tokens``, or what the context leaves.
    """

    request: Request
    prompt: Ids
    tree: OptionTree | None = None
    matcher: LLMatcher | None = None
    limit: int = 0
    written: list[int] = field(default_factory=list)
    cached: int = 0
    began: float = 0.0

    def dice(self) -> np.random.Generator:
        """The request's own stream of random numbers.

        It depends on the prompt, the seed and the replicate, and on nothing else: two users who
        are asked with the same seed don't draw the same numbers.
        """
        said = hashlib.sha256(self.prompt.astype("<i4").tobytes()).digest()
        parts = [int.from_bytes(said[n : n + 4]) for n in range(0, 16, 4)]
        return np.random.default_rng(
            [*parts, self.request.seed & (2**64 - 1), self.request.replicate & (2**64 - 1)]
        )


class Preparer:
    """Makes jobs of requests.

    Parameters
    ----------
    vocabulary
        The model's tokens.
    template
        Chat template to use instead of the model's own.
    context
        Longest prompt and answer together (tokens).
    embeddings
        Tokens that the model can read (count).
    """

    def __init__(
        self, vocabulary: Vocabulary, template: str | None, context: int, embeddings: int
    ) -> None:
        self._vocabulary = vocabulary
        self._template = template
        self._context = context
        self._embeddings = embeddings

    def job(self, request: Request) -> Job | Answer:
        """The job, or the `invalid` answer of a request that can't be served."""
        fault = request_fault(request)
        if fault:
            return Answer(request, "invalid", detail=fault)
        try:
            return self._job(request)
        except AnswerError as error:
            return Answer(request, "invalid", detail=str(error))

    def _job(self, request: Request) -> Job:
        prompt = self._prompt(request)
        room = self._context - len(prompt)
        if room < 1:
            raise AnswerError(
                f"the prompt has {len(prompt):,} tokens, the context {self._context:,}"
            )
        if isinstance(request.constraint, Choice):
            tree = self._vocabulary.tree(request.constraint.options)
            if tree.depth >= room:
                raise AnswerError("the context has no room for the options")
            return Job(request, prompt, tree=tree)
        matcher: Any = None
        if request.constraint is not None:
            matcher = self._vocabulary.matcher(request.constraint)
        return Job(request, prompt, matcher=matcher, limit=min(room, request.sampling.max_tokens))

    def _prompt(self, request: Request) -> Ids:
        ids = list(request.tokens)
        if not ids:
            ids = render(self._vocabulary.tokenizer, request.messages, self._template)
        if not ids:
            raise AnswerError("the prompt has no token")
        if max(ids) >= self._embeddings:
            raise AnswerError(f"the model has no token {max(ids)}")
        return np.array(ids, dtype=np.int32)
