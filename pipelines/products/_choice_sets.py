"""Choice sets: sampled products, matched to the tree, flattened into three tables.

Products are sampled over categories in proportion to their sizes (BIEL, appendix C).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import polars as pl

from pipelines.config import ProductsSettings
from pipelines.errors import ContractError, NoChoiceSetError
from pipelines.products._match import PathMatch, PathMatcher, PathMiss
from pipelines.products._names import SEPARATOR
from pipelines.products._tree import CategoryTree
from pipelines.seeding import U64, combine


class Cut:
    """The part of the tree that is left after both cuts.

    A category's products are those matched to it or to a category below it. A category that is
    kept has all of its ancestors below the cut levels kept too, because they have no fewer.

    ``nodes`` has the category that each product was matched to, null for none. ``below`` are
    products of each category by its number, ``keys`` ids of the kept categories by number,
    ``candidates`` the categories below the cut levels that have any product (counts).
    """

    def __init__(self, tree: CategoryTree, nodes: pl.Series, settings: ProductsSettings) -> None:
        self._tree = tree
        direct = np.zeros(len(tree.nodes), dtype=np.int64)
        matched = nodes.drop_nulls().to_numpy()
        np.add.at(direct, matched, 1)
        # Descendants are consecutive: the products below a node are a difference of sums.
        upto = np.concatenate([[0], np.cumsum(direct)])
        self.below = {n.number: int(upto[n.end] - upto[n.number]) for n in tree.nodes}
        deep = [n for n in tree.nodes[1:] if n.depth > settings.cut_levels]
        self.candidates = sum(self.below[n.number] > 0 for n in deep)
        self._nodes = {n.number for n in deep if self.below[n.number] >= settings.min_category_size}
        self.keys = {number: tree.nodes[number].key for number in self._nodes}
        self._leaf = {int(n): self._nearest(int(n)) for n in np.unique(matched)}

    def __len__(self) -> int:
        return len(self._nodes)

    def _nearest(self, number: int) -> int | None:
        while number and number not in self._nodes:
            number = self._tree.nodes[number].parent
        return number or None

    def leaf_of(self, nodes: pl.Series) -> pl.Series:
        """The deepest kept category on the way from the root to each node; null if none is."""
        if not self._leaf:
            return pl.Series("leaf", [None], dtype=pl.Int64).new_from_index(0, len(nodes))
        return nodes.replace_strict(self._leaf, default=None, return_dtype=pl.Int64)

    def _chain(self, number: int) -> list[int]:
        chain = []
        while number in self._nodes:
            chain.append(number)
            number = self._tree.nodes[number].parent
        return chain

    def categories(self, leaves: pl.Series) -> pl.DataFrame:
        """Rows of ``products.categories``."""
        direct = Counter(leaves.to_list())
        nodes = [self._tree.nodes[number] for number in sorted(self._nodes)]
        return pl.DataFrame(
            {
                "category_id": [n.key for n in nodes],
                "name": [n.name for n in nodes],
                "path": [SEPARATOR.join(n.path) for n in nodes],
                "depth": [n.depth for n in nodes],
                "parent_id": [self.keys.get(n.parent) for n in nodes],
                "products": [self.below[n.number] for n in nodes],
                "leaf_products": [direct[n.number] for n in nodes],
            },
            schema_overrides={"parent_id": pl.String},
        ).sort("category_id")

    def links(self, chosen: pl.DataFrame) -> pl.DataFrame:
        """Rows of ``products.product_category``."""
        chains = pl.DataFrame(
            [
                (leaf, self.keys[number], number == leaf)
                for leaf in chosen["leaf"].unique().sort().to_list()
                for number in self._chain(leaf)
            ],
            schema={"leaf": pl.Int64, "category_id": pl.String, "is_leaf": pl.Boolean},
            orient="row",
        )
        return (
            chosen.select("item_id", "leaf")
            .join(chains, on="leaf", how="left")
            .select("item_id", "category_id", "is_leaf")
            .sort("item_id", "category_id")
        )


Origin = Literal["categories", "main_category", "file"]

# Control characters that no published text has (staging takes them out).
_LEVELS = "\x1f"
_NO_PATH = "\x1e"


@dataclass(frozen=True, slots=True)
class Routed:
    """A product's path and what became of it."""

    #: The levels that were matched.
    path: tuple[str, ...]
    #: ``categories``; or, where those are empty, ``main_category`` or the ``file``'s name.
    origin: Origin
    #: The match, or why there is none.
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


def quotas(sizes: Mapping[str, int], total: int) -> dict[str, int]:
    """Number to draw of each category: its share of ``total``, to within one.

    Largest remainders, ties by name; all of everything if there are no more than ``total``.

    >>> quotas({"Books": 60, "Toys": 30, "Games": 10}, 9)
    {'Books': 5, 'Toys': 3, 'Games': 1}
    """
    everything = sum(sizes.values())
    if total >= everything:
        return dict(sizes)
    shares = {name: divmod(size * total, everything) for name, size in sizes.items()}
    drawn = {name: count for name, (count, _) in shares.items()}
    order = sorted(shares, key=lambda name: (-shares[name][1], name))
    for name in order[: total - sum(drawn.values())]:
        drawn[name] += 1
    return drawn


def row_keys(ids: pl.Series, seed: int) -> U64:
    """A pseudo-random number for each (ASCII) id, from (seed, id) alone; of shape (n,).

    The same for the same id whatever other ids there are, and on every machine.
    """
    if ids.is_empty():
        return np.zeros(0, dtype=np.uint64)
    width = -(-int(ids.str.len_bytes().max()) // 8) * 8  # type: ignore[arg-type]  # not empty
    raw = str(ids.str.pad_end(width, "\0").str.join("").item()).encode()
    blocks = np.frombuffer(raw, dtype="<u8").reshape(len(ids), width // 8)
    keys = combine(seed, np.zeros(len(ids), dtype=np.uint64))
    for column in blocks.T:
        # A block of padding changes nothing, so that a longer id elsewhere changes no key.
        keys = np.where(column == 0, keys, combine(keys, column))
    return keys


def sample_mask(ids: pl.Series, categories: pl.Series, total: int, seed: int) -> pl.Series:
    """Products that are drawn: of each category its quota, those with the smallest keys.

    ``ids`` (unique) and ``categories`` are of shape (n,), and so is the boolean result; a ``total``
    of 0 draws all.
    """
    if not total or total >= len(ids):
        return pl.Series("drawn", [True], dtype=pl.Boolean).new_from_index(0, len(ids))
    frame = pl.DataFrame({"category": categories.cast(pl.String), "key": row_keys(ids, seed)})
    sizes = dict(frame.group_by("category").len().sort("category").iter_rows())
    allowed = pl.DataFrame(
        list(quotas(sizes, total).items()),
        schema={"category": pl.String, "quota": pl.UInt32},
        orient="row",
    )
    return (
        frame.with_columns(rank=pl.col("key").rank("ordinal").over("category"))
        .join(allowed, on="category", how="left", maintain_order="left")
        .select(drawn=pl.col("rank") <= pl.col("quota"))
        .to_series()
    )


#: Paths without a match that are listed, those of most products first.
_SHOWN_MISSES = 20


def choice_facts(
    frame: pl.DataFrame,
    usable: pl.DataFrame,
    routed: Mapping[str, Routed],
    products: Mapping[str, int],
    waived: Mapping[str, list[str]],
    cut: Cut,
    settings: ProductsSettings,
) -> dict[str, Any]:
    """Facts of one run, JSON-ready.

    ``frame`` has every product: ``file``, whether ``drawn``, the first essential field it
    ``lacks``. ``usable`` has those that were drawn and lack nothing, with ``node`` and ``leaf``.
    ``routed`` and ``products`` (count) are by distinct path, ``waived`` has fields that were not
    asked of a file.
    """
    drawn = frame.filter("drawn")
    matched = usable.filter(pl.col("node").is_not_null())
    lost = matched.filter(pl.col("leaf").is_null()).height
    return {
        "read": frame.height,
        "drawn": drawn.height,
        "not_drawn": frame.height - drawn.height,
        "dropped_without": dict(
            drawn.drop_nulls("lacks").group_by("lacks").len().sort("lacks").iter_rows()
        ),
        "demands_not_made": waived,
        "asked": usable.height,
        "matched": matched.height,
        "match_rate": _share(matched.height, usable.height),
        "matched_by": _counts(matched, "heuristic"),
        "paths_from": _counts(usable, "path_from"),
        "matched_from": _counts(matched, "path_from"),
        "bridged": matched.filter(pl.col("bridged") > 0).height,
        "distinct_paths": len(routed),
        "distinct_paths_matched": sum(isinstance(r.outcome, PathMatch) for r in routed.values()),
        "matched_outside_choice_sets": lost,
        "in_choice_sets": matched.height - lost,
        "categories_met": cut.candidates,
        "categories": len(cut),
        "cut_levels": settings.cut_levels,
        "min_category_size": settings.min_category_size,
        "by_file": _by_file(frame, usable),
        "misses": _misses(routed, products),
    }


def _share(part: int, total: int) -> float:
    return round(part / total, 4) if total else 0.0


def _counts(frame: pl.DataFrame, column: str) -> dict[str, int]:
    return dict(frame.group_by(column).len().sort(column).iter_rows())


def _by_file(frame: pl.DataFrame, usable: pl.DataFrame) -> list[dict[str, Any]]:
    read = frame.group_by("file").agg(read=pl.len(), drawn=pl.col("drawn").sum())
    counts = usable.group_by("file").agg(
        asked=pl.len(),
        matched=pl.col("node").is_not_null().sum(),
        in_choice_sets=pl.col("leaf").is_not_null().sum(),
    )
    return (
        read.join(counts, on="file", how="left")
        .with_columns(pl.col("file").cast(pl.String), pl.exclude("file").fill_null(0))
        .with_columns(match_rate=(pl.col("matched") / pl.col("asked").clip(1)).round(4))
        .sort("file")
        .to_dicts()
    )


def _misses(routed: Mapping[str, Routed], products: Mapping[str, int]) -> list[dict[str, Any]]:
    missed: dict[tuple[str, ...], tuple[int, PathMiss]] = {}
    for text, routing in routed.items():
        if isinstance(routing.outcome, PathMiss):
            # Products of several files may have the same department.
            before = missed.get(routing.path, (0, routing.outcome))[0]
            missed[routing.path] = (before + products[text], routing.outcome)
    return [
        {
            "path": SEPARATOR.join(path) or "(no path)",
            "products": count,
            "level": miss.level,
            "matched_levels": miss.matched,
        }
        for path, (count, miss) in sorted(missed.items(), key=lambda m: (-m[1][0], m[0]))
    ][:_SHOWN_MISSES]


_BATCH = 100_000
_EMPTY = {
    "title": pl.col("title").is_null(),
    "description": pl.col("description").is_null(),
    "brand": pl.col("brand").is_null(),
    "price": pl.col("price").is_null(),
    "features": pl.col("features").list.len() == 0,
}
#: Columns of ``products.products`` that are those of ``products.items``.
_KEPT = (
    "title",
    "brand",
    "description",
    "features",
    "price",
    "average_rating",
    "rating_number",
    "category",
)


@dataclass(frozen=True, slots=True)
class ChoiceSets:
    """The three tables, and the counts of their making."""

    #: Rows of ``products.categories``.
    categories: pl.DataFrame
    #: Rows of ``products.product_category``.
    links: pl.DataFrame
    #: ``item_id``, ``category_id``, ``path``, ``path_from``, ``heuristic``, ``bridged`` and
    #: ``similarity`` of every product that is in a choice set, by ``item_id``.
    chosen: pl.DataFrame
    #: JSON-ready facts: what was read, drawn, dropped and matched, and the commonest misses.
    stats: Mapping[str, Any]

    def products(self, items: pl.LazyFrame, *, rows: int = _BATCH) -> Iterator[pl.DataFrame]:
        """Rows of ``products.products``, in order, some at a time.

        ``items`` is the scan that the choice sets were made from.
        """
        for part in self.chosen.iter_slices(rows):
            ids = part["item_id"]
            selected = items.filter(pl.col("item_id").is_between(pl.lit(ids[0]), pl.lit(ids[-1])))
            facts = selected.select("item_id", *_KEPT).collect(engine="streaming")
            joined = part.join(facts, on="item_id", how="left", maintain_order="left")
            yield joined.select(
                "item_id", *_KEPT, "path", "path_from", "category_id",
                "heuristic", "bridged", "similarity",
            )  # fmt: skip


def choice_sets(items: pl.LazyFrame, tree: CategoryTree, settings: ProductsSettings) -> ChoiceSets:
    """Draw products, match them to the tree, and cut the tree to choice sets.

    Products are drawn over the files' categories in proportion to their sizes. Those that lack
    an essential field are dropped; a field that no product of a file has is not asked of that
    file. Each distinct category path is matched once. Of the categories, the top levels and
    those with too few products are cut; a product belongs to every category that is left on
    its path, the deepest of which is its leaf.

    Raises ContractError if there are no products, NoChoiceSetError if no choice set is left.
    """
    frame = _slim(items, settings)
    if frame.is_empty():
        raise ContractError("no products to choose from", where="products.items")
    waived = _waived(frame, settings.essential)
    drawn = sample_mask(frame["item_id"], frame["category"], settings.sample, settings.seed)
    frame = frame.with_columns(drawn, lacks=_first_lack(settings.essential, waived))
    usable = frame.filter(pl.col("drawn") & pl.col("lacks").is_null())
    matcher = PathMatcher(tree)
    per_route = usable.group_by("route").len().sort("route")
    routed = match_routes(per_route["route"].cast(pl.String), matcher)
    usable = usable.join(_outcomes(routed), on="route", how="left", maintain_order="left")
    cut = Cut(tree, usable["node"], settings)
    usable = usable.with_columns(leaf=cut.leaf_of(usable["node"]))
    stats = choice_facts(frame, usable, routed, dict(per_route.iter_rows()), waived, cut, settings)
    chosen = usable.filter(pl.col("leaf").is_not_null()).sort("item_id")
    if chosen.is_empty():
        raise NoChoiceSetError(
            f"no choice set is left: {stats['matched']:,} of {usable.height:,} products match the "
            f"tree, but no category below level {settings.cut_levels} has "
            f"{settings.min_category_size}",
            where="products.categories",
            hint="check products.cut_levels and products.min_category_size, or give a tree that "
            "fits the products (data.taxonomy.file)",
            details={"stats": stats},
        )
    return ChoiceSets(
        categories=cut.categories(chosen["leaf"]),
        links=cut.links(chosen),
        chosen=chosen.select(
            "item_id",
            pl.col("leaf").replace_strict(cut.keys, return_dtype=pl.String).alias("category_id"),
            "path",
            "path_from",
            "heuristic",
            "bridged",
            "similarity",
        ),
        stats=stats,
    )


def _slim(items: pl.LazyFrame, settings: ProductsSettings) -> pl.DataFrame:
    return (
        items.select(
            "item_id",
            "category",
            pl.format("{}/{}", "edition", "category").alias("file"),
            route().alias("route"),
            *(_EMPTY[field].alias(f"no_{field}") for field in settings.essential),
        )
        .with_columns(pl.col("category", "file", "route").cast(pl.Categorical))
        .collect(engine="streaming")
    )


def _waived(frame: pl.DataFrame, essential: tuple[str, ...]) -> dict[str, list[str]]:
    """By file, the fields that none of its products has."""
    if not essential:
        return {}
    by_file = frame.group_by(pl.col("file").cast(pl.String)).agg(
        pl.col(f"no_{field}").all() for field in essential
    )
    return {
        row["file"]: [field for field in essential if row[f"no_{field}"]]
        for row in by_file.sort("file").iter_rows(named=True)
        if any(row[f"no_{field}"] for field in essential)
    }


def _first_lack(essential: tuple[str, ...], waived: Mapping[str, list[str]]) -> pl.Expr:
    lacks = pl.lit(None, dtype=pl.String)
    for field in reversed(essential):
        free = [file for file, fields in waived.items() if field in fields]
        required = ~pl.col("file").cast(pl.String).is_in(free)
        lacks = pl.when(pl.col(f"no_{field}") & required).then(pl.lit(field)).otherwise(lacks)
    return lacks


def _outcomes(routed: Mapping[str, Routed]) -> pl.DataFrame:
    rows = []
    for text, routing in routed.items():
        match = routing.outcome if isinstance(routing.outcome, PathMatch) else None
        rows.append(
            (
                text,
                list(routing.path),
                routing.origin,
                match.node if match else None,
                match.heuristic if match else None,
                match.bridged if match else None,
                round(match.similarity, 6) if match else None,
            )
        )
    return pl.DataFrame(
        rows,
        schema={
            "route": pl.String,
            "path": pl.List(pl.String),
            "path_from": pl.String,
            "node": pl.Int64,
            "heuristic": pl.String,
            "bridged": pl.Int64,
            "similarity": pl.Float64,
        },
        orient="row",
    ).with_columns(pl.col("route").cast(pl.Categorical))
