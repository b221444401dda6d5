"""A grammar: declared once, run by Guidance, llguidance and vLLM, and read back here."""

from __future__ import annotations

import hashlib
import random
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pipelines.errors import AnswerError, ConfigError
from pipelines.llm.engines import GrammarConstraint
from pipelines.llm.grammars._vocabulary import vocabulary
from pipelines.llm.grammars._walk import (
    Pattern,
    alphabet,
    class_members,
    longest,
    pattern,
    sentence,
)

if TYPE_CHECKING:
    from guidance._ast import GrammarNode

__all__ = ["Grammar"]

#: Characters of a reply that an error quotes.
_QUOTED = 60


class Grammar:
    """A finite set of replies, declared as a Guidance grammar.

    Parameters
    ----------
    name
        For messages and metadata.
    node
        Literals, one-character classes, joins, choices and bounded repeats, under named rules.

    Examples
    --------
    >>> from pipelines.llm.grammars import closed_choice
    >>> grammar = closed_choice(["yes", "no"])
    >>> grammar.parse("no"), grammar.parse("not")
    ({'answer': 'no'}, None)
    >>> grammar.longest()
    4
    """

    def __init__(self, name: str, node: GrammarNode) -> None:
        self.name = name
        self.node = node

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, sha256={self.digest[:12]})"

    @cached_property
    def _text(self) -> str:
        return self.node.ll_grammar()

    @cached_property
    def _pattern(self) -> Pattern:
        return pattern(self.node)

    def ll_grammar(self) -> str:
        """The grammar as llguidance's Lark text: for logits processors and vLLM."""
        return self._text

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the text."""
        return hashlib.sha256(self._text.encode()).hexdigest()

    @property
    def constraint(self) -> GrammarConstraint:
        """The constraint of a request."""
        return GrammarConstraint(self._text)

    def parse(self, text: str) -> dict[str, str] | None:
        """The captures of a reply by name, or None if it is no sentence of the grammar."""
        return self._pattern.read(text)

    def read(self, text: str | None) -> dict[str, str]:
        """Like :meth:`parse`, for replies that must be sentences.

        Raises
        ------
        AnswerError
            If the text is not one; quoting its beginning.
        """
        found = None if text is None else self.parse(text)
        if found is None:
            shown = "nothing" if text is None else repr(text[:_QUOTED])
            raise AnswerError(
                "the reply is no sentence of the grammar", where=self.name, hint=shown
            )
        return found

    def longest(self, tokenizer: Any = None) -> int:
        """Most tokens that a legal reply can take, the end mark included (count).

        A model may spell a text in any pieces that make it up, down to one token per byte, so
        this is what `max_tokens` must allow for no reply ever to be cut.

        Parameters
        ----------
        tokenizer
            As :meth:`check` takes it; without one, a bound for every tokenizer.
        """
        cost = _bytes if tokenizer is None else vocabulary(tokenizer).cost
        return longest(self.node, cost) + 1

    def check(self, tokenizer: Any, max_tokens: int | None = None) -> None:
        """Refuse a model that can't give every reply, before it is asked.

        Parameters
        ----------
        tokenizer
            Result of :func:`pipelines.llm.engines.tokens.load_tokenizer`, the place that it
            loads from, an ``llguidance.LLTokenizer``, or None where the tokenizer is out of
            reach (a server's): then only the length is checked, by a bound for every tokenizer.
        max_tokens
            Room for the reply (tokens), if that is to be checked as well.

        Raises
        ------
        ConfigError
            If it lacks characters of the grammar (named), or the longest reply does not fit.
        """
        if tokenizer is not None:
            words = vocabulary(tokenizer)
            needed = alphabet(self.node)
            missing = {c for c in needed.literal if not words.spells(c)}
            for members in needed.classes:
                if not any(map(words.spells, class_members(members))):
                    missing.update(class_members(members))
            if missing:
                raise ConfigError(
                    "the tokenizer can't spell the grammar",
                    where=f"tokenizer {words.name}, grammar {self.name}",
                    hint=f"it has no tokens for {' '.join(map(repr, sorted(missing)))}",
                )
        if max_tokens is not None and (size := self.longest(tokenizer)) > max_tokens:
            raise ConfigError(
                f"max_tokens is {max_tokens}, the longest legal reply takes {size}",
                where=f"grammar {self.name}",
                hint=f"set max_tokens to {size} or shorten the grammar's texts",
            )

    def sample(self, seed: int) -> str:
        """A random sentence, for tests and demos; it means nothing."""
        return sentence(self.node, random.Random(seed))  # noqa: S311


def _bytes(character: str) -> int:
    return len(character.encode())
