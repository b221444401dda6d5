"""Constraints as a grammar for decoding, and as a check of a finished text."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, get_args

from pipelines.hints import first_line
from pipelines.llm.engines._protocol import (
    Choice,
    Constraint,
    GrammarConstraint,
    JsonSchema,
    Regex,
    Request,
)

if TYPE_CHECKING:
    from llguidance import LLTokenizer

__all__ = ["byte_tokenizer", "constraint_fault", "llguidance_grammar", "obeys", "request_fault"]

_MEDIA_TYPE = re.compile(r"image/[a-z0-9.+-]+")
_ROLES = frozenset({"system", "user", "assistant"})

#: JSON is written as Python's ``json.dumps`` writes it: one space after a comma or a colon and
#: none anywhere else, so that the longest output is bounded and a model can't fill its budget
#: with white space.
_JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


@lru_cache(maxsize=256)
def llguidance_grammar(constraint: Constraint) -> str:
    """The constraint in llguidance's own form, for a decoder.

    JSON is compact but for one space after ``,`` and ``:``. Raises ValueError if a schema is no
    JSON object; other faults show when the grammar is compiled (:func:`constraint_fault`).
    """
    from llguidance import LLMatcher

    match constraint:
        case Choice(options):
            import json

            alternatives = " | ".join(json.dumps(o, ensure_ascii=False) for o in options)
            return LLMatcher.grammar_from_lark(f"start: {alternatives}")
        case JsonSchema(schema):
            return LLMatcher.grammar_from_json_schema(schema, overrides=_JSON_STYLE)  # type: ignore[arg-type]
        case Regex(pattern):
            return LLMatcher.grammar_from_regex(pattern)
        case GrammarConstraint(ll_grammar):
            return ll_grammar


@lru_cache(maxsize=1)
def byte_tokenizer() -> LLTokenizer:
    """A tokenizer with one token per byte (0-255) and the end of the text (256).

    It reads grammars without a model.
    """
    from llguidance import LLTokenizer
    from llguidance._tokenizer import TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Bytes()))


class _Bytes:
    eos_token_id = 256
    bos_token_id = None
    tokens = [bytes([b]) for b in range(256)] + [b"<end>"]
    special_token_ids = (256,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


def constraint_fault(constraint: Constraint | None) -> str:
    """Reason that no model can serve a constraint, or "".

    Examples
    --------
    >>> constraint_fault(Choice(("yes", "no")))
    ''
    >>> constraint_fault(Choice(("yes", "yes")))
    'the choice names an option twice'
    """
    if constraint is None:
        return ""
    if not isinstance(constraint, get_args(Constraint)):
        return f"unknown constraint {type(constraint).__name__}"
    if isinstance(constraint, Choice):
        return _choice_fault(constraint)
    return _grammar_fault(constraint)


def _choice_fault(choice: Choice) -> str:
    if not choice.options:
        return "the choice has no option"
    if not all(isinstance(o, str) and o for o in choice.options):
        return "an option of the choice is empty"
    if len(set(choice.options)) != len(choice.options):
        return "the choice names an option twice"
    return ""


@lru_cache(maxsize=256)
def _grammar_fault(constraint: Constraint) -> str:
    from llguidance import LLMatcher

    kind = {JsonSchema: "JSON schema", Regex: "regular expression"}.get(type(constraint), "grammar")
    try:
        grammar = llguidance_grammar(constraint)
    except ValueError as error:
        return f"the {kind} can't be read: {first_line(error, 160)}"
    wrong, messages = LLMatcher.validate_grammar_with_warnings(grammar, byte_tokenizer())
    return f"the {kind} can't be read: {first_line(messages[0], 160)}" if wrong else ""


def request_fault(request: Request, *, images: bool = False) -> str:
    """Reason that no engine can serve a request, or "": checks that need no model.

    Every engine asks this first and answers `invalid` with the text as its detail. ``images``:
    whether the engine takes pictures.

    Examples
    --------
    >>> request_fault(Request())
    'the request has neither messages nor tokens'
    """
    if not request.messages and not request.tokens:
        return "the request has neither messages nor tokens"
    if request.messages and request.tokens:
        return "the request has both messages and tokens"
    for message in request.messages:
        if message.role not in _ROLES:
            return f"unknown role {message.role}"
        if not message.images:
            continue
        if not images:
            return "the engine does not support images"
        if message.role == "assistant":
            return "the prefix of an answer can't contain images"
        if any(not _MEDIA_TYPE.fullmatch(image.media_type) for image in message.images):
            return "an image is not of a type such as image/jpeg"
        if not all(image.data for image in message.images):
            return "an image is empty"
    if request.messages and not any(m.content for m in request.messages):
        return "every message is empty"
    if any(not isinstance(t, int) or t < 0 for t in request.tokens):
        return "a token id is not a whole number from 0"
    return _sampling_fault(request) or constraint_fault(request.constraint)


def _sampling_fault(request: Request) -> str:
    sampling = request.sampling
    if sampling.max_tokens < 1:
        return "max_tokens is below 1"
    if not 0.0 <= sampling.temperature < float("inf"):
        return "the temperature is not a number from 0"
    if not 0.0 < sampling.top_p <= 1.0:
        return "top_p is not in (0, 1]"
    if not 0.0 <= sampling.min_p <= 1.0:
        return "min_p is not in [0, 1]"
    if not 0.0 < sampling.repetition_penalty < float("inf"):
        return "the repetition penalty is not a number above 0"
    if not all(sampling.stop):
        return "a stop string is empty"
    return ""


def obeys(constraint: Constraint | None, text: str) -> bool:
    """Whether a whole text is one that the constraint allows.

    Examples
    --------
    >>> obeys(Regex("[1-5]"), "4"), obeys(Regex("[1-5]"), "45"), obeys(None, "anything")
    (True, False, True)
    """
    if constraint is None:
        return True
    if isinstance(constraint, Choice):
        return text in constraint.options
    from llguidance import LLMatcher

    matcher = LLMatcher(byte_tokenizer(), llguidance_grammar(constraint), log_level=0)
    return matcher.consume_tokens(list(text.encode())) and matcher.is_accepting()
