"""Products that shoppers are shown of each choice set, and the splits of sets and personas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import polars as pl

from pipelines.products._choice_sets import row_keys
from pipelines.seeding import hash_ids, uniform

#: Shares of choice sets and of personas in each split.
CATEGORY_SPLITS: Mapping[str, float] = {"train": 0.8, "test": 0.2}
PERSONA_SPLITS: Mapping[str, float] = {"train": 0.7, "validation": 0.1, "test": 0.2}
# A purpose per draw, so that adding one changes no other.
_CATEGORY, _PERSONA = 21, 22


def persona_splits(personas: Iterable[str]) -> pl.Series:
    """The split of each persona: 70 % train, 10 % validation, 20 % test, by a hash of its id.

    >>> persona_splits(["persona:products:0000000", "persona:products:0000001"]).to_list()
    ['train', 'test']
    """
    return _split(personas, PERSONA_SPLITS, _PERSONA)


def _split(ids: Iterable[str], shares: Mapping[str, float], purpose: int) -> pl.Series:
    names, upto = list(shares), 0.0
    draw = pl.Series(uniform(hash_ids(ids), purpose))
    number = pl.zeros(len(draw), dtype=pl.Int64, eager=True)
    for share in list(shares.values())[:-1]:
        upto += share
        number += (draw >= upto).cast(pl.Int64)
    return pl.Series("split", names, dtype=pl.String).gather(number)


def _category_splits(topmost: pl.Series) -> pl.DataFrame:
    """Rows ``topmost, split`` of topmost choice sets."""
    draw = uniform(hash_ids(topmost), _CATEGORY)
    test = int((draw >= CATEGORY_SPLITS["train"]).sum())
    if len(topmost) * CATEGORY_SPLITS["test"] >= 1:  # a whole set of so many
        test = min(max(test, 1), len(topmost) - 1)
    by_draw = pl.DataFrame({"topmost": topmost, "draw": draw}).sort("draw", "topmost")
    last = pl.int_range(pl.len()) >= pl.len() - test
    split = pl.when(last).then(pl.lit("test")).otherwise(pl.lit("train"))
    return by_draw.select("topmost", split=split)


def choice_set_items(
    links: pl.DataFrame, categories: pl.DataFrame, *, size: int, seed: int
) -> pl.DataFrame:
    """Rows of ``products.choice_set_items``: the products of each set that every shopper is shown.

    All products of a set are shown, or ``size`` of them (count) drawn by a hash of (seed, product),
    in the order of the draw. The draw of a set and of one below it agree on the products of both.
    Of sets that show the same products the deepest is kept: its name describes them best, and an
    episode in the other would repeat it. Sets below one topmost set share its split (80 % train, 20
    % test, by a hash of its id), so that no product is in both. From five topmost sets on neither
    split is empty: the one whose draw is nearest is moved there.

    ``links`` is ``products.product_category``, ``categories`` ``products.categories``.
    """
    topmost: dict[str, str] = {}
    for category, parent in categories.sort("depth").select("category_id", "parent_id").iter_rows():
        topmost[category] = topmost.get(parent, category)
    sets = pl.DataFrame({"category_id": list(topmost), "topmost": list(topmost.values())},
                        schema={"category_id": pl.String, "topmost": pl.String})  # fmt: skip
    sets = sets.join(_category_splits(sets["topmost"].unique()), on="topmost")
    keys = pl.Series("key", row_keys(links["item_id"], seed))
    shown = (
        links.select("category_id", "item_id")
        .with_columns(keys)
        .sort("category_id", "key", "item_id")
        .with_columns(position=pl.int_range(pl.len(), dtype=pl.Int64).over("category_id"))
        .filter(pl.col("position") < size)
        .join(sets, on="category_id", how="left", maintain_order="left")
        .select("category_id", "item_id", "position", "split")
    )
    return _distinct(shown, categories)


def _distinct(shown: pl.DataFrame, categories: pl.DataFrame) -> pl.DataFrame:
    """Rows of sets that show different products: of equal ones, of the deepest."""
    deepest = (
        shown.group_by("category_id")
        .agg("item_id")  # equal sets have the order of one draw
        .join(categories.select("category_id", "depth"), on="category_id")
        .sort("depth", "category_id")
        .unique("item_id", keep="last")
        .select("category_id")
    )
    return shown.join(deepest, on="category_id", how="semi", maintain_order="left")
