"""The sample world's shop as Amazon files: both editions, with some of their real quirks."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pipelines.config import SampleSettings
from pipelines.sample_world._text import Dice, PersonNames, Story, T, record_of, table, town_name
from pipelines.sample_world._world import ROWS_PER_FAULT, SourceFiles, within

_TABLES = table("tables")
_SHOP = _TABLES["shop"]
_SHARES: Mapping[str, float] = _SHOP["shares"]
#: By category, as file names have them: paths and what the products are called.
PRODUCT_SHELVES: Mapping[str, Mapping[str, Sequence[str]]] = _TABLES["product_shelves"]


@dataclass(slots=True)
class Ware:
    """A book or a product."""

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
    date: str = ""
    junk: bool = False
    also_bought: list[str] = field(default_factory=list)
    also_viewed: list[str] = field(default_factory=list)
    stars: list[int] = field(default_factory=list)


class Review(NamedTuple):
    """A review."""

    user: str
    ware: Ware
    stars: int
    second: int


def draw_books(seed: int, count: int) -> Iterator[Ware]:
    """Draw books; a third of them are sold for the Kindle. No two share title and author."""
    dice = Dice(seed, "books")
    people, authors = PersonNames(seed, "book people"), PersonNames(seed, "authors")
    imprints, tones = _SHOP["imprints"], tuple(_TABLES["book_shelves"])
    houses = [f"{town_name(dice)} {dice.pick(imprints)}" for _ in range(max(6, count // 25))]
    taken: set[tuple[str, str]] = set()
    while (number := len(taken)) < count:
        tone = dice.pick(tones)
        story = Story.draw(dice, tone, (), people)
        name = story.title(dice)
        writer = authors.person(dice.skewed(max(10, count // 3), 1.3)).name
        if (name, writer) in taken:
            continue
        taken.add((name, writer))
        kindle = dice.chance(1 / 3)
        paths = _TABLES["book_shelves"][tone]
        path = paths[min(int(dice.exponential(0.7)), len(paths) - 1)].split(" > ")
        text = story.overview(dice)
        root = ("Kindle Store", "Kindle eBooks") if kindle else ("Books",)
        yield Ware(
            # ISBNs of books printed before 2007 are their ASINs.
            asin=f"B0{number:05d}KND" if kindle else _isbn(100_000_000 + number * 37),
            category="Kindle_Store" if kindle else "Books",
            title=name,
            path=() if dice.chance(_SHARES["no_path"]) else (*root, *path),
            description=() if dice.chance(_SHARES["no_text"]) else (text,),
            features=(),
            maker=houses[dice.skewed(len(houses), 1.5)],
            price=round(1.99 + dice.below(28), 2) if dice.chance(0.85) else None,
            kind=tone,
            quality=_quality(dice),
            author=writer,
            date="" if dice.chance(_SHARES["no_date"]) else _day(dice),
            junk=dice.chance(_SHARES["junk"]),
        )


def draw_products(seed: int, count: int) -> Iterator[Ware]:
    """Draw ``count`` products of every shelf."""
    for letter, (category, shelves) in zip("TMP", PRODUCT_SHELVES.items(), strict=True):
        dice = Dice(seed, "products", category)
        brands = [town_name(dice) for _ in range(8)]
        looks = *(_SHOP[k] for k in ("sizes", "styles", "colors")), _SHOP["materials"][category]
        for number in range(count * len(shelves)):
            shelf, nouns = list(shelves.items())[number % len(shelves)]
            path, brand = tuple(shelf.split(" > ")), dice.pick(brands)
            slots = {"wood": dice.pick(_SHOP["woods"]), "town": town_name(dice), "season": "winter"}
            claims, points = ([t.format_map(slots) for t in _SHOP[k]] for k in ("claims", "points"))
            text = tuple(dice.sample(claims, 1 + dice.below(3)))
            name = " ".join((brand, *_some(dice, looks), dice.pick(nouns)))
            stated = _some(dice, (_SHOP["uses"], _SHOP["drives"]))
            yield Ware(
                asin=f"B{letter}{number:06d}XY",
                category=category,
                title=f"{name}, No. {number + 1}",
                path=() if dice.chance(_SHARES["no_path"]) else path,
                description=() if dice.chance(_SHARES["no_text"]) else text,
                features=(*stated, *dice.sample(points, dice.below(4))),
                maker=brand,
                price=round(4.5 + 90 * dice.roll() ** 2, 2) if dice.chance(0.8) else None,
                kind=path[-1],
                quality=_quality(dice),
                junk=dice.chance(_SHARES["junk"]),
            )


def _some(dice: Dice, properties: Iterable[Sequence[str]]) -> list[str]:
    return [dice.pick(words) for words in properties if not dice.chance(_SHARES["no_look"])]


def link(dice: Dice, wares: Sequence[Ware]) -> None:
    """Fill the lists of what is bought and viewed too: mostly wares of the same kind."""
    kinds = {k: [w for w in wares if w.kind == k] for k in {w.kind for w in wares}}
    for ware in wares:
        for listed, most in ((ware.also_bought, 8), (ware.also_viewed, 5)):
            for _ in range(0 if dice.chance(0.3) else 1 + dice.below(most)):
                other = dice.pick(kinds[ware.kind] if dice.chance(0.8) else wares).asin
                # Some of what is listed is not in the catalogue, as at the origin.
                other = f"B9{dice.below(10**7):07d}Z" if dice.chance(0.1) else other
                if other != ware.asin and other not in listed:
                    listed.append(other)


def _quality(dice: Dice) -> float:
    """About normal, mean 0, standard deviation 0.35 (stars)."""
    return 0.35 * (sum(dice.roll() for _ in range(12)) - 6)


def _day(dice: Dice) -> str:
    year = max(1985, 2022 - int(dice.exponential(9)))
    return f"{calendar.month_name[dice.between(1, 12)]} {dice.between(1, 28)}, {year}"


def _isbn(digits: int) -> str:
    """An ISBN-10: nine digits and their check digit."""
    check = sum(n * int(d) for n, d in enumerate(f"{digits:09d}", start=1)) % 11
    return f"{digits:09d}{'0123456789X'[check]}"


def _escaped(text: str) -> str:
    """HTML entities, as the 2018 crawl left them."""
    return text.replace("&amp;", "&").replace("&", "&amp;").replace("'", "&#39;")


def meta_2018(ware: Ware, dice: Dice) -> dict[str, Any]:
    """A product as the 2018 edition has it."""
    details: dict[str, str] = {}
    path, brand = [_escaped(name) for name in ware.path], ware.maker
    if ware.author:
        edition = "; 1st edition" if dice.chance(0.4) else ""
        dated = f" ({ware.date})" if ware.date else ""
        details = {"Publisher:": f"{ware.maker}{edition}{dated}", "Language:": "English"}
        details["ISBN-10:" if ware.asin.isdigit() else "ASIN:"] = ware.asin
        path += ["</span></span></span>"] if path and dice.chance(0.2) else []
    top = ware.path[0] if ware.path else "All"
    rank: list[str] | str = f"{1 + dice.below(900_000):,} in {top} ("
    if not ware.author:
        rank = [f">#{1 + dice.below(90_000):,} in {' > '.join(ware.path)}"] if ware.path else []
    price = "" if ware.price is None else f"${ware.price:.2f}"
    price = _SHOP["junk_price"] if dice.chance(0.02) else price
    if ware.author:
        brand = f"Visit Amazon's {ware.author} Page" if dice.chance(0.5) else ware.author
    return record_of("meta_2018", ware) | {
        "category": path,
        "description": [*ware.description, ""] if dice.chance(0.2) else ware.description,
        "title": dice.pick(_SHOP["junk_titles"]) if ware.junk else _escaped(ware.title),
        "brand": brand,
        "rank": rank,
        "details": details,
        "main_cat": "Books" if ware.author else _escaped(ware.category.replace("_", " ")),
        "price": price,
    }


def meta_2023(ware: Ware, dice: Dice) -> dict[str, Any]:
    """A product as the 2023 edition has it."""
    record, rated = record_of("meta_2023", ware), len(ware.stars)
    if rated:
        record |= {"average_rating": round(sum(ware.stars) / rated, 1), "rating_number": rated}
    if ware.price is not None and dice.chance(0.04):
        record["price"] = f"from {ware.price:.2f}"
    if ware.author:
        kindle = ware.category == "Kindle_Store"
        about = {"avatar": "", "name": ware.author, "about": []}
        details = {"Publisher": ware.maker if kindle else f"{ware.maker} ({ware.date})"}
        details |= {"Publication date": ware.date} if kindle else {}
        record |= {
            "main_category": "Buy a Kindle" if kindle else "Books",
            "store": f"{ware.author} (Author)",
            "details": (details if ware.date else {}) | {"Language": "English"},
            "subtitle": None if kindle else "Paperback",
            "author": about if dice.chance(0.6) else None,
        }
    else:
        year, month = 2005 + dice.below(15), calendar.month_name[dice.between(1, 12)]
        record["main_category"] = ware.category.replace("_", " ").replace(" and ", " & ")
        record["details"] = {"Brand": ware.maker, "Date First Available": f"{month} 9, {year}"}
    if ware.junk:
        record["title"] = "" if dice.chance(0.5) else None
    return record


def draw_baskets(
    dice: Dice, kinds: dict[str, list[T]], wares: list[T], users: int, count: int, shop: str
) -> Iterator[tuple[list[str], float, list[T]]]:
    """Draw each user's kinds, mood (-0.5 to 0.5) and different wares, about ``count`` in all."""
    habits = _TABLES[shop]["habits"]
    few, low, mean = habits["few"], habits["low"], habits["mean"]
    weights = [low if dice.chance(few) else 1 + dice.exponential(mean) for _ in range(users)]
    total = sum(weights)
    for weight in weights:
        due = max(1, round(count * weight / total))
        due = min(due, 4) if weight < 1 else max(due, habits["least"])
        taste = dice.sample(sorted(kinds), 1 + dice.below(3))
        taste = sorted(taste) if habits["sorted"] else taste
        mood = 0.5 * (dice.roll() + dice.roll() - 1)
        basket: dict[int, T] = {}
        for _ in range(3 * due):
            shelf = kinds[dice.pick(taste)] if dice.chance(habits["loyal"]) else wares
            ware = shelf[dice.skewed(len(shelf), habits["skew"])]
            basket[id(ware)] = ware
            if len(basket) == min(due, len(wares)):
                break
        yield taste, mood, list(basket.values())


def draw_reviews(
    dice: Dice, edition: str, wares: list[Ware], users: float, count: float, seed: int, pool: str
) -> list[Review]:
    """Draw reviews by user and time; ``pool`` sets reviewers of books and products apart."""
    first, last, step, prefix, length = _SHOP["editions"][edition]
    kinds = {k: [w for w in wares if w.kind == k] for k in {w.kind for w in wares}}
    baskets = draw_baskets(dice, kinds, wares, max(10, round(users)), round(count), "shop")
    reviews = []
    for user, (taste, mood, basket) in enumerate(baskets):
        code = Dice(seed, "reviewer", prefix + pool, user)
        name = prefix + pool + "".join(code.pick(_SHOP["letters"]) for _ in range(length))
        times = sorted(first + dice.below((last - first) // step) * step for _ in basket)
        for ware, second in zip(basket, times, strict=True):
            liking = 0.9 if ware.kind in taste else -0.5
            noise = 1.1 * (dice.roll() + dice.roll() + dice.roll() - 1.5)
            stars = round(3.7 + ware.quality + mood + liking + noise)
            reviews.append(Review(name, ware, within(stars, 1, 5), second))
    return reviews


def _words(review: Review, dice: Dice) -> str:
    text: str = dice.pick(_SHOP["texts"])
    return text.format(title=review.ware.title, verdict=_SHOP["verdicts"][review.stars])


def review_2018(review: Review, dice: Dice) -> dict[str, Any]:
    """A review as the 2018 edition has it."""
    record = record_of("reviews_2018", review) | {
        "overall": float(review.stars),
        "verified": dice.chance(0.75),
        "style": {"Format:": " Hardcover" if dice.chance(0.3) else " Paperback"},
        "reviewText": _words(review, dice),
        "summary": dice.pick(_SHOP["headings"][review.stars]),
    }
    if not review.ware.author:
        del record["style"]
    if dice.chance(0.05):
        del record["reviewText"]
    if dice.chance(0.1):
        record["vote"] = f"{1 + dice.below(1_200):,}"
    return record


def review_2023(review: Review, dice: Dice) -> dict[str, Any]:
    """A review as the 2023 edition has it."""
    return record_of("reviews_2023", review) | {
        "rating": float(review.stars),
        "title": dice.pick(_SHOP["headings"][review.stars]),
        "text": _words(review, dice),
        "timestamp": review.second * 1000 + dice.below(1000),
        "helpful_vote": int(dice.exponential(0.8)),
        "verified_purchase": dice.chance(0.8),
    }


def amazon_files(settings: SampleSettings, *, broken_rows: bool) -> SourceFiles:
    """Every Amazon file of a world: 1.5 books a film, 0.075 products of each shelf."""
    seed, out = settings.seed, SourceFiles()
    books = draw_books(seed, within(settings.films * 3 // 2, 90, 6_000))
    _add_domain(out, settings, "books", list(books))
    products = draw_products(seed, within(settings.films * 3 // 40, 8, 400))
    _add_domain(out, settings, "products", list(products))
    for name, faults in _SHOP["faults"].items() if broken_rows else ():
        lines = out.lines[name]
        planned = list(faults.items())[: len(lines) // ROWS_PER_FAULT]
        for n, (reason, texts) in enumerate(planned, start=1):
            at = len(lines) * n // (len(planned) + 1)
            pattern, replacement = (text.encode("latin-1") for text in texts)
            out.spoil(name, at, reason, re.sub(pattern, replacement, lines[at]))
    return out


def _add_domain(out: SourceFiles, settings: SampleSettings, name: str, wares: list[Ware]) -> None:
    """Add the records of both editions; some printed books are in both."""
    per_review, per_user = {"books": (4, 1), "products": (10, 2)}[name]
    count = within(settings.ratings // per_review, 400, 100_000)
    users = within(settings.users // per_user, 30, count // 8)
    dice = Dice(settings.seed, "shop", name)
    link(dice, wares)
    points = [(dice.roll(), *_SHOP["in_editions"].get(w.category, (0, 0)), w) for w in wares]
    old = [ware for point, end, _, ware in points if point < end]
    new = [ware for point, _, start, ware in points if point >= start]
    share, pool = len(old) / (len(old) + len(new)), name[0].upper()
    reviews = {
        edition: draw_reviews(dice, edition, listed, users * s, count * s, settings.seed, pool)
        for edition, listed, s in (("2018", old, share), ("2023", new, 1 - share))
    }
    for review in reviews["2023"]:
        review.ware.stars.append(review.stars)
    for edition, listed, review_as, meta_as, end in (
        ("2018", old, review_2018, meta_2018, ".json.gz"),
        ("2023", new, review_2023, meta_2023, ".jsonl.gz"),
    ):
        for category in sorted({w.category for w in listed}):
            stem = "Books_5" if (edition, category) == ("2018", "Books") else category
            reviewed = (review_as(r, dice) for r in reviews[edition] if r.ware.category == category)
            meta = (meta_as(w, dice) for w in listed if w.category == category)
            _add(out, f"amazon/{edition}/{stem}{end}", reviewed, dice)
            _add(out, f"amazon/{edition}/meta_{category}{end}", meta, dice)


def _add(out: SourceFiles, name: str, rows: Iterable[dict[str, Any]], dice: Dice) -> None:
    """Add one file of these records; those of 2018 are repeated now and then."""
    lines = out.lines[name]
    for row in rows:
        out.add(name, row)
        if "/2018/" in name and dice.chance(_SHARES["repeated"]):
            lines.append(lines[-1])
