"""What can be read off a Guidance grammar before any model runs it.

The grammars of this package are finite and built from five kinds of nodes: literals, one-character
classes, joins, choices and bounded repeats, under named rules. That is enough to compute their
longest sentence, their characters, an equivalent regular expression for reading replies, and
random sentences, each by one walk over the tree that also serialises to llguidance's text: the
grammar is declared once.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from guidance._ast import GrammarNode

__all__ = ["Alphabet", "Pattern", "alphabet", "class_members", "longest", "pattern", "sentence"]

#: Characters that a one-character class is asked about: the Basic Multilingual Plane's first
#: letters, punctuation included. Classes with members beyond it are refused.
_UNIVERSE = [chr(code) for code in range(0x20, 0x2100)]


@cache
def class_members(text: str) -> str:
    """The characters of a one-character class, ascending.

    >>> class_members("[a-c ]")
    ' abc'

    Raises
    ------
    ValueError
        If it is not a plain class such as ``[A-Za-z ]``: nothing else can be measured.
    """
    if not re.fullmatch(r"\[[^\[\]^]+\]", text):
        raise ValueError(f"only one-character classes can be measured, not {text!r}")
    compiled = re.compile(text)
    return "".join(c for c in _UNIVERSE if compiled.fullmatch(c))


def longest(node: GrammarNode, cost: Callable[[str], int]) -> int:
    """Greatest total cost of a sentence, where each character costs what `cost` says."""
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
        found = self.compiled.fullmatch(text)
        if found is None:
            return None
        groups = found.groupdict()
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
