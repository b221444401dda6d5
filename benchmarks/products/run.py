"""Time the choice sets: products matched to a category tree, at a given size.

A tree of made-up names, paths derived from it the way real ones differ (levels left out,
ampersands spelt out, singulars, simpler names, unknown levels), and products spread over the
paths with a long tail. Beside it, in the same run, the obvious alternative on a sample of the
paths: rapidfuzz's best match of the whole path as one text against every path of the tree.

    python benchmarks/products/run.py --products 1000000 --paths 50000 --repeats 3
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
from rapidfuzz import fuzz, process

from pipelines.config import ProductsSettings
from pipelines.contracts import CONTRACTS
from pipelines.products import CategoryTree, PathMatch, PathMatcher, choice_sets

_SYLLABLES = ("ba", "co", "di", "fu", "ga", "hel", "jo", "kin", "lor", "mar", "nes", "pol", "tra")
_WIDTHS = (24, 8, 6, 5, 4)


def _word(dice: random.Random) -> str:
    return "".join(dice.choice(_SYLLABLES) for _ in range(dice.randint(2, 4))).capitalize()


def make_tree(size: int, dice: random.Random) -> list[tuple[str, ...]]:
    """Paths of a tree of about ``size`` categories, up to five levels deep."""
    words = [_word(dice) for _ in range(1500)]
    paths: list[tuple[str, ...]] = [()]
    level = [()]
    for width in _WIDTHS:
        below = []
        for parent in level:
            for _ in range(width):
                name = " & ".join(f"{w}s" for w in dice.sample(words, dice.choice((1, 1, 2))))
                below.append((*parent, name))
        dice.shuffle(below)
        level = below[: max(1, size - len(paths))]
        paths += level
        if len(paths) >= size:
            break
    return paths[1:]


def disturbed(path: tuple[str, ...], dice: random.Random) -> tuple[str, ...]:
    """The path as a shop might write it; one in four leads nowhere."""
    levels = list(path)
    if len(levels) > 2 and dice.random() < 0.4:
        del levels[dice.randrange(1, len(levels) - 1)]
    for n, level in enumerate(levels):
        roll = dice.random()
        if roll < 0.15:
            levels[n] = level.replace("&", "and").lower()
        elif roll < 0.3:
            levels[n] = level.replace("s &", " &").removesuffix("s")
        elif roll < 0.4 and n:
            levels[n] = level.partition(" & ")[0]
    if dice.random() < 0.25:
        levels.append(f"{_word(dice)} {_word(dice)}")
    return tuple(levels)


def make_items(paths: list[tuple[str, ...]], count: int, dice: random.Random) -> pl.DataFrame:
    """Products of ``products.items`` over the paths, a few paths having most of them."""
    draw = np.random.default_rng(dice.randrange(1 << 32))
    at = (draw.power(0.35, count) * len(paths)).astype(np.int64)
    texts = pl.Series([list(p) for p in paths], dtype=pl.List(pl.String))
    schema = CONTRACTS["products.items"].polars_schema()
    frame = pl.DataFrame({"n": np.arange(count)}).select(
        item_id=pl.format("asin:{}", pl.col("n").cast(pl.String).str.zfill(10)),
        title=pl.format("Product {}", "n"),
        description=pl.lit("Text. " * 40),
        category=pl.format("Category_{}", pl.col("n") % 34),
        edition=pl.lit("2018"),
        category_path=texts.gather(at),
    )
    rest = {
        name: pl.lit([] if dtype == pl.List(pl.String) else None, dtype)
        for name, dtype in schema.items()
        if name not in frame.columns
    }
    return frame.with_columns(**rest).select(list(schema))


def timed(work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Median seconds of several runs, and the last result."""
    seconds, result = [], None
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


def main() -> None:
    """Run and print one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--products", type=int, default=1_000_000, help="products (count)")
    parser.add_argument("--paths", type=int, default=50_000, help="distinct paths drawn (count)")
    parser.add_argument("--tree", type=int, default=30_000, help="categories (count)")
    parser.add_argument("--compared", type=int, default=300, help="paths for the alternative")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each (median is shown)")
    parser.add_argument("--seed", type=int, default=1, help="seed of names, paths and products")
    given = parser.parse_args()
    dice = random.Random(given.seed)

    tree_paths = make_tree(given.tree, dice)
    asked = {disturbed(dice.choice(tree_paths), dice) for _ in range(given.paths)}
    paths = sorted(asked)
    items = make_items(paths, given.products, dice)
    index_seconds, tree = timed(lambda: CategoryTree(tree_paths), given.repeats)
    match_seconds, found = timed(
        lambda: [matcher.match(p) for matcher in [PathMatcher(tree)] for p in paths], given.repeats
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    settings = ProductsSettings(sample=0)
    whole_seconds, sets = timed(lambda: choice_sets(items.lazy(), tree, settings), given.repeats)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    sample = dice.sample(paths, min(given.compared, len(paths)))
    texts = [" > ".join(n.path) for n in tree.nodes[1:]]
    naive_seconds, _ = timed(
        lambda: [process.extractOne(" > ".join(p), texts, scorer=fuzz.ratio) for p in sample], 1
    )
    each, naive_each = match_seconds / len(paths), naive_seconds / len(sample)
    print(
        json.dumps(
            {
                "products": given.products,
                "distinct_paths": len(paths),
                "categories": len(tree),
                "paths_matched": round(
                    sum(isinstance(m, PathMatch) for m in found) / len(paths), 4
                ),
                "index_s": round(index_seconds, 3),
                "match_paths_s": round(match_seconds, 3),
                "us_per_path": round(1e6 * each, 1),
                "choice_sets_s": round(whole_seconds, 3),
                "products_per_s": round(given.products / whole_seconds),
                "peak_growth_mib": round((after - before) / 1024),
                "choice_sets": sets.categories.height,
                "products_matched": sets.stats["match_rate"],
                "alternative_us_per_path": round(1e6 * naive_each, 1),
                "alternative_over_ours": round(naive_each / each, 1),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
