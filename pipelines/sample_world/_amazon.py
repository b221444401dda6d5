"""The sample world's shop as Amazon files: both editions, with some of their real quirks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from pipelines.config import SampleSettings
from pipelines.sample_world._broken import ROWS_PER_FAULT
from pipelines.sample_world._dice import Dice
from pipelines.sample_world._shop import Ware, draw_books, draw_products, link
from pipelines.sample_world._shop_records import meta_2018, meta_2023
from pipelines.sample_world._shop_reviews import Review, draw_reviews, review_2018, review_2023
from pipelines.sample_world._world import BrokenRow

__all__ = ["AmazonFiles", "amazon_files"]

#: Most books, products of a category, and reviews: beyond them the shop does not grow.
_MOST = {"books": 6_000, "products": 5_000, "reviews": 100_000}
#: Categories whose products only the 2018 edition has.
_OLD = frozenset({"Patio_Lawn_and_Garden"})
#: Share of records of 2018 that are in their file twice.
_REPEATED = 0.04

Fault = tuple[str, Callable[[bytes], bytes]]

#: What makes a loader reject a review, by file.
_FAULTS: Mapping[str, tuple[Fault, ...]] = {
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


class AmazonFiles:
    """What is in each file.

    Attributes
    ----------
    lines
        By file name relative to the world's folder.
    broken
        Rows that are wrong on purpose.
    counts
        What is true of the files: records by edition and kind (broken ones left out), those of
        2018 that are repeated, titles lost to mark-up, different books and products.
    """

    def __init__(self) -> None:
        self.lines: dict[str, list[bytes]] = {}
        self.broken: list[BrokenRow] = []
        self.counts: dict[str, int] = {}

    def add(self, name: str, rows: Iterable[Mapping[str, Any]], dice: Dice, faulty: bool) -> None:
        """One file of these records; those of 2018 are repeated now and then."""
        edition, kind = name.split("/")[1], "meta" if "meta_" in name else "reviews"
        lines = self.lines.setdefault(name, [])
        for row in rows:
            lines.append(orjson.dumps(row))
            if edition == "2018" and dice.chance(_REPEATED):
                lines.append(lines[-1])
                self._count(f"{kind}_2018_repeated")
        self._count(f"{kind}_{edition}", len(lines))
        faults = _FAULTS.get(name, ())[: len(lines) // ROWS_PER_FAULT] if faulty else ()
        for n, (reason, spoil) in enumerate(faults, start=1):
            at = len(lines) * n // (len(faults) + 1)
            lines.insert(at, spoil(lines[at]))
            self.broken.append(
                BrokenRow(name, at + 1, reason, True, lines[at].decode("utf-8", "replace")[:500])
            )

    def _count(self, what: str, more: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + more


def amazon_files(settings: SampleSettings, *, broken_rows: bool) -> AmazonFiles:
    """Every Amazon file of a world.

    Sizes follow the world's: half as many books again as films, a quarter as many reviews of
    them as ratings, a tenth as many of products; never fewer than make the tables of both
    domains worth looking at, nor more than :data:`_MOST`.
    """
    seed, out = settings.seed, AmazonFiles()
    books = draw_books(seed, _within(settings.films * 3 // 2, 90, _MOST["books"]))
    products = draw_products(seed, _within(settings.films * 2 // 5, 100, _MOST["products"]))
    for name, wares in (("books", books), ("products", products)):
        dice = Dice(seed, "shop", name)
        link(dice, wares)
        share = 4 if name == "books" else 10
        count = _within(settings.ratings // share, 400, _MOST["reviews"])
        users = _within(settings.users // (1 if name == "books" else 2), 30, count // 8)
        _add_domain(out, name, wares, users, count, seed, dice, broken_rows)
        out.counts[name] = len(wares)
    return out


def _within(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _add_domain(
    out: AmazonFiles,
    name: str,
    wares: Sequence[Ware],
    users: int,
    count: int,
    seed: int,
    dice: Dice,
    faulty: bool,
) -> None:
    old, new = _editions(wares, dice)
    out.counts[f"{name}_in_both"] = len({w.asin for w in old} & {w.asin for w in new})
    titles = sum(w.junk for w in old)
    out.counts["titles_2018_lost"] = out.counts.get("titles_2018_lost", 0) + titles
    share = len(old) / (len(old) + len(new))
    people = name[0].upper()
    mine, theirs = max(10, round(users * share)), max(10, round(users * (1 - share)))
    reviews = {
        "2018": draw_reviews(dice, "2018", old, mine, round(count * share)),
        "2023": draw_reviews(dice, "2023", new, theirs, round(count * (1 - share))),
    }
    for category in sorted({w.category for w in old}):
        core = "_5" if category == "Books" else ""
        chosen = [r for r in reviews["2018"] if r.ware.category == category]
        out.add(
            f"amazon/2018/{category}{core}.json.gz",
            (review_2018(r, dice, seed, people) for r in chosen),
            dice,
            faulty,
        )
        meta = (meta_2018(w, dice) for w in old if w.category == category)
        out.add(f"amazon/2018/meta_{category}.json.gz", meta, dice, faulty)
    stars = _stars(reviews["2023"])
    for category in sorted({w.category for w in new}):
        chosen = [r for r in reviews["2023"] if r.ware.category == category]
        out.add(
            f"amazon/2023/{category}.jsonl.gz",
            (review_2023(r, dice, seed, people) for r in chosen),
            dice,
            faulty,
        )
        mine_too = (w for w in new if w.category == category)
        meta = (meta_2023(w, dice, stars.get(w.asin, [])) for w in mine_too)
        out.add(f"amazon/2023/meta_{category}.jsonl.gz", meta, dice, faulty)


def _editions(wares: Sequence[Ware], dice: Dice) -> tuple[list[Ware], list[Ware]]:
    """Wares of the 2018 and of the 2023 edition; some printed books are in both."""
    old, new = [], []
    for ware in wares:
        point = dice.roll()
        if ware.category in _OLD or (ware.category == "Books" and point < 0.6):
            old.append(ware)
        if ware.category not in _OLD and (ware.category != "Books" or point >= 0.45):
            new.append(ware)
    return old, new


def _stars(reviews: Sequence[Review]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for review in reviews:
        found.setdefault(review.ware.asin, []).append(review.stars)
    return found
