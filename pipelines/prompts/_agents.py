"""Prompts of agents that browse page by page (SimUSER, appendices C.4-C.12; the wording is ours).

What the questions to one agent share stands first, so that engines compute it once: who it is and
what its habits are, then the page; what it remembers differs by question and follows. Items are
named by their number on the page, never by title. Texts from elsewhere (titles, stories, captions,
memories) are one harmless line each, between tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pipelines.llm.engines import Message
from pipelines.prompts._ratings import answer_start
from pipelines.prompts._subjects import Row, person_lines, subject_of
from pipelines.prompts._templates import one_line, render_template, template_digest
from pipelines.scales import SCALES

#: Bumped with every change of wording; the digest of the templates changes with it.
AGENT_PROMPT_VERSION = "2"
_QUESTIONS = ("arguments", "ask", "classify", "decide", "interview", "judge", "rate", "reflect")
_TEMPLATES = ("agent_system", "agent_page", "agent_user", *(f"agent_{q}" for q in _QUESTIONS))
#: Habits in words, by column and tier.
_HABITS: dict[str, dict[str, str]] = {
    "activity": {
        "low": "You look at little and stop early.",
        "medium": "You browse for a while, then stop.",
        "high": "You browse for long and try a lot.",
    },
    "conformity": {
        "low": "Your ratings often differ from other people's.",
        "medium": "Other people's ratings move yours a little.",
        "high": "You mostly rate as other people do.",
    },
    "diversity": {
        "low": "You stay with the kinds you know.",
        "medium": "You now and then try another kind.",
        "high": "You like to try kinds that you don't know.",
    },
    "pickiness": {
        "extremely_picky": "You are very picky.",
        "moderately_picky": "You are somewhat picky.",
        "not_picky": "You are not picky.",
    },
}


@dataclass(frozen=True, slots=True)
class ShownItem:
    """An item on a page, as the prompt describes it."""

    #: Its number on the page, from 1.
    number: int
    title: str
    #: Mean training rating on 1-5; None without one.
    mean: float | None
    story: str
    caption: str
    #: Titles of similar items and ratings on 1-5.
    similar: Sequence[tuple[str, float | None]] = ()
    #: Review text by another user; "" for none.
    comment: str = ""
    #: Number of reviews; None for none.
    reviews: int | None = None


def agent_prompt_digest() -> str:
    """SHA-256 (hex) of the templates."""
    return template_digest(*_TEMPLATES)


def agent_system(domain: str, persona: Row, habits: Mapping[str, str]) -> str:
    """System message of an agent: the beginning of every prompt.

    ``domain`` is `movies`, `books` or `games`, ``persona`` a row of `personas`; ``habits`` are
    tiers by name: `activity`, `conformity`, `diversity`, `pickiness`; others are left out.
    """
    lines = [_HABITS[name][tier] for name, tier in habits.items() if tier in _HABITS.get(name, {})]
    return render_template(
        "agent_system", words=subject_of(domain), facts=person_lines(persona), habits=lines
    )


def page_block(page: int, items: Sequence[ShownItem]) -> str:
    """A page of recommendations, item by item (SimUSER, appendix C.7)."""
    rows = []
    for item in items:
        lines = []
        if item.mean is not None:
            lines.append(f"average rating {item.mean:.1f} of 5")
        lines += [
            f"{label}: {text}"
            for label, text in (("story", one_line(item.story)), ("poster", one_line(item.caption)))
            if text
        ]
        if item.reviews is not None:
            lines.append(f"reviews: {item.reviews}")
        if item.comment:
            lines.append(f"comment of somebody else: {one_line(item.comment)}")
        near = [
            one_line(title) + (f" ({rating:.1f}/5)" if rating is not None else "")
            for title, rating in item.similar
        ]
        if near:
            lines.append(f"similar: {'; '.join(near)}")
        rows.append((item.number, one_line(item.title), lines))
    return render_template("agent_page", page=page, rows=rows)


def memory_text(domain: str, title: str, rating: float, opinion: str) -> str:
    """A training interaction as an entry of an episodic memory.

    >>> memory_text("movies", "Alien (1979)", 4.5, "liked")
    'You liked the film "Alien (1979)": 4.5 of 5.'
    """
    words = {"liked": "liked", "disliked": "disliked"}.get(opinion, "were indifferent to")
    return f'You {words} the {subject_of(domain).item} "{one_line(title)}": {rating:g} of 5.'


def agent_messages(
    question: str,
    domain: str,
    system: str,
    *,
    memories: Sequence[tuple[int, str]] = (),
    page: str = "",
    fault: str | None = None,
    begun: bool = False,
    **values: object,
) -> tuple[Message, ...]:
    """A question to an agent.

    Parameters
    ----------
    question
        `judge`, `rate`, `arguments`, `decide`, `reflect`, `interview`, `classify` or `ask`.
    domain, system
        As of :func:`agent_system`, and its result.
    memories
        Numbers and texts of entries that the agent recalls, oldest first.
    page
        Result of :func:`page_block`; "" without one.
    fault
        Fault of the last reply to the same question.
    begun
        Whether the prompt ends in the beginning of an answer on 1-5.
    values
        Of the question's template.
    """
    user = render_template(
        "agent_user",
        memories=[(number, one_line(text)) for number, text in memories],
        page=page,
        question=render_template(f"agent_{question}", words=subject_of(domain), **values),
        fault=None if fault is None else one_line(fault),
    )
    asked = (Message("system", system), Message("user", user))
    return (*asked, Message("assistant", answer_start(SCALES["1-5"]))) if begun else asked
