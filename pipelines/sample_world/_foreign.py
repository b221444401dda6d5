"""Films whose original title isn't English: the same title in two languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from pipelines.sample_world._dice import Dice
from pipelines.sample_world._text import article_last

__all__ = ["ForeignTitle", "foreign_title"]

_LANGUAGES = ("fr", "es", "it", "de", "ja")
#: French before the rest and Japanese next, as in ml-latest-small.
_CUMULATIVE = (0.38, 0.55, 0.69, 0.79, 1.0)


@dataclass(frozen=True, slots=True)
class ForeignTitle:
    """One title twice.

    Attributes
    ----------
    language
        ISO 639-1 code.
    english
        English title, article first.
    original
        Original title as TMDB has it (its own script).
    listed
        The way MovieLens adds it in brackets: Latin script, article last.
    """

    language: str
    english: str
    original: str
    listed: str


@cache
def _words() -> Mapping[str, Any]:
    import yaml

    text = resources.files("pipelines.sample_world").joinpath("foreign.yaml").read_text("utf-8")
    words: dict[str, Any] = yaml.safe_load(text)
    return words


def foreign_title(dice: Dice, name: str) -> ForeignTitle:
    """A title of two concepts ("The Harbor of the Rain"), or of ``name``.

    Parameters
    ----------
    dice
        Where choices come from.
    name
        A person's name, for titles such as "The Letters of <name>".
    """
    words = _words()
    language = _LANGUAGES[dice.weighted(_CUMULATIVE)]
    if language != "ja" and dice.chance(0.35):
        named = dice.pick(words["named"])
        original = named[language].format(name=name)
        listed = article_last(original, words["articles"])
        return ForeignTitle(language, named["en"].format(name=name), original, listed)
    first, second = dice.sample(list(words["nouns"].values()), 2)
    english = f"The {first['en']} of the {second['en']}"
    if language == "ja":
        original = f"{second['ja'][0]}の{first['ja'][0]}"
        listed = f"{second['ja'][1].capitalize()} no {first['ja'][1]}"
        return ForeignTitle(language, english, original, listed)
    noun, article, _ = first[language]
    if language in ("es", "it"):
        # Spanish and Italian titles capitalise only their first word.
        noun = noun.lower()
    lead = article + noun.capitalize() if article == "L'" and language == "it" else None
    original = lead or (f"{article}{noun}" if article.endswith("'") else f"{article} {noun}")
    original = f"{original} {second[language][2]}"
    return ForeignTitle(language, english, original, article_last(original, words["articles"]))
