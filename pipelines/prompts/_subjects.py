"""Words of rating prompts for each domain's items and the people who rate them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.errors import ConfigError
from pipelines.prompts._templates import one_line

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Pronouns:
    """Pronouns of a person; `plural` is the number of the verb."""

    subject: str
    object: str
    possessive: str
    plural: bool = False


PRONOUNS: dict[str | None, Pronouns] = {
    "female": Pronouns("she", "her", "her"),
    "male": Pronouns("he", "him", "his"),
    None: Pronouns("they", "them", "their", plural=True),
}


def pronouns_of(persona: Row) -> Pronouns:
    """A persona's pronouns; `they` where the gender is unknown.

    >>> pronouns_of({"gender": "female"}).object, pronouns_of({"gender": None}).subject
    ('her', 'they')
    """
    return PRONOUNS[gender_of(persona)]


def gender_of(persona: Row) -> str | None:
    """The gender that decides the pronouns; None if there is none or another."""
    gender = persona.get("gender")
    return gender if isinstance(gender, str) and gender in PRONOUNS else None


@dataclass(frozen=True)
class Field:
    """A line about an item.

    The value is taken from the first of ``columns`` that has one; of a list ``most`` entries are
    shown.
    """

    label: str
    columns: tuple[str, ...]
    most: int = 12

    def text(self, row: Row) -> str:
        """The value as one harmless line; empty where there is none."""
        for column in self.columns:
            value = row.get(column)
            if isinstance(value, str):
                value = one_line(value)
            elif isinstance(value, Sequence):
                named = (one_line(str(v)) for v in value[: self.most] if v is not None)
                value = ", ".join(v for v in named if v)
            elif value is not None:
                value = f"{value:g}" if isinstance(value, float) else str(value)
            if value:
                return str(value)
        return ""


@dataclass(frozen=True)
class Subject:
    """Words for a domain's items, and what is shown of them."""

    #: Singular and plural.
    item: str
    items: str
    #: Word for one use of an item.
    occasion: str
    #: Attributes of an item, in order, without its mean rating.
    fields: tuple[Field, ...]
    #: The columns of its long text, which may be cut where the context is too short.
    plot: Field
    #: Distinguishing columns in a list: their values are put in brackets after the title.
    short: tuple[Field, ...]

    def title(self, row: Row) -> str:
        """The item in one line, for lists."""
        parts = [text for text in (f.text(row) for f in self.short) if text]
        name = one_line(str(row.get("title") or "")) or f"a {self.item}"
        return f"{name} ({'; '.join(parts)})" if parts else name

    def lines(self, row: Row, words: int | None = None) -> list[tuple[str, str]]:
        """Labels and values; `words` is how much of the plot is shown (None: all)."""
        out = [(f.label, text) for f in self.fields if (text := f.text(row))]
        plot = self.plot.text(row)
        if words is not None and (parts := plot.split())[words:]:
            plot = " ".join(parts[:words]) + (" ..." if words else "")
        return [*out, (self.plot.label, plot)] if plot else out


_TITLE, _YEAR = Field("Title", ("title",)), Field("Year", ("year",))

SUBJECTS: dict[str, Subject] = {
    "movies": Subject(
        "film",
        "films",
        "viewing",
        (_TITLE, _YEAR, Field("Genres", ("genres",)), Field("With", ("actors",), most=2)),
        Field("Plot", ("overview",)),
        (_YEAR, Field("", ("genres",), most=3)),
    ),
    "books": Subject(
        "book",
        "books",
        "reading",
        (
            _TITLE,
            Field("Author", ("authors",), most=3),
            _YEAR,
            Field("Categories", ("category_path", "genres"), most=6),
        ),
        Field("About", ("description",)),
        (Field("", ("authors",), most=1), Field("", ("genres",), most=3)),
    ),
    "games": Subject(
        "game",
        "games",
        "playthrough",
        (
            _TITLE,
            Field("Developer", ("developer",)),
            _YEAR,
            Field("Genres", ("genres",), most=6),
            Field("Tags", ("tags",), most=8),
        ),
        Field("Features", ("specs",), most=8),
        (_YEAR, Field("", ("genres",), most=3)),
    ),
    "own": Subject(
        "item",
        "items",
        "use",
        (
            _TITLE,
            _YEAR,
            Field("Kinds", ("genres",), most=6),
            Field("Properties", ("attributes",), most=8),
        ),
        Field("About", ("description",)),
        (_YEAR, Field("", ("genres",), most=3)),
    ),
    "products": Subject(
        "product",
        "products",
        "purchase",
        (
            _TITLE,
            Field("Brand", ("brand",)),
            Field("Categories", ("category_path", "genres"), most=6),
            Field("Price in USD", ("price",)),
        ),
        Field("Description", ("description", "features"), most=8),
        (Field("", ("brand",)),),
    ),
}


def subject_of(domain: str) -> Subject:
    """The words for a domain's items; ConfigError if the domain is unknown."""
    if domain not in SUBJECTS:
        raise ConfigError(
            "no rating prompt for the domain", where=domain, hint=f"one of {', '.join(SUBJECTS)}"
        )
    return SUBJECTS[domain]


_ABOUT: tuple[tuple[str, Callable[[Row], Any]], ...] = (
    ("Age", lambda row: row.get("age")),
    ("Occupation", lambda row: row.get("job")),
    ("Hobby", lambda row: row.get("hobby")),
    ("Likes", lambda row: ", ".join(map(str, row.get("likes") or ()))),
    ("Dislikes", lambda row: ", ".join(map(str, row.get("dislikes") or ()))),
    ("Who this is", lambda row: row.get("description")),
)


def person_lines(persona: Row) -> list[tuple[str, str]]:
    """Labels and values about a persona; what is unknown is left out."""
    who = pronouns_of(persona)
    name = one_line(str(persona.get("name") or "")) or "unknown"
    out = [("Name", f"{name} ({who.subject}/{who.object})")]
    for label, value_of in _ABOUT:
        value = value_of(persona)
        if value is not None and (text := one_line(str(value))):
            out.append((label, text))
    return out
