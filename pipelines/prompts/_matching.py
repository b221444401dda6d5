"""Prompts of persona matching (SimUSER, section 3.1 and appendix C; the wording is ours).

What several questions about a user share stands first: the history for the summary and the
candidates, the persona for the ratings of its lists.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.llm.engines import Message
from pipelines.prompts._ratings import answer_start
from pipelines.prompts._subjects import Row, Subject, subject_of
from pipelines.prompts._templates import one_line, render_template, template_digest
from pipelines.scales import SCALES

#: Bumped with every change of wording; the digest of the templates changes with it.
MATCHING_PROMPT_VERSION = "1"
_TEMPLATES = tuple(f"matching_{n}" for n in ("system", "history", "taste", "persona", "rate"))
_LEVELS = {1: "low", 2: "medium", 3: "high"}


def matching_prompt_digest() -> str:
    """SHA-256 (hex) of the templates."""
    return template_digest(*_TEMPLATES)


def history_block(domain: str, rated: Sequence[tuple[Row, int]]) -> str:
    """Items as lists of liked (1), disliked (-1) and other (0) ones."""
    words = subject_of(domain)
    by_opinion: dict[int, list[str]] = {1: [], -1: [], 0: []}
    for item, opinion in rated:
        by_opinion[opinion].append(words.title(item))
    return render_template(
        "matching_history",
        words=words,
        liked=by_opinion[1],
        disliked=by_opinion[-1],
        others=by_opinion[0],
    )


def taste_messages(domain: str, history: str) -> tuple[Message, ...]:
    """Ask for a summary of tastes (s_u) from a :func:`history_block`."""
    return _ask(subject_of(domain), "matching_taste", history=history)


def candidate_messages(
    domain: str, history: str, taste: str, *, ages: Sequence[str], occupations: Sequence[str]
) -> tuple[Message, ...]:
    """Ask for a persona that fits a history and its summary."""
    return _ask(
        subject_of(domain),
        "matching_persona",
        history=history,
        taste=one_line(taste),
        ages=ages,
        occupations=occupations,
    )


def likeness_messages(
    domain: str, candidate: Mapping[str, Any], taste: str, history: str, *, begun: bool = True
) -> tuple[Message, ...]:
    """Ask a persona how likely it is to like what is marked as liked in a list, from 1 to 10.

    Null attributes of the candidate are left out. ``begun``: see
    :class:`pipelines.prompts.PromptStyle`.
    """
    words = subject_of(domain)
    asked = _ask(
        words, "matching_rate", person=_person(candidate), taste=one_line(taste), history=history
    )
    return (*asked, Message("assistant", answer_start(SCALES["1-10"]))) if begun else asked


def _ask(words: Subject, template: str, **values: Any) -> tuple[Message, ...]:
    system = render_template("matching_system", words=words)
    return Message("system", system), Message(
        "user", render_template(template, words=words, **values)
    )


def _person(candidate: Mapping[str, Any]) -> str:
    """A candidate in words.

    >>> _person({"age_band": "25-34", "occupation": "writer", "openness": 3})
    'a person aged 25-34, occupation: writer, with high openness'
    """
    age, job = candidate.get("age_band"), candidate.get("occupation")
    out = "a person" if age is None else f"a person aged {age}"
    if job is not None:
        out += f", occupation: {job}"
    traits = [
        f"{_LEVELS[int(level)]} {name}"
        for name, level in candidate.items()
        if name not in ("age_band", "occupation") and level in _LEVELS
    ]
    return f"{out}, with {', '.join(traits)}" if traits else out
