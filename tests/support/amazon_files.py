"""Amazon files written by hand, in the formats of both editions."""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

__all__ = ["meta_2018", "meta_2023", "review_2018", "review_2023", "write_lines"]

DAY = 86_400


def review_2018(user: str, asin: str, stars: float = 5.0, day: int = 15_000, **more: Any) -> bytes:
    """A review of 2018; ``day`` counts from 1970."""
    record = {
        "overall": stars,
        "verified": True,
        "reviewerID": user,
        "asin": asin,
        "reviewText": "Good.",
        "summary": "Good",
        "unixReviewTime": day * DAY,
    }
    return orjson.dumps(record | more)


def review_2023(user: str, asin: str, stars: float = 5.0, day: int = 18_000, **more: Any) -> bytes:
    """A review of 2023."""
    record = {
        "rating": stars,
        "title": "Good",
        "text": "Good.",
        "images": [],
        "asin": asin,
        "parent_asin": asin,
        "user_id": user,
        "timestamp": day * DAY * 1000,
        "helpful_vote": 0,
        "verified_purchase": True,
    }
    return orjson.dumps(record | more)


def meta_2018(asin: str, title: str = "A Title", **more: Any) -> bytes:
    """A product of 2018."""
    record = {
        "category": ["Books", "Poetry"],
        "description": ["A description."],
        "title": title,
        "also_buy": [],
        "also_view": [],
        "brand": "A. Writer",
        "feature": [],
        "rank": "1,024 in Books (",
        "details": {"Publisher:": "House; 2nd edition (May 2, 2006)"},
        "main_cat": "Books",
        "date": "",
        "price": "$9.99",
        "asin": asin,
    }
    return orjson.dumps(record | more)


def meta_2023(asin: str, title: str = "A Title", **more: Any) -> bytes:
    """A product of 2023."""
    record = {
        "main_category": "Books",
        "title": title,
        "average_rating": 4.5,
        "rating_number": 2,
        "features": [],
        "description": ["A description."],
        "price": 9.99,
        "images": [],
        "videos": [],
        "store": "A. Writer (Author)",
        "categories": ["Books", "Poetry"],
        "details": {"Publisher": "House (May 2, 2006)"},
        "parent_asin": asin,
        "bought_together": None,
    }
    return orjson.dumps(record | more)


def write_lines(path: Path, lines: Iterable[bytes]) -> Path:
    """Write a file of lines, packed if its name says so; its folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path
