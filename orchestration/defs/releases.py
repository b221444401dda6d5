"""Releases, published only if every blocking check passed, and great-expectations before them.

Checks are of whole published datasets, one step per dataset; a release is a lock file over
snapshots.
"""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import Any

import dagster as dg
import polars as pl

from orchestration.assets import automation, check_automation
from orchestration.naming import OWNERS, SHARED, asset_key, domain_of, step_tags
from orchestration.results import check_result, not_applicable, reported, table
from pipelines import __version__, quality
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS, Domain
from pipelines.stages import check, publish
from pipelines.store import COHORT_LINEAGE, Release

# No postponed annotations here: Dagster reads the types of a step when it is defined.


def _checks_of(dataset: str, settings: Settings) -> dg.AssetChecksDefinition:
    @dg.multi_asset_check(
        name=f"expect_{dataset.replace('.', '_')}",
        op_tags=step_tags(f"expect_{dataset.replace('.', '_')}"),
        specs=[
            dg.AssetCheckSpec(
                spec.name,
                asset=asset_key(dataset),
                blocking=spec.severity == "error",
                description=f"{spec.because[0].upper()}{spec.because[1:]}.",
                automation_condition=check_automation(settings),
            )
            for spec in quality.SUITES[dataset]
        ],
    )
    def step(workbench: dg.ResourceParam[PipelineContext]) -> Iterator[dg.AssetCheckResult]:
        yield from reported([], lambda: _results(dataset, workbench))

    return step


def _results(dataset: str, workbench: PipelineContext) -> list[dg.AssetCheckResult]:
    records = check(workbench, dataset)
    if records is None:
        return [
            not_applicable(dataset, spec.name, "no such table", spec.severity)
            for spec in quality.SUITES[dataset]
        ]
    return [check_result(dataset, record) for record in records]


def dataset_checks(settings: Settings, domains: Iterable[str]) -> list[dg.AssetChecksDefinition]:
    """Check definitions, for every dataset of these domains that has a suite."""
    chosen = {*domains, SHARED}
    return [_checks_of(name, settings) for name in quality.SUITES if domain_of(name) in chosen]


# No postponed annotations here: Dagster reads the types of a step when it is defined.


#: A release of the weekly schedule is late after a day; a fortnight without one is a failure.
_FRESH = dg.FreshnessPolicy.time_window(
    fail_window=timedelta(days=14), warn_window=timedelta(days=8)
)


def _release_asset(domain: Domain, settings: Settings) -> dg.AssetsDefinition:
    key = dg.AssetKey(["releases", domain.name])

    @dg.multi_asset(
        name=f"release_{domain.name}",
        op_tags=step_tags(f"release_{domain.name}"),
        specs=[
            dg.AssetSpec(
                key,
                deps=[asset_key(name) for name in domain.datasets()],
                group_name=f"{domain.name}_reports",
                tags={"domain": domain.name},
                description="Lock file that pins one version of every published table of the "
                f"{domain.name}, with its dataset card. `latest` moves only if every blocking "
                "check of exactly these versions has passed.",
                owners=OWNERS,
                kinds={"release", "json"},
                code_version=__version__,
                freshness_policy=_FRESH,
                automation_condition=automation(settings, all_cohorts=True),
            )
        ],
        check_specs=[
            dg.AssetCheckSpec(
                "verified",
                asset=key,
                blocking=True,
                description="Every file of the release has the committed hash when read back.",
            ),
            dg.AssetCheckSpec(
                COHORT_LINEAGE,
                asset=key,
                description="Every cohort was made from the versions that the release pins.",
            ),
        ],
    )
    def asset(
        context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from reported([], lambda: [_release(key, domain, context.run.run_id, workbench)])

    return asset


def _release(
    key: dg.AssetKey, domain: Domain, run_id: str, workbench: PipelineContext
) -> dg.MaterializeResult[Any]:
    release, summary = publish(workbench, domain, run_id=run_id)
    report = workbench.store.verify(release)
    older = {c for checks in release.checks.values() if COHORT_LINEAGE in checks
             for c in checks[COHORT_LINEAGE].details["cohorts"]}  # fmt: skip
    return dg.MaterializeResult(
        asset_key=key,
        data_version=dg.DataVersion(release.version),
        metadata={
            "release": f"{release.name}@{release.version}",
            "world": release.world,
            "dagster/row_count": sum(t.rows for t in release.tables.values()),
            "dagster/uri": str(release.path),
            "tables": _tables(release),
            "summary": dg.MetadataValue.json(summary),
            "card": dg.MetadataValue.md(release.card()),
            "page": dg.MetadataValue.path(release.path.with_suffix(".md")),
            "report": dg.MetadataValue.md(
                f"`understudy report {release.name}@{release.version} --html` writes the page with "
                "pictures"
            ),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="verified",
                passed=True,
                metadata={"files": report.files, "bytes": report.bytes},
            ),
            dg.AssetCheckResult(
                check_name=COHORT_LINEAGE,
                passed=not older,
                severity=dg.AssetCheckSeverity.WARN,
                description=f"made from other versions: {', '.join(sorted(older))}; a backfill "
                "brings them up to date"
                if older
                else None,
            ),
        ],
    )


def _tables(release: Release) -> dg.TableMetadataValue:
    columns = {
        "table": list(release.tables),
        "rows": [lock.rows for lock in release.tables.values()],
        "version": [lock.version for lock in release.tables.values()],
    }
    return table(pl.DataFrame(columns), rows=len(release.tables))


def release_assets(settings: Settings, domains: Iterable[str]) -> list[dg.AssetsDefinition]:
    """Release assets of domains."""
    return [_release_asset(DOMAINS[name], settings) for name in domains]
