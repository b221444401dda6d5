"""The grammar that titles, story lines and characters are made of.

A film's story is bound once (who, where, against whom); its title, overview, cast of
characters and the story lines of its sequels are all drawn from that story, so that they
agree with each other and with the film's genres.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, TypeVar

__all__ = ["Story", "article_last", "expand", "lexicon", "overview", "title", "with_article"]


T = TypeVar("T")


def stream_seed(seed: int, *parts: int | str) -> int:
    """A 64-bit seed of its own for every named stream of choices.

    >>> stream_seed(1, "films") != stream_seed(1, "users") != stream_seed(2, "users")
    True
    """
    text = "/".join(str(p) for p in (seed, *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Dice:
    """A seeded source of choices for text and structure.

    ``random.Random.random`` gives the same numbers on every Python version; ``choice`` and
    ``shuffle`` do not promise that, so everything here is made of the former.
    """

    def __init__(self, seed: int, *parts: int | str) -> None:
        self.roll = random.Random(stream_seed(seed, *parts)).random  # noqa: S311 (not secrets)

    def below(self, n: int) -> int:
        """A whole number from 0 to ``n`` - 1."""
        return int(self.roll() * n)

    def between(self, low: int, high: int) -> int:
        """A whole number from ``low`` to ``high``, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """Whether something of this probability (0-1) happens."""
        return self.roll() < probability

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, all equally likely."""
        return options[self.below(len(options))]

    def weighted(self, cumulative: Sequence[float]) -> int:
        """An index, by a cumulative weight table (ascending; the last entry is the total)."""
        point = self.roll() * cumulative[-1]
        low, high = 0, len(cumulative) - 1
        while low < high:
            middle = (low + high) // 2
            if cumulative[middle] > point:
                high = middle
            else:
                low = middle + 1
        return low

    def sample(self, options: Sequence[T], n: int) -> list[T]:
        """Up to ``n`` different options, in random order."""
        pool = list(options)
        out = []
        for _ in range(min(n, len(pool))):
            i = self.below(len(pool))
            pool[i], pool[-1] = pool[-1], pool[i]
            out.append(pool.pop())
        return out

    def exponential(self, mean: float) -> float:
        """A waiting time of the given mean."""
        return -mean * math.log(1.0 - self.roll())

    def skewed(self, n: int, power: float) -> int:
        """An index below ``n``, low ones likelier the larger ``power`` is (1 is uniform)."""
        return int(n * self.roll() ** power)


@cache
def table(name: str) -> Any:
    """A YAML file of the package (``tables``, ``lexicon``, ``foreign``), read once."""
    import yaml

    return yaml.safe_load(
        resources.files("pipelines.sample_world").joinpath(f"{name}.yaml").read_text("utf-8")
    )


def lexicon() -> Mapping[str, Any]:
    """The vocabulary of stories and titles."""
    words: Mapping[str, Any] = table("lexicon")
    return words


_NAMES: dict[str, list[str]] = {
    kind: text.split() for kind, text in table("tables")["names"].items()
}
#: Coprime to the number of combinations, so that stepping by it visits each once.
_STRIDE = 1_000_003


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody in the cast, the crew or the story."""

    id: int
    first: str
    last: str
    female: bool

    @property
    def name(self) -> str:
        """First and last name."""
        return f"{self.first} {self.last}"


class NameBook:
    """A numbering of invented people: number ``n`` is always the same, no two share a name."""

    def __init__(self, seed: int, stream: str) -> None:
        self._offset = Dice(seed, "names", stream).below(1 << 30)
        starts, ends = _NAMES["last_first"], _NAMES["last_second"]
        self._last = sorted({a + b for a in starts for b in ends if a[-1] != b[0]})
        self._firsts = [*_NAMES["female"], *_NAMES["male"]]
        self._pairs = len(self._firsts) * len(self._last)

    def person(self, n: int) -> Person:
        """Person number ``n`` (from 0); after all pairs are used a middle initial is added."""
        round_, k = divmod(n, self._pairs)
        k = (self._offset + k * _STRIDE) % self._pairs
        first_index, last_index = divmod(k, len(self._last))
        female = first_index < len(_NAMES["female"])
        middle = f" {_initials(round_)}" if round_ else ""
        return Person(n + 1, self._firsts[first_index] + middle, self._last[last_index], female)


def _initials(n: int) -> str:
    """A., B., … Z., A. A., … for n from 1."""
    out = ""
    while n:
        n, rest = divmod(n - 1, 26)
        out = f"{chr(65 + rest)}. {out}".strip()
    return out


def town_name(dice: Dice) -> str:
    """An invented place name.

    >>> town_name(Dice(3, "doc")) == town_name(Dice(3, "doc"))
    True
    """
    while True:
        first, second = dice.pick(_NAMES["town_first"]), dice.pick(_NAMES["town_second"])
        if first[-1] != second[0] and not (first + second).lower().endswith(first.lower()):
            break
    name = first + second
    if dice.chance(0.15):
        return f"{dice.pick(('Port', 'Saint', 'New', 'Old', 'Upper', 'Lower'))} {name}"
    return name


_SLOT = re.compile(r"\{([^{}]+)\}")
_CONSONANT_SOUND = re.compile(r"(?i)(one\b|one-|uni[^nm]|use|euro)")


@dataclass(slots=True)
class Story:
    """Who a film is about, where, and against whom."""

    genre: str
    flavours: tuple[str, ...]
    hero: Person
    ally: Person
    foe: Person
    town: str
    slots: dict[str, str] = field(default_factory=dict)

    @classmethod
    def draw(cls, dice: Dice, genre: str, flavours: Sequence[str], people: NameBook) -> Story:
        """A new story."""
        words = lexicon()
        hero, ally, foe = (people.person(dice.below(60_000)) for _ in range(3))
        story = cls(genre, tuple(flavours), hero, ally, foe, town_name(dice))
        they, them, their = ("she", "her", "her") if hero.female else ("he", "him", "his")
        story.slots |= {
            # A talking teapot has no surname.
            "name": hero.first if genre == "Animation" else hero.name,
            "first": hero.first,
            "last": hero.last,
            "they": they,
            "them": them,
            "their": their,
            "town": story.town,
            "ally": _called(dice.pick(words["cast"]["allies"]), ally),
            "ally_first": ally.first,
            "foe": _called(dice.pick(words["cast"]["foes"]), foe),
        }
        story.slots["role"] = expand(dice.pick(words["genres"][genre]["roles"]), dice, story.slots)
        story.slots["place"] = expand(
            dice.pick(words["genres"][genre]["places"]), dice, story.slots
        )
        return story


def _called(who: str, person: Person) -> str:
    return who if who.startswith("the ") else f"{who} named {person.first}"


def with_article(noun: str) -> str:
    """The noun phrase with ``a`` or ``an``.

    >>> with_article("ex-boxer"), with_article("one-eyed sailor"), with_article("nurse")
    ('an ex-boxer', 'a one-eyed sailor', 'a nurse')
    """
    vowel = noun[:1].lower() in "aeiou" and not _CONSONANT_SOUND.match(noun)
    return f"{'an' if vowel else 'a'} {noun}"


def expand(template: str, dice: Dice, slots: Mapping[str, str]) -> str:
    """Fill the slots of a template; a capitalised slot starts with a capital letter.

    >>> expand("{Town} sleeps, {a role} wakes.", Dice(1), {"town": "oldport", "role": "nurse"})
    'Oldport sleeps, a nurse wakes.'
    """

    def fill(match: re.Match[str]) -> str:
        key = match[1]
        article = key.startswith("a ")
        key = key.removeprefix("a ")
        low = key[0].lower() + key[1:]
        value = slots[low] if low in slots else dice.pick(lexicon()["shared"][low])
        value = expand(value, dice, slots) if "{" in value else value
        value = with_article(value) if article else value
        return value[0].upper() + value[1:] if low != key else value

    return _SLOT.sub(fill, template)


def overview(story: Story, dice: Dice, part: int = 1) -> str:
    """One to three sentences about a film of this story."""
    words = lexicon()
    main = words["genres"][story.genre]
    second = words["genres"][story.flavours[0]] if story.flavours else main
    if story.genre == "Documentary":
        openings = words["documentary_openings"]
        second = main  # a real person's life takes no twist from another genre
    elif part > 1:
        openings = words["sequel_openings"]
    else:
        openings = words["openings"]
    slots = story.slots | {"event": dice.pick(main["events"]), "task": dice.pick(main["tasks"])}
    sentences = [dice.pick(openings)]
    if dice.chance(0.85):
        sentences.append(dice.pick((second if dice.chance(0.45) else main)["turns"]))
    if dice.chance(0.6):
        sentences.append(dice.pick(main["closings"]))
    return " ".join(expand(s, dice, slots) for s in sentences)


def title(story: Story, dice: Dice) -> str:
    """A title in natural order (article first) that fits the story's genre."""
    words = lexicon()
    own, general = words["genres"][story.genre], words["title"]
    nouns = own["nouns"] if dice.chance(0.7) else general["nouns"]
    adjectives = own["adjectives"] if dice.chance(0.6) else general["adjectives"]
    pattern = dice.pick(general["patterns"])
    if pattern.startswith("A ") or "{nouns}" in pattern:
        nouns = [n for n in nouns if not n.endswith(("s", "Teeth", "Cattle"))]
    noun, noun2 = dice.sample(nouns, 2)
    adjective, adjective2 = dice.sample(adjectives, 2)
    slots = story.slots | {
        "noun": noun,
        "noun2": noun2,
        "nouns": _plural(noun),
        "adj": adjective,
        "adj2": adjective2,
    }
    text = expand(pattern, dice, slots)
    if text.startswith("A "):
        text = with_article(text[2:])
    return text[0].upper() + text[1:]


def _plural(noun: str) -> str:
    if noun.endswith("y") and noun[-2] not in "aeiou":
        return noun[:-1] + "ies"
    if noun.endswith(("sh", "ch", "x", "z")):
        return noun + "es"
    if noun.endswith("olf"):
        return noun[:-1] + "ves"
    return noun + "s"


def article_last(text: str, articles: Sequence[str] = ("The", "A", "An")) -> str:
    """A title as MovieLens lists it, with the leading article moved to the end.

    >>> article_last("The Comet Harbor"), article_last("Lantern and Moth")
    ('Comet Harbor, The', 'Lantern and Moth')
    >>> article_last("L'Été du port", ("L'",))
    "Été du port, L'"
    """
    for article in articles:
        lead = article if article.endswith("'") else f"{article} "
        if text.startswith(lead) and len(text) > len(lead):
            rest = text[len(lead) :]
            return f"{rest[0].upper()}{rest[1:]}, {article}"
    return text
