"""The grammars of agents' replies (SimUSER, appendices C.4-C.11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pipelines.llm.grammars._grammar import Grammar
from pipelines.llm.grammars._parts import (
    TextLimits,
    captured,
    enumeration,
    integer,
    join,
    quoted,
    text,
)

if TYPE_CHECKING:
    from guidance._ast import GrammarNode

#: Kinds of feeling.
FELT = ("bad", "neutral", "good")
_REASON, _FEELING = TextLimits((1, 1), (8, 90)), TextLimits((1, 1), (4, 60))
_QUESTION, _INSIGHT = TextLimits((1, 1), (10, 80)), TextLimits((1, 1), (10, 110))
#: Questions and conclusions of a reflection, and entries that each rests on at most.
_THOUGHTS, EVIDENCE = 3, 3


def page_judgement(numbers: Sequence[int], *, rated: bool = True, watched: bool = False) -> Grammar:
    """Per number a reason, whether it is watched, and only then a rating and a feeling.

    Captures by number: ``reason1``, ``felt1`` (where watched, one of `FELT`), ``feeling1``, and
    ``rating1`` unless ratings are asked apart (`rated`). With `watched` every number is watched.

    >>> grammar = page_judgement([2])
    >>> text = '{"2":{"reason":"Too long for me now.","watch":"no"}}'
    >>> grammar.parse(text)
    {'reason2': 'Too long for me now.'}
    """
    from guidance._ast import SelectNode

    entries: list[GrammarNode | str] = []
    for number in numbers:
        rating: tuple[GrammarNode | str, ...] = ()
        if rated:
            rating = ('"rating":', captured(f"rating{number}", integer(1, 5)), ",")
        seen = join(
            '"yes",',
            *rating,
            '"felt":"',
            captured(f"felt{number}", enumeration(FELT)),
            '","feeling":"',
            captured(f"feeling{number}", text(_FEELING)),
            '"}',
        )
        entries += [
            f'{"," if entries else ""}"{number}":{{"reason":"',
            captured(f"reason{number}", text(_REASON)),
            '","watch":',
            seen if watched else SelectNode((seen, join('"no"}'))),
        ]
    kind = ("judge" if rated else "judge, ratings apart") + (", all watched" if watched else "")
    return Grammar(f"agents/{kind}", join("{", *entries, "}"))


def page_arguments(numbers: Sequence[int]) -> Grammar:
    """Arguments for and against each number: ``for1``, ``against1``."""
    entries: list[GrammarNode | str] = []
    for number in numbers:
        entries += [
            f'{"," if entries else ""}"{number}":{{"for":"',
            captured(f"for{number}", text(_FEELING)),
            '","against":"',
            captured(f"against{number}", text(_FEELING)),
            '"}',
        ]
    return Grammar("agents/arguments", join("{", *entries, "}"))


def page_decision(
    moods: Sequence[str], fatigue: Sequence[str], emotions: Sequence[str], actions: Sequence[str]
) -> Grammar:
    """Mood, satisfaction 0-10, fatigue, emotion, a reason, and one of the possible actions."""
    return Grammar(
        "agents/decide",
        join(
            '{"mood":"',
            captured("mood", enumeration(moods)),
            '","satisfaction":',
            captured("satisfaction", integer(0, 10)),
            ',"fatigue":"',
            captured("fatigue", enumeration(fatigue)),
            '","emotion":"',
            captured("emotion", enumeration(emotions)),
            '","reason":"',
            captured("reason", text(_REASON)),
            '","action":"',
            captured("action", enumeration([quoted(action) for action in actions])),
            '"}',
        ),
    )


def page_reflection(entries: Sequence[int]) -> Grammar:
    """Three questions and three conclusions, each resting on one to three of these entries.

    Captures: ``question0`` … ``question2``, ``insight0`` …, and ``evidence0`` …, numbers with
    commas. Without entries evidence is empty.
    """
    from guidance._ast import RepeatNode

    number = enumeration([str(entry) for entry in entries]) if entries else None
    parts: list[GrammarNode | str] = ['{"questions":["']
    for n in range(_THOUGHTS):
        parts += ['","' if n else "", captured(f"question{n}", text(_QUESTION))]
    parts.append('"],"insights":[')
    for n in range(_THOUGHTS):
        cited = join("")
        if number is not None:
            cited = join(number, RepeatNode(join(",", number), 0, EVIDENCE - 1))
        parts += [
            f'{"," if n else ""}{{"insight":"',
            captured(f"insight{n}", text(_INSIGHT)),
            '","evidence":[',
            captured(f"evidence{n}", cited) if number is not None else "",
            "]}",
        ]
    return Grammar("agents/reflect", join(*parts, "]}"))


def self_questions() -> Grammar:
    """Grammar of one to three questions: ``question0`` … ``question2``."""
    from guidance._ast import RepeatNode

    first = join('{"questions":["', captured("question0", text(_QUESTION)), '"')
    second = join(',"', captured("question1", text(_QUESTION)), '"')
    third = join(',"', captured("question2", text(_QUESTION)), '"')
    more = RepeatNode(join(second, RepeatNode(third, 0, 1)), 0, 1)
    return Grammar("agents/ask", join(first, more, "]}"))
