"""Dagster names of the store's datasets, attributes that every asset has, tags of steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import dagster as dg

from pipelines.contracts import CAPTIONS, CONTRACTS, MATCHING, SIMULATIONS, SURROGATES, TUNING
from pipelines.domains import DOMAINS
from pipelines.sources import SOURCES

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


#: Tag of steps that may load a model into their process. Where one is asked, the executor
#: `multiprocess` runs one of them at a time.
MODEL_TAG = "understudy/model"
_MAY_LOAD = ("*_personas", "*_embeddings", "*_preference_scores")


@dataclass(frozen=True, slots=True)
class Request:
    """Resource request of a step's pod.

    Attributes
    ----------
    cpu
        Cores that are free for it; it may use more (count).
    memory_mb
        Memory that is free for it, and at which it is ended (MiB).
    """

    cpu: int
    memory_mb: int

    def container(self) -> dict[str, Any]:
        """The container's `resources`."""
        memory = f"{self.memory_mb}Mi"
        return {"requests": {"cpu": str(self.cpu), "memory": memory}, "limits": {"memory": memory}}


#: Requests by pattern of the step's name; the first that fits holds. Memory is one and a half to
#: twice the peaks of benchmarks/pipeline: those of 25 million ratings (ingest 2.6, dbt 5.3, marts
#: 3.2 GiB) and, for steps not measured at that size, of ml-latest-small (embeddings 1.4, others
#: 0.9 GiB). dbt's pods hold `runtime.memory_limit_mb` (4 GiB) beside their own processes.
REQUESTS: tuple[tuple[str, Request], ...] = (
    ("expect_*", Request(1, 4096)),
    ("dbt_*", Request(4, 8192)),
    ("ingest_*", Request(2, 4096)),
    ("*_embeddings", Request(4, 4096)),
    ("*_item_similarity", Request(2, 4096)),
    ("*_preference_scores", Request(2, 4096)),
    ("*_rating_model", Request(8, 16384)),
    ("trained_policy", Request(4, 4096)),
    ("*_interactions", Request(2, 6144)),
    ("*_splits", Request(2, 6144)),
    ("*", Request(1, 2048)),
)


def request_of(step: str) -> Request:
    """Request of a step.

    >>> request_of("dbt_movies")
    Request(cpu=4, memory_mb=8192)
    >>> request_of("release_books")
    Request(cpu=1, memory_mb=2048)
    """
    return next(request for pattern, request in REQUESTS if fnmatchcase(step, pattern))


def step_tags(step: str) -> Mapping[str, Any]:
    """Tags of a step's op, which executors read: :data:`MODEL_TAG`, and the request of its pod.

    >>> step_tags("release_books")["dagster-k8s/config"]["container_config"]["resources"]["limits"]
    {'memory': '2048Mi'}
    >>> MODEL_TAG in step_tags("books_personas"), MODEL_TAG in step_tags("release_books")
    (True, False)
    """
    resources = {"container_config": {"resources": request_of(step).container()}}
    loads = any(fnmatchcase(step, name) for name in _MAY_LOAD) and not step.startswith("expect_")
    return {"dagster-k8s/config": resources, **({MODEL_TAG: "true"} if loads else {})}
