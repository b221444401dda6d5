"""Contracts of the tables that every domain derives from its items, users and personas."""

from __future__ import annotations

from pipelines.contracts._base import Contract
from pipelines.contracts.published import PUBLISHED

#: Tables that mean the same in every domain; the movies' declarations are everybody's.
_ALL = ("item_embeddings",)
_GRAPH = ("graph_triples", "item_similarity")
_RATED = (
    "personas",
    "persona_embeddings",
    "score_plan",
    "preference_scores",
)
_REPORTS = ("rater_report", "population")


def derived(domain: str, *, graph: bool = True, reports: bool = True) -> dict[str, Contract]:
    """Contracts of a domain's derived tables, by dataset name."""
    tables = (
        *_ALL,
        *_RATED,
        *(_REPORTS if reports else ()),
        *(_GRAPH if graph else ()),
    )
    return {f"{domain}.{table}": PUBLISHED[f"movies.{table}"] for table in tables}
