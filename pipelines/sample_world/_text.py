"""Seeded choices, invented names, and the grammar of titles and story lines."""

from __future__ import annotations

import hashlib
import math
import random
import re
from bisect import bisect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

import yaml

T = TypeVar("T")


def stream_seed(seed: int, *parts: int | str) -> int:
    """Derive the 64-bit seed of a named stream of choices."""
    text = "/".join(str(p) for p in (seed, *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


class Dice:
    """Seeded choices, the same on every Python version as ``random.Random.random`` is."""

    def __init__(self, seed: int, *parts: int | str) -> None:
        self.roll = random.Random(stream_seed(seed, *parts)).random  # noqa: S311 (not secrets)

    def below(self, n: int) -> int:
        """Draw a whole number from 0 to ``n`` - 1."""
        return int(self.roll() * n)

    def between(self, low: int, high: int) -> int:
        """Draw a whole number from ``low`` to ``high``, both included."""
        return low + self.below(high - low + 1)

    def chance(self, probability: float) -> bool:
        """Return True if an event of this probability (0-1) happens."""
        return self.roll() < probability

    def pick(self, options: Sequence[T]) -> T:
        """Draw one of the options, all equally likely."""
        return options[self.below(len(options))]

    def weighted(self, cumulative: Mapping[T, float]) -> T:
        """Draw a key by cumulative weights (ascending; the last is the total)."""
        keys, weights = list(cumulative), list(cumulative.values())
        return keys[bisect(weights, self.roll() * weights[-1], 0, len(weights) - 1)]

    def sample(self, options: Sequence[T], n: int) -> list[T]:
        """Draw up to ``n`` different options, in random order."""
        pool, out = list(options), []
        for _ in range(min(n, len(pool))):
            i = self.below(len(pool))
            pool[i], pool[-1] = pool[-1], pool[i]
            out.append(pool.pop())
        return out

    def exponential(self, mean: float) -> float:
        """Draw a waiting time of the given mean."""
        return -mean * math.log(1.0 - self.roll())

    def skewed(self, n: int, power: float) -> int:
        """Draw an index below ``n``, low ones likelier the larger ``power`` is (1: uniform)."""
        return int(n * self.roll() ** power)


@cache
def table(name: str) -> Any:
    """Read a YAML file of the package (``tables``, ``lexicon``, ``foreign``) once."""
    path = resources.files("pipelines.sample_world").joinpath(f"{name}.yaml")
    return yaml.safe_load(path.read_text("utf-8"))


@cache
def _fields(kind: str) -> tuple[dict[str, Any], dict[str, Callable[[object], Any]]]:
    """The fields of a kind of record, and how those of its source are read."""
    fields = table("tables")["records"][kind]
    texts = {key: text for key, text in fields.items() if str(text)[:1] == "." or "{0" in str(text)}
    return fields, {k: attrgetter(t[1:]) if t[0] == "." else t.format for k, t in texts.items()}


def record_of(kind: str, source: object) -> dict[str, Any]:
    """A record with the constants of its table and attributes of ``source``."""
    fields, getters = _fields(kind)
    return fields | {key: get(source) for key, get in getters.items()}


#: The vocabulary of stories and titles.
lexicon = partial(table, "lexicon")
_NAMES: dict[str, list[str]] = {k: v.split() for k, v in table("tables")["names"].items()}


class Person(NamedTuple):
    """A member of the cast, the crew or the story."""

    id: int
    first: str
    last: str
    female: bool

    @property
    def name(self) -> str:
        """First and last name."""
        return f"{self.first} {self.last}"


class PersonNames:
    """A numbering of invented people: number ``n`` is always the same, no two share a name."""

    def __init__(self, seed: int, stream: str) -> None:
        self._offset = Dice(seed, "names", stream).below(1 << 30)
        starts, ends = _NAMES["last_first"], _NAMES["last_second"]
        self._last = sorted({a + b for a in starts for b in ends if a[-1] != b[0]})
        self._firsts = [*_NAMES["female"], *_NAMES["male"]]
        self._pairs = len(self._firsts) * len(self._last)

    def person(self, n: int) -> Person:
        """Person ``n`` (from 0, below 27 times the pairs); after all pairs with an initial."""
        initial, k = divmod(n, self._pairs)
        # Coprime to the number of pairs: stepping by it visits each once.
        number = (self._offset + k * 1_000_003) % self._pairs
        first, last = divmod(number, len(self._last))
        name = self._firsts[first] + (f" {chr(64 + initial)}." if initial else "")
        return Person(n + 1, name, self._last[last], first < len(_NAMES["female"]))


def town_name(dice: Dice) -> str:
    """Draw an invented place name."""
    while True:
        first, second = dice.pick(_NAMES["town_first"]), dice.pick(_NAMES["town_second"])
        if first[-1] != second[0] and not (first + second).lower().endswith(first.lower()):
            prefix = f"{dice.pick(_NAMES['town_prefixes'])} " if dice.chance(0.15) else ""
            return prefix + first + second


@dataclass(slots=True)
class Story:
    """People and places of a film, bound once so that title, overview, cast and sequels agree."""

    genre: str
    flavours: tuple[str, ...]
    hero: Person
    ally: Person
    foe: Person
    slots: dict[str, str]

    @classmethod
    def draw(cls, dice: Dice, genre: str, flavours: Sequence[str], people: PersonNames) -> Story:
        """Draw a new story."""
        hero, ally, foe = (people.person(dice.below(60_000)) for _ in range(3))
        # A talking teapot has no surname.
        name = hero.first if genre == "Animation" else hero.name
        slots = {"name": name, "first": hero.first, "last": hero.last}
        slots |= lexicon()["pronouns"]["female" if hero.female else "male"]
        slots |= {"town": town_name(dice), "ally_first": ally.first}
        for slot, person in (("ally", ally), ("foe", foe)):
            who = dice.pick(lexicon()["cast"]["allies" if slot == "ally" else "foes"])
            slots[slot] = who if who.startswith("the ") else f"{who} named {person.first}"
        for slot in ("role", "place"):
            options = lexicon()["genres"][genre][f"{slot}s"]
            slots[slot] = expand(dice.pick(options), dice, slots)
        return cls(genre, tuple(flavours), hero, ally, foe, slots)

    def overview(self, dice: Dice, part: int = 1) -> str:
        """Draw one to three sentences about a film."""
        words = lexicon()
        main = second = words["genres"][self.genre]
        openings = "sequel_openings" if part > 1 else "openings"
        if self.genre == "Documentary":
            openings = "documentary_openings"
        elif self.flavours:  # a real person's life takes no twist from another genre
            second = words["genres"][self.flavours[0]]
        slots = self.slots | {"event": dice.pick(main["events"]), "task": dice.pick(main["tasks"])}
        sentences = [dice.pick(words[openings])]
        if dice.chance(0.85):
            sentences.append(dice.pick((second if dice.chance(0.45) else main)["turns"]))
        if dice.chance(0.6):
            sentences.append(dice.pick(main["closings"]))
        return " ".join(expand(s, dice, slots) for s in sentences)

    def title(self, dice: Dice) -> str:
        """Draw a title in natural order (article first) that fits the genre."""
        genre_words, general = lexicon()["genres"][self.genre], lexicon()["title"]
        nouns = (genre_words if dice.chance(0.7) else general)["nouns"]
        adjectives = (genre_words if dice.chance(0.6) else general)["adjectives"]
        pattern = dice.pick(general["patterns"])
        if pattern.startswith("A ") or "{nouns}" in pattern:
            nouns = [n for n in nouns if not n.endswith(("s", "Teeth", "Cattle"))]
        noun, noun2 = dice.sample(nouns, 2)
        adj, adj2 = dice.sample(adjectives, 2)
        plurals = lexicon()["plurals"].items()
        nouns = next(re.sub(end, as_many, noun) for end, as_many in plurals if re.search(end, noun))
        drawn = {"noun": noun, "noun2": noun2, "nouns": nouns, "adj": adj, "adj2": adj2}
        text = expand(pattern, dice, self.slots | drawn)
        text = with_article(text[2:]) if text.startswith("A ") else text
        return text[0].upper() + text[1:]


def with_article(noun: str) -> str:
    """The noun phrase with ``a`` or ``an``."""
    consonant_sound = re.match(r"(?i)(one\b|one-|uni[^nm]|use|euro)", noun)
    return f"{'an' if noun[:1].lower() in 'aeiou' and not consonant_sound else 'a'} {noun}"


def expand(template: str, dice: Dice, slots: Mapping[str, str]) -> str:
    """Fill ``{slots}`` of a template; ``{Slot}`` gets a capital letter, ``{a slot}`` an article."""

    def fill(match: re.Match[str]) -> str:
        key = match[1].removeprefix("a ")
        low = key[0].lower() + key[1:]
        value = slots[low] if low in slots else dice.pick(lexicon()["shared"][low])
        value = expand(value, dice, slots) if "{" in value else value
        value = with_article(value) if match[1].startswith("a ") else value
        return value[0].upper() + value[1:] if low != key else value

    return re.sub(r"\{([^{}]+)\}", fill, template)


def article_last(text: str, articles: Sequence[str] = ("The", "A", "An")) -> str:
    """Move the leading article of a title to its end, as MovieLens does."""
    for article in articles:
        lead = article if article.endswith("'") else f"{article} "
        if text.startswith(lead) and len(text) > len(lead):
            tail = text[len(lead) :]
            return f"{tail[0].upper()}{tail[1:]}, {article}"
    return text
