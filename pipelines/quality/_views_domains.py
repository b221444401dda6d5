"""Views of the tables of the domains whose items are sold; see ``_suites_domains``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import polars as pl

from pipelines.quality._spec import Evidence, View, ViewFunction
from pipelines.quality._views_catalogue import CATALOGUE_VIEWS

__all__ = ["DOMAIN_VIEWS"]

_DOMAINS = ("books", "games", "products")
#: Where a story line or description stands; the first that there is.
_PROSE = ("overview", "description")
#: Ratings per item below which chance alone decides how unequal items are.
_ENOUGH = 5


def _prose(evidence: Evidence) -> View:
    """One row per item: the length of its plot or description."""
    columns = evidence.snapshot.scan().collect_schema()
    names = [name for name in _PROSE if name in columns]
    if not names:
        return View.skip("this domain's items have no text")
    length = pl.col(names[0]).str.strip_chars().str.len_chars().fill_null(0)
    frame = (
        evidence.snapshot.scan()
        .select("item_id", "title", characters=length)
        .collect(engine="streaming")
    )
    return View(frame) if frame["characters"].sum() else View.skip("no item has a text")


def _genre_counts(evidence: Evidence) -> View:
    """One row per item: how many genres it has."""
    frame = (
        evidence.snapshot.scan()
        .select("item_id", "title", genres=pl.col("genres").list.len().fill_null(0))
        .collect(engine="streaming")
    )
    return View(frame) if frame["genres"].sum() else View.skip("no item has a genre")


def _genres(evidence: Evidence) -> View:
    """One row per genre with its share of the items."""
    view = CATALOGUE_VIEWS["items"]["genres"](evidence)
    empty = view.frame is not None and view.frame.is_empty()
    return View.skip("no item has a genre") if empty else view


def _years(evidence: Evidence) -> View:
    """One row per item with a year."""
    view = CATALOGUE_VIEWS["items"]["years"](evidence)
    empty = view.frame is not None and view.frame.is_empty()
    return View.skip("no item has a year") if empty else view


def _titles(evidence: Evidence) -> View:
    """One row per item with a title; an unknown year is 0."""
    scan = evidence.snapshot.scan().drop_nulls("title")
    return View(
        scan.select("item_id", "title", year=pl.col("year").fill_null(0)).collect(
            engine="streaming"
        )
    )


def _ratings(evidence: Evidence) -> View:
    """One row: totals; no long tail is asked of a table with few ratings per item."""
    view = CATALOGUE_VIEWS["interactions"]["ratings"](evidence)
    assert view.frame is not None, "totals can always be made"
    rows, items = view.frame["rows"][0], view.frame["items"][0]
    if rows >= _ENOUGH * items:
        return view
    return replace(view, facts={**view.facts, "min_gini": 0.0})


def _tiers(column: str, value: str, trait: str | None = None) -> ViewFunction:
    def view(evidence: Evidence) -> View:
        """One row per tier with its users; none where the users' values leave a single tier."""
        scan = evidence.snapshot.scan()
        # A value equal to the first quantile is in the first tier: if the largest value is, so
        # are all users.
        first = getattr(evidence.settings.traits, trait)[0] if trait else 0.0
        at_most = scan.select((pl.col(value) == pl.col(value).max()).mean())
        share = at_most.collect(engine="streaming").item()
        if share is not None and share >= 1 - first:
            return View.skip(f"{share:.0%} of the users have the same value of {value}")
        tiers = scan.group_by(column).agg(users=pl.len()).collect(engine="streaming")
        return View(tiers.sort(column))

    return view


_TABLES: Mapping[str, Mapping[str, ViewFunction]] = {
    "items": {
        "prose": _prose,
        "genre_counts": _genre_counts,
        "genres": _genres,
        "years": _years,
        "titles": _titles,
    },
    "interactions": {**CATALOGUE_VIEWS["interactions"], "ratings": _ratings},
    "user_traits": {
        "activity": _tiers("activity_tier", "activity", "activity"),
        "conformity": _tiers("conformity_tier", "conformity", "conformity"),
        "pickiness": _tiers("pickiness", "mean_rating"),
    },
}

#: View functions by dataset, then by name.
DOMAIN_VIEWS: Mapping[str, Mapping[str, ViewFunction]] = {
    **{f"{domain}.{table}": views for domain in _DOMAINS for table, views in _TABLES.items()},
    # Users' habits are judged alike, whatever they rate.
    "movies.user_traits": _TABLES["user_traits"],
}
