"""Real reviews behind a release of books: who wrote what about which item."""

from __future__ import annotations

import html
import re
from typing import Any

import polars as pl

from sim import Release

#: Longest comment that is shown (characters).
_LONGEST = 300
_TAG = re.compile(r"<[^<>]{1,200}>")
#: Raw reviews by dataset: columns of author, item, rating, heading and text.
_REVIEWS = {
    "raw.amazon_reviews_2018": ("reviewer_id", "asin", "overall", "summary", "review_text"),
    "raw.amazon_reviews_2023": ("user_id", "parent_asin", "rating", "title", "text"),
}
_SCHEMA: dict[str, Any] = {
    "item_id": pl.String,
    "author": pl.String,
    "rating": pl.Float64,
    "text": pl.String,
}


def real_comments(release: Release) -> pl.DataFrame:
    """Texts of the reviews that the release's interactions were made from.

    Reviews are read from the raw snapshots of the same store that the interactions name as their
    inputs; a release of films or games has none. One row per author and item: ``item_id``,
    ``author`` (an id of the interactions), ``rating`` (1-5), ``text`` (one line, cut at 300
    characters).
    """
    from pipelines.store import Store

    store = Store(release.path.parents[1])
    inputs = store.release(release.ref).snapshot("interactions").manifest.inputs
    reviews = [
        store.get(dataset, inputs[dataset])
        .read()
        .select(
            author=pl.format("amazon-user:{}", author),
            item_id=pl.format("asin:{}", item),
            rating=pl.col(rating).cast(pl.Float64),
            heading=heading,
            text=text,
        )
        for dataset, (author, item, rating, heading, text) in _REVIEWS.items()
        if dataset in inputs
    ]
    if not reviews:
        return pl.DataFrame(schema=_SCHEMA)
    return comments_of(pl.concat(reviews), release["interactions"].polars())


def comments_of(reviews: pl.DataFrame, interactions: pl.DataFrame) -> pl.DataFrame:
    """Reviews (``author, item_id, rating, heading, text``) that became interactions, as comments.

    A review with another rating than the published one is not that interaction's.
    """
    published = interactions.select("item_id", author="user_id", rating="rating")
    published_reviews = reviews.join(published, on=["author", "item_id", "rating"], how="semi")
    texts = [
        _plain(text) or _plain(heading)
        for heading, text in published_reviews.select("heading", "text").rows()
    ]
    return (
        published_reviews.select(
            "item_id", "author", "rating", text=pl.Series(texts, dtype=pl.String)
        )
        .filter(pl.col("text") != "")
        .sort("item_id", "author", "text")
        .unique(["item_id", "author"], keep="first", maintain_order=True)
    )


def _plain(text: str | None) -> str:
    """Text without markup, on one line, cut at a word."""
    words = " ".join(html.unescape(_TAG.sub(" ", text or "")).split())
    if len(words) <= _LONGEST:
        return words
    return words[:_LONGEST].rpartition(" ")[0] + " …"
