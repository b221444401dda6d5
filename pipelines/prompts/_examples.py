"""Worked examples of rating prompts: one rated high, one low, for each domain. All invented."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["EXAMPLES", "Example"]


@dataclass(frozen=True)
class Example:
    """A person, an item, and how the one rates the other.

    Attributes
    ----------
    persona, item
        Rows with the columns of the tables.
    rating
        On 1-10; converted to the scale in use.
    mean
        What others gave it on average, on 1-10.
    """

    persona: dict[str, Any]
    item: dict[str, Any]
    rating: float
    mean: float


_INES = {
    "name": "Ines",
    "age": 41,
    "gender": "female",
    "job": "bus driver",
}
_TOBIAS = {
    "name": "Tobias",
    "age": 27,
    "gender": "male",
    "job": "electrician",
}

#: By domain: the high one, then the low one.
EXAMPLES: dict[str, tuple[Example, Example]] = {
    "movies": (
        Example(
            {
                **_INES,
                "likes": ["Comedy", "Drama"],
                "dislikes": ["Horror"],
                "description": "Ines comes home late and wants people she can care about, a dry "
                "joke now and then and an ending that does not lie.",
            },
            {
                "title": "The Last Tram to Belmonte",
                "year": 2004,
                "genres": ["Comedy", "Drama"],
                "actors": ["Rosa Quint", "Emil Saar"],
                "overview": "On the night before a tram line closes for good, its driver and "
                "three regular passengers refuse to get off.",
            },
            9.0,
            7.1,
        ),
        Example(
            {
                **_TOBIAS,
                "likes": ["Action", "Sci-Fi"],
                "dislikes": ["Romance"],
                "description": "Tobias watches with friends and a pizza. When nothing happens for "
                "ten minutes he reaches for his phone.",
            },
            {
                "title": "Letters in August",
                "year": 1996,
                "genres": ["Romance"],
                "actors": ["Clara Venn", "Hugo Marsh"],
                "overview": "Two translators fall in love by post over one long, hot summer "
                "and never meet.",
            },
            2.0,
            7.4,
        ),
    ),
    "books": (
        Example(
            {
                **_INES,
                "likes": ["History", "Crime"],
                "dislikes": ["Self-Help"],
                "description": "Ines reads between shifts. She wants a place she can smell and a "
                "case that is solved by thinking.",
            },
            {
                "title": "The Salt Warehouse",
                "authors": ["Jutta Remel"],
                "year": 2011,
                "category_path": ["Books", "Mystery & Thriller", "Historical"],
                "description": "In 1893 a customs clerk counts sacks in a harbour store and finds "
                "one too many.",
            },
            9.0,
            7.6,
        ),
        Example(
            {
                **_TOBIAS,
                "likes": ["Science Fiction"],
                "dislikes": ["Poetry"],
                "description": "Tobias reads on the train and wants ideas and speed. Whatever has "
                "no story he puts back on the shelf.",
            },
            {
                "title": "Slow Herbs",
                "authors": ["Anselm Okoro"],
                "year": 2015,
                "category_path": ["Books", "Literature", "Poetry"],
                "description": "Ninety short poems about one balcony and what grows on it.",
            },
            2.0,
            8.0,
        ),
    ),
    "games": (
        Example(
            {
                **_INES,
                "likes": ["Puzzle", "Simulation"],
                "dislikes": ["Shooter"],
                "description": "Ines plays half an hour before bed, alone and unhurried, and likes "
                "to see a small thing work in the end.",
            },
            {
                "title": "Signal Box",
                "developer": "Lantern Yard",
                "year": 2017,
                "genres": ["Puzzle", "Simulation"],
                "tags": ["Trains", "Relaxing"],
                "specs": ["Single-player"],
            },
            9.0,
            8.2,
        ),
        Example(
            {
                **_TOBIAS,
                "likes": ["Action", "Racing"],
                "dislikes": ["Strategy"],
                "description": "Tobias plays online with three friends, loudly. A manual of more "
                "than a page is homework to him.",
            },
            {
                "title": "Ledger of Kings",
                "developer": "Grey Parlour",
                "year": 2013,
                "genres": ["Strategy"],
                "tags": ["Turn-Based", "Economy"],
                "specs": ["Single-player"],
            },
            2.0,
            7.9,
        ),
    ),
    "products": (
        Example(
            {
                **_INES,
                "description": "Ines buys few things and keeps them for years. She mends what "
                "breaks and dislikes gadgets that need an app.",
            },
            {
                "title": "Steel Vacuum Flask, 1 Litre",
                "brand": "Norrhem",
                "category_path": ["Home & Kitchen", "Travel & To-Go Drinkware"],
                "price": 24.5,
                "description": "Double wall, spare seals included, keeps tea hot for a shift.",
            },
            9.0,
            8.4,
        ),
        Example(
            {
                **_TOBIAS,
                "description": "Tobias wants tools that survive a building site and has no "
                "patience for anything that only looks good.",
            },
            {
                "title": "Mini Screwdriver Set with Gift Box",
                "brand": "Prettyfix",
                "category_path": ["Tools", "Hand Tools"],
                "price": 12.0,
                "description": "Six pastel handles in a velvet box.",
            },
            2.0,
            6.9,
        ),
    ),
}
