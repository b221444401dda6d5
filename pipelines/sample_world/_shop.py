"""The sample world's shop: its books and products, before they become records."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from pipelines.sample_world._dice import Dice
from pipelines.sample_world._names import NameBook, town_name
from pipelines.sample_world._shelves import BOOK_SHELVES, PRODUCT_SHELVES
from pipelines.sample_world._text import Story, overview, title

__all__ = ["Ware", "draw_books", "draw_products", "link"]

_TONES = tuple(BOOK_SHELVES)
_IMPRINTS = ("House", "Press", "Books", "& Daughters", "Editions", "Publishing")
_FIRST_YEAR, _LAST_YEAR = 1985, 2022
#: Share of wares without a description, a date, a path; of titles that are a piece of a page.
_NO_TEXT, _NO_DATE, _NO_PATH, _JUNK = 0.05, 0.04, 0.02, 0.03
_LOOKS = ("Blue", "Copper", "Tall", "Folding", "Hand-Painted", "Small", "Classic", "Striped")
_CLAIMS = (
    "Made of {wood} and finished by hand.",
    "Comes with a spare part and a cotton bag.",
    "Wipe it with a damp cloth; it is ready again in a minute.",
    "Packed flat, and put together without tools.",
    "Tested in the workshop in {town} for a whole {season}.",
    "The {wood} will darken a little with use.",
)
_POINTS = (
    "Solid {wood}",
    "Two-year promise",
    "From {town}",
    "For ages six and up",
    "Weighs little",
)
_WOODS = ("beech", "walnut", "birch", "ash", "cherry wood", "tin", "brass")


@dataclass(slots=True)
class Ware:
    """A book or a product.

    Attributes
    ----------
    asin
        Its id.
    category
        As file names have it.
    title, path, description, features, maker, price
        What its records show; empty (price: None) where they have a gap.
    author
        Who wrote a book; else empty.
    date
        Day of publication as (year, month, day), or None.
    kind
        What readers are drawn to: the tone of a book, the shelf of a product.
    quality
        Stars above the mean.
    junk
        Whether its title was lost to a piece of a web page.
    also_bought, also_viewed
        ASINs.
    """

    asin: str
    category: str
    title: str
    path: tuple[str, ...]
    description: tuple[str, ...]
    features: tuple[str, ...]
    maker: str
    price: float | None
    kind: str
    quality: float
    author: str = ""
    date: tuple[int, int, int] | None = None
    junk: bool = False
    also_bought: list[str] = field(default_factory=list)
    also_viewed: list[str] = field(default_factory=list)


def draw_books(seed: int, count: int) -> list[Ware]:
    """Books; a third of them are sold for the Kindle. No two share title and author."""
    dice, people = Dice(seed, "books"), NameBook(seed, "book people")
    authors = NameBook(seed, "authors")
    houses = [f"{town_name(dice)} {dice.pick(_IMPRINTS)}" for _ in range(max(6, count // 25))]
    books: list[Ware] = []
    taken: set[str] = set()
    while len(books) < count:
        tone = dice.pick(_TONES)
        story = Story.draw(dice, tone, (), people)
        name = title(story, dice)
        writer = authors.person(dice.skewed(max(10, count // 3), 1.3)).name
        if f"{name}/{writer}" in taken:
            continue
        taken.add(f"{name}/{writer}")
        kindle = dice.chance(1 / 3)
        number = len(books)
        paths = BOOK_SHELVES[tone]
        path = paths[min(int(dice.exponential(0.7)), len(paths) - 1)]
        # ISBNs of books printed before 2007 are their ASINs; the last digit is a check.
        asin = f"B0{number:05d}KND" if kindle else _isbn(100_000_000 + number * 37)
        text = overview(story, dice)
        root = ("Kindle Store", "Kindle eBooks") if kindle else ("Books",)
        books.append(
            Ware(
                asin=asin,
                category="Kindle_Store" if kindle else "Books",
                title=name,
                path=() if dice.chance(_NO_PATH) else (*root, *path),
                description=() if dice.chance(_NO_TEXT) else (text,),
                features=(),
                maker=houses[dice.skewed(len(houses), 1.5)],
                price=round(1.99 + dice.below(28), 2) if dice.chance(0.85) else None,
                kind=tone,
                quality=0.35 * _bell(dice),
                author=writer,
                date=None if dice.chance(_NO_DATE) else _day(dice),
                junk=dice.chance(_JUNK),
            )
        )
    return books


def draw_products(seed: int, count: int) -> list[Ware]:
    """``count`` products of every category."""
    wares: list[Ware] = []
    for category, shelves in PRODUCT_SHELVES.items():
        dice = Dice(seed, "products", category)
        brands = [town_name(dice) for _ in range(8)]
        for number in range(count):
            shelf = shelves[number % len(shelves)]
            brand, wood, town = dice.pick(brands), dice.pick(_WOODS), town_name(dice)

            def filled(text: str, wood: str = wood, town: str = town) -> str:
                return text.format(wood=wood, town=town, season="winter")

            claims = tuple(filled(t) for t in dice.sample(_CLAIMS, 1 + dice.below(3)))
            look = dice.pick(_LOOKS)
            wares.append(
                Ware(
                    asin=f"B{'TMP'[len(wares) // count]}{number:06d}XY",
                    category=category,
                    title=f"{brand} {look} {dice.pick(shelf.nouns)}, No. {number + 1}",
                    path=() if dice.chance(_NO_PATH) else shelf.path,
                    description=() if dice.chance(_NO_TEXT) else claims,
                    features=tuple(filled(p) for p in dice.sample(_POINTS, dice.below(4))),
                    maker=brand,
                    price=round(4.5 + 90 * dice.roll() ** 2, 2) if dice.chance(0.8) else None,
                    kind=shelf.path[-1],
                    quality=0.35 * _bell(dice),
                    junk=dice.chance(_JUNK),
                )
            )
    return wares


def link(dice: Dice, wares: Sequence[Ware]) -> None:
    """Fill the lists of what is bought and viewed too: mostly wares of the same kind."""
    kinds: dict[str, list[str]] = {}
    for ware in wares:
        kinds.setdefault(ware.kind, []).append(ware.asin)
    everything = [ware.asin for ware in wares]
    for ware in wares:
        for listed, most in ((ware.also_bought, 8), (ware.also_viewed, 5)):
            if dice.chance(0.3):
                continue
            for _ in range(1 + dice.below(most)):
                other = dice.pick(kinds[ware.kind] if dice.chance(0.8) else everything)
                # Some of what is listed is not in the catalogue, as at the origin.
                other = f"B9{dice.below(10**7):07d}Z" if dice.chance(0.1) else other
                if other != ware.asin and other not in listed:
                    listed.append(other)


def _bell(dice: Dice) -> float:
    """About a standard normal number."""
    return sum(dice.roll() for _ in range(12)) - 6


def _day(dice: Dice) -> tuple[int, int, int]:
    age = int(dice.exponential(9))
    return max(_FIRST_YEAR, _LAST_YEAR - age), dice.between(1, 12), dice.between(1, 28)


def _isbn(digits: int) -> str:
    """An ISBN-10: nine digits and their check digit.

    >>> _isbn(30640615)
    '0306406152'
    """
    nine = f"{digits:09d}"
    check = sum(n * int(d) for n, d in zip(itertools.count(1), nine, strict=False)) % 11
    return nine + ("X" if check == 10 else str(check))
