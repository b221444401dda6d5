"""The parts that grammars are put together from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from string import ascii_lowercase

from pipelines.errors import ConfigError
from pipelines.llm.grammars._grammar import Join, Letter, Literal, Node, Repeat, Rule, Select

#: Characters of a sentence. No quotes, backslashes, line breaks, angle brackets or braces:
#: a text can't end its field early, hold a chat template's marks or look like a template slot.
INITIAL, BODY, END = "[A-Z]", "[A-Za-z0-9 ,;:'()-]", "[.!?]"
#: Values of a genre in the opinion map.
OPINIONS = ("like", "dislike", "neutral")
_MOST_INTEGERS = 1000
#: Letters of the longest word of a blank (count).
_LONGEST_WORD = 14


@dataclass(frozen=True)
class TextLimits:
    """Fewest and most sentences, and characters between a sentence's first letter and full stop."""

    sentences: tuple[int, int] = (2, 3)
    characters: tuple[int, int] = (20, 150)

    def __post_init__(self) -> None:
        for low, high in (self.sentences, self.characters):
            if not 1 <= low <= high:
                raise ConfigError(
                    "a text's limits must be at least 1, the lower one first",
                    where=f"{low} to {high}",
                )

    @property
    def longest(self) -> int:
        """Characters of the longest text without an opening (count)."""
        return self.sentences[1] * (self.characters[1] + 3) - 1


@dataclass(frozen=True)
class Blank:
    """A gap of a sentence plan that a model fills with a few words in small letters.

    Names, numbers, quotes and full stops can't be written into it. The model ends it, once it has
    the fewest words, by going on with the text behind it.
    """

    #: By which the words are read back.
    name: str
    #: Fewest and most words (count).
    words: tuple[int, int] = (3, 12)
    #: Beginnings of words that can't be written: *you* forbids *your* and *young*, too. Were only
    #: the word itself forbidden, a model would write *you* and glue the next word to it.
    without: tuple[str, ...] = ()


def join(*nodes: Node | str) -> Node:
    """Sequence of nodes; a repeat that is never is left out."""
    parts = [Literal(n) if isinstance(n, str) else n for n in nodes if n != ""]
    parts = [p for p in parts if not (isinstance(p, Repeat) and p.high == 0)]
    return parts[0] if len(parts) == 1 else Join(tuple(parts))


def captured(name: str, node: Node) -> Node:
    """The node, its text readable by name."""
    return Rule("field", node, capture=name)


def quoted(value: str) -> str:
    """A text as it stands between the quotes of a JSON string."""
    return json.dumps(value, ensure_ascii=False)[1:-1]


def entries(pairs: Iterable[tuple[str, Node]], quote: str = '"') -> list[Node | str]:
    """Entries of a JSON object, with commas between them; `quote` stands around each value."""
    parts: list[Node | str] = []
    for key, value in pairs:
        parts += [f'{"," if parts else ""}"{quoted(key)}":{quote}', value, quote]
    return parts


def enumeration(values: Sequence[str]) -> Node:
    """Alternatives of fixed texts; ConfigError if there is none, an empty one or one twice."""
    if not values or not all(values) or len(set(values)) < len(values):
        raise ConfigError(
            "a choice needs at least one option, none empty and none twice",
            where=", ".join(map(repr, values)) or "no options",
        )
    if len(values) == 1:
        return Literal(values[0])
    return Select(tuple(map(Literal, values)))


def integer(low: int, high: int) -> Node:
    """A whole number from `low` to `high`, both included, without leading zeros."""
    if not low <= high < low + _MOST_INTEGERS:
        raise ConfigError(
            f"a bounded integer has 1 to {_MOST_INTEGERS} values", where=f"{low} to {high}"
        )
    return enumeration([str(value) for value in range(low, high + 1)])


def blank(limits: tuple[int, int], without: Sequence[str] = ()) -> Node:
    """Words in small letters with single spaces between them; none begins as `without` does."""
    word = _word(without, _LONGEST_WORD)
    low, high = limits
    return join(word, Repeat(join(" ", word), low - 1, high - 1))


def _word(without: Sequence[str], letters: int, *, first: bool = True) -> Node:
    """Letters, at most so many, that begin with none of `without`; one at least."""
    tails: dict[str, list[str]] = {}
    for beginning in without:
        tails.setdefault(beginning[0], []).append(beginning[1:])
    others = "".join(c for c in ascii_lowercase if c not in tails) + ("" if first else "'-")
    tail = Repeat(Letter("[a-z'-]"), 0, letters - 1)
    ways = [join(Letter(f"[{others}]"), tail)]
    ways += [
        join(letter, Repeat(_word(left, letters - 1, first=False), 0, 1))
        for letter, left in sorted(tails.items())
        if "" not in left
    ]
    return Select(tuple(ways)) if len(ways) > 1 else ways[0]


def text(limits: TextLimits, opening: str = "", *, letters: str = BODY, end: str = END) -> Node:
    """Sentences, the first of them beginning with `opening` where one is given.

    `letters` and `end` are the classes of a sentence's inner characters and of its last one.
    """
    body = Repeat(Letter(letters), *limits.characters)
    sentence = join(Letter(INITIAL), body, Letter(end))
    low, high = limits.sentences
    first = join(quoted(opening), body, Letter(end)) if opening else sentence
    if high == 1:
        return first
    return join(first, Repeat(join(" ", sentence), low - 1, high - 1))


def opinions(genres: Sequence[str], capture: str) -> Node:
    """An opinion of each genre, at least one of them `like`.

    One entry per genre makes liked and disliked ones disjoint; two chains of rules, one with a
    like still to come, one without, make sure of the like. A persona that is neutral about every
    genre but the last must like that one.
    """
    if not genres or not all(genres) or len(set(genres)) < len(genres):
        raise ConfigError(
            "a genre list needs at least one genre, none empty and none twice",
            where=", ".join(map(repr, genres)) or "no genres",
        )

    def entry(genre: str, values: Sequence[str]) -> Node:
        return join(f'"{quoted(genre)}":"', captured(f"{capture}{genre}", enumeration(values)), '"')

    free: Node | None = None
    needed: Node | None = None
    for genre in reversed(genres):
        if free is None or needed is None:
            free, needed = entry(genre, OPINIONS), entry(genre, OPINIONS[:1])
            continue
        liked = join(entry(genre, OPINIONS[:1]), ",", free)
        other = join(entry(genre, OPINIONS[1:]), ",", needed)
        free = Rule("any", join(entry(genre, OPINIONS), ",", free))
        needed = Rule("wanting", Select((liked, other)))
    assert needed is not None
    return needed
