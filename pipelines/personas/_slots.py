"""Personas for models too small to write freely: a sentence plan with blanks of a few words.

The plan states every attribute itself; the model fills in the daily routine, reasons and what is
looked for. A blank has a fewest number of words, after which the model ends it when it likes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pipelines.llm.engines import Message
from pipelines.llm.grammars import Blank, Grammar, sentence_plan
from pipelines.packaged import packaged_yaml
from pipelines.personas._phrases import article, genre_phrase, opened
from pipelines.prompts import DOMAIN_WORDS, rating_habits, render_template

#: Bumped with every change of plan, examples or blanks.
SLOTS_VERSION = "2"
_SYSTEM = "personas_slots"
_WORDS = (4, 16)
#: Beginnings of words that are kept out of blanks: *they make you laugh* is most of what the gates
#: refused of a small model.
_NOT_WRITTEN = ("you",)
_PRONOUNS = {"female": ("she", "her", "her"), "male": ("he", "him", "his")}
_LIKES = (
    "{They} likes {genre} because ",
    "{They} enjoys {genre}, since ",
    "{They} is fond of {genre}, because ",
)
_DISLIKES = (
    "{They} dislikes {genre} because ",
    "{They} avoids {genre}, since ",
    "{They} has no patience for {genre}, because ",
)
_HOBBIES = (
    "In {their} free time {they} enjoys {hobby}, because ",
    "{Their} favorite hobby is {hobby}, since ",
)
_ITEMS = {"movies": "film", "books": "book", "games": "game", "products": "product", "own": "thing"}


def introduction(name: str, age: int, job: str) -> str:
    """First words of a description: whatever the model adds, the text names its person.

    >>> introduction("Marta", 34, "nurse")
    'Marta, 34, works as a nurse and '
    >>> introduction("Leo", 9, "student"), introduction("Ana", 70, "retired")
    ('Leo, 9, is a student and ', 'Ana, 70, is retired and ')
    """
    without = {
        "student": "is a student",
        "retired": "is retired",
        "not working": "is not working at present",
    }
    does = without.get(job, f"works as {article(job)}")
    return f"{name}, {age}, {does} and "


def slots_plan(row: Mapping[str, Any]) -> list[str | Blank]:
    """Sentences of a persona with blanks: texts and blanks in turn, with all stated attributes.

    ``row`` has the columns of :func:`pipelines.personas.sample_attributes`; `text_seed` picks the
    wordings.
    """
    they, them, their = _PRONOUNS[row["gender"]]
    words = {"they": they, "them": them, "their": their, "hobby": row["hobby"]}
    words |= {"They": opened(they), "Their": opened(their)}
    seed, domain = int(row["text_seed"]), row["domain"]
    parts: list[str | Blank] = [
        introduction(row["name"], row["age"], row["job"]).removesuffix(" and "),
        f". On most days {they} ",
        _blank("routine"),
        ". " + _HOBBIES[seed % len(_HOBBIES)].format_map(words),
        _blank("hobby"),
    ]
    for side, frames in (("likes", _LIKES), ("dislikes", _DISLIKES)):
        for n, genre in enumerate(row[side]):
            frame = frames[(seed // 2 + n) % len(frames)]
            phrase = genre_phrase(genre, domain)
            parts += [f". {frame.format_map(words | {'genre': phrase})}", _blank(f"{side}{n}")]
    activity, critic, habits = rating_habits(row)
    use = f"{opened(they)} {DOMAIN_WORDS[domain].use} {activity}. " if activity else ""
    parts += [
        f". {use}In {article(_ITEMS[domain])} {they} looks for ",
        _blank("quality", fewest=3),
        ".",
    ]
    if critic:
        parts.append(f" As a critic {they} is {critic}.")
    if habits:
        parts.append(f" {opened(they)} {' and '.join(habits)}.")
    return parts


def _blank(name: str, fewest: int = _WORDS[0]) -> Blank:
    return Blank(name, (fewest, _WORDS[1]), _NOT_WRITTEN)


def slots_grammar(row: Mapping[str, Any]) -> Grammar:
    """The grammar of a row's plan."""
    return sentence_plan(slots_plan(row), name=f"persona-slots/{row['domain']}")


def slots_messages(row: Mapping[str, Any]) -> tuple[Message, ...]:
    """System prompt, two finished examples of our own, and the facts of the row."""
    return (*_examples(row["domain"]), Message("user", _facts(row)))


def _facts(row: Mapping[str, Any]) -> str:
    domain = row["domain"]
    likes, dislikes = (
        ", ".join(genre_phrase(genre, domain) for genre in row[side]) or "nothing in particular"
        for side in ("likes", "dislikes")
    )
    return (
        f"{row['name']}, {row['gender']}, {row['age']} years old. Job: {row['job']}. "
        f"Hobby: {row['hobby']}. Likes: {likes}. Dislikes: {dislikes}."
    )


@cache
def _examples(domain: str) -> tuple[Message, ...]:
    data = packaged_yaml("pipelines.personas", "slots.yaml")
    messages = [Message("system", render_template(_SYSTEM, words=DOMAIN_WORDS[domain]))]
    for seed, (person, tastes) in enumerate(
        zip(data["people"], data["tastes"][domain], strict=True)
    ):
        row = {**person, **tastes, "domain": domain, "text_seed": seed}
        words = iter([*person["words"], *tastes["words"]])
        text = "".join(next(words) if isinstance(p, Blank) else p for p in slots_plan(row))
        messages += [Message("user", _facts(row)), Message("assistant", text)]
    return tuple(messages)
