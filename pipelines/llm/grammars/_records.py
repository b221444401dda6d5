"""The grammars that the system asks models with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pipelines.errors import ConfigError
from pipelines.llm.engines import Choice
from pipelines.llm.grammars._grammar import Grammar, Letter, Node, Repeat
from pipelines.llm.grammars._parts import (
    Blank,
    TextLimits,
    blank,
    captured,
    entries,
    enumeration,
    integer,
    join,
    opinions,
    quoted,
    text,
)

#: Name of the field for what a persona wants of a domain's items, and why.
DOMAINS = {
    "movies": "cinema",
    "books": "reading",
    "games": "play",
    "products": "shopping",
    "own": "taste",
}
_GENRE = "genre:"


class ClosedChoice(Grammar):
    """Grammar of a few fixed answers.

    The same declaration as a grammar (:attr:`constraint`) and as the constraint whose answer is
    a distribution over the options (:attr:`choice`).
    """

    def __init__(self, name: str, node: Node, options: tuple[str, ...]) -> None:
        super().__init__(name, node)
        self.options = options

    @property
    def choice(self) -> Choice:
        """The constraint that asks for the probability of each option."""
        return Choice(self.options)


def closed_choice(options: Sequence[str], *, name: str = "choice") -> ClosedChoice:
    """Grammar of exactly one of the options, captured as ``answer``.

    ConfigError if there is no option, an empty one or one twice.
    """
    return ClosedChoice(name, captured("answer", enumeration(options)), tuple(options))


def explanation(
    options: Sequence[str], *, limits: TextLimits | None = None, name: str = "explanation"
) -> Grammar:
    """A reason and then one of the options: ``{"reason":"...","answer":"..."}``.

    The reason comes first, so that the answer follows from it and not the other way round.
    """
    reason = captured("reason", text(limits or TextLimits((1, 2))))
    answer = captured("answer", enumeration([quoted(option) for option in options]))
    return Grammar(name, join('{"reason":"', reason, '","answer":"', answer, '"}'))


def prose(*, limits: TextLimits | None = None, name: str = "prose", opening: str = "") -> Grammar:
    """Sentences and nothing else, the first one with this opening; captured as ``text``."""
    return Grammar(name, captured("text", text(limits or TextLimits((1, 2)), opening)))


@dataclass(frozen=True)
class Who:
    """Fields that the model chooses where no sampler gives them; ages (years) include both ends."""

    jobs: Sequence[str]
    hobbies: Sequence[str]
    ages: tuple[int, int] = (18, 94)
    genders: Sequence[str] = ("female", "male")


@dataclass(frozen=True)
class PersonaRecord:
    """A persona's parts as a model wrote them."""

    #: Genres, alphabetical; disjoint, at least one liked.
    likes: tuple[str, ...]
    dislikes: tuple[str, ...]
    #: Attributes of the person.
    portrait: str
    #: Wishes of the person for the domain's items, with reasons.
    taste: str
    #: Name, age, gender, job and hobby as text, where the model chose them.
    who: dict[str, str] = field(default_factory=dict)


class PersonaGrammar(Grammar):
    """The grammar of one kind of persona record."""

    def record(self, reply: str | None) -> PersonaRecord:
        """Read a reply; AnswerError if it is no sentence of the grammar."""
        fields = {key: json.loads(f'"{value}"') for key, value in self.read(reply).items()}
        held = {"like": [], "dislike": [], "neutral": []}  # type: dict[str, list[str]]
        for key, value in fields.items():
            if key.startswith(_GENRE):
                held[value].append(key.removeprefix(_GENRE))
        who = {k: v for k, v in fields.items() if k in ("name", "age", "gender", "job", "hobby")}
        return PersonaRecord(
            likes=tuple(sorted(held["like"])),
            dislikes=tuple(sorted(held["dislike"])),
            portrait=fields["portrait"],
            taste=fields["taste"],
            who=who,
        )


def closed_record(name: str, fields: Mapping[str, Sequence[str]]) -> Grammar:
    """Grammar of a JSON object whose fields are enumerations of texts, in this order.

    :meth:`Grammar.parse` gives the choices by field. ConfigError if a field has no option, an empty
    one or one twice.

    Examples
    --------
    >>> grammar = closed_record("size", {"size": ["S", "L"], "colour": ["red"]})
    >>> grammar.parse('{"size":"L","colour":"red"}')
    {'size': 'L', 'colour': 'red'}
    """
    choices = {key: enumeration(list(map(quoted, options))) for key, options in fields.items()}
    held = entries((key, captured(key, choice)) for key, choice in choices.items())
    return Grammar(name, join("{", *held, "}"))


def rated_list(count: int, low: int, high: int) -> Grammar:
    """A JSON object that rates each of the numbers 1 to `count` once, in order: ``rating1`` ….

    Examples
    --------
    >>> rated_list(2, 0, 100).parse('{"1":57,"2":100}')
    {'rating1': '57', 'rating2': '100'}
    >>> rated_list(2, 0, 100).parse('{"1":57}') is None
    True
    """
    value = integer(low, high)
    numbers = range(1, count + 1)
    held = entries(((str(n), captured(f"rating{n}", value)) for n in numbers), quote="")
    return Grammar(f"ratings of {count}", join("{", *held, "}"))


def persona_record(
    domain: str,
    genres: Sequence[str],
    *,
    likes: Sequence[str] | None = None,
    dislikes: Sequence[str] = (),
    opening: str = "",
    who: Who | None = None,
    portrait: TextLimits | None = None,
    taste: TextLimits | None = None,
) -> PersonaGrammar:
    """A persona as one JSON object: opinions of genres, a portrait, a taste with reasons.

    Parameters
    ----------
    domain
        `movies`, `books` or `games`: names the field of the taste.
    genres
        All genres of the domain, in the order in which they are asked.
    likes, dislikes
        Opinions that are settled: the record holds exactly these. Without `likes` the model
        gives its opinion of every genre, at least one of them favourable.
    opening
        First words of the portrait, verbatim; such as name, age and job.
    who
        Values to choose from where name, age, gender, job and hobby are not settled.
    portrait, taste
        Lengths of the two texts; default: two or three sentences of 20 to 150 characters.

    Raises
    ------
    ConfigError
        If the domain is unknown, there is no genre or one twice, or the settled opinions are
        not disjoint, hold no like, or hold a genre that is not in `genres`.
    """
    if domain not in DOMAINS:
        raise ConfigError("unknown domain", where=domain, hint=f"one of {', '.join(DOMAINS)}")
    held = opinions(genres, _GENRE) if likes is None else _settled(genres, likes, dislikes)
    node = join(
        "{",
        *(() if who is None else _chosen(who)),
        '"genres":{',
        held,
        '},"portrait":"',
        captured("portrait", text(portrait or TextLimits(), opening)),
        f'","{DOMAINS[domain]}":"',
        captured("taste", text(taste or TextLimits())),
        '"}',
    )
    return PersonaGrammar(f"persona/{domain}", node)


def sentence_plan(parts: Sequence[str | Blank], *, name: str = "plan") -> Grammar:
    """A text with blanks; what a model writes into each is captured by the blank's name.

    Examples
    --------
    >>> plan = sentence_plan(["Ann likes ", Blank("what", (1, 2)), "."])
    >>> plan.parse("Ann likes old films.")
    {'what': 'old films'}
    >>> plan.parse("Ann likes films made in Rome.") is None
    True
    """
    nodes = (
        captured(part.name, blank(part.words, part.without)) if isinstance(part, Blank) else part
        for part in parts
    )
    return Grammar(name, join(*nodes))


def _chosen(who: Who) -> tuple[Node | str, ...]:
    name = join(Letter("[A-Z]"), Repeat(Letter("[a-z]"), 1, 14))
    jobs, hobbies = ([quoted(value) for value in values] for values in (who.jobs, who.hobbies))
    return (
        '"name":"',
        captured("name", name),
        '","age":',
        captured("age", integer(*who.ages)),
        ',"gender":"',
        captured("gender", enumeration([quoted(value) for value in who.genders])),
        '","job":"',
        captured("job", enumeration(jobs)),
        '","hobby":"',
        captured("hobby", enumeration(hobbies)),
        '",',
    )


def _settled(genres: Sequence[str], likes: Sequence[str], dislikes: Sequence[str]) -> Node:
    given = [(genre, "like") for genre in likes] + [(genre, "dislike") for genre in dislikes]
    names = [genre for genre, _ in given]
    unknown = sorted(set(names) - set(genres))
    if not likes or unknown or len(set(names)) < len(names):
        raise ConfigError(
            "settled opinions need at least one liked genre, no genre twice, and known genres",
            where=", ".join(unknown) or f"likes {list(likes)}, dislikes {list(dislikes)}",
        )
    opinion = {value: enumeration([value]) for value in ("like", "dislike")}
    return join(
        *entries(
            (genre, captured(f"{_GENRE}{genre}", opinion[value])) for genre, value in sorted(given)
        )
    )
