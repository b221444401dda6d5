"""The graph in the formats that other tools read: RecBole's atomic files, and GraphML."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

import polars as pl

from pipelines.errors import ContractError, StoreError
from pipelines.graph._schema import EdgeType, load_schema
from pipelines.store.files import whole_file

#: Characters that need escaping in a token of an atomic file or in XML: control characters, line
#: separators, non-characters, the quotation mark (at the start of a field a CSV reader takes it
#: for that of a quoted one) and the sign of the escape itself.
_HOSTILE = '[\\x00-\\x1f"%\\x7f-\\x9f\u2028\u2029\ufeff\ufffe\uffff]'
_PATTERN = re.compile(_HOSTILE)
#: Each of them and what it becomes.
_CODES = {c: quote(c, safe="") for c in map(chr, range(0x10000)) if _PATTERN.match(c)}


@dataclass(frozen=True, slots=True)
class RecboleFiles:
    """The two files and their numbers of rows."""

    kg: Path
    link: Path
    triples: int
    links: int


def escape(text: str) -> str:
    """The text with hostile characters as ``%XX`` of their UTF-8 bytes; others stay.

    >>> escape('100% "new" name')
    '100%25 %22new%22 name'
    """
    return _PATTERN.sub(lambda match: quote(match[0], safe=""), text)


def write_recbole(
    triples: pl.DataFrame | pl.LazyFrame,
    folder: Path,
    name: str = "understudy",
    *,
    domain: str = "movies",
) -> RecboleFiles:
    """Write the graph as RecBole's ``<name>.kg`` and ``<name>.link``.

    Tab-separated with a typed header, as RecBole's knowledge-based data sets have them. Every
    fact is there once, in its relation's own direction (``kg_reverse_r`` adds the others).
    Entities have the ids of the tables, escaped (:func:`escape`).

    Files of the same name in ``folder`` are replaced; the ``.inter`` file of the data set must have
    the same item ids. Only facts about items are written, as RecBole joins users and items by the
    interactions it trains on.

    Raises ContractError if there is nothing to write, StoreError if the files can't be written.
    """
    schema = load_schema(domain)
    edge_types = [edge for edge in schema.edges if edge.origin == "items"]
    facts = _forward(triples, edge_types).collect(engine="streaming")
    if not facts.height:
        raise ContractError("no facts to write", where=f"{domain}.graph_triples")
    edges = (
        facts.select(
            head=escaped(pl.col("head")), relation="relation", tail=escaped(pl.col("tail"))
        )
        .unique()
        .sort("head", "relation", "tail")
    )
    ends = [
        facts.filter(pl.col(f"{side}_type") == schema.item_type).select(id=escaped(pl.col(side)))
        for side in ("head", "tail")
    ]
    items = pl.concat(ends).unique().sort("id")
    links = items.select(item="id", entity="id")
    kg, link = folder / f"{name}.kg", folder / f"{name}.link"
    with_header = (
        (kg, ("head_id:token", "relation_id:token", "tail_id:token"), edges),
        (link, ("item_id:token", "entity_id:token"), links),
    )
    for path, header, frame in with_header:
        _write(path, partial(_table, header=header, frame=frame))
    return RecboleFiles(kg, link, edges.height, links.height)


def subgraph(
    triples: pl.DataFrame | pl.LazyFrame,
    node: str,
    *,
    items: pl.DataFrame | None = None,
    hops: int = 1,
    max_nodes: int = 200,
    without: Collection[str] = (),
    domain: str = "movies",
) -> Any:
    """The surroundings of a node, as a NetworkX graph.

    ``node`` is an item, a user or any other node; ``items`` (``item_id``, ``title``) gives labels.
    Edges are followed in either direction over ``hops`` (at least 1), node types in ``without`` are
    left out. Of a hop that does not fit ``max_nodes``, those with the most edges to what was taken
    before come first, then by id; the graph is marked ``truncated``.

    Returns
    -------
    A ``networkx.MultiDiGraph``. Nodes are ids with ``type``, ``label`` and ``hop``; edges are
    those among them, each in its relation's own direction, with ``relation`` and a unique
    ``id``. Graph attributes: ``center``, ``hops``, ``truncated``.

    Raises
    ------
    ContractError
        If the node is in no triple and is no item, or a number is below 1.
    """
    nx: Any = import_module("networkx")
    if hops < 1 or max_nodes < 1:
        raise ContractError("hops and nodes start at 1", where=f"hops={hops}, nodes={max_nodes}")
    schema = load_schema(domain)
    edges = _forward(triples, schema.edges).filter(
        ~pl.col("head_type").is_in(list(without)), ~pl.col("tail_type").is_in(list(without))
    )
    taken, truncated = _around(edges, node, hops, max_nodes)
    titles = {} if items is None else dict(items.select("item_id", "title").iter_rows())
    center_type = _type_of(_forward(triples, schema.edges), node)
    if center_type is None and node in titles:
        center_type = schema.item_type
    if center_type is None:
        raise ContractError(
            f"the {domain} graph has no node {node!r}", hint="ids are those of its triples"
        )
    graph = nx.MultiDiGraph(center=node, hops=hops, truncated=truncated, domain=domain)
    inside = (
        edges.join(taken.lazy().select(head="id"), on="head", how="semi")
        .join(taken.lazy().select(tail="id"), on="tail", how="semi")
        .collect(engine="streaming")
    )
    types = {node: center_type}
    for side in ("head", "tail"):
        types |= dict(inside.select(side, f"{side}_type").iter_rows())
    for name, hop in taken.sort("hop", "id").iter_rows():
        label = titles.get(name) or name.partition(":")[2] or name
        graph.add_node(name, type=types[name], label=label, hop=hop)
    rows = inside.sort("head", "relation", "tail").select("head", "relation", "tail")
    for number, (head, relation, tail) in enumerate(rows.iter_rows()):
        graph.add_edge(head, tail, key=relation, relation=relation, id=f"e{number}")
    return graph


def write_graphml(graph: Any, path: Path) -> Path:
    """Write a graph of :func:`subgraph` as GraphML; texts that XML can't hold are escaped.

    Raises StoreError if the file can't be written.
    """
    nx: Any = import_module("networkx")
    safe = nx.MultiDiGraph(**{key: _safe(value) for key, value in graph.graph.items()})
    for name, data in graph.nodes(data=True):
        safe.add_node(_safe(name), **{key: _safe(value) for key, value in data.items()})
    for head, tail, data in graph.edges(data=True):
        texts = {key: _safe(value) for key, value in data.items()}
        safe.add_edge(_safe(head), _safe(tail), key=texts["relation"], **texts)
    _write(
        path,
        lambda file: nx.write_graphml_xml(
            safe, file, named_key_ids=True, edge_id_from_attribute="id"
        ),
    )
    return path


def write_bytes(path: Path, content: bytes) -> Path:
    """Write a file whole or not at all.

    Raises StoreError if it can't be written.
    """
    _write(path, lambda file: file.write(content))
    return path


def _forward(triples: pl.DataFrame | pl.LazyFrame, edges: Collection[EdgeType]) -> pl.LazyFrame:
    """Triples of some edge types in their own direction."""
    columns = ["head_type", "relation", "tail_type"]
    selected = [(e.head_type, e.relation, e.tail_type) for e in edges]
    types = pl.LazyFrame(selected, schema=dict.fromkeys(columns, pl.String), orient="row")
    return triples.lazy().join(types, on=columns, how="semi")


def _around(edges: pl.LazyFrame, node: str, hops: int, max_nodes: int) -> tuple[pl.DataFrame, bool]:
    """Columns ``id, hop`` of the nodes within some hops, and whether some did not fit."""
    taken = pl.DataFrame({"id": [node], "hop": [0]}, schema={"id": pl.String, "hop": pl.Int64})
    both = pl.concat(
        [edges.select(here="head", there="tail"), edges.select(here="tail", there="head")]
    )
    frontier, truncated = taken, False
    for hop in range(1, hops + 1):
        reached = (
            both.join(frontier.lazy().select(here="id"), on="here", how="semi")
            .join(taken.lazy().select(there="id"), on="there", how="anti")
            .group_by("there")
            .len()
            .sort(["len", "there"], descending=[True, False])
            .collect(engine="streaming")
        )
        room = max_nodes - taken.height
        truncated |= reached.height > room
        frontier = reached.head(room).select(id="there", hop=pl.lit(hop, pl.Int64))
        taken = pl.concat([taken, frontier])
        if not frontier.height:
            break
    return taken, truncated


def _type_of(edges: pl.LazyFrame, node: str) -> str | None:
    for side in ("head", "tail"):
        matches = edges.filter(pl.col(side) == node).select(kind=f"{side}_type").head(1).collect()
        if matches.height:
            return str(matches["kind"][0])
    return None


def escaped(text: pl.Expr) -> pl.Expr:
    """The same as :func:`escape` for a column of text."""
    return text.str.replace_many([*_CODES], [*_CODES.values()])


def _safe(value: Any) -> Any:
    return escape(value) if isinstance(value, str) else value


def _table(file: BinaryIO, *, header: tuple[str, ...], frame: pl.DataFrame) -> None:
    file.write(("\t".join(header) + "\n").encode())
    frame.write_csv(file, include_header=False, separator="\t", quote_style="never")


def _write(path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Write a file whole or not at all.

    Raises :class:`StoreError` if it can't be written.
    """
    try:
        with whole_file(path) as file:
            fill(file)
    except OSError as error:
        raise StoreError(
            f"the file can't be written ({error.strerror or error})",
            where=str(path),
            hint="check the folder and the space on its disk",
        ) from error
