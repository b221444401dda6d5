"""Dagster names of the store's datasets, and attributes that every asset has."""

from __future__ import annotations

from typing import Any

import dagster as dg

from pipelines.contracts import CAPTIONS, CONTRACTS, MATCHING, SIMULATIONS

__all__ = ["OWNERS", "asset_key", "asset_spec", "column_schema"]

OWNERS = ["team:understudy"]

#: Datasets that belong to no domain are shown in the group of their stage.
_STAGES = {
    "raw.world_files": ("sources", "world_files"),
    "trained_policy": ("training", "trained_policy"),
}


def asset_key(dataset: str) -> dg.AssetKey:
    """Dagster's key of a dataset: stage (or domain), then table.

    >>> asset_key("movies.items").to_user_string()
    'movies/items'
    >>> asset_key("raw.movielens_ratings").to_user_string()
    'raw/movielens_ratings'
    """
    return dg.AssetKey(list(_STAGES.get(dataset) or dataset.split(".", 1)))


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
    key = asset_key(dataset)
    # Made by jobs of their own: a release takes these tables where they fit, and waits for none.
    apart = {"matching": MATCHING, "captions": CAPTIONS, "agents": SIMULATIONS}
    group = next((name for name, tables in apart.items() if dataset in tables), key.path[0])
    return dg.AssetSpec(
        key=key,
        deps=[asset_key(d) if isinstance(d, str) else d for d in deps or []],
        group_name=group,
        description=description or CONTRACTS[dataset].description,
        owners=OWNERS,
        kinds=kinds,
        code_version=code_version,
        metadata={"dagster/column_schema": column_schema(dataset), "dataset": dataset},
        **kwargs,
    )
