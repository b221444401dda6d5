"""Requests as the model needs them: token ids, options and grammars of its vocabulary."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import AnswerError, EngineError
from pipelines.llm.engines._protocol import Answer, Choice, Constraint, Request
from pipelines.llm.engines.chat import render
from pipelines.llm.engines.choices import OptionTree
from pipelines.llm.engines.constraints import llguidance_grammar, request_fault
from pipelines.llm.engines.tokens import encode_on
from pipelines.llm.engines.transformers._trie import Ids

if TYPE_CHECKING:
    from llguidance import LLMatcher


class Vocabulary:
    """A fast tokenizer of transformers beside the model that reads it.

    ``size`` counts the tokens that the model gives logits for; ``ends`` end an answer. Raises
    :class:`EngineError` if llguidance can't read the tokenizer, nothing ends an answer, or the
    tokenizer has tokens that the model has not.
    """

    def __init__(self, tokenizer: Any, size: int, ends: Sequence[int]) -> None:
        from llguidance.hf import from_tokenizer
        from transformers import PreTrainedTokenizerFast

        self.tokenizer = tokenizer
        self.size = size
        self.ends = frozenset(ends)
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise EngineError(
                "the tokenizer has no fast form",
                where=type(tokenizer).__name__,
                hint="save it with a tokenizer.json",
            )
        if not self.ends:
            raise EngineError(
                "neither model nor tokenizer says which token ends an answer",
                hint="set eos_token_id in the checkpoint's generation_config.json",
            )
        if len(tokenizer) > size:
            raise EngineError(
                "the tokenizer does not belong to the model",
                where=f"{len(tokenizer)} tokens, the model gives logits for {size}",
            )
        #: The end that llguidance knows; where it may come, every end may.
        eos = tokenizer.eos_token_id
        self._end = eos if eos in self.ends else min(self.ends)
        try:
            self._reader = from_tokenizer(tokenizer, n_vocab=size, eos_token=self._end)
        except ValueError as error:
            raise EngineError("llguidance can't read the tokenizer", where=str(error)) from error
        self._known = len(tokenizer)
        self._special = frozenset(tokenizer.all_special_ids) | self.ends
        self._tree = lru_cache(maxsize=256)(self._make_tree)
        self._matcher = lru_cache(maxsize=256)(self._make_matcher)

    def text(self, ids: Sequence[int]) -> str:
        """The text of an answer's tokens, exactly as they continue the prompt.

        Special tokens and those that only pad the model's vocabulary have no text. Bytes that
        are no UTF-8 become U+FFFD, but for a character that is cut at the end, which is left
        out.
        """
        spelled = [i for i in ids if i not in self._special and i < self._known]
        data = self._reader.decode_bytes(spelled)
        return _whole(data).decode("utf-8", errors="replace")

    def tree(self, options: tuple[str, ...]) -> OptionTree:
        """The options of a choice as tokens that continue a prompt; no two may be alike."""
        return self._tree(options)

    def _make_tree(self, options: tuple[str, ...]) -> OptionTree:
        spelled = [tuple(encode_on(self.tokenizer, o)) for o in options]
        for option, ids in zip(options, spelled, strict=True):
            if not ids or self._reader.decode_bytes(list(ids)) != option.encode():
                raise AnswerError(f"the tokenizer can't encode the option {option!r}")
        try:
            return OptionTree.of(spelled)
        except ValueError as error:
            raise AnswerError(f"the choice can't be read: {error}") from error

    def matcher(self, constraint: Constraint) -> LLMatcher:
        """A new matcher of a constraint; AnswerError if no sentence of it can be begun."""
        return self._matcher(constraint).deep_copy()

    def _make_matcher(self, constraint: Constraint) -> LLMatcher:
        from llguidance import LLMatcher

        matcher = LLMatcher(self._reader, llguidance_grammar(constraint), log_level=0)
        if matcher.is_error():
            line = (matcher.get_error().strip().splitlines() or [""])[0][:160]
            raise AnswerError(f"the constraint can't be read: {line}")
        if not self.allowed([matcher]).any():
            raise AnswerError("the tokenizer can't encode what the constraint requires")
        return matcher

    def allowed(self, matchers: Sequence[LLMatcher]) -> npt.NDArray[np.bool_]:
        """Tokens that may come next; shape (matchers, vocabulary).

        None may where a sentence can't go on: a matcher then allows the end of the answer and
        turns to its error state, and the unfinished text would pass for an answer.
        """
        words = np.stack([np.frombuffer(m.compute_bitmask(), np.uint8) for m in matchers])
        bits = np.unpackbits(words, axis=1, bitorder="little")[:, : self.size].astype(np.bool_)
        bits[:, list(self.ends)] = bits[:, [self._end]]
        bits[[m.is_error() for m in matchers]] = False
        return bits


def _whole(data: bytes) -> bytes:
    """Bytes without the beginning of a character that is cut at their end."""
    for back in range(1, min(4, len(data)) + 1):
        lead = data[-back]
        if lead & 0xC0 == 0x80:
            continue
        size = 4 if lead >= 0xF0 else 3 if lead >= 0xE0 else 2 if lead >= 0xC0 else 1
        return data if back >= size else data[:-back]
    return data


@dataclass(slots=True, eq=False)
class PreparedRequest:
    """A request that the model can serve."""

    request: Request
    #: Token ids, at least one.
    prompt: Ids
    #: For a choice, its options as tokens; else None.
    tree: OptionTree | None = None
    #: For another constraint, where the answer stands in it; else None.
    matcher: LLMatcher | None = None
    #: Most tokens of the answer (count): ``max_tokens``, or what the context leaves.
    limit: int = 0
    written: list[int] = field(default_factory=list)
    cached: int = 0
    began: float = 0.0

    def dice(self) -> np.random.Generator:
        """The request's own stream of random numbers.

        It depends on the prompt, the seed and the replicate only: two users who are asked with the
        same seed don't draw the same numbers.
        """
        digest = hashlib.sha256(self.prompt.astype("<i4").tobytes()).digest()
        parts = [int.from_bytes(digest[n : n + 4]) for n in range(0, 16, 4)]
        return np.random.default_rng(
            [*parts, self.request.seed & (2**64 - 1), self.request.replicate & (2**64 - 1)]
        )


class Preparer:
    """Turns requests into prompts that fit the context and the model's tokens."""

    def __init__(
        self, vocabulary: Vocabulary, template: str | None, context: int, embeddings: int
    ) -> None:
        self._vocabulary = vocabulary
        self._template = template
        self._context = context
        self._embeddings = embeddings

    def prepare(self, request: Request) -> PreparedRequest | Answer:
        """The prepared request, or the `invalid` answer of a request that can't be served."""
        fault = request_fault(request)
        if fault:
            return Answer(request, "invalid", detail=fault)
        try:
            return self._prepare(request)
        except AnswerError as error:
            return Answer(request, "invalid", detail=str(error))

    def _prepare(self, request: Request) -> PreparedRequest:
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
            return PreparedRequest(request, prompt, tree=tree)
        matcher: Any = None
        if request.constraint is not None:
            matcher = self._vocabulary.matcher(request.constraint)
        return PreparedRequest(
            request, prompt, matcher=matcher, limit=min(room, request.sampling.max_tokens)
        )

    def _prompt(self, request: Request) -> Ids:
        ids = list(request.tokens)
        if not ids:
            ids = render(self._vocabulary.tokenizer, request.messages, self._template)
        if not ids:
            raise AnswerError("the prompt has no token")
        if max(ids) >= self._embeddings:
            raise AnswerError(f"the model has no token {max(ids)}")
        return np.array(ids, dtype=np.int32)
