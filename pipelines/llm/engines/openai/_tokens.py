"""Who turns text into the model's token ids: a tokenizer on this machine, or the server."""

from __future__ import annotations

import asyncio
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from pipelines.config import ServingSettings
from pipelines.errors import AnswerError
from pipelines.llm.engines._protocol import Message
from pipelines.llm.engines.chat import read_template, render
from pipelines.llm.engines.checkpoints import Checkpoint
from pipelines.llm.engines.openai._http import Connection, Estimate, Failure, Response
from pipelines.llm.engines.tokens import encode_on, load_tokenizer

__all__ = ["LlamaCppTokens", "LocalTokens", "Tokens", "VllmTokens"]

_FREE = Estimate(0, 0)
#: A character behind which every known tokenizer begins a new token, and one to try it with.
_ANCHOR, _TRIED = "\n", "5"


class Tokens(Protocol):
    """Renders conversations and spells options as token ids."""

    @property
    def where(self) -> str:
        """Who does it, for facts and the log."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the tokenizer's files; "" where they are the server's."""
        ...

    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation; a last assistant message is continued."""
        ...

    async def spell(self, options: Sequence[str]) -> list[list[int]] | Failure:
        """Each option's tokens as they follow a prompt."""
        ...


class LocalTokens:
    """A tokenizer's files on this machine.

    Parameters
    ----------
    serving
        `tokenizer` and `chat_template`.

    Raises
    ------
    ConfigError
        If one of them can't be read.
    """

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


class _ServerTokens(ABC):
    """What the servers have in common: text goes there, ids come back."""

    where = ""
    digest = ""

    def __init__(self, connection: Connection, model: str) -> None:
        self._connection = connection
        self._model = model
        self._spelled: dict[str, list[int]] = {}
        self._spaced: bool | None = None

    @abstractmethod
    async def encode(self, text: str) -> list[int] | Failure:
        """Token ids of a text, without any that the tokenizer adds by itself."""

    @abstractmethod
    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation."""

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
        plain = await self.encode(option)
        if isinstance(plain, Failure):
            return plain
        anchor = await self.encode(_ANCHOR)
        if isinstance(anchor, Failure) or not await self._begins_with_space(anchor):
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

    async def _post(self, path: str, body: dict[str, Any]) -> Response | Failure:
        return await self._connection.post(
            self._connection.address.root + path, body, _FREE, mode="soft"
        )


class VllmTokens(_ServerTokens):
    """vLLM's ``/tokenize``, which also renders conversations."""

    where = "the server's /tokenize"

    async def encode(self, text: str) -> list[int] | Failure:
        """Token ids of a text."""
        body = {"model": self._model, "prompt": text, "add_special_tokens": False}
        return _ids(await self._post("/tokenize", body))

    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation."""
        continued = messages[-1].role == "assistant"
        body = {
            "model": self._model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "add_generation_prompt": not continued,
            "continue_final_message": continued,
        }
        return _ids(await self._post("/tokenize", body))


class LlamaCppTokens(_ServerTokens):
    """llama.cpp's ``/apply-template`` and ``/tokenize``."""

    where = "the server's /apply-template and /tokenize"

    async def encode(self, text: str) -> list[int] | Failure:
        """Token ids of a text."""
        return await self._encode(text, begin=False)

    async def render(self, messages: Sequence[Message]) -> list[int] | Failure:
        """The prompt of a conversation."""
        body = {"messages": [{"role": m.role, "content": m.content} for m in messages]}
        got = await self._post("/apply-template", body)
        if isinstance(got, Failure):
            return got
        prompt = got.body.get("prompt")
        if not isinstance(prompt, str):
            return Failure("engine_error", "the server's template gave no prompt")
        last = messages[-1]
        if last.role == "assistant" and not prompt.rstrip().endswith(last.content.rstrip()):
            return Failure("invalid", "the server's template does not go on from a begun answer")
        # Templates spell the token that begins a text; the tokenizer must not add another.
        return await self._encode(prompt, begin=False)

    async def _encode(self, text: str, *, begin: bool) -> list[int] | Failure:
        body = {"content": text, "add_special": begin, "parse_special": True}
        return _ids(await self._post("/tokenize", body))


def _ids(got: Response | Failure) -> list[int] | Failure:
    if isinstance(got, Failure):
        return got
    tokens = got.body.get("tokens")
    if not isinstance(tokens, list) or not all(type(t) is int for t in tokens):
        return Failure("engine_error", "the server's tokenizer gave no token ids")
    return tokens


def _digest(place: Path, template: str | None) -> str:
    """SHA-256 of the tokenizer's files, and of the template used instead of its own."""
    if place.is_dir():
        return Checkpoint(place, place.name).tokenizer_digest(template)
    own = hashlib.sha256(place.read_bytes()).hexdigest()
    return hashlib.sha256(f"{own}\n{template}".encode()).hexdigest() if template else own
