"""The prompt that asks a model to describe a persona."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.errors import ConfigError
from pipelines.llm.engines import Message
from pipelines.llm.grammars import DOMAINS, TextLimits
from pipelines.prompts._texts import render_template, template_digest

#: Bumped with every change of wording; the digest of the templates says the same to machines. Since
#: 3 the tastes of shoppers come in words; 5 names no study or critic, which small models repeat.
PERSONA_PROMPT_VERSION = "5"
_SYSTEM, _USER = "personas_system", "personas_user"
_PRONOUNS = {"female": "she, her", "male": "he, his"}
#: Wording of what is stated of a person's ratings; what is average is not stated.
_RATING = {
    "leniency": {"generous": "generous, easily pleased", "harsh": "harsh, hard to please"},
    "manner": {"wide": "uses the whole scale", "narrow": "stays close to the middle of the scale"},
    "conformity": {
        "low": "often disagrees with the majority",
        "high": "mostly agrees with the majority",
    },
}
_ACTIVITY = {"low": "rarely", "medium": "about once a week", "high": "almost every day"}


@dataclass(frozen=True)
class DomainWords:
    """Words for a domain in prompts."""

    #: Words for the users of its items, and for its genres: both plural.
    audience: str
    genres: str
    #: Verb for the use of its items, third person.
    use: str
    #: Content of the field about taste.
    taste: str
    #: Its genres where no list is given, in the order in which they are asked.
    default: tuple[str, ...]


DOMAIN_WORDS = {
    "movies": DomainWords(
        "film viewers",
        "film genres",
        "watches films",
        "what this person looks for in a film, when and with whom films are watched, and what "
        "makes a film a bad evening.",
        (
            "Action", "Adventure", "Animation", "Comedy", "Crime", "Documentary", "Drama",
            "Fantasy", "Horror", "Romance", "Sci-Fi", "Thriller",
        ),
    ),
    "books": DomainWords(
        "readers",
        "kinds of books",
        "reads",
        "what this person looks for in a book, where and how much is read, and what makes a book "
        "be put down unfinished.",
        (
            "Biographies & Memoirs", "Business & Money", "Children's Books",
            "Comics & Graphic Novels", "Computers & Technology", "Cookbooks, Food & Wine",
            "Fantasy", "Health, Fitness & Dieting", "History", "Horror", "Humor & Entertainment",
            "Literature & Fiction", "Mystery", "Poetry", "Romance", "Science & Math",
            "Science Fiction", "Self-Help", "Thrillers & Suspense", "Travel",
        ),
    ),
    "games": DomainWords(
        "video game players",
        "kinds of games",
        "plays games",
        "what this person looks for in a game, how long and with whom games are played, and what "
        "makes a game be given up.",
        (
            "Action", "Adventure", "Casual", "Indie", "Massively Multiplayer", "RPG", "Racing",
            "Simulation", "Sports", "Strategy",
        ),
    ),
    "own": DomainWords(
        "people",
        "kinds of things",
        "uses such things",
        "what this person looks for in a thing of this kind, when and with whom it is used, and "
        "what makes it be put away.",
        ("Bargains", "Classics", "Novelties"),
    ),
    "products": DomainWords(
        "shoppers",
        "properties of products",
        "buys things",
        "what this person looks for in a product, where and how often things are bought, and what "
        "makes a product be sent back.",
        (
            "color:black", "color:blue", "color:many colors", "color:red", "color:white",
            "count:set", "material:fabric", "material:glass", "material:leather", "material:metal",
            "material:plastic", "material:wood", "place:on the road", "place:outdoors",
            "power:battery", "price:high", "price:low", "size:large", "size:small",
            "style:classic", "style:elegant", "style:handmade", "style:modern", "style:playful",
        ),
    ),
}  # fmt: skip


def persona_prompt_digest() -> str:
    """SHA-256 (hex) of the templates."""
    return template_digest(_SYSTEM, _USER)


def persona_messages(
    domain: str,
    *,
    name: str,
    age: int,
    gender: str,
    job: str,
    hobby: str,
    opening: str,
    limits: TextLimits,
    likes: Sequence[str] | None,
    dislikes: Sequence[str] = (),
    genres: Sequence[str] = (),
    leniency: str | None = None,
    manner: str | None = None,
    activity: str | None = None,
    conformity: str | None = None,
) -> tuple[Message, ...]:
    """System and user message about one persona.

    Parameters
    ----------
    domain
        `movies`, `books` or `games`; another is a ConfigError.
    name, age, gender, job, hobby
        Settled attributes; age in years.
    opening, limits
        Beginning of the portrait; lengths of both texts.
    likes, dislikes, genres
        Settled opinions; None for `likes` asks for an opinion of each of `genres`.
    leniency, manner, activity, conformity
        Settled traits, values as in the `personas` contract. None, and an average leniency or
        manner, are not stated.
    """
    if domain not in DOMAIN_WORDS:
        raise ConfigError("unknown domain", where=domain, hint=f"one of {', '.join(DOMAINS)}")
    low, high = limits.sentences
    traits = {"leniency": leniency, "manner": manner, "conformity": conformity}
    rating = [_RATING[name][v] for name, v in traits.items() if v in _RATING[name]]
    # The same for a whole cohort, so that engines compute it once.
    system = render_template(
        _SYSTEM,
        words=DOMAIN_WORDS[domain],
        field=DOMAINS[domain],
        settled=likes is not None,
        low=low,
        high=high,
    )
    user = render_template(
        _USER,
        name=_line(name),
        pronouns=_PRONOUNS.get(gender, gender),
        age=age,
        job=_line(job),
        hobby=_line(hobby),
        likes=None if likes is None else [_line(genre) for genre in likes],
        dislikes=[_line(genre) for genre in dislikes],
        genres=[_line(genre) for genre in genres],
        use=DOMAIN_WORDS[domain].use,
        activity=_ACTIVITY.get(activity or ""),
        rating="; ".join(rating),
        opening=_line(opening),
    )
    return Message("system", system), Message("user", user)


def rating_habits(row: Mapping[str, Any]) -> tuple[str, str, list[str]]:
    """Wordings of activity, leniency, and manner with conformity; empty if not stated.

    >>> rating_habits({"activity": "low", "leniency": "harsh", "manner": "wide"})
    ('rarely', 'harsh, hard to please', ['uses the whole scale'])
    """
    return (
        _ACTIVITY.get(row.get("activity") or "", ""),
        _RATING["leniency"].get(row.get("leniency") or "", ""),
        [_RATING[f][row[f]] for f in ("manner", "conformity") if row.get(f) in _RATING[f]],
    )


def _line(value: str) -> str:
    """Value on a single line: an attribute can't add a line of its own to the prompt."""
    return " ".join(value.split())
