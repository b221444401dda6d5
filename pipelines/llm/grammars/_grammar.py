"""A grammar: declared once, run by Guidance, llguidance and vLLM, and read back here."""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from pipelines.errors import AnswerError, ConfigError
from pipelines.llm.engines import FormField, GrammarConstraint
from pipelines.llm.grammars._vocabulary import vocabulary

if TYPE_CHECKING:
    from guidance._ast import GrammarNode

#: Characters that a one-character class is asked about: the Basic Multilingual Plane's first
#: letters, punctuation included. Classes with members beyond it are refused.
_UNIVERSE = [chr(code) for code in range(0x20, 0x2100)]


@cache
def class_members(text: str) -> str:
    """The characters of a plain one-character class, ascending; ValueError for any other class.

    >>> class_members("[a-c ]")
    ' abc'
    """
    if not re.fullmatch(r"\[[^\[\]^]+\]", text):
        raise ValueError(f"only one-character classes can be measured, not {text!r}")
    compiled = re.compile(text)
    return "".join(c for c in _UNIVERSE if compiled.fullmatch(c))


def longest(node: GrammarNode, cost: Callable[[str], int]) -> int:
    """Greatest total cost of a sentence, with the characters' costs by `cost`."""
    from guidance import _ast as ast

    seen: dict[int, int] = {}

    def walk(node: GrammarNode) -> int:
        if id(node) in seen:
            return seen[id(node)]
        if isinstance(node, ast.LiteralNode):
            size = sum(map(cost, node.value))
        elif isinstance(node, ast.RegexNode):
            size = max(map(cost, class_members(node.regex or "")))
        elif isinstance(node, ast.SelectNode):
            size = max(map(walk, node.alternatives))
        elif isinstance(node, ast.JoinNode):
            size = sum(map(walk, node.nodes))
        elif isinstance(node, ast.RepeatNode):
            if node.max is None:
                raise ValueError("an unbounded repeat has no longest sentence")
            size = node.max * walk(node.node)
        else:
            size = walk(_ruled(node))
        seen[id(node)] = size
        return size

    return walk(node)


@dataclass(frozen=True)
class Alphabet:
    """Characters that a grammar needs: all of `literal`, and some of each of `classes`."""

    literal: frozenset[str]
    classes: frozenset[str]


def alphabet(node: GrammarNode) -> Alphabet:
    """The characters of a grammar's literals, and its one-character classes."""
    from guidance import _ast as ast

    literal: set[str] = set()
    classes: set[str] = set()
    for part in _parts(node):
        if isinstance(part, ast.LiteralNode):
            literal.update(part.value)
        elif isinstance(part, ast.RegexNode):
            classes.add(part.regex or "")
    return Alphabet(frozenset(literal), frozenset(classes))


@dataclass(frozen=True)
class Pattern:
    """A regular expression for the same language, and which group is which capture."""

    compiled: re.Pattern[str]
    captures: dict[str, str]

    def read(self, text: str) -> dict[str, str] | None:
        """The captures of a sentence, or None if the text is not one."""
        match = self.compiled.fullmatch(text)
        if match is None:
            return None
        groups = match.groupdict()
        return {self.captures[group]: value for group, value in groups.items() if value is not None}


def pattern(node: GrammarNode) -> Pattern:
    """The grammar as a Python regular expression.

    Guidance's own ``match`` recurses once per byte and computes a mask for each: it stops at
    Python's recursion limit within about 500 characters. A capture that stands in several
    alternatives becomes several groups; a reply fills one of them.
    """
    from guidance import _ast as ast

    captures: dict[str, str] = {}

    def walk(node: GrammarNode) -> str:
        if isinstance(node, ast.LiteralNode):
            return re.escape(node.value)
        if isinstance(node, ast.RegexNode):
            class_members(node.regex or "")
            return node.regex or ""
        if isinstance(node, ast.SelectNode):
            return f"(?:{'|'.join(map(walk, node.alternatives))})"
        if isinstance(node, ast.JoinNode):
            return "".join(map(walk, node.nodes))
        if isinstance(node, ast.RepeatNode):
            return f"(?:{walk(node.node)}){{{node.min},{node.max}}}"
        inner = walk(_ruled(node))
        capture = getattr(node, "capture", None)
        if capture is None:
            return inner
        group = f"g{len(captures)}"
        captures[group] = capture
        return f"(?P<{group}>{inner})"

    return Pattern(re.compile(walk(node)), captures)


def form(node: GrammarNode) -> tuple[str | FormField, ...]:
    """The grammar as fixed texts and captured fields in turn; empty if it is no such sequence."""
    from guidance import _ast as ast

    def walk(node: GrammarNode) -> Iterator[str | FormField]:
        if isinstance(node, ast.LiteralNode):
            yield node.value
        elif isinstance(node, ast.JoinNode):
            for part in node.nodes:
                yield from walk(part)
        elif (name := getattr(node, "capture", None)) is None:
            yield from walk(_ruled(node))
        elif isinstance(value := _ruled(node), ast.LiteralNode):
            yield value.value
        else:
            yield _field(name, value)

    try:
        parts = tuple(walk(node))
    except ValueError:
        return ()
    names = [part.name for part in parts if isinstance(part, FormField)]
    return parts if names and len(set(names)) == len(names) else ()


def _field(name: str, node: GrammarNode) -> FormField:
    from guidance import _ast as ast

    regex = pattern(node).compiled.pattern
    choices = node.alternatives if isinstance(node, ast.SelectNode) else ()
    texts = [choice.value for choice in choices if isinstance(choice, ast.LiteralNode)]
    first = node
    while isinstance(first, ast.JoinNode):
        first = first.nodes[0]
    return FormField(
        name,
        regex,
        options=tuple(texts) if len(texts) == len(choices) else (),
        opening=first.value if isinstance(first, ast.LiteralNode) else "",
    )


def sentence(node: GrammarNode, rng: random.Random) -> str:
    """A random sentence; every one of the grammar has a positive chance."""
    from guidance import _ast as ast

    if isinstance(node, ast.LiteralNode):
        return node.value
    if isinstance(node, ast.RegexNode):
        return rng.choice(class_members(node.regex or ""))
    if isinstance(node, ast.SelectNode):
        return sentence(rng.choice(node.alternatives), rng)
    if isinstance(node, ast.JoinNode):
        return "".join(sentence(part, rng) for part in node.nodes)
    if isinstance(node, ast.RepeatNode):
        count = rng.randint(node.min, node.max or node.min)
        return "".join(sentence(node.node, rng) for _ in range(count))
    return sentence(_ruled(node), rng)


def _ruled(node: GrammarNode) -> GrammarNode:
    from guidance import _ast as ast

    if not isinstance(node, ast.RuleNode):
        raise ValueError(f"no such node in a finite grammar: {type(node).__name__}")
    return node.value


def _parts(node: GrammarNode) -> Iterator[GrammarNode]:
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        yield part
        waiting.extend(part.children())


#: Characters of a reply that an error quotes.
_QUOTED = 60


class Grammar:
    """A finite set of replies, declared as a Guidance grammar.

    ``node`` is made of literals, one-character classes, joins, choices and bounded repeats, under
    named rules.

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

    @cached_property
    def _form(self) -> tuple[str | FormField, ...]:
        return form(self.node)

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
        return GrammarConstraint(self._text, self._form)

    def parse(self, text: str) -> dict[str, str] | None:
        """The captures of a reply by name, or None if it is no sentence of the grammar."""
        return self._pattern.read(text)

    def read(self, text: str | None) -> dict[str, str]:
        """As :meth:`parse`; AnswerError, quoting its beginning, if the text is no sentence."""
        captures = None if text is None else self.parse(text)
        if captures is None:
            shown = "nothing" if text is None else repr(text[:_QUOTED])
            raise AnswerError("the reply does not match the grammar", where=self.name, hint=shown)
        return captures

    def longest(self, tokenizer: Any = None) -> int:
        """Most tokens that a legal reply can take, the end mark included (count).

        A model may spell a text in any pieces that make it up, down to one token per byte, so this
        is what `max_tokens` must allow for no reply ever to be cut. Without a tokenizer (as
        :meth:`check` takes it) it is a bound for every tokenizer.
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
                    "the tokenizer can't encode the grammar",
                    where=f"tokenizer {words.name}, grammar {self.name}",
                    hint=f"it has no tokens for {' '.join(map(repr, sorted(missing)))}",
                )
        if max_tokens is not None and (size := self.longest(tokenizer)) > max_tokens:
            raise ConfigError(
                f"max_tokens is {max_tokens}, the longest valid reply needs {size}",
                where=f"grammar {self.name}",
                hint=f"set max_tokens to {size} or shorten the grammar's texts",
            )

    def sample(self, seed: int) -> str:
        """A random sentence, for tests and demos; it means nothing."""
        return sentence(self.node, random.Random(seed))  # noqa: S311


def _bytes(character: str) -> int:
    return len(character.encode())
