"""A grammar: declared once, run by Guidance, llguidance and vLLM, and read back here.

The nodes of a grammar are our own, because its text is part of every answer's key: it may not
change with a version of Guidance, whose dialect of Lark it is written in.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from pipelines.errors import AnswerError, ConfigError
from pipelines.llm.engines import FormField, GrammarConstraint
from pipelines.llm.grammars._vocabulary import vocabulary

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


@dataclass(frozen=True)
class Literal:
    """Exactly this text."""

    value: str


@dataclass(frozen=True)
class Letter:
    """One character of a class, as :func:`class_members` takes it."""

    members: str


@dataclass(frozen=True)
class Join:
    """Nodes in sequence."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Select:
    """One of several nodes."""

    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """A node, at least `low` and at most `high` times."""

    node: Node
    low: int
    high: int


@dataclass(frozen=True)
class Rule:
    """A node with a name, its text readable by `capture` where that is given."""

    name: str
    node: Node
    capture: str | None = None


#: A part of a grammar; nodes of equal parts are equal.
Node = Literal | Letter | Join | Select | Repeat | Rule


def _children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, Join | Select):
        return node.nodes
    return (node.node,) if isinstance(node, Repeat | Rule) else ()


def _descendants(node: Node) -> Iterator[Node]:
    seen: set[int] = set()
    waiting = [node]
    while waiting:
        part = waiting.pop()
        if id(part) not in seen:
            seen.add(id(part))
            yield part
            waiting.extend(_children(part))


def longest(node: Node, cost: Callable[[str], int]) -> int:
    """Greatest total cost of a sentence, with the characters' costs by `cost`."""
    match node:
        case Literal(value):
            return sum(map(cost, value))
        case Letter(members):
            return max(map(cost, class_members(members)))
        case Join(nodes):
            return sum(longest(part, cost) for part in nodes)
        case Select(nodes):
            return max(longest(part, cost) for part in nodes)
        case Repeat(inner, _, high):
            return high * longest(inner, cost)
    return longest(node.node, cost)


def sample(node: Node, rng: random.Random) -> str:
    """A random sentence; every one of the grammar has a positive chance."""
    match node:
        case Literal(value):
            return value
        case Letter(members):
            return rng.choice(class_members(members))
        case Join(nodes):
            return "".join(sample(part, rng) for part in nodes)
        case Select(nodes):
            return sample(rng.choice(nodes), rng)
        case Repeat(inner, low, high):
            return "".join(sample(inner, rng) for _ in range(rng.randint(low, high)))
    return sample(node.node, rng)


def pattern(node: Node, captures: dict[str, str]) -> str:
    """The grammar as a Python regular expression; notes each capture by the name of its group.

    A capture that stands in several alternatives becomes several groups; a reply fills one of them.
    """
    match node:
        case Literal(value):
            return re.escape(value)
        case Letter(members):
            return members if class_members(members) else ""
        case Join(nodes):
            return "".join(pattern(part, captures) for part in nodes)
        case Select(nodes):
            return f"(?:{'|'.join(pattern(part, captures) for part in nodes)})"
        case Repeat(inner, low, high):
            return f"(?:{pattern(inner, captures)}){{{low},{high}}}"
    text = pattern(node.node, captures)
    if node.capture is None:
        return text
    group = f"g{len(captures)}"
    captures[group] = node.capture
    return f"(?P<{group}>{text})"


def lark(node: Node) -> str:
    """The grammar as llguidance's Lark text, exactly as Guidance 0.3 writes it."""
    names: dict[Rule, str] = {}
    rules: dict[str, str] = {}

    def terminal(node: Node) -> bool:
        """True if there is no capture in it: it is one lexeme then."""
        return not any(isinstance(n, Rule) and n.capture is not None for n in _descendants(node))

    def rule(node: Rule) -> str:
        if node in names:
            return names[node]
        stem = node.name.upper() if terminal(node) else node.name
        candidates = itertools.chain([stem], (f"{stem}_{n}" for n in itertools.count(1)))
        taken = {*names.values()}
        name = names[node] = next(c for c in candidates if c not in taken)
        inner = node.node
        if node.capture is not None and not isinstance(inner, Rule) and terminal(inner):
            inner = Rule(node.name, inner)  # so that it is one lexeme
        mark = "" if node.capture is None else f"[capture={json.dumps(node.capture)}]"
        mark = "[capture]" if node.capture == name else mark
        rules[name] = f"{name}{mark}: {walk(inner, top=True)}"
        return name

    def walk(node: Node, *, top: bool = False) -> str:
        match node:
            case Literal(value):
                return json.dumps(value)
            case Letter(members):
                return "/" + re.sub(r"(?<!\\)/", r"\/", members) + "/"
            case Join(nodes):
                return " ".join(map(walk, nodes))
            case Select(nodes):
                ways = map(walk, nodes)
                return "\n     | ".join(ways) if top else f"({' | '.join(ways)})"
            case Repeat(inner, low, high):
                text = f"({walk(inner)})" if isinstance(inner, Join | Repeat) else walk(inner)
                return f"{text}?" if (low, high) == (0, 1) else f"{text}{{{low},{high}}}"
        return rule(node)

    start = rule(Rule("start", node))
    text, spaced = "%llguidance {}\n\n" + ("start: START\n" if start == "START" else ""), True
    for name in names.values():
        several = "\n" in rules[name]
        text += "\n" if several and not spaced else ""
        text += rules[name] + ("\n\n" if several else "\n")
        spaced = several
    return text


def form(node: Node) -> tuple[str | FormField, ...]:
    """The grammar as fixed texts and captured fields in turn; empty if it is no such sequence."""

    def walk(node: Node) -> Iterator[str | FormField]:
        if isinstance(node, Literal):
            yield node.value
        elif isinstance(node, Join):
            for part in node.nodes:
                yield from walk(part)
        elif not isinstance(node, Rule):
            raise ValueError("no sequence")
        elif node.capture is None:
            yield from walk(node.node)
        elif isinstance(node.node, Literal):
            yield node.node.value
        else:
            yield _field(node.capture, node.node)

    try:
        parts = tuple(walk(node))
    except ValueError:
        return ()
    names = [part.name for part in parts if isinstance(part, FormField)]
    return parts if names and len(set(names)) == len(names) else ()


def _field(name: str, node: Node) -> FormField:
    choices = node.nodes if isinstance(node, Select) else ()
    texts = [choice.value for choice in choices if isinstance(choice, Literal)]
    first = node
    while isinstance(first, Join):
        first = first.nodes[0]
    return FormField(
        name,
        pattern(node, {}),
        options=tuple(texts) if len(texts) == len(choices) else (),
        opening=first.value if isinstance(first, Literal) else "",
    )


#: Characters of a reply that an error quotes.
_QUOTED = 60


class Grammar:
    """A finite set of replies.

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

    def __init__(self, name: str, node: Node) -> None:
        self.name = name
        self.node = node

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, sha256={self.digest[:12]})"

    @cached_property
    def _text(self) -> str:
        return lark(self.node)

    @cached_property
    def _pattern(self) -> tuple[re.Pattern[str], dict[str, str]]:
        captures: dict[str, str] = {}
        return re.compile(pattern(self.node, captures)), captures

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
        compiled, captures = self._pattern
        match = compiled.fullmatch(text)
        groups = match.groupdict() if match else {}
        values = {captures[group]: value for group, value in groups.items() if value is not None}
        return values if match else None

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
            missing: set[str] = set()
            for part in _descendants(self.node):
                if isinstance(part, Literal):
                    missing.update(c for c in part.value if not words.spells(c))
                elif isinstance(part, Letter):
                    members = class_members(part.members)
                    missing.update(members if not any(map(words.spells, members)) else ())
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
        return sample(self.node, random.Random(seed))  # noqa: S311


def _bytes(character: str) -> int:
    return len(character.encode())
