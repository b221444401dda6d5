"""Encodings of a request: token ids, sampling fields, and constraints in vLLM's fields."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import Constraint, GrammarConstraint, Message, Regex, Sampling
from pipelines.llm.engines.chat import read_template, render
from pipelines.llm.engines.checkpoints import Checkpoint
from pipelines.llm.engines.constraints import llguidance_grammar
from pipelines.llm.engines.openai._client import OPTIONAL, Client, gather
from pipelines.llm.engines.openai._replies import Failure
from pipelines.llm.engines.tokens import encode_on, load_tokenizer

#: Difference below which a parameter counts as the server's default (which is of 32 bits).
_EQUAL = 1e-5
#: A character behind which every known tokenizer begins a new token.
_ANCHOR = "\n"


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
    sampling: Sampling, seed: int | None, defaults: Mapping[str, Any]
) -> dict[str, Any]:
    """Fields of a request's body that say how tokens are drawn; seed None: any draw will do.

    The temperature is always sent, as servers differ in their default. Of the others only those
    are sent that are not the server's default (``defaults``, else that of the interface; None: the
    server does not tell it).

    >>> sampling_fields(Sampling(temperature=0.0), 7, {})
    {'temperature': 0.0}
    >>> sampling_fields(Sampling(top_p=0.9), 7, {})
    {'temperature': 1.0, 'top_p': 0.9, 'seed': 7}
    >>> sampling_fields(Sampling(), None, {"top_k": 40, "top_p": 1.0, "min_p": 0.05})
    {'temperature': 1.0, 'top_k': 0, 'min_p': 0.0}
    """
    fields: dict[str, Any] = {"temperature": sampling.temperature}
    values = {"top_p": sampling.top_p, "top_k": 0, "min_p": sampling.min_p}
    values["repetition_penalty"] = sampling.repetition_penalty
    for name, value in values.items():
        default = defaults.get(name, OPTIONAL[name])
        if default is None or abs(value - default) > _EQUAL:
            fields[name] = value
    if sampling.stop:
        fields["stop"] = list(sampling.stop)
    if sampling.temperature > 0 and seed is not None:
        fields["seed"] = seed
    return fields


def lark(constraint: Constraint) -> str:
    r"""A constraint as one text in llguidance's dialect of Lark, which vLLM reads.

    White space in JSON is bounded so, and a regular expression read, as on the engines of this
    process.

    >>> print(lark(Regex(r"a/b\/c")))
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


class LocalTokens:
    """A tokenizer's files on this machine, from `serving.tokenizer` and `chat_template`.

    ``where`` names the tokenizer in metadata; ``digest`` is the SHA-256 (hex) of its files.
    """

    where = "serving.tokenizer"

    def __init__(self, place: Path, template: Path | None) -> None:
        self._tokenizer = load_tokenizer(place)
        self._template = text = read_template(template)
        if place.is_dir():
            self.digest = Checkpoint(place, place.name).tokenizer_digest(text)
        else:
            digest = hashlib.sha256(place.read_bytes()).hexdigest()
            both = hashlib.sha256(f"{digest}\n{text}".encode()).hexdigest()
            self.digest = both if text else digest

    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation; a last assistant message is continued."""
        try:
            return render(self._tokenizer, messages, self._template)
        except AnswerError as error:
            return Failure("invalid", str(error))

    async def spell(self, options: Sequence[str]) -> list[list[int]] | Failure:
        """Each option's tokens as they follow a prompt."""
        return [encode_on(self._tokenizer, option) for option in options]


class VllmTokens:
    """vLLM's ``/tokenize``, which also renders conversations; its files have no ``digest`` here."""

    where, digest = "the server's /tokenize", ""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._encoded: dict[str, list[int]] = {}

    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation; a last assistant message is continued."""
        continued = messages[-1].role == "assistant"
        return await self._ids(
            messages=[{"role": m.role, "content": m.content} for m in messages],
            add_generation_prompt=not continued,
            continue_final_message=continued,
        )

    async def spell(self, options: Sequence[str]) -> list[list[int]] | Failure:
        """Each option's tokens as they follow a prompt; requested once."""
        # SentencePiece puts a space before every text; behind a prompt there is none.
        texts = {text for o in options for text in (_ANCHOR, _ANCHOR + o, o)} - {*self._encoded}
        new = sorted(texts)
        for text, ids in zip(
            new,
            await gather([self._ids(prompt=text, add_special_tokens=False) for text in new]),
            strict=True,
        ):
            if isinstance(ids, Failure):
                return ids
            self._encoded[text] = ids
        anchor, spelled = self._encoded[_ANCHOR], []
        for option in options:
            anchored = self._encoded[_ANCHOR + option]
            begun = anchored[: len(anchor)] == anchor
            spelled.append(anchored[len(anchor) :] if begun else self._encoded[option])
        return spelled

    async def _ids(self, **body: Any) -> list[int] | Failure:
        url = self._client.address.root + "/tokenize"
        page = await self._client.page(url, {"model": self._client.model, **body})
        if isinstance(page, Failure):
            return page
        tokens = page.get("tokens")
        if not isinstance(tokens, list) or not all(type(t) is int for t in tokens):
            return Failure("engine_error", "the server's tokenizer gave no token ids")
        return tokens


Tokens = LocalTokens | VllmTokens
