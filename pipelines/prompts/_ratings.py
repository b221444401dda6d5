"""The prompt that asks a model what a persona gives an item.

Every function is pure. What all items of one persona and history share stands first (system,
worked examples, person, past ratings), the item last, so that engines compute the beginning
once. Only ratings are converted between scales; text is never rewritten, apart from
:func:`pipelines.prompts.one_line`, which makes it harmless.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from pipelines.errors import ConfigError
from pipelines.llm.engines import Message
from pipelines.packaged import packaged_yaml
from pipelines.prompts._ledger import ARROW, ledger_item, ledger_person, ledger_words, surpluses
from pipelines.prompts._personas import DOMAIN_WORDS
from pipelines.prompts._texts import (
    SUBJECTS,
    Row,
    Subject,
    gender_of,
    one_line,
    person_lines,
    pronouns_of,
    render_template,
    subject_of,
    template_digest,
)
from pipelines.scales import SCALES, RatingScale, rescale

if TYPE_CHECKING:
    from pipelines.llm.engines.tokens import ScaleReading


@dataclass(frozen=True)
class Example:
    """A person, an item, how the one rates the other, and others' mean (both on 1-10)."""

    persona: dict[str, Any]
    item: dict[str, Any]
    rating: float
    mean: float


#: By domain: the high one, then the low one.
EXAMPLES: dict[str, tuple[Example, Example]] = {
    domain: (Example(**high), Example(**low))
    for domain, (high, low) in packaged_yaml("pipelines.prompts", "examples.yaml")[
        "examples"
    ].items()
}


def scale_report(tokenizer: Any, scale: RatingScale, context: str | None = None) -> ScaleReading:
    """Answers that are one token for a model, and those that are scored as sequences.

    ``context`` stands before the answer (default: the rating prompt's own last words). EngineError
    if the tokenizer can't tell two answers apart.
    """
    from pipelines.llm.engines.tokens import read_scale

    before = answer_start(scale) if context is None else context
    return read_scale(tokenizer, rating_options(scale), before)


#: Bumped with every change of wording; the digest changes with it.
RATING_PROMPT_VERSION = "1"
_TEMPLATES = (
    "rating_system",
    "rating_rules",
    "rating_person",
    "rating_item",
    "rating_question",
    "rating_explain",
)
_LIST_TEMPLATES = (
    *("rating_list_system", "rating_rules", "rating_list_shelf", "rating_person"),
    "rating_list_question",
)
_LEDGER_TEMPLATES = ("rating_ledger_system", "rating_explain")
_PLAIN_TEMPLATES = ("rating_plain_person", "rating_plain_item", "rating_plain_question")
_CLOSED_TEMPLATES = (
    *("rating_closed_person", "rating_closed_past", "rating_like_question"),
    *("rating_compare_items", "rating_compare_question"),
)
Layout = Literal["letter", "plain", "ledger"]
Question = Literal["scale", "like", "compare"]
QUESTIONS: tuple[Question, ...] = ("scale", "like", "compare")
_START, _CLOSED_START = "Rating:", "Answer:"
#: Answers to the questions that are no scale: the first one speaks for the item (or the first one).
CLOSED: dict[str, tuple[str, str]] = {"like": ("Yes", "No"), "compare": ("A", "B")}
#: Words for past ratings beside such a question, which small models take for likings as numbers,
#: and the share of the scale from which they hold.
_OPINIONS = (("liked", 0.72), ("found middling", 0.5), ("disliked", 0.0))
#: Scale of the worked examples.
_EXAMPLE = SCALES["1-10"]


@dataclass(frozen=True)
class Past:
    """An earlier rating, on its own scale; it is shown on the scale of the prompt.

    A ledger also shows the `mean` of `raters` other people, on the scale of the prompt.
    """

    item: Row
    rating: float
    scale: RatingScale
    mean: float | None = None
    raters: int = 0


@dataclass(frozen=True)
class PromptStyle:
    """Properties that all prompts of a run share."""

    #: `movies`, `books`, `games` or `products` (else ConfigError).
    domain: str
    #: Scale of the answers.
    scale: RatingScale
    #: Worked examples: 0, 1 (rated high) or 2 (high and low); more are a ConfigError.
    shots: int = 0
    #: Role of the model, instead of our own text; the rules about scale and reply follow it in any
    #: case.
    system: str | None = None
    #: True if the prompt ends in the beginning of the answer. Servers with nothing but a chat
    #: endpoint can't go on from one.
    begun: bool = True
    #: True if the chat template knows a system message; else its text opens the first user message.
    system_role: bool = True
    #: ``letter``: the person, past ratings and the item in tagged blocks of their own, behind a
    #: role and rules. ``plain``: a few untagged lines, without role, rules and plot. ``ledger``:
    #: past ratings and the item as lines of one form, each ending with its rating; no plot, and
    #: worked examples are a ConfigError, since every line is one.
    layout: Layout = "letter"
    #: ``scale`` asks for a rating, ``like`` whether the person will like the item (yes or no),
    #: ``compare`` which of two items the person will like better. The last two are a few lines:
    #: their layout is `plain`, without worked examples (else ConfigError).
    question: Question = "scale"

    def __post_init__(self) -> None:
        subject_of(self.domain)
        if self.question != "scale" and (self.shots or self.layout != "plain"):
            raise ConfigError(
                f"the question {self.question} is plain, without worked examples",
                where=f"layout {self.layout}, shots {self.shots}",
            )
        if self.layout == "ledger" and self.shots:
            raise ConfigError("a ledger has no worked examples", where=f"shots is {self.shots}")
        if self.shots not in (0, 1, 2):
            raise ConfigError("there are two worked examples", where=f"shots is {self.shots}")

    @property
    def subject(self) -> Subject:
        """Words for the items."""
        return subject_of(self.domain)


def _lasting(words: dict[str, Any]) -> str:
    """Words of all domains but own data, which came later: answers were paid for by then."""
    return repr({domain: own for domain, own in words.items() if domain != "own"})


def rating_prompt_digest(layout: Layout = "letter", question: Question = "scale") -> str:
    """SHA-256 (hex) of the layout's templates, the worked examples and the domains' words."""
    if question != "scale":
        asked = f"{question}\0{template_digest(*_CLOSED_TEMPLATES)}\0{CLOSED}\0{_CLOSED_START}"
        anchors = {domain: anchor_items(domain) for domain in SUBJECTS}
        content = f"{rating_prompt_digest('plain')}\0{asked}\0{anchors}"
    elif layout == "ledger":
        content = f"{template_digest(*_LEDGER_TEMPLATES)}\0{_lasting(SUBJECTS)}\0{ledger_words()}"
    else:
        names = _TEMPLATES if layout == "letter" else (*_TEMPLATES, *_PLAIN_TEMPLATES)
        content = f"{template_digest(*names)}\0{_lasting(EXAMPLES)}\0{_lasting(SUBJECTS)}\0{_START}"
    return hashlib.sha256(content.encode()).hexdigest()


def anchor_items(domain: str) -> list[dict[str, Any]]:
    """Items that every person is asked about, the same in all runs: one of each genre.

    Answers to them tell how readily a model says yes for a person, and items are compared with
    them. Where genres are no words of a prompt (`products`, `own`) they are the worked examples.
    """
    if domain in ("products", "own"):
        return [example.item for example in EXAMPLES[domain]]
    return [{"genres": [genre]} for genre in DOMAIN_WORDS[domain].default]


def answer_start(scale: RatingScale, layout: str = "letter", question: Question = "scale") -> str:
    """The beginning of the answer, behind which :func:`rating_options` stand.

    Digits follow a space of the start's own. Words bring theirs: tokenizers keep `` seven`` as
    one token where they cut ``seven`` in two.
    """
    if question != "scale":
        return _CLOSED_START
    start = ARROW if layout == "ledger" else _START
    return start if scale.words else f"{start} "


def rating_options(
    scale: RatingScale, *, begun: bool = True, question: Question = "scale"
) -> tuple[str, ...]:
    """The answers of a scale, ascending, or of another question, as they go on from the start.

    >>> rating_options(SCALES["1-5"]), rating_options(SCALES["one-ten"])[6]
    (('1', '2', '3', '4', '5'), ' seven')
    """
    texts = CLOSED.get(question, scale.texts)
    spaced = begun and (scale.words or question != "scale")
    return tuple(f" {text}" for text in texts) if spaced else texts


def person_block(persona: Row, past: Sequence[Past], style: PromptStyle) -> str:
    """The persona and what it rated before, oldest first.

    Past ratings are shown as answers of the scale in use (the nearest, a tie goes up). Beside a
    question with two answers they stand in the question itself.
    """
    given = [float(rescale(one.rating, one.scale, style.scale)) for one in past]
    ratings = [style.scale.text_of(rating) for rating in given]
    if style.layout == "ledger":
        rows = [
            ledger_item(one.item, style.subject, style.scale, one.mean, one.raters) for one in past
        ]
        facts = [(r, one.mean, one.raters) for r, one in zip(given, past, strict=True)]
        return ledger_person(persona, list(zip(rows, ratings, surpluses(facts), strict=True)))
    shown = [
        (rating, style.subject.title(one.item)) for rating, one in zip(ratings, past, strict=True)
    ]
    lines = person_lines(persona)
    pronouns = pronouns_of(persona)
    # An unknown name carries no information.
    named = lines if persona.get("name") else lines[1:]
    if style.question != "scale":
        return render_template(
            "rating_closed_person",
            facts=named,
        )
    if style.layout == "plain":
        texts = style.scale.texts
        return render_template(
            "rating_plain_person",
            facts=named,
            past=shown,
            who=pronouns.subject,
            words=style.subject,
            low=texts[0],
            high=texts[-1],
        )
    return render_template("rating_person", facts=lines, past=shown, who=pronouns.object)


def opinion_of(rating: float, scale: RatingScale) -> str:
    """A past rating in a word.

    >>> [opinion_of(r, SCALES["1-5"]) for r in (4.0, 3.5, 2.0)]
    ['liked', 'found middling', 'disliked']
    """
    share = (rating - scale.low) / (scale.high - scale.low)
    return next(opinion for opinion, least in _OPINIONS if share >= least)


def _opinions(persona: Row, past: Sequence[Past], style: PromptStyle) -> str:
    """Past ratings in sentences, a line; empty without any.

    Right before the question: further ahead, a small model does not tell what was liked from what
    was not.
    """
    if not past:
        return ""
    titles: dict[str, list[str]] = {opinion: [] for opinion, _ in _OPINIONS}
    for rated in past:
        titles[opinion_of(rated.rating, rated.scale)].append(style.subject.name(rated.item))
    return render_template(
        "rating_closed_past",
        opinions={opinion: names for opinion, names in titles.items() if names},
        pronouns=pronouns_of(persona),
    )


def item_block(
    item: Row,
    style: PromptStyle,
    *,
    mean: float | None = None,
    words: int | None = None,
    raters: int = 0,
) -> str:
    """An item's row as text; null columns are left out.

    ``mean`` is what others gave it on average, on the scale in use; ``words`` limits its plot or
    description (None: all of it). Neither a plain prompt nor a ledger shows a plot; a ledger
    shows the mean of `raters` people.
    """
    subject = style.subject
    if style.layout == "ledger":
        return ledger_item(item, subject, style.scale, mean, raters)
    if style.layout == "plain":
        # A small model takes any number for praise.
        shown = None if mean is None or style.question != "scale" else f"{mean:.1f}"
        title = subject.title(item)
        return render_template("rating_plain_item", title=title, mean=shown, words=subject)
    lines = subject.lines(item, words)
    if mean is not None:
        low, high = style.scale.low, style.scale.high
        # Before the long text, so that what is cut stands last.
        lines.insert(
            len(lines) - bool(lines and lines[-1][0] == subject.plot.label),
            ("Average rating", f"{mean:.1f} (from {low:g} to {high:g})"),
        )
    return render_template("rating_item", facts=lines, words=subject)


def compare_block(first: str, second: str, style: PromptStyle) -> str:
    """Two items as text, of titles by :meth:`Subject.title`."""
    return render_template("rating_compare_items", words=style.subject, first=first, second=second)


def rating_messages(
    persona: Row,
    item: Row | str,
    style: PromptStyle,
    *,
    past: Sequence[Past] = (),
    mean: float | None = None,
    viewing: int = 1,
    person: str | None = None,
) -> tuple[Message, ...]:
    """The conversation that ends where the rating goes.

    System, examples as turns, one user message (person, past, item, question) and the answer's
    beginning. Prompts of one persona and past differ from the item on only.

    Parameters
    ----------
    persona
        A row of `personas`; any column but the ones at hand may be missing.
    item
        A row of the domain's `items`, or what :func:`item_block` made of it.
    style
        The run's.
    past
        Earlier ratings, oldest first.
    mean
        As of :func:`item_block`.
    viewing
        Ordinal of this meeting of persona and item (1 is the first).
    person
        Result of :func:`person_block` for persona and past, to save making it again. Questions with
        two answers need `past` too.
    """
    if style.layout == "ledger":
        return _ledger(persona, item, style, past, mean, person)
    ask = _question(gender_of(persona), viewing, style)
    if style.question != "scale":
        ask = f"{_opinions(persona, past, style)} {ask}".strip()
    return _conversation(persona, item, style, past, mean, person, ask)


def explain_messages(
    persona: Row,
    item: Row | str,
    rating: float,
    style: PromptStyle,
    *,
    past: Sequence[Past] = (),
    viewing: int = 1,
    person: str | None = None,
) -> tuple[Message, ...]:
    """The conversation that asks why the persona gave the rating (on the style's scale)."""
    ask = render_template(
        "rating_explain",
        words=style.subject,
        pronouns=pronouns_of(persona),
        ordinal=_ordinal(viewing),
        rating=style.scale.text_of(rating),
        low=style.scale.texts[0],
        high=style.scale.texts[-1],
        sentences="one or two short sentences",
    )
    if style.question != "scale":
        ask = f"{_opinions(persona, past, style)} {ask}".strip()
    system = _system(style, "Reply with the reason, nothing else.")
    text = f"{_person(persona, past, style, person)}\n\n{_item(item, style, None)}\n\n{ask}"
    return _with_system(system, [Message("user", text)], style)


def list_prompt_digest() -> str:
    """SHA-256 (hex) of the templates of :func:`list_messages` and the words for each domain."""
    content = f"{template_digest(*_LIST_TEMPLATES)}\0{_lasting(SUBJECTS)}"
    return hashlib.sha256(content.encode()).hexdigest()


def choice_set_block(
    category: str, items: Sequence[Row], style: PromptStyle, words: int | None
) -> str:
    """Items of a choice set as text, numbered from 1; ``words`` limits each one's description."""
    return render_template(
        "rating_list_shelf",
        words=style.subject,
        category=one_line(category),
        products=[style.subject.lines(item, words) for item in items],
    )


def list_messages(persona: Row, shelf: str, count: int, style: PromptStyle) -> tuple[Message, ...]:
    """The conversation that asks for the ratings of a whole choice set (BIEL, figure 10a).

    The shelf (:func:`choice_set_block`, of ``count`` items) stands before the person, so that
    prompts of one set begin alike. Worked examples are not shown.
    """
    words, texts = style.subject, style.scale.texts
    reply = (
        f"Reply with one JSON object: its keys are the numbers of all {words.items} on the shelf, "
        f"in order, each value is a whole number from {texts[0]} to {texts[-1]}. Nothing else."
    )
    system = style.system or render_template("rating_list_system", words=words)
    rules = render_template("rating_rules", words=words, low=texts[0], high=texts[-1], reply=reply)
    question = render_template(
        "rating_list_question",
        words=words,
        pronouns=pronouns_of(persona),
        count=count,
        low=texts[0],
        high=texts[-1],
    )
    text = f"{shelf}\n\n{person_block(persona, (), style)}\n\n{question}"
    return _with_system(f"{system.strip()}\n\n{rules}", [Message("user", text)], style)


def _conversation(
    persona: Row,
    item: Row | str,
    style: PromptStyle,
    past: Sequence[Past],
    mean: float | None,
    person: str | None,
    ask: str,
) -> tuple[Message, ...]:
    blocks = (_person(persona, past, style, person), _item(item, style, mean), ask)
    # A plain prompt has no line on a person of whom nothing is known.
    text = "\n\n".join(block for block in blocks if block)
    opened = _opening(style)
    if not style.system_role and len(opened) == 1 and opened[0].role == "user":
        text, opened = f"{opened[0].content}\n\n{text}", ()
    messages = (*opened, Message("user", text))
    if style.begun:
        start = answer_start(style.scale, question=style.question)
        return (*messages, Message("assistant", start))
    return messages


def _ledger(
    persona: Row,
    item: Row | str,
    style: PromptStyle,
    past: Sequence[Past],
    mean: float | None,
    person: str | None,
) -> tuple[Message, ...]:
    """The ledger of a person, whose last line lacks the rating."""
    begun = style.begun
    lines = [_person(persona, past, style, person), _item(item, style, mean)]
    text = "\n".join(line for line in lines if line) + ("" if begun else f" {ARROW}")
    opened = _with_system(_ledger_system(style), [Message("user", text)], style)
    start = (Message("assistant", answer_start(style.scale, style.layout)),) if begun else ()
    return (*opened, *start)


@lru_cache(maxsize=64)
def _ledger_system(style: PromptStyle) -> str:
    form = _form(style.scale)
    start = f'"{ARROW}" and ' if style.begun else ""
    rules = render_template(
        "rating_ledger_system",
        words=style.subject,
        low=style.scale.texts[0],
        high=style.scale.texts[-1],
        reply=f"Reply with {start}{form}, nothing else.",
    )
    return f"{style.system.strip()}\n\n{rules}" if style.system else rules


def _form(scale: RatingScale) -> str:
    """Form of an answer, in words."""
    if scale.words:
        return "one of the words " + ", ".join(scale.texts)
    return f"a whole number from {scale.texts[0]} to {scale.texts[-1]}"


def _person(persona: Row, past: Sequence[Past], style: PromptStyle, person: str | None) -> str:
    return person_block(persona, past, style) if person is None else person


def _item(item: Row | str, style: PromptStyle, mean: float | None) -> str:
    return item if isinstance(item, str) else item_block(item, style, mean=mean)


@lru_cache(maxsize=64)
def _opening(style: PromptStyle) -> tuple[Message, ...]:
    """Beginning of every prompt of a run: system message and worked examples.

    Without a system role and examples, it is one user message to go on from.
    """
    scale = style.scale
    start = f'"{_START}" and ' if style.begun else ""
    bare = style.layout == "plain" and style.system is None
    if style.question != "scale" and style.system:
        return (Message("system" if style.system_role else "user", style.system.strip()),)
    text = "" if bare else _system(style, f"Reply with {start}{_form(scale)}, nothing else.")
    turns: list[Message] = []
    for example in EXAMPLES[style.domain][: style.shots]:
        mean = float(rescale(example.mean, _EXAMPLE, scale))
        answer = scale.text_of(float(rescale(example.rating, _EXAMPLE, scale)))
        ask = _question(gender_of(example.persona), 1, style)
        blocks = (
            person_block(example.persona, (), style),
            item_block(example.item, style, mean=mean),
            ask,
        )
        turns.append(Message("user", "\n\n".join(blocks)))
        turns.append(Message("assistant", f"{_START} {answer}" if style.begun else answer))
    if bare:
        return tuple(turns)
    if not turns and not style.system_role:
        return (Message("user", text),)
    return _with_system(text, turns, style)


def _system(style: PromptStyle, reply: str) -> str:
    system = style.system or render_template("rating_system", words=style.subject)
    texts = style.scale.texts
    rules = render_template(
        "rating_rules", words=style.subject, low=texts[0], high=texts[-1], reply=reply
    )
    return f"{system.strip()}\n\n{rules}"


def _with_system(system: str, turns: Sequence[Message], style: PromptStyle) -> tuple[Message, ...]:
    if style.system_role:
        return (Message("system", system), *turns)
    first, *rest = turns
    return (Message("user", f"{system}\n\n{first.content}"), *rest)


@lru_cache(maxsize=4096)
def _question(gender: str | None, viewing: int, style: PromptStyle) -> str:
    name = f"rating_{style.question}_question"
    if style.question == "scale":
        name = "rating_question" if style.layout == "letter" else "rating_plain_question"
    return render_template(
        name,
        words=style.subject,
        pronouns=pronouns_of({"gender": gender}),
        ordinal=_ordinal(viewing),
        again=viewing > 1,
        low=style.scale.texts[0],
        high=style.scale.texts[-1],
    )


def _ordinal(number: int) -> str:
    """A number as a rank.

    >>> [_ordinal(n) for n in (1, 2, 3, 4, 11, 12, 21, 113)]
    ['1st', '2nd', '3rd', '4th', '11th', '12th', '21st', '113th']
    """
    if number < 1:
        raise ConfigError("the first time is number 1", where=f"viewing {number}")
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
