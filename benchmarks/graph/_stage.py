"""A measurement in a process of its own; prints a JSON document as its last line.

_stage.py bulk WORLD DATA THREADS     triples and similar items of all films
_stage.py triples WORLD DATA FILE     triples as Parquet
_stage.py similar FILE "" RATERS THREADS   similar items of such a file, of so many raters each
_stage.py memory WORLD DATA           GraphMemory: open, retrieve, add, copy
_stage.py many WORLD DATA             GraphMemory: many queries at once
_stage.py networkx WORLD DATA ITEMS   path counts of some films, ours and NetworkX's
"""

from __future__ import annotations

import gc
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import polars as pl
from _worlds import embeddings_of, load

from pipelines.config import GraphSettings
from pipelines.graph import (
    GraphIndex,
    GraphMemory,
    MetaPaths,
    PathSim,
    item_similarity,
    load_metapaths,
    triple_batches,
)

SETTINGS = GraphSettings()


def main() -> None:
    """Run the measurement that the arguments name."""
    stage, world, data, *more = sys.argv[1:]
    given: Any = world if stage == "similar" else load(world, Path(data) if data else None)
    before = _resident()
    stages = (bulk, memory, many, networkx, triples, similar)
    out = {one.__name__: one for one in stages}[stage](given, *more)
    out["before_mb"], out["peak_mb"] = (
        before,
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )
    print(json.dumps(out))


def bulk(tables: dict[str, pl.DataFrame], threads: str) -> dict[str, Any]:
    """Seconds of both tables, and how many path instances they count."""
    clock = time.perf_counter()
    triples = pl.concat(triple_batches("movies", tables, SETTINGS))
    made = time.perf_counter()
    embeddings = embeddings_of(tables["items"])
    start = time.perf_counter()
    rows = sum(
        frame.height
        for frame in item_similarity(triples, embeddings, SETTINGS, threads=int(threads))
    )
    done = time.perf_counter()
    return {
        "interactions": tables["interactions"].height,
        "films": tables["items"].height,
        "triples": triples.height,
        "triples_s": made - clock,
        "similarity_rows": rows,
        "similarity_s": done - start,
        "instances": _instances(triples),
    }


def triples(tables: dict[str, pl.DataFrame], file: str) -> dict[str, Any]:
    """Write the triples, and vectors beside them."""
    pl.concat(triple_batches("movies", tables, SETTINGS)).write_parquet(file)
    embeddings_of(tables["items"]).write_parquet(f"{file}.vectors")
    return {"interactions": tables["interactions"].height, "films": tables["items"].height}


def similar(file: str, raters: str, threads: str) -> dict[str, Any]:
    """Seconds of the table of similar items, as the stage makes it from files; ratings counted."""
    scan = pl.scan_parquet(file)
    start = time.perf_counter()
    sampled = sum(
        frame.filter(pl.col("basis") == "sampled paths")["item_id"].n_unique()
        for frame in item_similarity(
            scan,
            pl.read_parquet(f"{file}.vectors"),
            SETTINGS,
            threads=int(threads),
            raters_per_item=int(raters),
        )
    )
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    rated = scan.filter(relation="rated", tail_type="Movie").group_by("tail").len()
    counted = rated.select(pl.col("len").clip(upper_bound=int(raters)).sum()).collect().item()
    return {"seconds": seconds, "counted": counted, "sampled": sampled, "similar_peak_mb": peak}


def _instances(triples: pl.DataFrame) -> float:
    """Path instances over all item paths and pairs: Σ over middles of walks in × walks out."""
    index, paths = GraphIndex.from_triples(triples, "movies"), load_metapaths("movies")
    total = 0.0
    for path in paths.items:
        left, right = index.walk_matrix(path.left), index.walk_matrix(path.right)
        total += float(left.sum(axis=0) @ right.sum(axis=0))
    return total


def memory(tables: dict[str, pl.DataFrame]) -> dict[str, Any]:
    """Times in microseconds; queries are drawn as training interactions are."""
    triples = pl.concat(triple_batches("movies", tables, SETTINGS))
    users = [f"persona:bench:{n}" for n in range(1000)]

    def opened() -> GraphMemory:
        return GraphMemory.from_tables(
            triples,
            tables["items"],
            interactions=tables["interactions"],
            embeddings=embeddings_of(tables["items"]),
            users=users,
        )

    clock = time.perf_counter()
    graph = opened()
    out: dict[str, Any] = {"open_s": time.perf_counter() - clock}
    rng = np.random.default_rng(6)
    drawn = tables["interactions"].sample(4000, seed=6, with_replacement=True)
    queries = list(
        zip(drawn["user_id"].to_list(), drawn["item_id"].shuffle(7).to_list(), strict=True)
    )
    films = tables["items"]["item_id"].sample(4000, seed=8, with_replacement=True).to_list()
    humans = [user for user, _ in queries]
    out["retrieve_by_popularity"] = _summary([_timed(graph.retrieve, *q) for q in queries])
    out["retrieve_any_film"] = _summary(
        [_timed(graph.retrieve, u, f) for u, f in zip(humans, films, strict=True)]
    )
    # Simulated users in turn: each has a copy, rates a film and asks about another.
    copies = [graph.copy() for _ in range(100)]
    add, after = [], []
    for turn in range(20):
        for number, copy in enumerate(copies):
            film = queries[(turn * 100 + number) % 4000][1]
            rating = float(rng.integers(1, 6))
            add.append(_timed(copy.add, users[number], "rated", film, rating))
            after.append(_timed(copy.retrieve, users[number], films[turn * 100 + number]))
    plain = [graph.copy() for _ in range(100)]
    edge = [
        _timed(copy.add, users[number], "rated", queries[turn * 100 + number][1])
        for turn in range(20)
        for number, copy in enumerate(plain)
    ]
    out["add_edge"], out["add_edge_amortised"] = _summary(edge), float(np.mean(edge))
    out["add"] = _summary(add)
    out["add_amortised"] = float(np.mean(add))
    out["retrieve_after_add"] = _summary(after)
    del copies, plain
    gc.collect()
    out |= _copies(graph, users, [film for _, film in queries])
    return out


def many(tables: dict[str, pl.DataFrame]) -> dict[str, Any]:
    """20,000 queries at once (k = 3), and waves of 1,000 agents with a page of four items each."""
    interactions = tables["interactions"]
    graph = GraphMemory.from_tables(
        pl.concat(triple_batches("movies", tables, SETTINGS)),
        tables["items"],
        interactions=interactions,
        embeddings=embeddings_of(tables["items"]),
    )
    users = interactions["user_id"].sample(20_000, seed=4).to_list()
    popular = interactions["item_id"].sample(20_000, seed=3).to_list()
    evenly = tables["items"]["item_id"].sample(20_000, with_replacement=True, seed=5).to_list()
    out = {"popular": _clocked(lambda: graph.retrieve_many(users, popular, 3))}
    out["evenly"] = _clocked(lambda: graph.retrieve_many(users, evenly, 3))
    out["one_by_one"] = _clocked(
        lambda: [graph.retrieve(u, i, 3) for u, i in zip(users[:2000], popular, strict=False)]
    )
    people = interactions["user_id"].unique().sort().to_list()
    agents = [people[n % len(people)] for n in range(1000)]
    copies = [graph.copy() for _ in agents]

    def rate() -> None:
        for number, (copy, agent) in enumerate(zip(copies, agents, strict=True)):
            for film in popular[4 * number : 4 * number + 4]:
                copy.rate(agent, film, 4.0)

    out["rate"] = _clocked(rate)
    asked = [agent for agent in agents for _ in range(4)]
    memories = [copy for copy in copies for _ in range(4)]
    films = popular[4000:8000]
    out["similarity_wave"] = _clocked(lambda: graph.user_similarity(asked, films, memories))
    out["retrieve_wave"] = _clocked(lambda: graph.retrieve_many(asked, films, 3, memories))
    return out


def _clocked(call: Any) -> dict[str, float]:
    """Seconds of the clock and of the processor."""
    clock, cpu = time.perf_counter(), time.process_time()
    call()
    return {"s": time.perf_counter() - clock, "cpu_s": time.process_time() - cpu}


def _copies(graph: GraphMemory, users: list[str], films: list[str]) -> dict[str, float]:
    clock = time.perf_counter()
    copies = [graph.copy() for _ in range(10_000)]
    seconds = time.perf_counter() - clock
    del copies
    gc.collect()
    before = _resident()
    copies = [graph.copy() for _ in range(1000)]
    for number, copy in enumerate(copies):
        for turn in range(20):
            copy.add(users[number], "rated", films[(number * 20 + turn) % len(films)], 4.0)
    return {
        "copy_us": seconds / 10_000 * 1e6,
        "graph_mb": before,
        "copy_with_20_ratings_kb": (_resident() - before) * 1024 / 1000,
    }


def networkx(tables: dict[str, pl.DataFrame], items: str) -> dict[str, Any]:
    """The same counts of the rated and genre paths among some films, both ways."""
    triples = pl.concat(triple_batches("movies", tables, SETTINGS))
    chosen = load_metapaths("movies")
    names = {"Movie-User-Movie Rate", "Movie-Genre-Movie", "Movie-User-Movie Liked"}
    paths = MetaPaths("movies", tuple(p for p in chosen.items if p.name in names), ())
    some = tables["items"]["item_id"].sample(int(items), seed=9).sort().to_list()
    relations = {r for p in paths.items for r in p.relations}
    kept = triples.filter(pl.col("relation").is_in(sorted(relations)))
    built = time.perf_counter()
    graph = nx.MultiDiGraph()
    for head, kind, relation, tail, _ in kept.iter_rows():
        graph.add_edge(head, tail, key=relation)
        graph.nodes[head]["type"] = kind
    start = time.perf_counter()
    theirs = _enumerated(graph, paths, some)
    enumerated = time.perf_counter()
    index = GraphIndex.from_triples(kept, "movies", nodes={"Movie": some})
    codes = np.asarray([index.codes("Movie")[film] for film in some])
    indexed = time.perf_counter()
    ours = PathSim(index, paths).counts(codes)[:, codes]
    done = time.perf_counter()
    if not np.array_equal(ours, theirs):
        raise SystemExit("the counts differ")
    return {
        "films": len(some),
        "instances": float(ours.sum()),
        "networkx_graph_s": start - built,
        "networkx_s": enumerated - start,
        "index_s": indexed - enumerated,
        "ours_s": done - indexed,
        "ratio": (enumerated - built) / (done - enumerated),
        "ratio_counts": (enumerated - start) / (done - indexed),
    }


def _enumerated(graph: nx.MultiDiGraph, paths: MetaPaths, some: list[str]) -> np.ndarray:
    """Path instances by walking every one of them."""
    place = {film: number for number, film in enumerate(some)}
    out = np.zeros((len(some), len(some)))
    for film, row in place.items():
        if film not in graph:
            continue
        for path in paths.items:
            ends = [film]
            for relation in path.relations:
                ends = [
                    t for n in ends for _, t, k in graph.out_edges(n, keys=True) if k == relation
                ]
            for end in ends:
                if end in place:
                    out[row, place[end]] += 1
    return out


def _timed(call: Any, *words: Any) -> float:
    start = time.perf_counter_ns()
    call(*words)
    return (time.perf_counter_ns() - start) / 1000


def _summary(values: list[float]) -> dict[str, float]:
    return {"p50": float(np.median(values)), "p99": float(np.percentile(values, 99))}


def _resident() -> float:
    """Resident size now (MiB)."""
    import psutil

    return float(psutil.Process().memory_info().rss / 2**20)


if __name__ == "__main__":
    main()
