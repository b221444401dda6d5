"""Shelves of the sample world's shop: categories of books and of products, and what is on them.

Written for this project. Names of categories are everyday words, as shops use them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["BOOK_SHELVES", "PRODUCT_SHELVES", "Shelf"]

#: By the genre that sets a story's tone: paths below the root, likeliest first.
BOOK_SHELVES: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "Mystery": (
        ("Mystery, Thriller & Suspense", "Mystery", "Traditional Detectives"),
        ("Mystery, Thriller & Suspense", "Mystery"),
    ),
    "Thriller": (
        ("Mystery, Thriller & Suspense", "Thrillers & Suspense", "Spies & Politics"),
        ("Mystery, Thriller & Suspense", "Thrillers & Suspense"),
    ),
    "Sci-Fi": (
        ("Science Fiction & Fantasy", "Science Fiction", "Space Travel"),
        ("Science Fiction & Fantasy", "Science Fiction"),
    ),
    "Fantasy": (
        ("Science Fiction & Fantasy", "Fantasy", "Sagas"),
        ("Science Fiction & Fantasy", "Fantasy"),
    ),
    "Romance": (("Romance", "Small Towns"), ("Romance", "Historical")),
    "Drama": (("Literature & Fiction", "Family Life"), ("Literature & Fiction", "Genre Fiction")),
    "Comedy": (("Humor & Entertainment", "Humor"), ("Literature & Fiction", "Humor & Satire")),
    "Horror": (("Literature & Fiction", "Horror", "Haunted Houses"),),
    "War": (("History", "Military"), ("Literature & Fiction", "War Stories")),
    "Western": (("Literature & Fiction", "Westerns"),),
    "Children": (("Children's Books", "Growing Up"), ("Children's Books", "Animals")),
}


@dataclass(frozen=True, slots=True)
class Shelf:
    """Products of one kind.

    Attributes
    ----------
    path
        Categories from the top down, as the shop's records have them.
    nouns
        What the products are called.
    """

    path: tuple[str, ...]
    nouns: tuple[str, ...]


def _shelf(path: str, *nouns: str) -> Shelf:
    return Shelf(tuple(path.split(" > ")), nouns)


#: By category, as file names have them.
PRODUCT_SHELVES: Mapping[str, tuple[Shelf, ...]] = {
    "Toys_and_Games": (
        _shelf("Toys & Games > Games > Board Games", "Board Game", "Strategy Game", "Dice Game"),
        _shelf("Toys & Games > Games > Card Games", "Card Game", "Trick-Taking Deck"),
        _shelf("Toys & Games > Puzzles > Jigsaw Puzzles", "Jigsaw Puzzle", "Panorama Puzzle"),
        _shelf("Toys & Games > Toys > Building Toys > Wooden Blocks", "Block Set", "Arch Blocks"),
        _shelf("Toys & Games > Toys > Dolls, Playsets & Toy Figures", "Rag Doll", "Dollhouse"),
        _shelf("Toys & Games > Collector's Corner > Oddities", "Clockwork Curio", "Tin Oddity"),
    ),
    "Musical_Instruments": (
        _shelf(
            "Musical Instruments > String Instruments > Guitars", "Acoustic Guitar", "Travel Guitar"
        ),
        _shelf("Musical Instruments > String Instruments > Violins", "Violin", "Student Violin"),
        _shelf("Musical Instruments > Woodwinds > Harmonicas", "Harmonica", "Chromatic Harmonica"),
        _shelf("Musical Instruments > Percussion > Hand Drums", "Frame Drum", "Pair of Bongos"),
        _shelf("Musical Instruments > Stage Effects > Fog Machines", "Fog Machine", "Haze Maker"),
    ),
    "Patio_Lawn_and_Garden": (
        _shelf(
            "Patio, Lawn &amp; Garden > Gardening > Hand Tools > Trowels", "Trowel", "Bulb Planter"
        ),
        _shelf("Patio, Lawn &amp; Garden > Gardening > Pots & Planters", "Planter", "Clay Pot"),
        _shelf(
            "Patio, Lawn &amp; Garden > Outdoor Decor > Wind Chimes", "Wind Chime", "Bell Chime"
        ),
        _shelf("Patio, Lawn &amp; Garden > Watering > Garden Hoses", "Garden Hose", "Coil Hose"),
        _shelf("Patio, Lawn &amp; Garden > Seasonal Specials", "Snow Lantern", "Harvest Wreath"),
    ),
}
