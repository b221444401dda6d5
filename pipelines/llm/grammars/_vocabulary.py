"""Texts that a tokenizer can spell."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from pipelines.errors import ConfigError


@dataclass(frozen=True)
class Vocabulary:
    """The pieces of a tokenizer, for questions of spelling.

    ``singles`` are bytes that are a token of their own (0-255), ``characters`` the characters that
    are.
    """

    name: str
    singles: frozenset[int]
    characters: frozenset[str]

    def spells(self, character: str) -> bool:
        """Whether there are tokens for it, whatever stands before and after."""
        return character in self.characters or self.singles.issuperset(character.encode())

    def cost(self, character: str) -> int:
        """Most tokens that a model may spend on it (count)."""
        data = character.encode()
        return len(data) if self.singles.issuperset(data) else 1


_CACHE: WeakKeyDictionary[Any, Vocabulary] = WeakKeyDictionary()


def vocabulary(tokenizer: Any) -> Vocabulary:
    """Read a tokenizer's pieces; ConfigError if they can't be read.

    The tokenizer is one of :func:`pipelines.llm.engines.tokens.load_tokenizer`, the place that it
    loads from, or an ``llguidance.LLTokenizer``.
    """
    if isinstance(tokenizer, Vocabulary):
        return tokenizer
    try:
        cached = _CACHE.get(tokenizer)
        if cached is None:
            cached = _CACHE[tokenizer] = _read(tokenizer)
    except TypeError:  # not every tokenizer object can be kept weakly
        return _read(tokenizer)
    return cached


def _read(tokenizer: Any) -> Vocabulary:
    name = _name(tokenizer)
    if isinstance(tokenizer, (str, Path)):
        from pipelines.llm.engines.tokens import load_tokenizer

        tokenizer = load_tokenizer(tokenizer)
    singles: set[int] = set()
    characters: set[str] = set()
    for data in _pieces(tokenizer, name):
        if len(data) == 1:
            singles.add(data[0])
        if 1 <= len(data) <= 4:
            try:
                text = data.decode()
            except UnicodeDecodeError:
                continue
            if len(text) == 1:
                characters.add(text)
    return Vocabulary(name, frozenset(singles), frozenset(characters))


def _pieces(tokenizer: Any, name: str) -> Iterator[bytes]:
    """Bytes of every token that spells something: marks such as <|im_end|> do not."""
    from pipelines.llm.engines.tokens import SentencePieceTokenizer

    if isinstance(tokenizer, SentencePieceTokenizer):
        model = tokenizer._model
        for token in range(len(tokenizer)):
            if model.is_control(token) or model.is_unknown(token):
                continue
            piece = model.id_to_piece(token)
            byte = model.is_byte(token)
            yield bytes([int(piece[3:5], 16)]) if byte else piece.replace("\u2581", " ").encode()
        return
    ll = _ll(tokenizer, name)
    for token in range(ll.vocab_size):
        if not ll.is_special_token(token):
            yield ll.decode_bytes([token])


def _name(tokenizer: Any) -> str:
    # Of a folder only its name: messages go into logs and metadata.
    given = tokenizer if isinstance(tokenizer, (str, Path)) else ""
    given = given or getattr(tokenizer, "name_or_path", "") or ""
    return Path(str(given)).name or type(tokenizer).__name__


def _ll(tokenizer: Any, name: str) -> Any:
    import llguidance.hf

    if isinstance(tokenizer, llguidance.LLTokenizer):
        return tokenizer
    try:
        return llguidance.hf.from_tokenizer(tokenizer)
    except ValueError as error:
        raise ConfigError(
            "the tokenizer's pieces can't be read", where=name, hint=str(error).splitlines()[0]
        ) from None
