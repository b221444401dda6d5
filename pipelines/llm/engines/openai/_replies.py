"""What came back, in one form for both endpoints and every server's way to write it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pipelines.llm.engines.openai._budget import Usage

__all__ = ["FLOOR", "Place", "Reply", "read_replies", "split_usage"]

#: Log-probability that stands for none (servers write -inf as null, -9999 or -Infinity).
FLOOR = -9999.0

_ID = "token_id:"


@dataclass(frozen=True, slots=True)
class Place:
    """Log-probabilities at one position of an answer.

    Attributes
    ----------
    logprob
        Of the token that stands there; None where the server gives none.
    texts
        Of the ranked tokens, by their text; texts that two tokens share are summed.
    ids
        Of the ranked tokens, by id, where the server names ids.
    """

    logprob: float | None
    texts: dict[str, float] = field(default_factory=dict)
    ids: dict[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reply:
    """One of the answers in a response.

    Attributes
    ----------
    text
        What the model wrote; None where the server sent no text.
    finish
        Its finish reason, or "".
    refusal
        Why the model or server declined, or "".
    places
        Log-probabilities by position; of the prompt too, if it was echoed.
    """

    text: str | None
    finish: str
    refusal: str = ""
    places: tuple[Place, ...] = ()


def read_replies(body: dict[str, Any], count: int) -> list[Reply] | str:
    """The answers of a response in the order of its prompts, or what is wrong with it.

    >>> body = {"choices": [{"index": 0, "text": "Hi", "finish_reason": "stop"}]}
    >>> read_replies(body, 1)[0].text
    'Hi'
    >>> read_replies({"choices": []}, 1)
    'the response has 0 answers where 1 were asked for'
    """
    choices = body.get("choices")
    if not isinstance(choices, list) or not all(isinstance(c, dict) for c in choices):
        return "the response has no answers"
    if len(choices) != count:
        return f"the response has {len(choices)} answers where {count} were asked for"
    order = [c.get("index", 0) if count == 1 else c.get("index") for c in choices]
    if count > 1 and sorted(o for o in order if isinstance(o, int)) != list(range(count)):
        return "the response numbers its answers wrongly"
    ranked = sorted(zip(order, choices, strict=True), key=lambda pair: pair[0] or 0)
    return [_reply(choice) for _, choice in ranked]


def _reply(choice: dict[str, Any]) -> Reply:
    message = choice.get("message")
    finish = choice.get("finish_reason")
    refusal = ""
    if isinstance(message, dict):
        text = message.get("content")
        refusal = message.get("refusal") or ""
        if not isinstance(refusal, str):
            refusal = "the model declined"
    else:
        text = choice.get("text")
    if finish == "content_filter" and not refusal:
        refusal = "the server's content filter"
    return Reply(
        text=text if isinstance(text, str) else None,
        finish=finish if isinstance(finish, str) else "",
        refusal=refusal,
        places=_places(choice.get("logprobs")),
    )


def _places(logprobs: Any) -> tuple[Place, ...]:
    if not isinstance(logprobs, dict):
        return ()
    content = logprobs.get("content")
    if isinstance(content, list):
        return tuple(_chat_place(entry) for entry in content if isinstance(entry, dict))
    own, ranks = logprobs.get("token_logprobs"), logprobs.get("top_logprobs")
    if not isinstance(own, list):
        return ()
    tops = ranks if isinstance(ranks, list) and len(ranks) == len(own) else [None] * len(own)
    return tuple(_place(o, t) for o, t in zip(own, tops, strict=True))


def _place(own: Any, top: Any) -> Place:
    place = Place(_number(own))
    for token, logprob in (top if isinstance(top, dict) else {}).items():
        _add(place, token, None, logprob)
    return place


def _chat_place(entry: dict[str, Any]) -> Place:
    place = Place(_number(entry.get("logprob")))
    for rank in entry.get("top_logprobs") or ():
        if isinstance(rank, dict):
            _add(place, rank.get("token"), rank.get("id"), rank.get("logprob"))
    return place


def _add(place: Place, token: Any, number: Any, logprob: Any) -> None:
    value = _number(logprob)
    if not isinstance(token, str):
        return
    value = FLOOR if value is None else value
    if token.startswith(_ID) and token[len(_ID) :].isdecimal():
        place.ids[int(token[len(_ID) :])] = value
        return
    if isinstance(number, int):
        place.ids[number] = value
    before = place.texts.get(token)
    place.texts[token] = value if before is None else _log_sum(before, value)


def _log_sum(one: float, other: float) -> float:
    high, low = max(one, other), min(one, other)
    return high + math.log1p(math.exp(low - high))


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return None
    return max(float(value), FLOOR)


def split_usage(usage: Usage | None, prompts: Sequence[int], written: Sequence[int]) -> list[Usage]:
    """What each row of a request used, so that the parts add up to the whole.

    Parameters
    ----------
    usage
        Of the whole request; None where the server gave none.
    prompts
        Length of each row's prompt (tokens, or anything in proportion).
    written
        Length of each row's answer (likewise).

    Examples
    --------
    >>> split_usage(Usage(10, 3, 5), [1, 1], [2, 1])
    [Usage(prompt=5, completion=2, cached=3), Usage(prompt=5, completion=1, cached=2)]
    """
    if usage is None:
        return [Usage()] * len(prompts)
    shares = zip(
        _split(usage.prompt, prompts),
        _split(usage.completion, written),
        _split(usage.cached, prompts),
        strict=True,
    )
    return [Usage(p, c, min(k, p)) for p, c, k in shares]


def _split(total: int, weights: Sequence[int]) -> list[int]:
    """Whole numbers in proportion to weights, with the given sum (largest remainders)."""
    whole = sum(weights)
    if whole == 0:
        weights, whole = [1] * len(weights), len(weights)
    parts = [total * w // whole for w in weights]
    rest = sorted(range(len(weights)), key=lambda n: (-(total * weights[n] % whole), n))
    for n in rest[: total - sum(parts)]:
        parts[n] += 1
    return parts
