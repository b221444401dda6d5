"""Which path of a product is matched, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import polars as pl

from pipelines.products._match import PathMatch, PathMatcher, PathMiss

__all__ = ["Origin", "Routed", "department", "match_routes", "route"]

Origin = Literal["categories", "main_category", "file"]

# Control characters that no published text has (staging takes them out).
_LEVELS = "\x1f"
_NO_PATH = "\x1e"


@dataclass(frozen=True, slots=True)
class Routed:
    """A product's path and what became of it.

    Attributes
    ----------
    path
        The levels that were matched.
    origin
        ``categories``; or, where those are empty, ``main_category`` or the ``file``'s name.
    outcome
        The match, or why there is none.
    """

    path: tuple[str, ...]
    origin: Origin
    outcome: PathMatch | PathMiss


def department(file_category: str) -> str:
    """The name of a file's category as people write it.

    >>> department("Arts_Crafts_and_Sewing"), department("Gift_Cards")
    ('Arts Crafts & Sewing', 'Gift Cards')
    """
    return file_category.replace("_and_", " & ").replace("_", " ")


def route() -> pl.Expr:
    """One text per product from ``category_path``, ``main_category`` and ``category``.

    Products with equal texts have the same answer, so that each text is matched once.
    """
    from_lists = pl.col("category_path").list.join(_LEVELS)
    instead = pl.concat_str(
        pl.lit(_NO_PATH), pl.col("main_category").fill_null(""), "category", separator=_LEVELS
    )
    return pl.when(pl.col("category_path").list.len() > 0).then(from_lists).otherwise(instead)


def match_routes(routes: Iterable[str], matcher: PathMatcher) -> Mapping[str, Routed]:
    """Match each distinct route.

    A product with categories is matched by them alone: that its department is known does not
    make up for a path that leads nowhere.
    """
    return {text: _routed(text, matcher) for text in routes}


def _routed(text: str, matcher: PathMatcher) -> Routed:
    if not text.startswith(_NO_PATH):
        path = tuple(text.split(_LEVELS))
        return Routed(path, "categories", matcher.match(path))
    _, main, file = text.split(_LEVELS)
    tried: list[tuple[str, Origin]] = [(department(file), "file")]
    if main:
        tried.insert(0, (main, "main_category"))
    attempts = [Routed((name,), origin, matcher.match((name,))) for name, origin in tried]
    return next((a for a in attempts if isinstance(a.outcome, PathMatch)), attempts[0])
