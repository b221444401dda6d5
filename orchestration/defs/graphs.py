"""A domain's vectors, knowledge graph and similar items."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

import os
from collections import Counter
from typing import Any

import dagster as dg

from orchestration.builds import Build, dataset_asset, full_name, ready_domains
from orchestration.defs.personas import embed
from orchestration.workbench import Workbench
from pipelines import embeddings, graph

__all__ = ["graph_assets"]

_TRIPLES_FROM = ("items", "interactions", "splits", "human_users")


def item_embeddings(workbench: Workbench, domain: str, run_id: str) -> dg.MaterializeResult[Any]:
    """Encode every item's text; unchanged texts keep their vectors."""
    return embed(
        workbench,
        full_name(domain, "items"),
        full_name(domain, "item_embeddings"),
        key="item_id",
        text=embeddings.item_text,
        run_id=run_id,
    )


def graph_triples(workbench: Workbench, domain: str, run_id: str) -> dg.MaterializeResult[Any]:
    """Build the graph's edges from training interactions and attributes."""
    settings = workbench.settings
    build = Build(
        workbench,
        run_id,
        domain,
        "graph_triples",
        graph.CODE_VERSION,
        settings.identity("graph"),
        _TRIPLES_FROM,
    )
    known = build.known()
    if known:
        return build.result(known, reused=True)
    tables = {name: snapshot.scan() for name, snapshot in build.inputs.items()}
    tables["users"] = tables.pop("human_users")
    relations: Counter[str] = Counter()
    with build.writer() as writer:
        for frame in graph.triple_batches(domain, tables, settings.graph):
            writer.append(frame)
            relations.update(dict(frame.group_by("relation").len().rows()))
        writer.note(relations=dict(sorted(relations.items())))
    return build.result(writer.snapshot)


def item_similarity(workbench: Workbench, domain: str, run_id: str) -> dg.MaterializeResult[Any]:
    """The most similar items of each item: PathSim over all meta-paths, and embeddings."""
    settings = workbench.settings
    build = Build(
        workbench,
        run_id,
        domain,
        "item_similarity",
        graph.CODE_VERSION,
        settings.identity("graph"),
        ("graph_triples", "item_embeddings"),
    )
    known = build.known()
    if known:
        return build.result(known, reused=True)
    with build.writer() as writer:
        for frame in graph.item_similarity(
            build.inputs["graph_triples"].scan(),
            build.inputs["item_embeddings"].read(["item_id", "vector"]),
            settings.graph,
            domain=domain,
            threads=settings.runtime.threads or os.cpu_count() or 1,
            progress=build.advance("similar items"),
        ):
            writer.append(frame)
    # The picture opens the whole graph: only for a table that is new.
    title, picture = _neighbourhood(build)
    plots = {**workbench.plots(writer.snapshot), title: picture}
    return build.result(writer.snapshot, plots=plots)


def _neighbourhood(build: Build) -> tuple[str, bytes]:
    """What the graph remembers about its most rated item, and through which paths, as a picture."""
    store = build.workbench.store
    triples = build.inputs["graph_triples"].read()
    items = store.current(full_name(build.domain, "items")).read()
    memory = graph.GraphMemory.from_tables(
        triples,
        items.select("item_id", "title", "year"),
        interactions=store.current(full_name(build.domain, "interactions")).read(),
        embeddings=build.inputs["item_embeddings"].read(["item_id", "vector"]),
        settings=build.workbench.settings.graph,
        domain=build.domain,
    )
    item = graph.sample_item(triples, items)
    return f"neighbourhood of {item}", graph.neighbourhood_picture(memory, item)


def graph_assets() -> list[dg.AssetsDefinition]:
    """Vectors of every domain's items, and the graph of those that have a schema."""
    assets = []
    for domain in ready_domains():
        assets.append(
            dataset_asset(
                domain,
                "item_embeddings",
                item_embeddings,
                deps=("items",),
                code_version=embeddings.CODE_VERSION,
                kinds={"huggingface", "parquet"},
            )
        )
        if domain not in graph.domains():
            continue
        assets += [
            dataset_asset(
                domain,
                "graph_triples",
                graph_triples,
                deps=_TRIPLES_FROM,
                code_version=graph.CODE_VERSION,
                kinds={"polars", "parquet"},
            ),
            dataset_asset(
                domain,
                "item_similarity",
                item_similarity,
                deps=("graph_triples", "item_embeddings", "items", "interactions"),
                code_version=graph.CODE_VERSION,
                kinds={"scipy", "parquet"},
            ),
        ]
    return assets
