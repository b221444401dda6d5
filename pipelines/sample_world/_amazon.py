"""The sample world's shop as Amazon files: both editions, with some of their real quirks."""

from __future__ import annotations

import calendar
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import orjson

from pipelines.config import SampleSettings
from pipelines.sample_world._text import Dice, NameBook, Story, table, town_name
from pipelines.sample_world._world import ROWS_PER_FAULT, SourceFiles, within

_TABLES = table("tables")
_SHOP = _TABLES["shop"]
#: By category, as file names have them: paths and what the products are called.
PRODUCT_SHELVES: Mapping[str, Mapping[str, Sequence[str]]] = _TABLES["product_shelves"]
#: Categories whose products only the 2018 edition has.
_OLD = frozenset({"Patio_Lawn_and_Garden"})
#: Share of wares without a description, a date, a path; of titles that are a piece of a page.
_NO_TEXT, _NO_DATE, _NO_PATH, _JUNK = 0.05, 0.04, 0.02, 0.03
#: Share of products that lack one of the properties that shoppers ask about.
_NO_LOOK = 0.15
#: Share of records of 2018 that are in their file twice; of reviewers with fewer than five reviews.
_REPEATED, _RARE = 0.04, 0.12
#: By edition: first and last second of its reviews, the precision of their times (seconds), and
#: prefix and length of its reviewers' ids.
_EDITIONS = {
    "2018": (1_230_768_000, 1_538_352_000, 86_400, "A", 12),
    "2023": (1_356_998_400, 1_677_628_800, 1, "AE", 25),
}
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


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


class Review(NamedTuple):
    """A review."""

    user: str
    ware: Ware
    stars: int
    second: int


def draw_books(seed: int, count: int) -> Iterator[Ware]:
    """Draw books; a third of them are sold for the Kindle. No two share title and author."""
    dice = Dice(seed, "books")
    people, authors = NameBook(seed, "book people"), NameBook(seed, "authors")
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
            path=() if dice.chance(_NO_PATH) else (*root, *path),
            description=() if dice.chance(_NO_TEXT) else (text,),
            features=(),
            maker=houses[dice.skewed(len(houses), 1.5)],
            price=round(1.99 + dice.below(28), 2) if dice.chance(0.85) else None,
            kind=tone,
            quality=_quality(dice),
            author=writer,
            date="" if dice.chance(_NO_DATE) else _day(dice),
            junk=dice.chance(_JUNK),
        )


def draw_products(seed: int, count: int) -> Iterator[Ware]:
    """Draw ``count`` products of every shelf."""
    for letter, (category, shelves) in zip("TMP", PRODUCT_SHELVES.items(), strict=True):
        dice = Dice(seed, "products", category)
        brands = [town_name(dice) for _ in range(8)]
        for number in range(count * len(shelves)):
            shelf, nouns = list(shelves.items())[number % len(shelves)]
            path = tuple(shelf.split(" > "))
            brand = dice.pick(brands)
            slots = {"wood": dice.pick(_SHOP["woods"]), "town": town_name(dice), "season": "winter"}
            claims, points = ([t.format_map(slots) for t in _SHOP[k]] for k in ("claims", "points"))
            text = tuple(dice.sample(claims, 1 + dice.below(3)))
            looks = [
                "" if dice.chance(_NO_LOOK) else dice.pick(words)
                for words in (_SHOP["sizes"], _SHOP["styles"], _SHOP["colors"],
                              _SHOP["materials"][category])
            ]  # fmt: skip
            name = " ".join(filter(None, (brand, *looks, dice.pick(nouns))))
            stated = [dice.pick(_SHOP[k]) for k in ("uses", "drives") if not dice.chance(_NO_LOOK)]
            yield Ware(
                asin=f"B{letter}{number:06d}XY",
                category=category,
                title=f"{name}, No. {number + 1}",
                path=() if dice.chance(_NO_PATH) else path,
                description=() if dice.chance(_NO_TEXT) else text,
                features=(*stated, *dice.sample(points, dice.below(4))),
                maker=brand,
                price=round(4.5 + 90 * dice.roll() ** 2, 2) if dice.chance(0.8) else None,
                kind=path[-1],
                quality=_quality(dice),
                junk=dice.chance(_JUNK),
            )


def _by_kind(wares: Sequence[Ware]) -> dict[str, list[Ware]]:
    kinds = defaultdict(list)
    for ware in wares:
        kinds[ware.kind].append(ware)
    return kinds


def link(dice: Dice, wares: Sequence[Ware]) -> None:
    """Fill the lists of what is bought and viewed too: mostly wares of the same kind."""
    kinds = _by_kind(wares)
    for ware in wares:
        for listed, most in ((ware.also_bought, 8), (ware.also_viewed, 5)):
            if dice.chance(0.3):
                continue
            for _ in range(1 + dice.below(most)):
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
    """An ISBN-10: nine digits and their check digit.

    >>> _isbn(30640615)
    '0306406152'
    """
    check = sum(n * int(d) for n, d in enumerate(f"{digits:09d}", start=1)) % 11
    return f"{digits:09d}" + ("X" if check == 10 else str(check))


def _escaped(text: str) -> str:
    """HTML entities, as the 2018 crawl left them."""
    return text.replace("&amp;", "&").replace("&", "&amp;").replace("'", "&#39;")


def meta_2018(ware: Ware, dice: Dice) -> dict[str, Any]:
    """A product as the 2018 edition has it."""
    details: dict[str, str] = {}
    if ware.author:
        edition = "; 1st edition" if dice.chance(0.4) else ""
        dated = f" ({ware.date})" if ware.date else ""
        details["Publisher:"] = f"{ware.maker}{edition}{dated}"
        details["Language:"] = "English"
        details["ISBN-10:" if ware.asin.isdigit() else "ASIN:"] = ware.asin
    path = [_escaped(name) for name in ware.path]
    if ware.author and path and dice.chance(0.2):
        path.append("</span></span></span>")
    top = ware.path[0] if ware.path else "All"
    rank: list[str] | str = f"{1 + dice.below(900_000):,} in {top} ("
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
        "description": [*ware.description, ""] if dice.chance(0.2) else ware.description,
        "fit": "",
        "title": dice.pick(_SHOP["junk_titles"]) if ware.junk else _escaped(ware.title),
        "also_buy": ware.also_bought,
        "image": [],
        "tech2": "",
        "brand": brand,
        "feature": ware.features,
        "rank": rank,
        "also_view": ware.also_viewed,
        "details": details,
        "main_cat": "Books" if ware.author else _escaped(ware.category.replace("_", " ")),
        "similar_item": "",
        "date": "",
        "price": price,
        "asin": ware.asin,
    }


def meta_2023(ware: Ware, dice: Dice, ratings: Sequence[int]) -> dict[str, Any]:
    """A product as the 2023 edition has it; ``ratings`` are those of its reviews."""
    details: dict[str, str] = {}
    record: dict[str, Any] = {
        "main_category": "Buy a Kindle" if ware.category == "Kindle_Store" else "Books",
        "title": ware.title,
        "average_rating": round(sum(ratings) / len(ratings), 1) if ratings else 4.0,
        "rating_number": len(ratings),
        "features": ware.features,
        "description": ware.description,
        "price": ware.price,
        "images": [],
        "videos": [],
        "store": ware.maker,
        "categories": ware.path,
        "details": details,
        "parent_asin": ware.asin,
        "bought_together": None,
    }
    if ware.price is not None and dice.chance(0.04):
        record["price"] = f"from {ware.price:.2f}"
    if ware.author:
        about = {"avatar": "", "name": ware.author, "about": []}
        record["store"] = f"{ware.author} (Author)"
        record["subtitle"] = None if ware.category == "Kindle_Store" else "Paperback"
        record["author"] = about if dice.chance(0.6) else None
        if ware.date and ware.category == "Kindle_Store":
            details["Publisher"] = ware.maker
            details["Publication date"] = ware.date
        elif ware.date:
            details["Publisher"] = f"{ware.maker} ({ware.date})"
        details["Language"] = "English"
    else:
        record["main_category"] = ware.category.replace("_", " ").replace(" and ", " & ")
        details["Brand"] = ware.maker
        year, month = 2005 + dice.below(15), dice.between(1, 12)
        details["Date First Available"] = f"{calendar.month_name[month]} 9, {year}"
    if ware.junk:
        record["title"] = "" if dice.chance(0.5) else None
    return record


def draw_reviews(
    dice: Dice, edition: str, wares: Sequence[Ware], users: int, count: int, seed: int, pool: str
) -> list[Review]:
    """Draw reviews of an edition, by user and time; no user reviews a ware twice.

    Stars come from the ware's quality, the reviewer's mood and taste, and chance. At most
    ``count`` reviews are written; fewer where reviewers have run out of wares. ``pool`` sets the
    reviewers of books and products apart.
    """
    kinds = _by_kind(wares)
    first, last, step, prefix, length = _EDITIONS[edition]
    weights = [0.15 if dice.chance(_RARE) else 1 + dice.exponential(1.2) for _ in range(users)]
    reviews, total = [], sum(weights)
    for user, weight in enumerate(weights):
        due = max(1, round(count * weight / total))
        due = min(due, 4) if weight < 1 else max(due, 5)
        taste = sorted(dice.sample(sorted(kinds), 1 + dice.below(3)))
        mood = 0.5 * (dice.roll() + dice.roll() - 1)
        seen: dict[str, Ware] = {}
        for _ in range(3 * due):
            shelf = kinds[dice.pick(taste)] if dice.chance(0.65) else wares
            ware = shelf[dice.skewed(len(shelf), 1.8)]
            seen.setdefault(ware.asin, ware)
            if len(seen) == min(due, len(wares)):
                break
        code = Dice(seed, "reviewer", prefix + pool, user)
        name = prefix + pool + "".join(code.pick(_LETTERS) for _ in range(length))
        times = sorted(first + dice.below((last - first) // step) * step for _ in seen)
        for ware, second in zip(seen.values(), times, strict=True):
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
    record: dict[str, Any] = {
        "overall": float(review.stars),
        "verified": dice.chance(0.75),
        "reviewerID": review.user,
        "asin": review.ware.asin,
        "style": {"Format:": " Hardcover" if dice.chance(0.3) else " Paperback"},
        "reviewerName": "A. Reader",
        "reviewText": _words(review, dice),
        "summary": dice.pick(_SHOP["headings"][review.stars]),
        "unixReviewTime": review.second,
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
    return {
        "rating": float(review.stars),
        "title": dice.pick(_SHOP["headings"][review.stars]),
        "text": _words(review, dice),
        "images": [],
        "asin": review.ware.asin,
        "parent_asin": review.ware.asin,
        "user_id": review.user,
        "timestamp": review.second * 1000 + dice.below(1000),
        "helpful_vote": int(dice.exponential(0.8)),
        "verified_purchase": dice.chance(0.8),
    }


#: Faults that make a loader reject a review, by file.
_FAULTS: Mapping[str, Sequence[tuple[str, Callable[[bytes], bytes]]]] = {
    "amazon/2018/Books_5.json.gz": (
        ("not_json", lambda row: row.replace(b'"summary":"', b'"summary":"so-called "')),
        ("off_scale", lambda row: row.replace(b'"overall":', b'"overall":1')),
        ("bad_timestamp", lambda row: row.replace(b'"unixReviewTime":', b'"unixReviewTime":"')[:-1]
         + b'"}'),
    ),
    "amazon/2023/Books.jsonl.gz": (
        ("bad_id", lambda row: row.replace(b'"user_id":', b'"user":')),
        ("invalid_utf8", lambda row: row.replace(b'"text":"', b'"text":"\xe9t\xe9 ')),
    ),
}  # fmt: skip


def _add(out: SourceFiles, name: str, rows: Iterable[Mapping[str, Any]], dice: Dice) -> None:
    """Add one file of these records; those of 2018 are repeated now and then."""
    edition, kind = name.split("/")[1], "meta" if "meta_" in name else "reviews"
    lines = out.lines[name] = []
    for row in rows:
        lines.append(orjson.dumps(row))
        if edition == "2018" and dice.chance(_REPEATED):
            lines.append(lines[-1])
            out.counts[f"{kind}_2018_repeated"] += 1
    out.counts[f"{kind}_{edition}"] += len(lines)


def amazon_files(settings: SampleSettings, *, broken_rows: bool) -> SourceFiles:
    """Every Amazon file of a world.

    Sizes follow the world's: half as many books again as films, a quarter as many reviews of
    them as ratings, a tenth as many of products; within bounds, so that the tables of both
    domains are worth looking at.
    """
    seed, out = settings.seed, SourceFiles()
    books = list(draw_books(seed, within(settings.films * 3 // 2, 90, 6_000)))
    products = list(draw_products(seed, within(settings.films * 3 // 40, 8, 400)))
    for name, wares, share, people in (("books", books, 4, 1), ("products", products, 10, 2)):
        dice = Dice(seed, "shop", name)
        link(dice, wares)
        count = within(settings.ratings // share, 400, 100_000)
        users = within(settings.users // people, 30, count // 8)
        _add_domain(out, name, wares, users, count, seed, dice)
        out.counts[name] = len(wares)
    for name, faults in _FAULTS.items() if broken_rows else ():
        lines = out.lines[name]
        faults = faults[: len(lines) // ROWS_PER_FAULT]
        for n, (reason, spoilt) in enumerate(faults, start=1):
            at = len(lines) * n // (len(faults) + 1)
            out.spoil(name, at, reason, spoilt(lines[at]))
    return out


def _add_domain(
    out: SourceFiles,
    name: str,
    wares: Sequence[Ware],
    users: int,
    count: int,
    seed: int,
    dice: Dice,
) -> None:
    """Add the records of both editions; some printed books are in both."""
    old, new = [], []
    for ware in wares:
        point = dice.roll()
        if ware.category in _OLD or (ware.category == "Books" and point < 0.6):
            old.append(ware)
        if ware.category not in _OLD and (ware.category != "Books" or point >= 0.45):
            new.append(ware)
    out.counts[f"{name}_in_both"] = len(old) + len(new) - len(wares)
    out.counts["titles_2018_lost"] += sum(w.junk for w in old)
    share, pool = len(old) / (len(old) + len(new)), name[0].upper()
    sizes = [(max(10, round(users * s)), round(count * s)) for s in (share, 1 - share)]
    reviews_2018 = draw_reviews(dice, "2018", old, *sizes[0], seed, pool)
    reviews_2023 = draw_reviews(dice, "2023", new, *sizes[1], seed, pool)
    stars = defaultdict(list)
    for review in reviews_2023:
        stars[review.ware.asin].append(review.stars)
    for category in sorted({w.category for w in old}):
        file = f"{category}.json.gz"
        reviewed = (review_2018(r, dice) for r in reviews_2018 if r.ware.category == category)
        meta = (meta_2018(w, dice) for w in old if w.category == category)
        _add(out, f"amazon/2018/{file.replace('Books.', 'Books_5.')}", reviewed, dice)
        _add(out, f"amazon/2018/meta_{file}", meta, dice)
    for category in sorted({w.category for w in new}):
        file = f"{category}.jsonl.gz"
        reviewed = (review_2023(r, dice) for r in reviews_2023 if r.ware.category == category)
        meta = (meta_2023(w, dice, stars[w.asin]) for w in new if w.category == category)
        _add(out, f"amazon/2023/{file}", reviewed, dice)
        _add(out, f"amazon/2023/meta_{file}", meta, dice)
