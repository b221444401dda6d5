"""Product choice sets: products in the categories of a tree (BIEL, section 4 and appendix C).

Of each set, the products that shoppers are shown and the facets that they can be asked about.
"""

from __future__ import annotations

from collections.abc import Iterator

from pipelines import products
from pipelines.config import Settings
from pipelines.errors import NoChoiceSetError
from pipelines.stages._stage import Inputs, Report, Stage
from pipelines.store import Table

__all__ = ["STAGES"]

_ITEMS, _TREE = "products.items", "raw.taxonomy_categories"
_TABLES = (
    "products.products",
    "products.categories",
    "products.product_category",
    "products.choice_set_items",
    "products.facets",
)
_TEXTS = ("item_id", "title", "brand", "description", "features", "price")


def choice_sets(inputs: Inputs, settings: Settings, report: Report) -> Iterator[Table]:
    """Sample products, match their categories to the tree, and drop categories that are too small.

    Each table's statistics are the facts of :class:`pipelines.products.ChoiceSets`, the match
    rate and a list of the commonest misses among them.
    """
    items, taxonomy = inputs[_ITEMS], inputs[_TREE]
    if not taxonomy.rows:
        raise NoChoiceSetError(
            "there is no category tree",
            where=taxonomy.dataset,
            hint="choice sets need one: data.taxonomy.file, or a file in taxonomy/",
        )
    tree = products.CategoryTree(taxonomy.read(["path"])["path"])
    sets = products.choice_sets(items.scan(), tree, settings.products)
    facts = {**sets.stats, "tree_categories": len(tree), "tree_implied": tree.implied}
    rows = (sets.products(items.scan()), [sets.categories], [sets.links])
    for dataset, frames in zip(_TABLES, rows, strict=False):
        yield Table(dataset, frames, lambda: facts)
    shown = products.choice_set_items(
        sets.links,
        sets.categories,
        size=settings.products.choice_set_size,
        seed=settings.products.seed,
    )
    chosen = shown.lazy().select("item_id").unique()
    texts = items.scan().select(_TEXTS).join(chosen, on="item_id", how="semi").collect()
    yield Table("products.choice_set_items", [shown], lambda: facts)
    yield Table("products.facets", products.facets(shown, texts), lambda: facts, True)


STAGES = [
    Stage(
        datasets=_TABLES,
        inputs={_ITEMS: _ITEMS, _TREE: _TREE},
        identity=("products",),
        code_version=products.CODE_VERSION,
        make=choice_sets,
        name="products_choice_sets",
        absent_on=(NoChoiceSetError,),
    )
]
