"""The phrases that the statistical writer combines, by domain and stage of life."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from pipelines.errors import ConfigError
from pipelines.packaged import packaged_yaml

#: Domains that there are phrases and genre lists for.
DOMAIN_NAMES = ("movies", "books", "games", "products")
#: The domain whose genres are those of its data.
OWN = "own"
#: Ages (years) at which the stages teen and adult begin, and adults' way of life settles.
TEEN, ADULT, SETTLED = 13, 18, 30

#: Sections with lists by the value of a field.
_BY_FIELD = ("rates", "agrees")
#: Stages of adults who have no job.
_OCCUPIED = {"retired": "retired", "student": "studying", "not working": "idle"}

# First letters do not decide the article in these.
_SOUNDED_AS_CONSONANT = ("uni", "use", "usu", "uti", "eu", "one", "ux")
_SOUNDED_AS_VOWEL = ("hour", "honest", "heir", "x-", "unin", "unim")


@cache
def article(phrase: str) -> str:
    """The phrase with its indefinite article.

    >>> [article(p) for p in ("nurse", "actor", "union organizer", "X-ray technician")]
    ['a nurse', 'an actor', 'a union organizer', 'an X-ray technician']
    >>> [article(p) for p in ("8-year-old", "11-year-old", "18", "80", "1", "usher", "unknown")]
    ['an 8-year-old', 'an 11-year-old', 'an 18', 'an 80', 'a 1', 'an usher', 'an unknown']
    """
    low = phrase.lower()
    number = "".join(c for c in low[:3] if c.isdigit()) if low[:1].isdigit() else ""
    if number:
        vowel = number.startswith("8") or number in ("11", "18")
    elif low.startswith(_SOUNDED_AS_VOWEL):
        vowel = True
    else:
        vowel = low[:1] in "aeiou" and not low.startswith(_SOUNDED_AS_CONSONANT)
    return f"{'an' if vowel else 'a'} {phrase}"


@cache
def genre_phrase(genre: str, domain: str = "movies") -> str:
    """The plural noun that stands for a genre in a description.

    >>> genre_phrase("Sci-Fi"), genre_phrase("Western"), genre_phrase("Cyberpunk")
    ('science fiction films', 'westerns', 'Cyberpunk films')
    >>> genre_phrase("Cookbooks, Food & Wine", "books"), genre_phrase("RPG", "games")
    ('cookbooks', 'role-playing games')

    Raises ConfigError if there are no phrases for the domain.
    """
    phrases = _read_domain(domain)
    if genre in phrases["genres"]:
        return str(phrases["genres"][genre]["phrase"])
    # Not `format`: a genre is text that somebody else wrote.
    return str(phrases.get("phrases", {}).get(genre) or phrases["noun"].replace("{genre}", genre))


@cache
def taste_names() -> dict[str, tuple[str, ...]]:
    """Texts that name a taste (lower case), of tastes whose own name is not one.

    >>> taste_names()["material:leather"]
    ('leather goods', 'leather', 'things of leather', 'leather bags')
    """
    return {
        taste: (entry["phrase"], *entry["names"])
        for domain in DOMAIN_NAMES
        for taste, entry in _read_domain(domain)["genres"].items()
        if "names" in entry
    }


def stages(age: int, job: str, activity: str = "medium") -> tuple[str, ...]:
    """Stages of life that a person is in, and its activity; each names lists of phrases that fit.

    >>> stages(9, "student"), stages(40, "nurse", "high")
    (('medium', 'child'), ('high', 'grown', 'adult', 'settled', 'working'))
    """
    if age < TEEN:
        return (activity, "child")
    if age < ADULT:
        return (activity, "grown", "teen")
    settled = ("settled",) if age >= SETTLED else ()
    return (activity, "grown", "adult", *settled, _OCCUPIED.get(job, "working"))


#: Wordings of one phrase that are kept at most (count).
_MAX_WORDINGS = 96
_CHOICE = re.compile(r"\(([^()]*\|[^()]*)\)")


@cache
def wordings(phrase: str) -> tuple[str, ...]:
    """Expand the choices and synonyms of a phrase.

    >>> wordings("in a (big|small) town"), wordings("a (long |)walk")
    (('in a big town', 'in a small town'), ('a long walk', 'a walk'))
    """
    synonyms = {row[0]: row for row in _read("grammar.yaml")["synonyms"]}
    pattern = _known_words(tuple(sorted(synonyms, key=len, reverse=True)))
    parts: list[list[str]] = []
    for n, part in enumerate(_CHOICE.split(phrase)):
        if n % 2:
            parts.append(part.split("|"))
            continue
        parts += [synonyms.get(piece, [piece]) for piece in pattern.split(part)]
    count = math.prod(map(len, parts))
    # Of very many, some that differ in every place.
    step = (
        1
        if count <= _MAX_WORDINGS
        else next(n for n in range(count // 3, count) if math.gcd(n, count) == 1)
    )
    out: list[str] = []
    for n in range(min(count, _MAX_WORDINGS)):
        at, chosen = n * step % count, []
        for options in parts:
            at, place = divmod(at, len(options))
            chosen.append(options[place])
        out.append(re.sub("  +", " ", "".join(chosen)).strip())
    return tuple(out)


@cache
def _known_words(words: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w}}])({'|'.join(map(re.escape, words))})(?![\w'])")


def _worded(section: Any) -> Any:
    """A section with the wordings of each phrase."""
    if isinstance(section, str):
        return wordings(section)
    if isinstance(section, dict):
        return {k: v if k in ("phrase", "names") else _worded(v) for k, v in section.items()}
    return tuple(_worded(entry) for entry in section)


@cache
def domain_phrases(domain: str, stage: tuple[str, ...]) -> dict[str, Any]:
    """Sections by name: phrases for everybody and for these stages, joined, as `wordings`.

    Raises :class:`ConfigError` if there are no phrases for the domain.
    """
    sections = _read_domain(domain)
    out: dict[str, Any] = {"words": sections["words"], "pupils": _read("grammar.yaml")["pupils"]}
    for name, section in {**_read("grammar.yaml"), **sections}.items():
        if name in ("genres", "general", *_BY_FIELD):
            out[name] = _worded_once(domain, name)
        elif name not in (*out, "noun", "phrases", "synonyms"):
            out[name] = _worded(list(_fitting(section, stage)))
    return out


@cache
def _worded_once(domain: str, name: str) -> Any:
    return _worded({**_read("grammar.yaml"), **_read_domain(domain)}[name])


def opened(phrase: str) -> str:
    """The phrase with a capital first letter, the rest as it is."""
    return phrase[:1].upper() + phrase[1:]


def listed(phrases: Sequence[str], last: str = "and") -> str:
    """The phrases as an English list, without the comma before the conjunction.

    >>> listed(["dramas", "comedies", "thrillers"])
    'dramas, comedies and thrillers'
    """
    if len(phrases) < 2:
        return "".join(phrases)
    return f"{', '.join(phrases[:-1])} {last} {phrases[-1]}"


def _fitting(section: Any, stage: tuple[str, ...]) -> Iterable[Any]:
    if isinstance(section, list):
        return section
    return [phrase for key in ("any", *stage) for phrase in section.get(key, ())]


def _read_domain(domain: str) -> dict[str, Any]:
    if domain not in (*DOMAIN_NAMES, OWN):
        raise ConfigError(
            "the statistical writer has no phrases for this domain",
            where=domain,
            hint=f"one of {', '.join(DOMAIN_NAMES)}",
        )
    return _read(f"domains/{domain}.yaml")


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = packaged_yaml("pipelines.personas", name)
    return content
