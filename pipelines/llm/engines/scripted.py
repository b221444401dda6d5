"""An engine that answers by rule: for tests, demos and dry runs. It needs no model."""

from __future__ import annotations

import hashlib
import importlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import AnswerError, ConfigError, EngineError
from pipelines.llm.engines._protocol import Answer, Choice, EngineIdentity, Request
from pipelines.llm.engines.constraints import (
    byte_tokenizer,
    llguidance_grammar,
    obeys,
    request_fault,
)

__all__ = ["Reply", "Rule", "ScriptedEngine", "draw_reply"]

#: Result of a rule: the text, or weights of the options of a `Choice`, or the whole answer.
Reply = str | Mapping[str, float] | Answer
Rule = Callable[[Request], Reply]

#: Characters that count as one token.
_TOKEN = 4
_WORDS = ("a", "the", "quiet", "bright", "long", "story", "film", "friend", "city", "river", "song")


class ScriptedEngine:
    """Answers by a rule instead of a model.

    Four characters count as a token. The rule's word is checked as a model's would be: a text
    that breaks the constraint is an `invalid` answer, one longer than ``max_tokens`` is cut.
    Answers come in an order of their own, as those of any engine do.

    Parameters
    ----------
    rule
        From request to a text, to weights of the options (not negative, not all 0; their sum is
        taken for the mass if it is at most 1), or to a whole answer. It may raise
        :class:`AnswerError` (one `invalid` answer) or :class:`EngineError` (the engine dies).
        The default draws a reply that obeys the constraint from the request's digest.
    name
        Name of the rule, which is part of the identity: rules that answer differently need
        names that differ.
    window
        Requests that wait at a time (count).
    context
        Longest prompt and answer together (tokens); None sets no limit.
    images
        Whether messages may hold pictures.

    Examples
    --------
    >>> from pipelines.llm.engines import Choice, Message, Request
    >>> engine = ScriptedEngine(lambda request: {"yes": 0.6, "no": 0.2}, name="mostly-yes")
    >>> question = Request((Message("user", "Well?"),), constraint=Choice(("yes", "no")))
    >>> [answer] = engine.submit([question])
    >>> answer.text, [round(p, 2) for p in answer.probabilities], answer.mass
    ('yes', [0.75, 0.25], 0.8)
    """

    def __init__(
        self,
        rule: Rule | None = None,
        *,
        name: str = "scripted",
        window: int = 16,
        context: int | None = None,
        images: bool = False,
    ) -> None:
        self._rule = rule or draw_reply
        self._name = name
        self._window = window
        self._context = context
        self._images = images
        self._closed = False

    @classmethod
    def open(cls, engine: EngineSettings, serving: ServingSettings) -> ScriptedEngine:
        """An engine with the built-in rule, or with ``engine.model``'s ``module:function``."""
        rule = _find_rule(engine.model) if engine.model else None
        return cls(
            rule,
            name=engine.model or "scripted",
            window=serving.window,
            context=serving.max_context,
        )

    @property
    def identity(self) -> EngineIdentity:
        """Engine ``scripted``, model the rule's name."""
        return EngineIdentity(engine="scripted", engine_version="1", model=self._name)

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer per request, drawn and answered within the window."""
        if self._closed:
            raise EngineError("the engine is closed", where=f"scripted:{self._name}")
        return self._answers(iter(requests))

    def _answers(self, requests: Iterator[Request]) -> Iterator[Answer]:
        waiting: list[Request] = []
        order = np.random.default_rng(0)
        more = True
        while more or waiting:
            while more and len(waiting) < self._window:
                try:
                    waiting.append(next(requests))
                except StopIteration:
                    more = False
            if waiting:
                yield self._answer(waiting.pop(int(order.integers(len(waiting)))))

    def metadata(self) -> dict[str, Any]:
        """Rule, window and context."""
        return {
            "device": "none",
            "rule": self._name,
            "window": self._window,
            "context": self._context,
            "distributions": "given by the rule",
        }

    def close(self) -> None:
        """Serve no more."""
        self._closed = True

    def _answer(self, request: Request) -> Answer:
        began = time.perf_counter()
        answer = self._checked(request)
        return replace(
            answer,
            prompt_tokens=answer.prompt_tokens or _prompt_tokens(request),
            latency=answer.latency or time.perf_counter() - began,
        )

    def _checked(self, request: Request) -> Answer:
        fault = request_fault(request, images=self._images)
        if not fault and self._context is not None and _prompt_tokens(request) >= self._context:
            fault = f"the prompt is longer than the context of {self._context} tokens"
        if fault:
            return Answer(request, "invalid", detail=fault)
        try:
            reply = self._rule(request)
        except AnswerError as error:
            return Answer(request, "invalid", detail=str(error))
        if isinstance(reply, Answer):
            return replace(reply, request=request)
        if isinstance(request.constraint, Choice):
            return _chosen(request, request.constraint.options, reply)
        if isinstance(reply, str):
            return _written(request, reply)
        return Answer(request, "invalid", detail="the rule gave weights where a text was requested")


def _find_rule(place: str) -> Rule:
    module, _, attribute = place.partition(":")
    try:
        rule: Rule = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            "the scripted engine's rule can't be found",
            where=f"engine.model is {place}",
            hint="give module:function, or leave it empty for the built-in rule",
        ) from error
    return rule


def _prompt_tokens(request: Request) -> int:
    if request.tokens:
        return len(request.tokens)
    return sum(-(-len(m.content) // _TOKEN) for m in request.messages)


def _chosen(request: Request, options: tuple[str, ...], reply: str | Mapping[str, float]) -> Answer:
    weights = {reply: 1.0} if isinstance(reply, str) else dict(reply)
    unknown = [name for name in weights if name not in options]
    if unknown:
        return Answer(request, "invalid", detail=f"the rule chose {unknown[0]!r}: not an option")
    values = np.array([weights.get(o, 0.0) for o in options], dtype=np.float64)
    total = float(values.sum())
    if not (np.isfinite(total) and total > 0 and (values >= 0).all()):
        return Answer(request, "invalid", detail="the rule's weights are negative, or all 0")
    return Answer(
        request,
        "ok",
        text=options[int(values.argmax())],
        probabilities=tuple(float(p) for p in values / total),
        mass=total if total <= 1.0 + 1e-9 else None,
        finish_reason="stop",
        completion_tokens=1,
    )


def _written(request: Request, text: str) -> Answer:
    sampling = request.sampling
    text = text[: min((text.index(s) for s in sampling.stop if s in text), default=len(text))]
    if len(text) > _TOKEN * sampling.max_tokens:
        return Answer(
            request,
            "truncated",
            text=text[: _TOKEN * sampling.max_tokens],
            finish_reason="length",
            completion_tokens=sampling.max_tokens,
        )
    if not obeys(request.constraint, text):
        return Answer(request, "invalid", detail="the rule's text breaks the constraint")
    return Answer(
        request, "ok", text=text, finish_reason="stop", completion_tokens=-(-len(text) // _TOKEN)
    )


def draw_reply(request: Request) -> Reply:
    """A reply that obeys the constraint, drawn from the request's digest.

    The same request gets the same reply; another seed or replicate another one. Sampling
    parameters do not move it.
    """
    identity = (request.messages, request.tokens, request.constraint)
    digest = hashlib.sha256(repr((identity, request.seed, request.replicate)).encode()).digest()
    dice = np.random.default_rng(int.from_bytes(digest[:16]))
    if isinstance(request.constraint, Choice):
        weights = dice.gamma(1.0, size=len(request.constraint.options)) + 1e-9
        shares = 0.9 * weights / weights.sum()
        return dict(zip(request.constraint.options, map(float, shares), strict=True))
    if request.constraint is None:
        words = dice.choice(_WORDS, size=int(dice.integers(4, 24)))
        return " ".join(words).capitalize() + "."
    limit = _TOKEN * request.sampling.max_tokens
    return _walk(llguidance_grammar(request.constraint), dice, limit)


def _walk(grammar: str, dice: np.random.Generator, limit: int) -> str:
    """A sentence of a grammar, byte by byte; one byte over the limit if it is longer."""
    from llguidance import LLMatcher

    matcher = LLMatcher(byte_tokenizer(), grammar, log_level=0)
    text = bytearray()
    while not matcher.is_stopped() and len(text) <= limit:
        if matcher.is_accepting() and dice.random() < 0.2:
            break
        bits = np.unpackbits(np.frombuffer(matcher.compute_bitmask(), np.uint8), bitorder="little")
        allowed = np.flatnonzero(bits[:256])
        plain = allowed[(allowed >= 32) & (allowed < 127)]
        if not len(allowed):
            break
        byte = int(dice.choice(plain if len(plain) else allowed))
        matcher.consume_token(byte)
        text.append(byte)
    return text.decode("utf-8", errors="ignore")
