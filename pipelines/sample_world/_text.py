"""The grammar that titles, story lines and characters are made of.

A film's story is bound once (who, where, against whom); its title, overview, cast of
characters and the story lines of its sequels are all drawn from that story, so that they
agree with each other and with the film's genres.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

from pipelines.sample_world._dice import Dice
from pipelines.sample_world._names import NameBook, Person, town_name

__all__ = ["Story", "article_last", "expand", "lexicon", "overview", "title", "with_article"]

_SLOT = re.compile(r"\{([^{}]+)\}")
_CONSONANT_SOUND = re.compile(r"(?i)(one\b|one-|uni[^nm]|use|euro)")


@cache
def lexicon() -> Mapping[str, Any]:
    """The vocabulary (``lexicon.yaml``), read once."""
    import yaml

    text = resources.files("pipelines.sample_world").joinpath("lexicon.yaml").read_text("utf-8")
    words: dict[str, Any] = yaml.safe_load(text)
    return words


@dataclass(slots=True)
class Story:
    """Who a film is about, where, and against whom.

    Attributes
    ----------
    genre
        The MovieLens genre that sets the tone.
    flavours
        The film's other genres that have a vocabulary.
    hero, ally, foe
        The three leading characters.
    town
        An invented place.
    slots
        Phrases bound for the whole film (``role``, ``place``, …).
    """

    genre: str
    flavours: tuple[str, ...]
    hero: Person
    ally: Person
    foe: Person
    town: str
    slots: dict[str, str] = field(default_factory=dict)

    @classmethod
    def draw(cls, dice: Dice, genre: str, flavours: Sequence[str], people: NameBook) -> Story:
        """A new story.

        Parameters
        ----------
        dice
            Where choices come from.
        genre
            A genre of the lexicon.
        flavours
            Further genres of the film.
        people
            Names of characters.
        """
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
    """One to three sentences about a film of this story.

    Parameters
    ----------
    story
        Who and where.
    dice
        Where choices come from.
    part
        1 for a first film; sequels refer back to it.
    """
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
