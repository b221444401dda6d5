"""Records of the shop in the formats of both editions, with the quirks that they have."""

from __future__ import annotations

from typing import Any

from pipelines.sample_world._dice import Dice
from pipelines.sample_world._shop import Ware

__all__ = ["JUNK_TITLES", "meta_2018", "meta_2023"]

#: What the 2018 crawl put where a title was not found.
JUNK_TITLES = (
    '<span class="a-size-medium a-color-secondary"',
    "\n    var aPageStart = (new Date()).getTime();\n  var ue_t0=ue_t0||+new Date();",
)
_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September",
    "October", "November", "December",
)  # fmt: skip


def _escaped(text: str) -> str:
    """HTML entities, as the 2018 crawl left them."""
    return text.replace("&amp;", "&").replace("&", "&amp;").replace("'", "&#39;")


def _day(date: tuple[int, int, int]) -> str:
    year, month, day = date
    return f"{_MONTHS[month - 1]} {day}, {year}"


def meta_2018(ware: Ware, dice: Dice) -> dict[str, Any]:
    """A product as the 2018 edition has it."""
    details: dict[str, str] = {}
    if ware.author:
        edition = "; 1st edition" if dice.chance(0.4) else ""
        dated = f" ({_day(ware.date)})" if ware.date else ""
        details["Publisher:"] = f"{ware.maker}{edition}{dated}"
        details["Language:"] = "English"
        details["ISBN-10:" if ware.asin.isdigit() else "ASIN:"] = ware.asin
    path = [_escaped(name) for name in ware.path]
    if ware.author and path and dice.chance(0.2):
        path.append("</span></span></span>")
    rank: list[str] | str = (
        f"{1 + dice.below(900_000):,} in {ware.path[0] if ware.path else 'All'} ("
    )
    if not ware.author:
        rank = [f">#{1 + dice.below(90_000):,} in {' > '.join(ware.path)}"] if ware.path else []
    price = "" if ware.price is None else f"${ware.price:.2f}"
    if dice.chance(0.02):
        price = ".a-box-inner{background-color:#fff}#alohaBuyBoxWidget .selected{"
    brand = ware.maker
    if ware.author:
        brand = f"Visit Amazon's {ware.author} Page" if dice.chance(0.5) else ware.author
    return {
        "category": path,
        "tech1": "",
        "description": [*ware.description, ""] if dice.chance(0.2) else list(ware.description),
        "fit": "",
        "title": dice.pick(JUNK_TITLES) if ware.junk else _escaped(ware.title),
        "also_buy": list(ware.also_bought),
        "image": [],
        "tech2": "",
        "brand": brand,
        "feature": list(ware.features),
        "rank": rank,
        "also_view": list(ware.also_viewed),
        "details": details,
        "main_cat": "Books" if ware.author else _escaped(ware.category.replace("_", " ")),
        "similar_item": "",
        "date": "",
        "price": price,
        "asin": ware.asin,
    }


def meta_2023(ware: Ware, dice: Dice, ratings: list[int]) -> dict[str, Any]:
    """A product as the 2023 edition has it; ``ratings`` are those of its reviews."""
    details: dict[str, Any] = {}
    record: dict[str, Any] = {
        "main_category": "Buy a Kindle" if ware.category == "Kindle_Store" else "Books",
        "title": ware.title,
        "average_rating": round(sum(ratings) / len(ratings), 1) if ratings else 4.0,
        "rating_number": len(ratings),
        "features": list(ware.features),
        "description": list(ware.description),
        "price": ware.price,
        "images": [],
        "videos": [],
        "store": ware.maker,
        "categories": list(ware.path),
        "details": details,
        "parent_asin": ware.asin,
        "bought_together": None,
    }
    if ware.price is not None and dice.chance(0.04):
        record["price"] = f"from {ware.price:.2f}"
    if ware.author:
        record["store"] = f"{ware.author} (Author)"
        record["subtitle"] = None if ware.category == "Kindle_Store" else "Paperback"
        record["author"] = None
        if dice.chance(0.6):
            record["author"] = {"avatar": "", "name": ware.author, "about": []}
        if ware.date and ware.category == "Kindle_Store":
            details["Publisher"] = ware.maker
            details["Publication date"] = _day(ware.date)
        elif ware.date:
            details["Publisher"] = f"{ware.maker} ({_day(ware.date)})"
        details["Language"] = "English"
    else:
        record["main_category"] = ware.category.replace("_", " ").replace(" and ", " & ")
        details["Brand"] = ware.maker
        details["Date First Available"] = _day((2005 + dice.below(15), 1 + dice.below(12), 9))
    if ware.junk:
        record["title"] = "" if dice.chance(0.5) else None
    return record
