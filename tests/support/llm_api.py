"""The interfaces of three kinds of server over one plain model, for `support.llm_server`.

Each kind has the endpoints and the gaps of the real one: vLLM's reads exactly the tokens asked
for and refuses what it does not know; Ollama's lists no probable tokens and leaves out what it does
not know without a word; a hosted one wants a key and refuses unknown fields. The last two are asked
at the chat endpoint alone.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image
from support.llm_model import PlainModel, Written

__all__ = ["KINDS", "Api", "Kind", "RefusedError"]

Body = dict[str, Any]
NAME = "tiny-1m"


class RefusedError(Exception):
    """A request that the server refuses."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Kind:
    """Capabilities of a server; ``ignores`` and ``refuses`` switch single fields off."""

    name: str
    owner: str
    pages: frozenset[str]
    fields: frozenset[str]
    strict: bool = False
    ranks: int = 20
    images: bool = False
    ignores: frozenset[str] = frozenset()
    refuses: frozenset[str] = frozenset()

    def without(self, *names: str, loudly: bool = False) -> Kind:
        """The same, leaving fields out without a word, or refusing them."""
        if loudly:
            return replace(self, refuses=self.refuses | set(names))
        return replace(self, ignores=self.ignores | set(names))

    def keeps(self, name: str) -> bool:
        return name in self.fields and name not in self.ignores


_COMMON = {"model", "messages", "prompt", "max_tokens", "temperature", "top_p", "seed", "stop", "n"}
_CHAT = {"logprobs", "top_logprobs", "response_format"}

KINDS: dict[str, Kind] = {
    "vllm": Kind(
        "vllm",
        "vllm",
        frozenset({"/v1/completions", "/v1/chat/completions", "/version", "/tokenize", "/health"}),
        frozenset(
            _COMMON
            | _CHAT
            | {"logprob_token_ids", "return_tokens_as_token_ids", "structured_outputs"}
            | {"min_p", "repetition_penalty"}
        ),
    ),
    "ollama": Kind(
        "ollama",
        "library",
        frozenset({"/v1/chat/completions", "/api/version"}),
        frozenset(_COMMON | {"response_format"}),
    ),
    "hosted": Kind(
        "hosted",
        "openai",
        frozenset({"/v1/chat/completions"}),
        frozenset(_COMMON | _CHAT),
        strict=True,
    ),
}


@dataclass
class Api:
    """Answers requests for one kind of server."""

    kind: Kind
    model: PlainModel
    name: str = NAME
    seen: list[tuple[int, ...]] = field(default_factory=list)

    def get(self, path: str) -> Body:
        """A page."""
        if path == "/v1/models":
            entry: Body = {"id": self.name, "object": "model", "owned_by": self.kind.owner}
            if self.kind.name == "vllm":
                entry["max_model_len"] = self.model.context
            return {"object": "list", "data": [entry]}
        if path not in self.kind.pages:
            raise RefusedError(404, "Not Found")
        return {"version": "0.0.test"}

    def post(self, path: str, body: Body) -> Body:
        """The answer to a request."""
        if path not in self.kind.pages:
            raise RefusedError(404, "Not Found")
        if path == "/tokenize":
            return self._tokenize(body)
        unknown = [f for f in body if f not in self.kind.fields]
        bad = [f for f in body if f in self.kind.refuses] + (unknown if self.kind.strict else [])
        if bad:
            raise RefusedError(400, f"Unrecognized request argument supplied: {bad[0]}")
        body = {k: v for k, v in body.items() if self.kind.keeps(k)}
        if body.get("model") != self.name:
            raise RefusedError(404, f"The model `{body.get('model')}` does not exist.")
        return self._chat(body) if path.endswith("/chat/completions") else self._complete(body)

    def _tokenize(self, body: Body) -> Body:
        if "messages" in body:
            go_on = bool(body.get("continue_final_message"))
            ids = self.model.encode(self.model.prompt(body["messages"], go_on=go_on))
        else:
            ids = self.model.encode(body["prompt"])
        return {"tokens": ids, "count": len(ids), "max_model_len": self.model.context}

    def _complete(self, body: Body) -> Body:
        prompts = body["prompt"]
        written = [self._write(ids, body) for ids in prompts]
        choices = []
        for n, one in enumerate(written):
            choices.append(
                {
                    "index": n,
                    "text": one.text,
                    "finish_reason": one.finish,
                    "logprobs": self._logprobs(one, body),
                }
            )
        return {"object": "text_completion", "choices": choices, **self._counts(prompts, written)}

    def _chat(self, body: Body) -> Body:
        turns = [{**turn, "content": self._text(turn["content"])} for turn in body["messages"]]
        ids = self.model.encode(self.model.prompt(turns))
        one = self._write(ids, body)
        places = None
        if body.get("logprobs"):
            top = int(body.get("top_logprobs", 0))
            if top > self.kind.ranks:
                raise RefusedError(400, f"top_logprobs must be at most {self.kind.ranks}")
            places = {"content": self._content(one, top)}
        message = {"role": "assistant", "content": one.text, "refusal": None}
        choice = {"index": 0, "message": message, "finish_reason": one.finish, "logprobs": places}
        return {"object": "chat.completion", "choices": [choice], **self._counts([ids], [one])}

    def _text(self, content: str | list[Body]) -> str:
        """Text of a turn; pictures must be ones that the server can read, and are not looked at."""
        if isinstance(content, str):
            return content
        if not self.kind.images:
            raise RefusedError(400, "this model does not support image input")
        for part in content:
            if part["type"] == "image_url":
                head, _, data = part["image_url"]["url"].partition(",")
                if not re.fullmatch(r"data:image/\w+;base64", head):
                    raise RefusedError(400, "image_url is no data address")
                with Image.open(BytesIO(b64decode(data, validate=True))) as image:
                    image.load()
        return "".join(part["text"] for part in content if part["type"] == "text")

    def _write(self, ids: Sequence[int], body: Body) -> Written:
        limit = int(body.get("max_tokens", 16))
        if not ids or len(ids) + limit > self.model.context:
            raise RefusedError(
                400,
                f"This model's maximum context length is {self.model.context} tokens. However, "
                f"you requested {len(ids) + limit} tokens.",
            )
        try:
            return self.model.write(
                ids,
                limit=limit,
                temperature=float(body.get("temperature", 1.0)),
                top_p=float(body.get("top_p", 1.0)),
                min_p=float(body.get("min_p", 0.0)),
                penalty=float(body.get("repetition_penalty", 1.0)),
                seed=int(body.get("seed", 0)),
                stop=body.get("stop", ()),
                grammar=_grammar(body),
            )
        except ValueError as error:
            raise RefusedError(400, f"Grammar error: {error}") from None

    def _counts(self, prompts: Sequence[Sequence[int]], written: Sequence[Written]) -> Body:
        cached = sum(self._cached(tuple(p)) for p in prompts)
        prompt, completion = sum(map(len, prompts)), sum(len(w.steps) for w in written)
        return {
            "id": "test",
            "model": self.name,
            "system_fingerprint": f"fp_{self.kind.name}",
            "usage": {
                "prompt_tokens": prompt,
                "completion_tokens": completion,
                "total_tokens": prompt + completion,
                "prompt_tokens_details": {"cached_tokens": cached},
            },
        }

    def _cached(self, ids: tuple[int, ...]) -> int:
        """Tokens that the prompt begins with as an earlier one did, in blocks of 16."""
        longest = 0
        for other in self.seen[-64:]:
            both = min(len(ids), len(other))
            same = next((n for n in range(both) if ids[n] != other[n]), both)
            longest = max(longest, same)
        self.seen.append(ids)
        return min(longest // 16 * 16, len(ids) - 1)

    # Log-probabilities --------------------------------------------------------------------

    def _logprobs(self, one: Written, body: Body) -> Body | None:
        if "logprobs" not in body:
            return None
        top = int(body["logprobs"])
        if top > self.kind.ranks:
            raise RefusedError(
                400, f"Requested sample logprobs of {top}, at most {self.kind.ranks}"
            )
        wanted = body.get("logprob_token_ids")
        tokens = list(one.tokens[: len(one.steps)]) or [self.model.tokenizer.eos_token_id]
        rows = list(one.steps[: len(tokens)])
        own = [float(r[t]) for r, t in zip(rows, tokens, strict=True)]
        tops = [self._top(r, t, top, wanted, body) for r, t in zip(rows, tokens, strict=True)]
        return {
            "tokens": [self._name(t, body) for t in tokens],
            "token_logprobs": own,
            "top_logprobs": tops,
        }

    def _top(self, row: Any, token: int, top: int, wanted: list[int] | None, body: Body) -> Body:
        named = [token, *(wanted if wanted is not None else np.argsort(-row)[:top].tolist())]
        return {self._name(t, body): float(row[t]) for t in named}

    def _name(self, token: int, body: Body) -> str:
        if body.get("return_tokens_as_token_ids"):
            return f"token_id:{token}"
        return str(self.model.tokenizer.decode([token]))

    def _content(self, one: Written, top: int) -> list[Body]:
        return [
            self._entry(row, token)
            | {"top_logprobs": [self._entry(row, int(t)) for t in np.argsort(-row)[:top]]}
            for row, token in zip(one.steps, one.tokens, strict=False)
        ]

    def _entry(self, row: Any, token: int) -> Body:
        return {"token": str(self.model.tokenizer.decode([token])), "logprob": float(row[token])}


def _grammar(body: Body) -> str | None:
    """Constraint of a request's fields, in llguidance's form."""
    from llguidance import LLMatcher, grammar_from

    constraints = body.get("structured_outputs") or {}
    if "regex" in constraints:
        return str(grammar_from("regex", constraints["regex"]))
    if "grammar" in constraints:
        return str(grammar_from("grammar", constraints["grammar"]))
    schema = constraints.get("json")
    if body.get("response_format", {}).get("type") == "json_schema":
        schema = body["response_format"]["json_schema"]["schema"]
    if schema is not None:
        compact = {"whitespace_flexible": False}
        return str(LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=compact))
    return None
