"""The grammars of replies in shopping dialogues (BIEL, figures 10-16)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pipelines.llm.grammars._grammar import Grammar, Node, Select
from pipelines.llm.grammars._parts import TextLimits, captured, entries, integer, join, text

#: As the body of other texts, with the signs that prices and measures need.
_LETTERS = "[A-Za-z0-9 ,;:'()$%&/+-]"
_QUESTION, _THOUGHT = TextLimits((1, 1), (8, 140)), TextLimits((1, 2), (8, 200))
_TEXTS = {
    "answer": TextLimits((1, 1), (1, 140)),
    "feedback": TextLimits((1, 2), (8, 160)),
    "summary": TextLimits((1, 3), (8, 180)),
}


def dialogue_action(
    products: int, *, ask: bool = True, sell: bool = True, thought: bool = False
) -> Grammar:
    r"""A question of one line (`ask`) or the number of a product (`sell`), a `thought` before it.

    Captures: ``thought``, and ``question`` or ``product`` (1 to `products`).

    >>> dialogue_action(20).parse("RECOMMEND: 17")
    {'product': '17'}
    >>> dialogue_action(20, thought=True).parse("THOUGHT: It is for a child.\nRECOMMEND: 21")
    >>> dialogue_action(20, sell=False).parse("QUESTION: Is it under $20 that you look for?")
    {'question': 'Is it under $20 that you look for?'}
    """
    actions: list[Node] = []
    if ask:
        question = text(_QUESTION, letters=_LETTERS, end="[?]")
        actions.append(join("QUESTION: ", captured("question", question)))
    if sell:
        actions.append(join("RECOMMEND: ", captured("product", integer(1, products))))
    parts: list[Node | str] = []
    if thought:
        parts = ["THOUGHT: ", captured("thought", text(_THOUGHT, letters=_LETTERS)), "\n"]
    parts.append(actions[0] if len(actions) == 1 else Select(tuple(actions)))
    return Grammar("dialogue/act", join(*parts))


def dialogue_percentages(claims: Sequence[str]) -> Grammar:
    """A percentage, 0 to 100, for each claim, as one JSON object; captured by name."""
    held = entries(((claim, captured(claim, integer(0, 100))) for claim in claims), quote="")
    return Grammar("dialogue/percentages", join("{", *held, "}"))


def dialogue_text(kind: Literal["answer", "feedback", "summary"]) -> Grammar:
    """One line: an answer of one sentence, feedback of two or a summary of three; ``text``.

    An answer begins with *I*: a small model else speaks about the person, or to it.

    >>> dialogue_text("answer").parse("I pay between $10 and $15.")
    {'text': 'I pay between $10 and $15.'}
    """
    opening = "I " if kind == "answer" else ""
    words = text(_TEXTS[kind], opening, letters=_LETTERS)
    return Grammar(f"dialogue/{kind}", captured("text", words))
