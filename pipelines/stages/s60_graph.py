"""The knowledge graph of each domain that has a schema, and similar items."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping

import polars as pl

from pipelines import graph
from pipelines.config import Settings
from pipelines.execution import open_executor
from pipelines.plugins import closing
from pipelines.progress import advance
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
    """Find the most similar items of each item: PathSim over all meta-paths, and embeddings."""
    vectors = inputs["item_embeddings"].read(["item_id", "vector"])
    similar = graph.SimilarItems(
        inputs["graph_triples"].scan(), vectors, settings.graph, domain=inputs.domain
    )
    if settings.execution.executor == "local":
        threads = settings.runtime.threads or os.cpu_count() or 1
        yield from similar.rows(threads=threads)
    else:
        work = _FindSimilar(similar)
        with closing(open_executor(settings.execution)) as executor:
            starts = range(0, len(similar), ITEMS_PER_PART)
            for start, frame in zip(starts, executor.map(work, starts), strict=True):
                yield frame
                advance("similar items", min(start + ITEMS_PER_PART, len(similar)), len(similar))
    # The picture opens the whole graph: only for a table that is new.
    title, picture = _neighbourhood(inputs, settings, vectors)
    report.plots[title] = picture


#: Items of a part (count): about a minute of a core where there are a million items.
ITEMS_PER_PART = 4_096


class _FindSimilar:
    """Finds the similar items of ranges of items; see :class:`pipelines.execution.Work`."""

    def __init__(self, similar: graph.SimilarItems) -> None:
        self._similar = similar

    def __call__(self, start: int) -> pl.DataFrame:
        return pl.concat(self._similar.rows(start, start + ITEMS_PER_PART))

    def versions(self) -> Mapping[str, str]:
        return {"graph.CODE_VERSION": graph.CODE_VERSION}


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
