"""The choice-set tables of a store: made from its products and its tree, committed together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.errors import NoChoiceSetError, StoreError
from pipelines.products._choice_sets import choice_sets
from pipelines.products._tree import CategoryTree
from pipelines.store import Snapshot, Store, build_key

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = ["CODE_VERSION", "DATASETS", "INPUTS", "build_choice_sets"]

#: Raised when the same products, tree and settings would give other tables.
CODE_VERSION = "choice-sets-1"
#: What is read, and what is made.
INPUTS = ("products.items", "raw.taxonomy_categories")
DATASETS = ("products.products", "products.categories", "products.product_category")


def build_choice_sets(
    store: Store, settings: Settings, *, run_id: str | None = None
) -> dict[str, Snapshot]:
    """Make the three tables from the store's current products and category tree.

    If the same products and tree were matched before by the same code and settings, the tables
    of then become current.

    Parameters
    ----------
    store
        Holds :data:`INPUTS`; gets :data:`DATASETS`, all or none.
    settings
        ``products`` says what is drawn, demanded and cut.
    run_id
        The run that asks.

    Returns
    -------
    dict
        The current snapshot of each table. Each manifest's ``stats`` has the facts of
        :class:`ChoiceSets`, the match rate and a list of the commonest misses among them.

    Raises
    ------
    ContractError
        If there are no products.
    NoChoiceSetError
        If there is no category tree, or no choice set is left. The tables of earlier inputs are
        withdrawn first.
    StoreError
        If an input is not in the store.
    """
    missing = [name for name in INPUTS if not store.has(name)]
    if missing:
        raise StoreError(
            "the choice sets have no input",
            where=", ".join(missing),
            hint="configure Amazon files and a category tree (docs/products.md)",
        )
    items, taxonomy = (store.current(name) for name in INPUTS)
    inputs = {items.dataset: items.version, taxonomy.dataset: taxonomy.version}
    config = settings.identity("products")
    key = build_key(CODE_VERSION, config, inputs)
    known = {dataset: store.find_build(dataset, key) for dataset in DATASETS}
    if all(known.values()):
        return {d: store.point(d, s.version) for d, s in known.items() if s is not None}
    try:
        if not taxonomy.rows:
            raise NoChoiceSetError(
                "there is no category tree",
                where=taxonomy.dataset,
                hint="choice sets need one: data.taxonomy.file, or a file in taxonomy/",
            )
        tree = CategoryTree(taxonomy.read(["path"])["path"])
        found = choice_sets(items.scan(), tree, settings.products)
    except NoChoiceSetError:
        for dataset in DATASETS:
            store.withdraw(dataset)
        raise
    facts = {**found.stats, "tree_categories": len(tree), "tree_implied": tree.implied}
    tables = zip(
        DATASETS, (found.products(items.scan()), [found.categories], [found.links]), strict=True
    )
    with store.transaction() as transaction:
        for dataset, frames in tables:
            with transaction.write(
                dataset, code_version=CODE_VERSION, config=config, inputs=inputs, run_id=run_id
            ) as writer:
                for frame in frames:
                    writer.append(frame)
                writer.note(**facts)
    return transaction.snapshots
