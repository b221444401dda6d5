"""A generated world of dialogues as a release of products in a real store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from support.small_release import conform

from pipelines.store import CheckRecord, Release, Store
from sim.dialogue import DialogueWorld

#: Kinds of facets in the table; a generated world has more vocabularies than are packaged.
_KINDS = {"price": "price", "brand": "brand"}


def frames(world: DialogueWorld) -> dict[str, pl.DataFrame]:
    """Tables that ``DialogueWorld.open`` reads the same sets and scores from.

    Ids are those that contracts ask for, so that personas have the split of their hash. A facet's
    id is its kind, as `DialogueWorld.open` names them.
    """
    items = {name: f"asin:{n:010d}" for n, name in enumerate(_item_ids(world))}
    people = [f"persona:products:{n:07d}" for n in range(len(world.persona_ids))]
    sets = [(f"category:{s.path}", s) for s in world.sets]
    products = pl.concat(
        pl.DataFrame(
            {
                "item_id": [items[i] for i in s.item_ids],
                "title": s.titles,
                "price": s.price,
                "average_rating": s.rating,
                "category_id": category,
            }
        )
        for category, s in sets
    ).with_columns(
        pl.col("price", "average_rating").cast(pl.Float64).fill_nan(None),
        category=pl.lit("Home"),
        edition=pl.lit("2023"),
        path=pl.lit(["Home"], pl.List(pl.String)),
        path_from=pl.lit("categories"),
        heuristic=pl.lit("equal"),
        bridged=pl.lit(0),
        similarity=pl.lit(1.0),
    )
    scores = pl.concat(
        pl.DataFrame(
            {
                "persona_id": np.repeat(people, len(s)),
                "item_id": [items[i] for i in s.item_ids] * len(people),
                "expected": s.y.ravel().astype(np.float64),
            }
        )
        for _, s in sets
    ).with_columns(pl.lit("facets").alias("rater"), scale=pl.lit("0-100"), status=pl.lit("ok"))
    return {
        "items": products,
        "products": products,
        "categories": pl.DataFrame(
            [
                {"category_id": category, "name": s.name, "path": s.path, "depth": 3,
                 "products": len(s), "leaf_products": len(s)}
                for category, s in sets
            ]
        ),
        "choice_set_items": pl.DataFrame(
            [
                {"category_id": category, "item_id": items[i], "position": n,
                 "split": "train" if s.seen else "test"}
                for category, s in sets
                for n, i in enumerate(s.item_ids)
            ]
        ),
        "facets": pl.DataFrame(
            [
                {"category_id": category, "facet_id": f.kind, "question": f.question,
                 "kind": _KINDS.get(f.kind, "vocabulary"), "value": f.values[value],
                 "item_id": items[s.item_ids[n]]}
                for category, s in sets
                for f in s.facets
                for n, value in enumerate(f.of.tolist())
                if value >= 0
            ]
        ).sort("category_id", "facet_id", "item_id"),
        "item_embeddings": pl.DataFrame(
            {
                "item_id": [items[i] for _, s in sets for i in s.item_ids],
                "model": "generated",
                "text_sha256": "0" * 64,
                "vector": [v for _, s in sets for v in s.vectors.tolist()],
            }
        ),
        "personas": pl.DataFrame(
            {
                "persona_id": people,
                "cohort": "products",
                "domain": "products",
                "origin": "sampled",
                "writer": "statistical",
                "age": [int(a["age"]) for a in world.attributes],
                "description": world.descriptions,
            }
        ),
        "preference_scores": scores,
    }  # fmt: skip


def _item_ids(world: DialogueWorld) -> list[str]:
    return sorted({i for s in world.sets for i in s.item_ids})


def publish(home: Path, world: DialogueWorld, **settings: Any) -> Release:
    """Commit the tables of a world and publish them as ``products``."""
    store = Store(home)
    found, required = {}, {}
    for name, frame in frames(world).items():
        dataset = f"products.{name}"
        snapshot = store.commit(dataset, conform(dataset, frame), code_version="test")
        store.record_checks(dataset, snapshot.version, [CheckRecord("whole", True)])
        found[name], required[dataset] = snapshot, ["whole"]
    return store.publish(
        "products", found, world="sample", required=required, card="# Products", settings=settings
    )
