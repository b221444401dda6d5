"""One request of ours as one or several of vLLM's, and their outputs as one answer."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import Answer, Choice, Constraint, Request
from pipelines.llm.engines.choices import OptionTree
from pipelines.llm.engines.constraints import byte_tokenizer, llguidance_grammar, obeys

if TYPE_CHECKING:
    from vllm import RequestOutput
    from vllm.exceptions import VLLMClientError

__all__ = ["Job", "Run"]


@dataclass(slots=True)
class Run:
    """One call of `submit`: what it has in vLLM, and what is ready to be yielded."""

    jobs: set[int] = field(default_factory=set)
    ready: deque[Answer] = field(default_factory=deque)


@dataclass(slots=True)
class Job:
    """A request under way.

    Attributes
    ----------
    request
        Ours.
    run
        Whose it is.
    prompt
        Its length (tokens).
    tree
        The options of a `Choice`; None for a request that writes.
    left
        Names of vLLM's requests that are not back yet, with the place that each reads.
    read
        Log-probabilities by place of the tree, then by token.
    cached
        Prompt tokens that the prefix cache held when vLLM looked at the first of them.
    began
        When it was handed over (``time.perf_counter``).
    """

    request: Request
    run: Run
    prompt: int
    tree: OptionTree | None
    left: dict[str, int]
    read: list[dict[int, float]]
    cached: int = 0
    began: float = field(default_factory=time.perf_counter)

    def take(self, name: str, result: RequestOutput | VLLMClientError) -> Answer | None:
        """Note one of vLLM's results; the answer, if it needs no other."""
        place = self.left.pop(name)
        if isinstance(result, Exception):
            return self._finish("invalid", detail=_line(result))
        output = result.outputs[0]
        if output.finish_reason in ("error", "abort"):
            return self._finish(
                "engine_error",
                finish_reason=output.finish_reason,
                detail=f"vLLM ended the request: {output.finish_reason}",
            )
        if place == 0:
            self.cached = min(max(result.num_cached_tokens or 0, 0), self.prompt)
        if self.tree is None:
            return self._written(output)
        assert output.logprobs is not None
        row = output.logprobs[0]
        self.read[place].update({int(t): float(entry.logprob) for t, entry in row.items()})
        return None if self.left else self._chosen(self.tree)

    def _chosen(self, tree: OptionTree) -> Answer:
        assert isinstance(self.request.constraint, Choice)
        try:
            shares, mass = tree.distribution(self.read)
        except AnswerError as error:
            return self._finish("invalid", detail=str(error))
        best = int(shares.argmax())
        return self._finish(
            "ok",
            text=self.request.constraint.options[best],
            probabilities=tuple(float(p) for p in shares),
            mass=mass,
            finish_reason="stop",
            completion_tokens=len(tree.options[best]),
        )

    def _written(self, output: Any) -> Answer:
        reason, text, tokens = output.finish_reason, output.text, len(output.token_ids)
        rule, cut = self.request.constraint, isinstance(output.stop_reason, str)
        if reason == "stop" and not cut:
            tokens -= 1  # the one that ended the answer
        said: dict[str, Any] = {"finish_reason": reason, "completion_tokens": tokens}
        if reason == "length" and not (rule is not None and _at_its_end(rule, text)):
            return self._finish("truncated", text=text, **said)
        if reason not in ("stop", "length"):
            return self._finish("invalid", detail=f"vLLM ended the answer: {reason}", **said)
        if not cut and not obeys(rule, text):
            return self._finish("invalid", detail="the answer breaks the constraint", **said)
        return self._finish("ok", text=text, **said)

    def _finish(self, status: Any, **said: Any) -> Answer:
        plain = Answer(
            self.request,
            status,
            prompt_tokens=self.prompt,
            cached_tokens=self.cached,
            latency=time.perf_counter() - self.began,
        )
        return replace(plain, **said)


def _at_its_end(rule: Constraint, text: str) -> bool:
    """Whether the text is a whole sentence of the grammar and nothing can follow.

    vLLM draws one token more to end an answer, which ``max_tokens`` may not leave.
    """
    from llguidance import LLMatcher

    matcher = LLMatcher(byte_tokenizer(), llguidance_grammar(rule), log_level=0)
    return bool(matcher.consume_tokens(list(text.encode())) and matcher.is_stopped())


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
