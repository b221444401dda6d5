"""Responses of a server: completions without their thoughts, tokens, and failures."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from pipelines.statuses import Status

#: Log-probability that stands for none (servers write -inf as null, -9999 or -Infinity).
FLOOR = -9999.0
#: Names of the finish of an answer that was cut by the limit.
_CUT = frozenset({"length", "max_tokens", "max_length", "model_length"})
#: Fields of a message in which servers put the thought.
_THOUGHT_FIELDS = ("reasoning_content", "reasoning", "thinking", "thinking_blocks")
_NAME = r"(?:\w+:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|analysis|scratchpad)"
_OPEN = re.compile(rf"[<\[◁]\|?{_NAME}\|?[>\]▷]|<\|(?:begin_of_|start_){_NAME}\|>", re.IGNORECASE)
_CLOSE = re.compile(rf"[<\[◁]\|?/{_NAME}\|?[>\]▷]|<\|(?:/|end_of_|end_){_NAME}\|>", re.IGNORECASE)
_CHANNEL, _FINAL = "<|channel|>", re.compile(r"<\|channel\|>\s*final\b[^<]*<\|message\|>")
_MARK = re.compile(r"<\|(?:end|return|start|message|channel)\|>")


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, longest latency (seconds) and answering models of one or several requests."""

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    seconds: float = 0.0
    served_by: tuple[str, ...] = ()

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            max(self.seconds, other.seconds),
            tuple(dict.fromkeys(self.served_by + other.served_by)),
        )

    def split(self, count: int) -> list[Usage]:
        """Equal shares of a request's tokens for its prompts, which add up to all of them.

        >>> [(u.prompt, u.completion, u.cached) for u in Usage(11, 2, 5).split(2)]
        [(6, 1, 3), (5, 1, 2)]
        """

        def share(total: int, number: int) -> int:
            return total // count + (number < total % count)

        return [
            Usage(
                share(self.prompt, n),
                share(self.completion, n),
                share(self.cached, n),
                self.seconds,
                self.served_by,
            )
            for n in range(count)
        ]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request, or an attempt, has no answer, in one line without secrets.

    ``again`` says why another attempt may have one. ``no``: it can't. ``lost``: the server worked,
    and billed, but its answer can't be used. ``throttled``: after a cool-down, for which the server
    asks to ``wait`` some seconds, if it says.
    """

    status: Status
    detail: str
    again: Literal["no", "retry", "lost", "unreachable", "throttled"] = "no"
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """A completion in a response, in one form for both endpoints.

    ``logprobs`` are those of the ranked tokens at the first position, by the token's text or, from
    vLLM's completions, by ``token_id:`` and its id; those of two tokens with one text are added.
    ``thought`` says that the model thought before it answered. ``usage`` is the answer's share of
    the request's.
    """

    text: str | None
    finish: str
    refusal: str = ""
    thought: bool = False
    logprobs: dict[str, float] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)


Reply = Completion | Failure


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
    if count > 1:
        if {c.get("index") for c in choices} != {*range(count)}:
            return "the response numbers its answers wrongly"
        choices = sorted(choices, key=operator.itemgetter("index"))
    hidden = _count(body, "usage", "completion_tokens_details", "reasoning_tokens")
    return [_completion(choice, bool(hidden)) for choice in choices]


def read_usage(body: dict[str, Any]) -> Usage | None:
    """Tokens of a response as the server counts them; None if it does not."""
    prompt = _count(body, "usage", "prompt_tokens")
    if prompt is None:
        return None
    completion = _count(body, "usage", "completion_tokens") or 0
    cached = _count(body, "usage", "prompt_tokens_details", "cached_tokens") or 0
    return Usage(prompt, completion, min(cached, prompt))


def _inner(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _count(body: Any, *path: str) -> int | None:
    value = _inner(body, *path)
    return value if type(value) is int and value >= 0 else None


def _completion(choice: dict[str, Any], hidden: bool) -> Completion:
    message, finish = choice.get("message"), str(choice.get("finish_reason") or "")
    text, refusal, thought = choice.get("text"), "", hidden
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
    return Completion(
        text=text if isinstance(text, str) else None,
        finish="length" if finish.lower() in _CUT else finish,
        refusal=refusal,
        thought=thought,
        logprobs=_first_ranks(choice.get("logprobs")),
    )


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


def _first_ranks(logprobs: Any) -> dict[str, float]:
    """Log-probabilities of the ranked tokens at the first position, of either endpoint."""
    content, tops = _inner(logprobs, "content"), _inner(logprobs, "top_logprobs")
    ranks: list[tuple[Any, Any]] = []
    if isinstance(content, list) and content:
        listed = _inner(content[0], "top_logprobs") or ()
        ranks = [(r.get("token"), r.get("logprob")) for r in listed if isinstance(r, dict)]
    elif isinstance(tops, list) and tops and isinstance(tops[0], dict):
        ranks = [*tops[0].items()]
    texts: dict[str, float] = {}
    for token, value in ranks:
        if isinstance(token, str):
            number = type(value) in (int, float) and not math.isnan(value)
            value = max(float(value), FLOOR) if number else FLOOR
            texts[token] = float(np.logaddexp(texts[token], value)) if token in texts else value
    return texts
