"""The knowledge graph of each domain that has a schema, and similar items."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import polars as pl

from pipelines import graph
from pipelines.config import Settings
from pipelines.stages._stage import Inputs, Report, Stage, tables

__all__ = ["STAGES"]


def graph_triples(inputs: Inputs, settings: Settings, report: Report) -> Iterator[pl.DataFrame]:
    """Build the graph's edges from training interactions and attributes."""
    scans = {name: snapshot.scan() for name, snapshot in inputs.items()}
    scans["users"] = scans.pop("human_users")
    relations: Counter[str] = Counter()
    for frame in graph.triple_batches(inputs.domain, scans, settings.graph):
        yield frame
        relations.update(dict(frame.group_by("relation").len().rows()))
    report.stats["relations"] = dict(sorted(relations.items()))


def item_similarity(inputs: Inputs, settings: Settings, report: Report) -> Iterator[pl.DataFrame]:
    """The most similar items of each item: PathSim over all meta-paths, and embeddings."""
    vectors = inputs["item_embeddings"].read(["item_id", "vector"])
    yield from graph.item_similarity(
        inputs["graph_triples"].scan(),
        vectors,
        settings.graph,
        domain=inputs.domain,
        threads=settings.runtime.threads or os.cpu_count() or 1,
        progress=report.advance(f"{inputs.domain}: similar items"),
    )
    # The picture opens the whole graph: only for a table that is new.
    title, picture = _neighbourhood(inputs, settings, vectors)
    report.plots[title] = picture


def _neighbourhood(inputs: Inputs, settings: Settings, vectors: pl.DataFrame) -> tuple[str, bytes]:
    """The graph's memory of its most rated item, and the paths that it comes by, as a picture."""
    current = inputs.context.store.current
    triples = inputs["graph_triples"].read()
    items = current(f"{inputs.domain}.items").read()
    memory = graph.GraphMemory.from_tables(
        triples,
        items.select("item_id", "title", "year"),
        interactions=current(f"{inputs.domain}.interactions").read(),
        embeddings=vectors,
        settings=settings.graph,
        domain=inputs.domain,
    )
    item = graph.sample_item(triples, items)
    return f"neighbourhood of {item}", graph.neighbourhood_picture(memory, item)


def _stages(domain: str) -> list[Stage]:
    return [
        Stage(
            datasets=(f"{domain}.graph_triples",),
            inputs=tables(domain, "items", "interactions", "splits", "human_users"),
            identity=("graph",),
            code_version=graph.CODE_VERSION,
            make=graph_triples,
            kinds=("polars", "parquet"),
        ),
        Stage(
            datasets=(f"{domain}.item_similarity",),
            inputs=tables(domain, "graph_triples", "item_embeddings"),
            identity=("graph",),
            code_version=graph.CODE_VERSION,
            make=item_similarity,
            # For the picture of a neighbourhood.
            after=(f"{domain}.items", f"{domain}.interactions"),
            kinds=("scipy", "parquet"),
        ),
    ]


STAGES = [stage for domain in graph.domains() for stage in _stages(domain)]
