"""The system text of the suites' `custom` setting, in our own words.

It names no scale: the rules about scale and reply follow it (`pipelines.prompts`).
"""

from __future__ import annotations

from pipelines.errors import ConfigError

__all__ = ["SYSTEMS", "system_text"]

_CUSTOM = (
    "You predict how one particular person rates {items}. You know people well: their habits, "
    "their age, and what they say about themselves tell you what they will enjoy. Before you "
    "answer, weigh three things: what the person says about taste and about giving marks, what "
    "the {item} is like ({features}), and how the person rated similar {items} before. What the "
    "person says and did counts more than what others think of the {item}, and more than what "
    "you think of it. Some people praise everything and some praise nothing; answer as this one "
    "would, without kindness and without severity of your own."
)
#: Custom system texts by domain.
SYSTEMS = {
    "movies": _CUSTOM.format(
        items="films", item="film", features="plot, genres, cast, average rating"
    ),
    "books": _CUSTOM.format(
        items="books", item="book", features="subject, categories, author, average rating"
    ),
}


def system_text(domain: str, system: str) -> str | None:
    """The text of a setting: None for `default`, which is the prompts' own.

    Raises
    ------
    ConfigError
        If there is no such setting or domain.
    """
    if system not in ("default", "custom") or domain not in SYSTEMS:
        raise ConfigError(
            "no such system text", where=f"{domain}, {system}", hint="default or custom"
        )
    return SYSTEMS[domain] if system == "custom" else None
