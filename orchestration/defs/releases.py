"""Releases: a lock file over snapshots, published only if every blocking check passed."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from orchestration.naming import OWNERS, asset_key
from orchestration.results import reported
from pipelines import __version__, embeddings, personas, quality, warehouse
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS, Domain
from pipelines.licences import Licence
from pipelines.sources import SOURCES
from pipelines.store import Release

__all__ = ["publish", "release_assets", "release_name"]


def _release_asset(domain: Domain) -> dg.AssetsDefinition:
    key = dg.AssetKey(["releases", domain.name])

    @dg.multi_asset(
        name=f"release_{domain.name}",
        specs=[
            dg.AssetSpec(
                key,
                deps=[asset_key(name) for name in domain.datasets()],
                group_name="releases",
                description="Lock file over one version of every published table of the "
                f"{domain.name}, with its dataset card. `latest` moves only if every blocking "
                "check of exactly these versions passed.",
                owners=OWNERS,
                kinds={"release", "json"},
                code_version=__version__,
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(
                "verified",
                asset=key,
                blocking=True,
                description="Every file of the release was read back and has the committed hash.",
            )
        ],
    )
    def asset(
        context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from reported([], lambda: [_release(key, domain, context.run_id, workbench)])

    return asset


def _release(
    key: dg.AssetKey, domain: Domain, run_id: str, workbench: PipelineContext
) -> dg.MaterializeResult[Any]:
    release, summary = publish(workbench, domain, run_id)
    report = workbench.store.verify(release)
    return dg.MaterializeResult(
        asset_key=key,
        data_version=dg.DataVersion(release.version),
        metadata={
            "release": f"{release.name}@{release.version}",
            "world": release.world,
            "dagster/row_count": sum(t.rows for t in release.tables.values()),
            "dagster/uri": str(release.path),
            "tables": dg.MetadataValue.json({k: t.rows for k, t in release.tables.items()}),
            "summary": dg.MetadataValue.json(summary),
            "card": dg.MetadataValue.md(release.card()),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="verified",
                passed=True,
                metadata={"files": report.files, "bytes": report.bytes},
            )
        ],
    )


def publish(
    workbench: PipelineContext, domain: Domain, run_id: str | None
) -> tuple[Release, dict[str, Any]]:
    """Pin the current snapshots of a domain and publish them under its name.

    Raises
    ------
    ReleaseError
        If a blocking check of one of these versions is missing or failed, or if the snapshots
        were not made from each other.
    """
    store, settings = workbench.store, workbench.settings
    snapshots = {
        dataset: store.current(dataset)
        for dataset in domain.datasets()
        if dataset not in domain.optional or store.has(dataset)
    }
    tables = {dataset.rpartition(".")[2]: snapshot for dataset, snapshot in snapshots.items()}
    required = {
        dataset: quality.required_checks(dataset) | _dbt_gates(workbench, dataset)
        for dataset in snapshots
    }
    world = quality.world_of(store)
    name = release_name(settings, domain.name)
    summary = quality.release_summary(store, tables)
    card = quality.dataset_card(
        name,
        world=world,
        tables=tables,
        licences=_licences(workbench, domain),
        summary=summary,
        settings=settings,
    )
    release = store.publish(
        name,
        tables,
        world=world,
        required=required,
        card=card,
        settings=settings.identity(),
        run_id=run_id,
    )
    return release, summary


def release_name(settings: Settings, domain: str) -> str:
    """What a domain's release is called: the movies' name is a setting.

    >>> from pipelines.config import Settings
    >>> release_name(Settings(), "books")
    'books'
    """
    return settings.release.name if domain == "movies" else domain


def _licences(workbench: PipelineContext, domain: Domain) -> dict[str, Licence]:
    """Terms of everything that went into the release."""
    settings = workbench.settings
    out = {
        name: source.licence
        for name, source in SOURCES.items()
        if domain.name in source.domains or name in domain.sources
    }
    if "taxonomy" in out and not workbench.store.current("raw.taxonomy_categories").rows:
        del out["taxonomy"]
    if domain.personas:
        out |= personas.LICENCES
    if settings.embedding.model == embeddings.BUNDLED:
        out[embeddings.BUNDLED] = embeddings.BUNDLED_LICENCE
    return out


def _dbt_gates(workbench: PipelineContext, dataset: str) -> set[str]:
    """Names of the dbt tests that must have passed on the mart behind this dataset."""
    model = warehouse.MARTS.get(dataset)
    if model is None:
        return set()
    tests = warehouse.mart_tests(workbench.store.home, model)
    return {test.name for test in tests if test.severity == "error"}


def release_assets() -> list[dg.AssetsDefinition]:
    """One release per domain."""
    return [_release_asset(domain) for domain in DOMAINS.values()]
