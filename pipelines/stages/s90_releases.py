"""Releases: a lock file over snapshots, published only if every blocking check passed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines import embeddings, personas, quality, warehouse
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.contracts import CAPTIONS, MATCHING, PUBLISHED
from pipelines.domains import DOMAINS, Domain
from pipelines.errors import ReleaseError
from pipelines.licences import Licence
from pipelines.sources import SOURCES, open_source, rejected_rows
from pipelines.store import CheckRecord, Release, Snapshot

__all__ = ["check", "publish", "release_name"]


def check(context: PipelineContext, dataset: str) -> list[CheckRecord] | None:
    """Check the current version of a dataset as a whole, and record the outcomes with it.

    None if the dataset is optional and absent. Raises StoreError if it is not in the store, and
    should be.
    """
    store, settings = context.store, context.settings
    domain = DOMAINS.get(dataset.partition(".")[0])
    optional = (
        dataset in MATCHING
        or dataset in CAPTIONS
        or (domain is not None and dataset in domain.optional)
    )
    if optional and not store.has(dataset):
        return None
    snapshot = store.current(dataset)
    # Personas can be made before any world was taken in; then there is nothing to drift from.
    previous = (
        quality.previous_snapshot(store, dataset, settings.release.name)
        if store.has("raw.world_files")
        else None
    )
    records = quality.check_dataset(
        dataset, snapshot, store=store, settings=settings, previous=previous
    )
    store.record_checks(dataset, snapshot.version, records)
    return records


def publish(
    context: PipelineContext, domain: Domain, *, run_id: str | None = None
) -> tuple[Release, dict[str, Any]]:
    """Pin the current snapshots of a domain and publish them under its name.

    Raises ReleaseError if a blocking check of one of these versions is missing or failed, or if the
    snapshots were not made from each other.
    """
    store, settings = context.store, context.settings
    snapshots = {
        dataset: store.current(dataset)
        for dataset in domain.datasets()
        if dataset not in domain.optional or store.has(dataset)
    }
    snapshots |= _further(context, domain, snapshots)
    tables = {dataset.rpartition(".")[2]: snapshot for dataset, snapshot in snapshots.items()}
    required = {
        dataset: quality.required_checks(dataset) | _dbt_gates(context, dataset)
        for dataset in snapshots
    }
    world = quality.world_of(store)
    name = release_name(settings, domain.name)
    summary = quality.release_summary(store, tables)
    summary["rejected"] = rejected_rows(store, _sources(domain))
    card = quality.dataset_card(
        name,
        world=world,
        tables=tables,
        licences=_licences(context, domain),
        summary=summary,
        settings=settings,
    )
    try:
        release = store.publish(
            name,
            tables,
            world=world,
            required=required,
            card=card,
            settings=settings.identity(),
            run_id=run_id,
        )
    except ReleaseError as error:
        assets = ", ".join(d.replace(".", "/") for d in behind(error.details.get("problems", ())))
        raise ReleaseError(
            error.what,
            where=error.where,
            hint=f"materialise {assets}, or run the job {domain.name}" if assets else error.hint,
            details=error.details,
        ) from error
    return release, summary


_USED_BY = re.compile(r"used by ([\w.]+)")


def behind(problems: Iterable[str]) -> list[str]:
    """Datasets that must be made again for the problems of a refused release to go away.

    Of a dataset in two versions, those that were made from another version than the pinned one.

    >>> behind(["movies.score_plan: contract did not run on 0ab1"])
    ['movies.score_plan']
    >>> behind(["movies.items has 2 versions: 1a (used by movies.score_plan-a) and 2b (pinned)"])
    ['movies.score_plan']
    """
    datasets: dict[str, None] = {}
    for problem in problems:
        dataset, sign, _ = problem.partition(": ")
        if " has " not in dataset:
            datasets.update({dataset: None} if sign and dataset in PUBLISHED else {})
            continue
        groups = problem.split(") and ")
        datasets.update(
            (name, None) for group in groups if "pinned" not in group
            for name in _USED_BY.findall(group) if name in PUBLISHED
        )  # fmt: skip
    return list(datasets)


def _further(
    context: PipelineContext, domain: Domain, pinned: Mapping[str, Snapshot]
) -> dict[str, Snapshot]:
    """Tables of matched personas and captions, where they were made from the pinned versions.

    Others are left out: they are made by jobs of their own, which a release does not wait for, nor
    for their checks.
    """
    store = context.store
    versions = {part.dataset: part.version for s in pinned.values() for part in s.snapshots}
    further: dict[str, Snapshot] = {}
    # The tables of one step are pinned together or not at all.
    for together in (MATCHING, CAPTIONS):
        names = [d for d in together if d.startswith(f"{domain.name}.")]
        if not all(store.has(name) for name in names):
            continue
        tables = {name: store.current(name) for name in names}
        inputs = {k: v for s in tables.values() for k, v in s.manifest.inputs.items()}
        checked = all(
            quality.required_checks(name) <= store.checks(name, snapshot.version).keys()
            for name, snapshot in tables.items()
        )
        if checked and inputs.items() <= versions.items():
            further |= tables
    return further


def release_name(settings: Settings, domain: str) -> str:
    """Name of a domain's release: those of the movies and of own data are settings.

    >>> from pipelines.config import Settings
    >>> release_name(Settings(), "books")
    'books'
    """
    named = {"movies": settings.release.name, "own": settings.data.own.name}
    return named.get(domain, domain)


def _sources(domain: Domain) -> list[str]:
    """Names of the sources that a domain is made of."""
    return [n for n, s in SOURCES.items() if domain.name in s.domains or n in domain.sources]


def _licences(context: PipelineContext, domain: Domain) -> dict[str, Licence]:
    """Terms of everything that went into the release."""
    settings = context.settings
    out = {name: open_source(name, settings).licence for name in _sources(domain)}
    if "taxonomy" in out and not context.store.current("raw.taxonomy_categories").rows:
        del out["taxonomy"]
    terms = personas.LICENCES
    # Tastes of personas of own data are drawn from its genres, not from published shares of films'.
    published = {"joint_shares", "genre_preferences"} if domain.name == "own" else set()
    out |= {name: terms[name] for name in terms if name not in published}
    if settings.embedding.model == embeddings.BUNDLED:
        out[embeddings.BUNDLED] = embeddings.BUNDLED_LICENCE
    return out


def _dbt_gates(context: PipelineContext, dataset: str) -> set[str]:
    """Names of the dbt tests that must have passed on the mart behind this dataset."""
    model = warehouse.MARTS.get(dataset)
    if model is None:
        return set()
    tests = warehouse.mart_tests(context.store.home, model)
    return {test.name for test in tests if test.severity == "error"}
