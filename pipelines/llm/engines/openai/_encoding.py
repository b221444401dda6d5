"""Encodings of a request: token ids, sampling fields, and constraints in each server's fields."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipelines.config import ServingSettings
from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import (
    Choice,
    Constraint,
    GrammarConstraint,
    JsonSchema,
    Message,
    Regex,
    Request,
    Sampling,
)
from pipelines.llm.engines.chat import read_template, render
from pipelines.llm.engines.checkpoints import Checkpoint
from pipelines.llm.engines.constraints import llguidance_grammar
from pipelines.llm.engines.openai._client import OPTIONAL, Client, Failure
from pipelines.llm.engines.tokens import encode_on, load_tokenizer

Endpoint = Literal["completions", "chat"]
#: Difference below which a parameter counts as the server's default (which is of 32 bits).
_EQUAL = 1e-5


@dataclass(frozen=True, slots=True)
class Row:
    """A request with its prompt as token ids; None: its messages go to the chat endpoint."""

    request: Request
    ids: tuple[int, ...] | None

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint that serves it."""
        return "chat" if self.ids is None else "completions"


# Sampling and constraints --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConstraintEncoding:
    """A named way to put a constraint into fields of the request's body; of every server or one."""

    name: str
    fields: Callable[[Any], dict[str, Any]]
    server: str = ""


#: Servers that take a least probability and a repetition penalty, and their name for the latter.
_PENALTIES = {"vllm": "repetition_penalty", "llama.cpp": "repeat_penalty"}
#: Defaults of servers that are not those of the interface; None: those of the model's files, which
#: the server does not tell. llama.cpp reports others where it was started with them.
DEFAULTS: dict[str, dict[str, Any]] = {
    "vllm": dict.fromkeys(("top_k", "top_p", "min_p", "repetition_penalty")),
    "llama.cpp": {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
}


def unserved_sampling(server: str, sampling: Sampling) -> str:
    """Reason that a kind of server can't sample so; empty if it can.

    >>> unserved_sampling("other", Sampling(min_p=0.1))
    'the server (other) does not support min_p or a repetition penalty'
    """
    plain = sampling.min_p == 0 and sampling.repetition_penalty == 1
    if plain or server in _PENALTIES:
        return ""
    return f"the server ({server}) does not support min_p or a repetition penalty"


def drawn_seed(seed: int, replicate: int) -> int:
    """The seed that a server is given: 31 bits that differ with the seed and the replicate.

    >>> drawn_seed(7, 0)
    7
    >>> drawn_seed(7, 1) == drawn_seed(7, 2)
    False
    """
    if replicate == 0 and 0 <= seed < 2**31:
        return seed
    digest = hashlib.sha256(f"{seed}/{replicate}".encode()).digest()
    return int.from_bytes(digest[:4]) >> 1


def sampling_fields(
    sampling: Sampling, seed: int | None, server: str, defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Fields of a request's body that say how tokens are drawn; seed None: any draw will do.

    The temperature is always sent, as servers differ in their default; of all else only what is
    not the server's default (``defaults``, else that of the interface).

    >>> sampling_fields(Sampling(temperature=0.0), 7, "other", {})
    {'temperature': 0.0}
    >>> sampling_fields(Sampling(top_p=0.9), 7, "other", {})
    {'temperature': 1.0, 'top_p': 0.9, 'seed': 7}
    >>> sampling_fields(Sampling(), None, "llama.cpp", {"top_k": 40, "top_p": 1.0, "min_p": 0.05})
    {'temperature': 1.0, 'top_k': 0, 'min_p': 0.0}
    """
    wanted: dict[str, float] = {"top_p": sampling.top_p}
    if server in _PENALTIES:
        wanted |= {"top_k": 0, "min_p": sampling.min_p}
        wanted |= {_PENALTIES[server]: sampling.repetition_penalty}
        wanted |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}
    fields: dict[str, Any] = {"temperature": sampling.temperature}
    for name, value in wanted.items():
        default = defaults.get(name, OPTIONAL[name])
        if default is None or abs(value - default) > _EQUAL:
            fields[name] = value
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    if sampling.temperature > 0 and seed is not None:
        fields["seed"] = seed
    return fields


def constraint_kind(constraint: Constraint) -> str:
    """``choice``, ``json``, ``regex`` or ``grammar``."""
    kinds: dict[type, str] = {
        Choice: "choice",
        JsonSchema: "json",
        Regex: "regex",
        GrammarConstraint: "grammar",
    }
    return kinds[type(constraint)]


def _vllm(field: str, value: Callable[[Any], Any]) -> ConstraintEncoding:
    return ConstraintEncoding(
        f"structured_outputs.{field}", lambda c: {"structured_outputs": {field: value(c)}}, "vllm"
    )


def _response_format(constraint: JsonSchema) -> dict[str, Any]:
    schema = {"name": "answer", "strict": True, "schema": json.loads(constraint.schema)}
    return {"response_format": {"type": "json_schema", "json_schema": schema}}


def _lark(constraint: Any) -> str:
    r"""A constraint as one text in llguidance's dialect of Lark, which servers built with it read.

    >>> print(_lark(Regex(r"a/b\/c")))
    %llguidance {}
    <BLANKLINE>
    start: /a\/b\/c/
    """
    if isinstance(constraint, GrammarConstraint):
        return constraint.ll_grammar
    if isinstance(constraint, Choice):
        rule = " | ".join(json.dumps(option, ensure_ascii=False) for option in constraint.options)
    elif isinstance(constraint, Regex):
        escaped = re.sub(r"(\\.)|/", lambda m: m[1] or r"\/", constraint.pattern, flags=re.DOTALL)
        rule = "/" + escaped.replace("\n", r"\n") + "/"
    else:
        schema = json.loads(llguidance_grammar(constraint))["grammars"][0]["json_schema"]
        rule = "%json " + json.dumps(schema)
    return f"%llguidance {{}}\n\nstart: {rule}"


_LLAMA_CPP = ConstraintEncoding(
    "grammar (llguidance)", lambda c: {"grammar": _lark(c)}, "llama.cpp"
)

#: Per kind of constraint the ways to say it, in the order in which they are tried. What is not
#: probed is not used: some servers leave out a field that they don't know without a word.
#: A grammar comes first: with it white space in JSON is bounded as on the engines of this
#: process, and a regular expression is read in the same dialect.
ENCODINGS: dict[str, tuple[ConstraintEncoding, ...]] = {
    "choice": (_vllm("choice", lambda c: list(c.options)), _LLAMA_CPP),
    "json": (
        _vllm("grammar", _lark),
        _vllm("json", lambda c: json.loads(c.schema)),
        _LLAMA_CPP,
        ConstraintEncoding("response_format", _response_format),
    ),
    "regex": (_vllm("grammar", _lark), _vllm("regex", lambda c: c.pattern), _LLAMA_CPP),
    "grammar": (_vllm("grammar", _lark), _LLAMA_CPP),
}


# Token ids -----------------------------------------------------------------------------------

#: A character behind which every known tokenizer begins a new token, and one to try it with.
_ANCHOR, _TRIED = "\n", "5"


class Tokens(ABC):
    """Renders conversations and spells options as token ids.

    ``where`` names the tokenizer in metadata and the log; ``digest`` is the SHA-256 (hex) of its
    files, "" where they are the server's.
    """

    where = ""
    digest = ""

    @abstractmethod
    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation; a last assistant message is continued."""

    @abstractmethod
    async def spell(self, options: Sequence[str]) -> list[list[int]] | Failure:
        """Each option's tokens as they follow a prompt."""


class LocalTokens(Tokens):
    """A tokenizer's files on this machine, from `serving.tokenizer` and `chat_template`."""

    where = "serving.tokenizer"

    def __init__(self, serving: ServingSettings) -> None:
        assert serving.tokenizer is not None
        self._tokenizer = load_tokenizer(serving.tokenizer)
        self._template = read_template(serving.chat_template)
        self.digest = _digest(serving.tokenizer, self._template)

    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation."""
        try:
            return render(self._tokenizer, messages, self._template)
        except AnswerError as error:
            return Failure("invalid", str(error))

    async def spell(self, options: Sequence[str]) -> list[list[int]] | Failure:
        """Each option's tokens."""
        return [encode_on(self._tokenizer, option) for option in options]


class _ServerTokens(Tokens):
    """The server's tokenizer over HTTP."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._spelled: dict[str, list[int]] = {}
        self._spaced: bool | None = None

    @abstractmethod
    async def encode(self, text: str) -> list[int] | Failure:
        """Token ids of a text, without any that the tokenizer adds by itself."""

    async def spell(self, options: Sequence[str]) -> list[list[int]] | Failure:
        """Each option's tokens; asked for once."""
        new = [o for o in dict.fromkeys(options) if o not in self._spelled]
        for option, tokens in zip(
            new, await asyncio.gather(*(self._spell(o) for o in new)), strict=True
        ):
            if isinstance(tokens, Failure):
                return tokens
            self._spelled[option] = tokens
        return [self._spelled[o] for o in options]

    async def _spell(self, option: str) -> list[int] | Failure:
        plain, anchor = await self.encode(option), await self.encode(_ANCHOR)
        if isinstance(plain, Failure) or isinstance(anchor, Failure):
            return plain
        if not await self._begins_with_space(anchor):
            return plain
        # SentencePiece puts a space before every text; behind a prompt there is none.
        anchored = await self.encode(_ANCHOR + option)
        if isinstance(anchored, Failure) or anchored[: len(anchor)] != anchor:
            return plain
        return anchored[len(anchor) :]

    async def _begins_with_space(self, anchor: list[int]) -> bool:
        if self._spaced is None:
            both, one = await self.encode(_ANCHOR + _TRIED), await self.encode(_TRIED)
            if isinstance(both, Failure) or isinstance(one, Failure):
                return False
            self._spaced = both != anchor + one
        return self._spaced

    async def _ids(self, body: dict[str, Any]) -> list[int] | Failure:
        found = await self._client.request(self._client.address.root + "/tokenize", body)
        if isinstance(found, Failure):
            return found
        tokens = found.body.get("tokens")
        if not isinstance(tokens, list) or not all(type(t) is int for t in tokens):
            return Failure("engine_error", "the server's tokenizer gave no token ids")
        return tokens


class VllmTokens(_ServerTokens):
    """vLLM's ``/tokenize``, which also renders conversations."""

    where = "the server's /tokenize"

    async def encode(self, text: str) -> list[int] | Failure:
        """Token ids of a text."""
        body = {"model": self._client.model, "prompt": text, "add_special_tokens": False}
        return await self._ids(body)

    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation."""
        continued = messages[-1].role == "assistant"
        return await self._ids(
            {
                "model": self._client.model,
                "messages": [{"role": m.role, "content": m.content} for m in messages],
                "add_generation_prompt": not continued,
                "continue_final_message": continued,
            }
        )


class LlamaCppTokens(_ServerTokens):
    """llama.cpp's ``/apply-template`` and ``/tokenize``."""

    where = "the server's /apply-template and /tokenize"

    async def encode(self, text: str) -> list[int] | Failure:
        """Token ids of a text; templates spell the token that begins one."""
        return await self._ids({"content": text, "add_special": False, "parse_special": True})

    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation."""
        body = {"messages": [{"role": m.role, "content": m.content} for m in messages]}
        found = await self._client.request(self._client.address.root + "/apply-template", body)
        if isinstance(found, Failure):
            return found
        prompt = found.body.get("prompt")
        if not isinstance(prompt, str):
            return Failure("engine_error", "the server's template gave no prompt")
        last = messages[-1]
        if last.role == "assistant" and not prompt.rstrip().endswith(last.content.rstrip()):
            return Failure("invalid", "the server's template can't continue a partial answer")
        return await self.encode(prompt)


def _digest(place: Path, template: str | None) -> str:
    """SHA-256 of the tokenizer's files, and of the template used instead of its own."""
    if place.is_dir():
        return Checkpoint(place, place.name).tokenizer_digest(template)
    own = hashlib.sha256(place.read_bytes()).hexdigest()
    return hashlib.sha256(f"{own}\n{template}".encode()).hexdigest() if template else own
