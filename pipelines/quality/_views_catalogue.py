"""Views of the tables that come from the sources: items, ratings, splits, users.

Every view is small: 25 million ratings become one row per rating value, per user or per item
(grouped by polars' streaming engine) before anything is handed on.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from pipelines.config import SplitSettings
from pipelines.quality._spec import Evidence, View, ViewFunction
from pipelines.quality._stats import gini


def _matching(evidence: Evidence) -> View:
    """One row: the match rate that the manifest notes; examples are the commonest misses."""
    stats = evidence.snapshot.manifest.stats
    if "match_rate" not in stats:
        return View.missing("the manifest notes no match rate")
    misses = stats.get("misses", [])
    return View(
        pl.DataFrame({"match_rate": [float(stats["match_rate"])]}),
        facts={"asked": stats.get("asked", 0), "matched": stats.get("matched", 0)},
        examples=pl.DataFrame(misses) if misses else None,
    )


def _leaves(evidence: Evidence) -> View:
    """One row per product that has no leaf, several, or another than it names."""
    links = evidence.sibling("product_category")
    if links is None:
        return View.missing("there is no table product_category")
    own = links.scan().filter("is_leaf").group_by("item_id").agg(leaves="category_id")
    return View.of(
        evidence.snapshot.scan()
        .select("item_id", "category_id")
        .join(own, on="item_id", how="full", coalesce=True)
        .filter(
            pl.col("category_id").is_null()
            | (pl.col("leaves").list.len() != 1).fill_null(value=True)
            | (pl.col("leaves").list.first() != pl.col("category_id"))
        )
        .select("item_id", "category_id", leaves=pl.col("leaves").list.join(", "))
        .sort("item_id")
    )


def _leaf_shares(evidence: Evidence) -> View:
    """One row per leaf with its share of the products."""
    return _shares(evidence, evidence.snapshot.scan(), "category_id", "products")


def _shares(evidence: Evidence, rows: pl.LazyFrame, value: str, counted: str) -> View:
    """One row per value: how many rows have it, and what share of the table that is."""
    return View.of(
        rows.group_by(value)
        .agg(pl.len().alias(counted))
        .with_columns(share=pl.col(counted) / max(1, evidence.snapshot.rows))
        .sort(counted, value, descending=[True, False])
    )


def _sizes(evidence: Evidence) -> View:
    """One row per choice set."""
    frame = evidence.snapshot.read(["category_id", "depth", "products"])
    return View(frame, facts={"least_depth": evidence.settings.products.cut_levels + 1})


def _orphans(evidence: Evidence) -> View:
    """One row per choice set whose parent is not one."""
    frame = evidence.snapshot.read(["category_id", "parent_id"])
    known = frame.select(parent_id="category_id")
    return View(frame.drop_nulls("parent_id").join(known, on="parent_id", how="anti"))


def _counts(evidence: Evidence) -> View:
    """One row per choice set that counts other products than are linked to it."""
    links = evidence.sibling("product_category")
    if links is None:
        return View.missing("there is no table product_category")
    counted = (
        links.scan()
        .group_by("category_id")
        .agg(linked=pl.len(), linked_leaves=pl.col("is_leaf").sum())
    )
    return View.of(
        evidence.snapshot.scan()
        .select("category_id", "products", "leaf_products")
        .join(counted, on="category_id", how="full", coalesce=True)
        .filter(
            pl.col("products").ne_missing(pl.col("linked"))
            | pl.col("leaf_products").ne_missing(pl.col("linked_leaves"))
        )
        .sort("category_id")
    )


def _strays(evidence: Evidence) -> View:
    """One row per link to what is not there."""
    products, categories = evidence.sibling("products"), evidence.sibling("categories")
    if products is None or categories is None:
        return View.missing("there is no table products or categories")
    links = evidence.snapshot.scan().select("item_id", "category_id")
    lost = [
        links.join(table.scan().select(key), on=key, how="anti")
        for table, key in ((products, "item_id"), (categories, "category_id"))
    ]
    frame = pl.concat(lost).unique().collect(engine="streaming")
    return View(frame.sort("item_id", "category_id"))


def _strangers(evidence: Evidence) -> View:
    """One row per product that is shown of a choice set it is not in."""
    links = evidence.sibling("product_category")
    if links is None:
        return View.missing("there is no table product_category")
    key = ["category_id", "item_id"]
    return View.of(
        evidence.snapshot.scan().select(key).join(links.scan().select(key), on=key, how="anti")
    )


def _shown(evidence: Evidence) -> View:
    """One row per choice set with the products that are shown of it."""
    return View.of(
        evidence.snapshot.scan().group_by("category_id").agg(products=pl.len()).sort("category_id")
    )


def _torn_products(evidence: Evidence) -> View:
    """One row per product that is in both splits."""
    splits = evidence.snapshot.scan().group_by("item_id").agg(splits=pl.col("split").n_unique())
    return View.of(splits.filter(pl.col("splits") > 1).sort("item_id"))


def _equal_sets(evidence: Evidence) -> View:
    """One row per group of choice sets that show the same products."""
    return View.of(
        evidence.snapshot.scan()
        .sort("category_id", "item_id")
        .group_by("category_id", maintain_order=True)
        .agg("item_id")
        .group_by("item_id")
        .agg(sets=pl.col("category_id").sort())
        .filter(pl.col("sets").list.len() > 1)
        .select(sets=pl.col("sets").list.join("; "))
        .sort("sets")
    )


def _uneven(evidence: Evidence) -> View:
    """One row per facet with too few or many values, or products."""
    items = evidence.sibling("choice_set_items")
    if items is None:
        return View.missing("there is no table choice_set_items")
    sizes = items.scan().group_by("category_id").agg(shown=pl.len())
    facet = ["category_id", "facet_id"]
    return View.of(
        evidence.snapshot.scan()
        .group_by(*facet, "value")
        .agg(products=pl.len())
        .group_by(facet)
        .agg(values=pl.len(), least=pl.col("products").min(), products=pl.col("products").sum())
        .join(sizes, on="category_id", how="left")
        .filter(
            ~pl.col("values").is_between(2, 6)
            | (pl.col("least") < 2)
            | (2 * pl.col("products") < pl.col("shown").fill_null(0))
            | pl.col("shown").is_null()
        )
        .sort(facet)
    )


def _per_set(evidence: Evidence) -> View:
    """One row per choice set with the number of its facets."""
    items = evidence.sibling("choice_set_items")
    if items is None:
        return View.missing("there is no table choice_set_items")
    facets = evidence.snapshot.scan().select("category_id", "facet_id", "kind").unique()
    counts = facets.group_by("category_id").agg(
        facets=pl.len(), informative=(pl.col("kind") != "word").sum()
    )
    return View.of(
        items.scan()
        .select("category_id")
        .unique()
        .join(counts, on="category_id", how="left")
        .with_columns(pl.col("facets", "informative").fill_null(0))
        .sort("category_id")
    )


#: View functions by table, then by name.
CHOICE_SET_VIEWS: Mapping[str, Mapping[str, ViewFunction]] = {
    "products": {"matching": _matching, "leaves": _leaves, "leaf_shares": _leaf_shares},
    "categories": {"sizes": _sizes, "orphans": _orphans, "counts": _counts},
    "product_category": {"strays": _strays},
    "choice_set_items": {
        "strangers": _strangers,
        "shown": _shown,
        "torn_products": _torn_products,
        "equal_sets": _equal_sets,
    },
    "facets": {"uneven": _uneven, "per_set": _per_set},
}


#: No single user may hold more of a table than this, however large the table.
MAX_USER_SHARE = 0.05
#: Least Gini coefficient of item popularity in a sparse table.
MIN_GINI = 0.3
#: Ratings per item below which chance alone decides how unequal items are.
ENOUGH_RATINGS = 5
#: Columns with a story line or description; the first that exists is used.
_PROSE = ("overview", "description")


def _items(evidence: Evidence) -> View:
    """One row per item: lists and texts as counts."""
    return View.of(
        evidence.snapshot.scan().select(
            "item_id",
            "title",
            year=pl.col("year").fill_null(0),
            plot_characters=pl.col("overview").str.strip_chars().str.len_chars().fill_null(0),
            cast=pl.col("actors").list.len().fill_null(0),
            directors=pl.col("directors").list.len().fill_null(0),
            genres=pl.col("genres").list.len().fill_null(0),
        )
    )


def _linked(evidence: Evidence) -> View:
    """The same, for a catalogue with TMDB records."""
    counts = evidence.snapshot.scan().select(pl.col("tmdb_id").count(), pl.col("has_tmdb").sum())
    links, records = counts.collect(engine="streaming").row(0)
    if not links:
        return View.skip("no item has a TMDB id: this source (ML-1M, ML-100K) links to none")
    if not records:
        return View.skip("no item has a TMDB record (docs/data.md)")
    return _items(evidence)


def _genres(evidence: Evidence) -> View:
    """One row per genre with its share of the items."""
    rows = evidence.snapshot.scan().select("item_id", genre="genres").explode("genre")
    return _shares(evidence, rows.drop_nulls("genre"), "genre", "items")


def _years(evidence: Evidence) -> View:
    """One row per item with a year."""
    frame = (
        evidence.snapshot.scan()
        .select("item_id", "title", "year")
        .drop_nulls("year")
        .collect(engine="streaming")
    )
    return View(frame, facts={"items_with_year": frame.height})


def _per_year(evidence: Evidence) -> View:
    """One row per year of release with its share of the items that have one."""
    frame = (
        evidence.snapshot.scan()
        .drop_nulls("year")
        .group_by("year")
        .agg(items=pl.len())
        .with_columns(share=pl.col("items") / pl.col("items").sum())
        .sort("items", "year", descending=True)
        .collect(engine="streaming")
    )
    # In a catalogue of n films one year may hold six of them however small n is.
    items = int(frame["items"].sum())
    bound = min(1.0, max(0.25, 6 / max(1, items)))
    return View(frame, facts={"max_share": bound, "items_with_year": items})


def _rating_values(evidence: Evidence) -> View:
    """One row per rating value with its share."""
    return View.of(
        evidence.snapshot.scan()
        .group_by("rating")
        .agg(ratings=pl.len())
        .sort("rating")
        .with_columns(share=pl.col("ratings") / max(1, evidence.snapshot.rows))
    )


def _users(evidence: Evidence) -> View:
    """One row per user with its share of the ratings."""
    frame = (
        evidence.snapshot.scan()
        .group_by("user_id")
        .agg(ratings=pl.len())
        .with_columns(share=pl.col("ratings") / max(1, evidence.snapshot.rows))
        .sort("ratings", "user_id", descending=[True, False])
        .collect(engine="streaming")
    )
    # With few users each holds a large share: five times an equal part is allowed.
    bound = min(1.0, max(MAX_USER_SHARE, 5 / frame.height)) if frame.height else 1.0
    return View(frame, facts={"max_user_share": bound})


def _interactions(evidence: Evidence) -> View:
    """One row: totals, mean rating, time span and the long tail of item popularity."""
    scan = evidence.snapshot.scan()
    totals, per_item = pl.collect_all(
        [
            scan.select(
                rows=pl.len(),
                users=pl.col("user_id").n_unique(),
                mean_rating=pl.col("rating").mean(),
                first_year=pl.col("rated_at").min().dt.year().cast(pl.Int64),
                last_year=pl.col("rated_at").max().dt.year().cast(pl.Int64),
            ),
            scan.group_by("item_id").agg(ratings=pl.len()),
        ],
        engine="streaming",
    )
    items = per_item.height
    rows, users = totals["rows"][0], totals["users"][0]
    density = rows / (users * items) if users and items else 1.0
    frame = totals.with_columns(items=items, gini=gini(per_item["ratings"].to_numpy()))
    # The fuller the matrix, the less can some items be ahead of others: at density d the
    # coefficient is at most 1 - d. Set by hand between what equally liked items give by chance
    # (0.06 in the default sample world, density 1/3) and what is found there (0.33).
    judged = rows >= ENOUGH_RATINGS * items
    return View(frame, facts={"min_gini": MIN_GINI * (1 - density) ** 2 if judged else 0.0})


def _item_stats(evidence: Evidence) -> View:
    """One row: how many items are rated, the training share, the spread of means."""
    frame = (
        evidence.snapshot.scan()
        .select(
            rated_share=(pl.col("ratings") > 0).mean(),
            train_share=pl.col("train_ratings").sum() / pl.col("ratings").sum(),
            ratings=pl.col("ratings").sum(),
            items_with_5_ratings=(pl.col("ratings") >= 5).sum(),
            # Items with few ratings spread by chance alone.
            mean_spread=pl.col("mean_rating").filter(pl.col("ratings") >= 5).std(),
            train_shift=(
                (pl.col("train_mean_rating") * pl.col("train_ratings")).sum()
                / pl.col("train_ratings").sum()
                - (pl.col("mean_rating") * pl.col("ratings")).sum() / pl.col("ratings").sum()
            ).abs(),
        )
        .collect(engine="streaming")
    )
    counts = frame.select("ratings", "items_with_5_ratings").row(0, named=True)
    return View(frame, facts=_train_bounds(evidence) | counts)


def _splits(evidence: Evidence) -> View:
    """One row: the share of each part."""
    counts = dict(
        evidence.snapshot.scan()
        .group_by("split")
        .agg(rows=pl.len())
        .collect(engine="streaming")
        .iter_rows()
    )
    total = max(1, sum(counts.values()))
    frame = pl.DataFrame(
        {f"{part}_share": [counts.get(part, 0) / total] for part in ("train", "validation", "test")}
    )
    splits = evidence.settings.splits
    return View(
        frame,
        facts={
            **_train_bounds(evidence),
            # A part that was asked for has rows; it is never much larger than asked for.
            "min_validation": min(0.005, splits.validation / 2),
            "max_validation": min(
                1.0, max(splits.validation + 0.1, _largest_part(splits, splits.validation))
            ),
            "min_test": min(0.005, splits.test / 2),
            "max_test": min(1.0, max(splits.test + 0.1, _largest_part(splits, splits.test))),
        },
    )


def _train_bounds(evidence: Evidence) -> dict[str, float]:
    splits = evidence.settings.splits
    least = 1 - _largest_part(splits, splits.validation) - _largest_part(splits, splits.test)
    usual = 1 - splits.validation - splits.test - 0.15
    return {"min_train": max(0.0, min(usual, least)), "max_train": 1.0}


def _largest_part(splits: SplitSettings, share: float) -> float:
    """The share that a part can have where every user has as few interactions as is allowed.

    A part is whole interactions, one at least: one of five is 20 %.
    """
    return max(share, 1 / splits.min_interactions) + 1e-9 if share else 0.0


def _human_users(evidence: Evidence) -> View:
    """One row: how differently users rate."""
    return View.of(
        evidence.snapshot.scan().select(
            users=pl.len(),
            users_with_5_ratings=(pl.col("ratings") >= 5).sum(),
            mean_spread=pl.col("mean_rating").filter(pl.col("ratings") >= 5).std(),
        )
    )


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


def _genres_if_any(evidence: Evidence) -> View:
    """The same as `_genres`, for sources whose items may have no genre at all."""
    view = _genres(evidence)
    empty = view.frame is not None and view.frame.is_empty()
    return View.skip("no item has a genre") if empty else view


def _titles(evidence: Evidence) -> View:
    """One row per item with a title; an unknown year is 0."""
    scan = evidence.snapshot.scan().drop_nulls("title")
    return View(
        scan.select("item_id", "title", year=pl.col("year").fill_null(0)).collect(
            engine="streaming"
        )
    )


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


_TRAITS: Mapping[str, ViewFunction] = {
    "activity": _tiers("activity_tier", "activity", "activity"),
    "conformity": _tiers("conformity_tier", "conformity", "conformity"),
    "pickiness": _tiers("pickiness", "mean_rating"),
}

#: View functions by table, then by name.
CATALOGUE_VIEWS: Mapping[str, Mapping[str, ViewFunction]] = {
    "items": {
        "items": _items,
        "linked": _linked,
        "genres": _genres,
        "years": _years,
        "per_year": _per_year,
        "prose": _prose,
        "genre_counts": _genre_counts,
        "genres_if_any": _genres_if_any,
        "titles": _titles,
    },
    "interactions": {"ratings": _interactions, "values": _rating_values, "users": _users},
    "item_stats": {"items": _item_stats},
    "splits": {"parts": _splits},
    "human_users": {"users": _human_users},
    "user_traits": _TRAITS,
    "training_traits": _TRAITS,
}
