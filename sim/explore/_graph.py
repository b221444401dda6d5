"""The knowledge graph around items: what is near, and through which nodes."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import polars as pl

from pipelines.errors import UnderstudyError
from pipelines.graph import GraphMemory, load_schema
from sim._release import Release

if TYPE_CHECKING:
    from sim.explore._site import Items

#: Items that a graph is shown around, neighbours of each, and named nodes between two (count).
_CENTRES, _NEIGHBOURS, _BETWEEN = 80, 8, 6


def graph(release: Release, items: Items) -> dict[str, Any] | str:
    """Neighbours of items and the nodes that join them, or the reason why there are none."""
    try:
        memory = GraphMemory.open(release)
    except UnderstudyError as error:
        return str(error)
    if "item_stats" in release:
        order = release["item_stats"].polars(["item_id", "popularity_rank"]).sort("popularity_rank")
    else:
        order = release["items"].polars(["item_id"]).sort("item_id")
    # What other views show comes first, so that they can link to it.
    popular = [item for item in order["item_id"] if item in items]
    centres = popular[:_CENTRES]
    if not centres:
        return "no other view shows an item of the release"
    near = {item: memory.retrieve(None, item, _NEIGHBOURS) for item in centres}
    shown = sorted({*centres, *(n.item_id for rows in near.values() for n in rows)})
    nodes, raters = _nodes(release, items, shown)
    settings = memory.settings
    labels: dict[str, int] = {}
    rows = []
    for item in centres:
        neighbours = []
        for n in near[item]:
            shared = sorted(nodes[item] & nodes[n.item_id])[:_BETWEEN]
            neighbours.append(
                {
                    "item": items.number(n.item_id),
                    "score": round(n.score, 4),
                    "rating": n.rating,
                    "paths": [(k, round(settings.alpha * v, 4)) for k, v in n.paths.items() if v],
                    "cosine": round(settings.embedding_weight * (n.parts.cosine or 0), 4),
                    "through": [labels.setdefault(node, len(labels)) for node in shared],
                    "people": len(raters[item] & raters[n.item_id]),
                }
            )
        rows.append({"item": items.number(item), "near": neighbours})
    return {
        "rows": rows,
        "nodes": [dict(zip(("kind", "label"), node.split("\t"), strict=True)) for node in labels],
        "scale": memory.scale.name,
    }


def _nodes(
    release: Release, items: Items, shown: list[str]
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Kind and label of the nodes that each item leads to, and the people that rated it.

    Nodes that come of columns that are not shown are left out.
    """
    schema = load_schema(release.domain)
    named = {
        (e.relation, e.tail_type)
        for e in schema.edges
        if e.origin == "items" and e.node is not None and e.column not in items.hidden
    }
    first = next(e for e in schema.edges if e.origin == "interactions" and e.where == "all")
    nodes, raters = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    triples = release["graph_triples"].lazy().filter(pl.col("head").is_in(shown)).collect()
    for head, relation, tail, kind in triples.select(
        "head", "relation", "tail", "tail_type"
    ).iter_rows():
        if relation == first.inverse:
            raters[head].add(tail)
        elif (relation, kind) in named:
            nodes[head].add(f"{kind}\t{tail.partition(':')[2]}".replace("\n", " "))
    return nodes, raters
