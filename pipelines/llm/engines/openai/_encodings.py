"""What each kind of server calls things."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipelines.llm.engines._protocol import (
    Choice,
    Constraint,
    GrammarConstraint,
    JsonSchema,
    Regex,
    Sampling,
)
from pipelines.llm.engines.constraints import llguidance_grammar

__all__ = ["ENCODINGS", "ConstraintEncoding", "constraint_kind", "neutral", "sampling_fields"]

Kind = str


@dataclass(frozen=True, slots=True)
class ConstraintEncoding:
    """One way to tell a server what an answer may be.

    Attributes
    ----------
    name
        For facts and the log.
    fields
        From the constraint to fields of the request's body.
    """

    name: str
    fields: Callable[[Any], dict[str, Any]]


#: Settings under which the model's own distribution is what is sampled from: servers have other
#: defaults (llama.cpp samples from the top 40; vLLM takes a model's generation_config).
_NEUTRAL: dict[str, dict[str, Any]] = {
    "vllm": {
        "top_k": 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    },
    "llama.cpp": {
        "top_k": 0,
        "min_p": 0.0,
        "repeat_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
    },
}


def neutral(server: str) -> dict[str, Any]:
    """Fields that switch off what a kind of server does to the distribution by itself."""
    return dict(_NEUTRAL.get(server, {}))


def sampling_fields(sampling: Sampling, seed: int | None, limit_field: str) -> dict[str, Any]:
    """Fields of a request's body that say how tokens are drawn; None: any draw will do.

    >>> sampling_fields(Sampling(temperature=0.0, max_tokens=9), 7, "max_tokens")
    {'temperature': 0.0, 'top_p': 1.0, 'max_tokens': 9}
    """
    fields: dict[str, Any] = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        limit_field: sampling.max_tokens,
    }
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    if sampling.temperature > 0 and seed is not None:
        fields["seed"] = seed
    return fields


def constraint_kind(constraint: Constraint) -> Kind:
    """``choice``, ``json``, ``regex`` or ``grammar``."""
    kinds: dict[type, Kind] = {
        Choice: "choice",
        JsonSchema: "json",
        Regex: "regex",
        GrammarConstraint: "grammar",
    }
    return kinds[type(constraint)]


def _vllm(field: str, value: Callable[[Any], Any]) -> ConstraintEncoding:
    return ConstraintEncoding(
        f"structured_outputs.{field}", lambda c: {"structured_outputs": {field: value(c)}}
    )


def _guided(field: str, value: Callable[[Any], Any]) -> ConstraintEncoding:
    return ConstraintEncoding(f"guided_{field}", lambda c: {f"guided_{field}": value(c)})


def _response_format(constraint: JsonSchema) -> dict[str, Any]:
    schema = {"name": "answer", "strict": True, "schema": json.loads(constraint.schema)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _gbnf_choice(constraint: Choice) -> dict[str, Any]:
    options = " | ".join(json.dumps(o, ensure_ascii=False) for o in constraint.options)
    return {"grammar": f"root ::= {options}"}


def _lark(constraint: Any) -> str:
    r"""A constraint as one text in llguidance's dialect of Lark, which servers built with it read.

    >>> print(_lark(Regex(r"a/b\/c")))
    %llguidance {}
    <BLANKLINE>
    start: /a\/b\/c/
    """
    if isinstance(constraint, GrammarConstraint):
        return constraint.ll_grammar
    if isinstance(constraint, Regex):
        escaped = re.sub(r"(\\.)|/", lambda m: m[1] or r"\/", constraint.pattern, flags=re.DOTALL)
        rule = "/" + escaped.replace("\n", r"\n") + "/"
    else:
        schema = json.loads(llguidance_grammar(constraint))["grammars"][0]["json_schema"]
        rule = "%json " + json.dumps(schema)
    return f"%llguidance {{}}\n\nstart: {rule}"


_LLAMA_CPP = ConstraintEncoding("grammar (llguidance)", lambda c: {"grammar": _lark(c)})

#: Per kind of constraint the ways to say it, in the order in which they are tried. What is not
#: probed is not used: some servers leave out a field that they don't know without a word.
#: A grammar comes first: with it white space in JSON is bounded as on the engines of this
#: process, and a regular expression is read in the same dialect.
ENCODINGS: dict[Kind, tuple[ConstraintEncoding, ...]] = {
    "choice": (
        _vllm("choice", lambda c: list(c.options)),
        _guided("choice", lambda c: list(c.options)),
        ConstraintEncoding("grammar (GBNF)", _gbnf_choice),
    ),
    "json": (
        _vllm("grammar", _lark),
        _vllm("json", lambda c: json.loads(c.schema)),
        _LLAMA_CPP,
        ConstraintEncoding("response_format", _response_format),
        ConstraintEncoding("json_schema", lambda c: {"json_schema": json.loads(c.schema)}),
        _guided("json", lambda c: json.loads(c.schema)),
    ),
    "regex": (
        _vllm("grammar", _lark),
        _vllm("regex", lambda c: c.pattern),
        _LLAMA_CPP,
        _guided("regex", lambda c: c.pattern),
    ),
    "grammar": (
        _vllm("grammar", _lark),
        _LLAMA_CPP,
        _guided("grammar", _lark),
    ),
}
