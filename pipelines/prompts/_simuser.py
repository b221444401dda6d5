"""Prompts of SimUSER: captions, matching, agents, experiments (the wording is ours).

Captions (appendix C.3) leave the title out, so that nothing is recited of it. In matching (section
3.1) what several questions about a user share stands first: the history for the summary and the
candidates, the persona for the ratings of its lists. Prompts of agents that browse page by page
(C.5-C.12) are a few plain lines, as in `scoring.question: like`: small models follow a stated taste
when they are asked Yes or No (decision 44). The person stands first, then what is remembered, then
the item, so that engines compute once what prompts share. Texts from elsewhere (titles, stories,
captions, memories) are one harmless line each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.llm.engines import Image, Message
from pipelines.prompts._ratings import CLOSED, answer_start, opinion_of
from pipelines.prompts._texts import (
    Row,
    Subject,
    one_line,
    person_lines,
    pronouns_of,
    render_template,
    subject_of,
    template_digest,
)
from pipelines.scales import SCALES

#: Bumped with every change of wording; the digest of the templates changes with it.
CAPTION_PROMPT_VERSION = "1"
_CAPTION_TEMPLATES = ("caption_system", "caption_user")


def caption_prompt_digest() -> str:
    """SHA-256 (hex) of the templates."""
    return template_digest(*_CAPTION_TEMPLATES)


def caption_messages(image: Image) -> tuple[Message, ...]:
    """Ask for a caption of a picture; its title is left out, so that nothing is recited of it."""
    return (
        Message("system", render_template("caption_system")),
        Message("user", render_template("caption_user"), (image,)),
    )


#: Bumped with every change of wording; the digest of the templates changes with it.
MATCHING_PROMPT_VERSION = "1"
_MATCHING_TEMPLATES = tuple(
    f"matching_{n}" for n in ("system", "history", "taste", "persona", "rate")
)
_LEVELS = {1: "low", 2: "medium", 3: "high"}


def matching_prompt_digest() -> str:
    """SHA-256 (hex) of the templates."""
    return template_digest(*_MATCHING_TEMPLATES)


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


#: Bumped with every change of wording; the digest of the templates changes with it.
AGENT_PROMPT_VERSION = "4"
_AGENT_TEMPLATES = (
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
    return template_digest(*_AGENT_TEMPLATES)


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
        one_line(title) + (f" ({opinion_of(rating, SCALES['1-5'])})" if rating is not None else "")
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

    ``rating`` is on 1-5. It stands there in a word: small models take any number for praise.

    >>> memory_text("Alien (1979)", 4.4)
    'Alien (1979): liked.'
    """
    return f"{one_line(title)}: {opinion_of(rating, SCALES['1-5'])}."


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
        True if the prompt of `like` and `rate` ends in the beginning of the answer.
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


_EXPERIMENT_TEMPLATES = ("genre_system", "genre_user", "log_system", "log_user")


def experiment_prompt_digest() -> str:
    """SHA-256 (hex) of the templates."""
    return template_digest(*_EXPERIMENT_TEMPLATES)


def genre_messages(domain: str, title: str, genres: Sequence[str]) -> tuple[Message, ...]:
    """Ask for the genre of an item by its title (with its year) alone.

    ``domain`` is `movies`, `books` or `games`; ``genres`` are the possible answers.
    """
    words = subject_of(domain)
    names = [one_line(name) for name in genres]
    return (
        Message("system", render_template("genre_system", words=words)),
        Message(
            "user", render_template("genre_user", words=words, title=one_line(title), genres=names)
        ),
    )


def log_line(title: str, genres: Sequence[str], rating: float) -> str:
    """An entry of a log: an item that was watched, and its rating on 1-5.

    >>> log_line("Alien (1979)", ["Horror", "Sci-Fi"], 4.0)
    'watched "Alien (1979)" (Horror, Sci-Fi), rated 4 of 5'
    """
    kinds = f" ({', '.join(one_line(genre) for genre in genres)})" if genres else ""
    return f'watched "{one_line(title)}"{kinds}, rated {rating:g} of 5'


def log_messages(domain: str, history: Sequence[str], log: Sequence[str]) -> tuple[Message, ...]:
    """Ask how much a log looks like that of a real person, without its source.

    ``domain`` is `movies`, `books` or `games`; ``history`` (what the person rated before) and
    ``log`` (what is judged) are lines of :func:`log_line`.
    """
    words = subject_of(domain)
    asked = render_template("log_user", history=list(history), log=list(log))
    return (Message("system", render_template("log_system", words=words)), Message("user", asked))
