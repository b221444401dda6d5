"""Dagster names of the store's datasets, and attributes that every asset has."""

from __future__ import annotations

from typing import Any

import dagster as dg

from pipelines.contracts import CAPTIONS, CONTRACTS, MATCHING, SIMULATIONS, SURROGATES, TUNING
from pipelines.domains import DOMAINS
from pipelines.sources import SOURCES

__all__ = [
    "OWNERS",
    "SHARED",
    "asset_key",
    "asset_spec",
    "column_schema",
    "domain_of",
    "group_of",
    "optional_group",
]

OWNERS = ["team:understudy"]
#: Domain tag and group of what several domains are made from.
SHARED = "shared"

#: Keys of datasets that belong to no domain.
_STAGES = {
    "raw.world_files": ("sources", "world_files"),
    "trained_policy": ("training", "trained_policy"),
}
#: Part of its domain that a published table belongs to; the others are `tables`.
_PARTS = {
    "score_plan": "scores",
    "preference_scores": "scores",
    "population": "reports",
    "rater_report": "reports",
}


def asset_key(dataset: str) -> dg.AssetKey:
    """Dagster's key of a dataset: stage (or domain), then table.

    >>> asset_key("movies.items").to_user_string()
    'movies/items'
    >>> asset_key("raw.movielens_ratings").to_user_string()
    'raw/movielens_ratings'
    """
    return dg.AssetKey(list(_STAGES.get(dataset) or dataset.split(".", 1)))


def domain_of(dataset: str) -> str:
    """Domain tag of a dataset.

    >>> domain_of("raw.steam_games"), domain_of("raw.amazon_reviews"), domain_of("books.items")
    ('games', 'shared', 'books')
    """
    stage, _, table = dataset.partition(".")
    if stage in DOMAINS:
        return stage
    domains = {"products"} if stage == "dialogue" else {table.partition("_")[0]} & {*DOMAINS}
    for source in SOURCES.values():
        if dataset in source.datasets:
            domains = set(source.domains)
    return domains.pop() if len(domains) == 1 else SHARED


def optional_group(dataset: str) -> str | None:
    """Group of a table that no release waits for and that has a job of its own; None for others.

    >>> optional_group("trained_policy"), optional_group("movies.items")
    ('training', None)
    """
    # A release takes these tables where they fit.
    apart = {
        "matching": MATCHING,
        "captions": CAPTIONS,
        "agents": SIMULATIONS,
        "tuning": TUNING,
        "surrogates": SURROGATES,
    }
    alone = dataset == "trained_policy" or dataset.partition(".")[0] not in {*DOMAINS, "raw"}
    return next(
        (name for name, tables in apart.items() if dataset in tables),
        asset_key(dataset).path[0] if alone else None,
    )


def group_of(dataset: str) -> str:
    """Group of a dataset's asset: part of its domain, or the group of a job of its own.

    >>> group_of("movies.items"), group_of("raw.world_files"), group_of("trained_policy")
    ('movies_tables', 'shared_raw', 'training')
    """
    stage, _, table = dataset.partition(".")
    part = "raw" if stage == "raw" else _PARTS.get(table, "tables")
    return optional_group(dataset) or f"{domain_of(dataset)}_{part}"


def column_schema(dataset: str) -> dg.TableSchema:
    """The dataset's contract as Dagster's column table."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                name=c.name,
                type=c.dtype,
                description=" ".join(
                    part
                    for part in (
                        c.description,
                        f"Unit: {c.unit}." if c.unit else "",
                        f"Range: {c.range}." if c.range else "",
                    )
                    if part
                ),
                constraints=dg.TableColumnConstraints(nullable=c.nullable),
            )
            for c in CONTRACTS[dataset].columns()
        ]
    )


def asset_spec(
    dataset: str,
    *,
    deps: list[Any] | None = None,
    code_version: str,
    kinds: set[str],
    description: str | None = None,
    **kwargs: Any,
) -> dg.AssetSpec:
    """Spec of the asset that writes ``dataset``, described by its contract."""
    return dg.AssetSpec(
        key=asset_key(dataset),
        deps=[asset_key(d) if isinstance(d, str) else d for d in deps or []],
        group_name=group_of(dataset),
        description=description or CONTRACTS[dataset].description,
        owners=OWNERS,
        tags={"domain": domain_of(dataset)},
        kinds=kinds,
        code_version=code_version,
        metadata={"dagster/column_schema": column_schema(dataset), "dataset": dataset},
        **kwargs,
    )
