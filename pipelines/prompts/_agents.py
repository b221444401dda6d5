"""Prompts of agents that browse page by page (SimUSER, appendices C.5-C.12; the wording is ours).

A few plain lines, as in `scoring.question: like`: small models follow a stated taste when they are
asked Yes or No (decision 44). The person stands first, then what is remembered, then the item, so
that engines compute once what prompts share. Texts from elsewhere (titles, stories, captions,
memories) are one harmless line each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.llm.engines import Message
from pipelines.prompts._ratings import CLOSED, answer_start
from pipelines.prompts._subjects import Row, person_lines, pronouns_of, subject_of
from pipelines.prompts._templates import one_line, render_template, template_digest
from pipelines.scales import SCALES

#: Bumped with every change of wording; the digest of the templates changes with it.
AGENT_PROMPT_VERSION = "3"
_TEMPLATES = (
    *("agent_person", "agent_memory", "agent_item", "agent_rate", "agent_say", "agent_leave"),
    "rating_like_question",
)


@dataclass(frozen=True, slots=True)
class ShownItem:
    """An item as a prompt describes it."""

    #: A row of the domain's `items`: title, year and genres are shown.
    row: Row
    #: Mean training rating on 1-5; None without one.
    mean: float | None
    story: str = ""
    caption: str = ""
    #: Titles of similar items and ratings on 1-5.
    similar: Sequence[tuple[str, float | None]] = ()
    #: Review text by another user; "" for none.
    comment: str = ""
    #: Number of reviews; None for none.
    reviews: int | None = None


def agent_prompt_digest() -> str:
    """SHA-256 (hex) of the templates."""
    return template_digest(*_TEMPLATES)


def agent_person(persona: Row, *, tastes: bool = True) -> str:
    """Facts about a person, a line each, with or without stated tastes.

    ``persona`` is a row of `personas`, or nothing.
    """
    lines = person_lines(persona)
    if not persona.get("name"):
        # Who is matched to an unknown person has no name, and a description of its lists.
        lines = [line for line in lines[1:] if line[0] != "Who this is"]
    if not tastes:
        lines = [line for line in lines if line[0] not in ("Likes", "Dislikes", "Who this is")]
    return render_template("agent_person", facts=lines)


def agent_item(domain: str, item: ShownItem) -> str:
    """An item and what its card says of it (SimUSER, appendix C.7)."""
    lines = [
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
    words = subject_of(domain)
    mean = None if item.mean is None else f"{item.mean:.1f}"
    title = words.title(item.row)
    return render_template("agent_item", words=words, title=title, mean=mean, lines=lines)


def memory_text(title: str, rating: float) -> str:
    """A training interaction as an entry of an episodic memory.

    >>> memory_text("Alien (1979)", 4.4)
    'Alien (1979): rated 4 of 5.'
    """
    return f"{one_line(title)}: rated {rating:.0f} of 5."


def agent_messages(
    question: str,
    domain: str,
    persona: Row,
    *,
    memories: Sequence[str] = (),
    item: str = "",
    begun: bool = True,
    **values: object,
) -> tuple[Message, ...]:
    """A question to an agent.

    Parameters
    ----------
    question
        `like` (Yes or No), `rate` (1 to 5), `say` (why an item was chosen and rated so, or not) or
        `leave` (why the visit ends).
    domain, persona
        Domain of the items and row of the person; without one, an empty row.
    memories
        Texts of entries that the agent recalls, oldest first.
    item
        Result of :func:`agent_item`; "" without one.
    begun
        Whether the prompt of `like` and `rate` ends in the beginning of the answer.
    values
        Of the question's template: of `say` ``rating`` (None if not chosen), ``tastes`` (genres of
        the item, in words) and ``opening``; of `leave` ``pages``, ``chosen`` (counts), ``ratings``,
        ``fatigue`` and ``opening``.
    """
    pronouns, words = pronouns_of(persona), subject_of(domain)
    texts = {"words": words, "pronouns": pronouns, "name": _name(persona)}
    name = "rating_like_question" if question == "like" else f"agent_{question}"
    asked = render_template(name, **texts, again=False, ordinal="", **values)
    past = [one_line(text) for text in memories]
    remembered = ""
    if past:
        remembered = render_template(
            "agent_memory", words=words, who=pronouns.subject, memories=past
        )
    # Who is to give a reason copies the lists of tastes: only those about the item are told.
    person = agent_person(persona, tastes=question in ("like", "rate"))
    blocks = (person, remembered, item, asked)
    user = Message("user", "\n\n".join(block.strip() for block in blocks if block.strip()))
    if not begun or question not in ("like", "rate"):
        return (user,)
    start = answer_start(SCALES["1-5"], question="like" if question == "like" else "scale")
    return (user, Message("assistant", start))


def like_options(*, begun: bool) -> tuple[str, ...]:
    """Answers to `like`, as they go on from the beginning; the first one is the yes."""
    return tuple(f" {word}" if begun else word for word in CLOSED["like"])


def _name(persona: Row) -> str:
    return one_line(str(persona.get("name") or "")) or "this person"
