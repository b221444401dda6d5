"""The knowledge graph of a domain: triples, meta-paths, similarity along them, and memory.

Only training interactions become edges; :func:`leaked` lists any that should not have.
"""

from pipelines.graph._build import leaked, triple_batches
from pipelines.graph._export import (
    escape,
    escaped,
    subgraph,
    write_bytes,
    write_graphml,
    write_recbole,
)
from pipelines.graph._index import GraphIndex, half_matrix, round_trips
from pipelines.graph._memory import GraphMemory, Neighbour, Neighbours, Parts
from pipelines.graph._pathsim import PathSim, combine
from pipelines.graph._picture import neighbourhood_picture, sample_item
from pipelines.graph._schema import (
    MetaPaths,
    Step,
    domains,
    load_metapaths,
    load_schema,
    schema_violations,
)
from pipelines.graph._similarity import SimilarItems, item_similarity

#: Bumped whenever the same tables and settings give other triples or similarities.
CODE_VERSION = "2"

__all__ = [
    "CODE_VERSION",
    "GraphIndex",
    "GraphMemory",
    "MetaPaths",
    "Neighbour",
    "Neighbours",
    "Parts",
    "PathSim",
    "SimilarItems",
    "Step",
    "combine",
    "domains",
    "escape",
    "escaped",
    "half_matrix",
    "item_similarity",
    "leaked",
    "load_metapaths",
    "load_schema",
    "neighbourhood_picture",
    "round_trips",
    "sample_item",
    "schema_violations",
    "subgraph",
    "triple_batches",
    "write_bytes",
    "write_graphml",
    "write_recbole",
]
