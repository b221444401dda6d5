"""The knowledge graph of each domain that has a schema, and similar items."""

from __future__ import annotations

import os
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import polars as pl

from pipelines import graph, instructions
from pipelines.config import Settings, identity_hash
from pipelines.contracts import CONTRACTS
from pipelines.execution import Advance, Piece, open_executor, run_pieces
from pipelines.plugins import closing
from pipelines.stages._stage import Inputs, Report, Stage, tables
from pipelines.stages._work import StageWork, reopened
from pipelines.store.files import storage_errors

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
    advance = report.advance(f"{inputs.domain}: similar items")
    if settings.execution.executor == "local":
        threads = settings.runtime.threads or os.cpu_count() or 1
        yield from _similar(inputs, settings).rows(threads=threads, progress=advance)
    else:
        yield from _in_pieces(inputs, settings, advance)
    # The picture opens the whole graph: only for a table that is new.
    vectors = inputs["item_embeddings"].read(["item_id", "vector"])
    title, picture = _neighbourhood(inputs, settings, vectors)
    report.plots[title] = picture


#: Items of a piece (count): about a minute of a core where there are a million items.
ITEMS_PER_PIECE = 4_096


def _similar(inputs: Inputs, settings: Settings) -> graph.SimilarItems:
    vectors = inputs["item_embeddings"].read(["item_id", "vector"])
    triples = inputs["graph_triples"].scan()
    return graph.SimilarItems(triples, vectors, settings.graph, domain=inputs.domain)


class _SimilarWork(StageWork):
    """Finds the similar items of ranges of items; a worker indexes the graph once."""

    def __call__(self, piece: Piece, advance: Advance) -> Mapping[str, Any]:
        inputs, _ = self.opened
        files, part = inputs.context.store.files, inputs.scratch / f"{piece.key}.parquet"
        if not part.exists():
            similar, first = _indexed(self.job), piece.number * ITEMS_PER_PIECE
            # The count of items may be of more than the index has: nodes without a known edge.
            empty = pl.DataFrame(schema=CONTRACTS[self.table].polars_schema())
            frames = [empty, *similar.rows(first, first + ITEMS_PER_PIECE)]
            inputs.scratch.mkdir(parents=True, exist_ok=True)
            making = inputs.scratch / f"{uuid.uuid4().hex}.making"
            try:
                with storage_errors(making):
                    pl.concat(frames).write_parquet(making)
                files.place_file(making, part)
            finally:
                making.unlink(missing_ok=True)
        advance(ITEMS_PER_PIECE)
        return {}


@lru_cache(maxsize=1)
def _indexed(job: bytes) -> graph.SimilarItems:
    return _similar(*reopened(job))


def _in_pieces(
    inputs: Inputs, settings: Settings, progress: Callable[[int, int], None]
) -> Iterator[pl.DataFrame]:
    """The table's rows by the workers of an executor; finished pieces outlive a killed run."""
    triples, vectors = inputs["graph_triples"].scan(), inputs["item_embeddings"].scan()
    count, done = graph.items_of(triples, vectors, inputs.domain), 0
    decides = {
        "inputs": inputs.versions,
        "graph": settings.graph.identity_values(),
        "code": graph.CODE_VERSION,
        "items": [count, ITEMS_PER_PIECE],
        **instructions.identity(),
    }
    numbers = range(-(-count // ITEMS_PER_PIECE))
    pieces = [Piece(identity_hash({**decides, "number": n}), n) for n in numbers]
    work = _SimilarWork(
        inputs,
        settings,
        f"{inputs.domain}.item_similarity",
        {"graph.CODE_VERSION": graph.CODE_VERSION},
    )
    with closing(open_executor(settings.execution)) as executor:
        for _ in run_pieces(executor, work, pieces, rounds=settings.execution.max_rounds):
            done += 1
            progress(min(done * ITEMS_PER_PIECE, count), count)
    for piece in pieces:
        part = inputs.scratch / f"{piece.key}.parquet"
        yield inputs.context.store.files.scan([part]).collect()
    shutil.rmtree(inputs.scratch, ignore_errors=True)


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
