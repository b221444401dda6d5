"""The ablation suites: their case tables, and the scores of raters on them."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg
from pydantic import Field

from orchestration.builds import committed
from orchestration.defs.releases import release_name
from orchestration.naming import asset_key, asset_spec
from orchestration.results import check_result, contract_spec, reported
from pipelines import ablations, raters
from pipelines.context import PipelineContext
from pipelines.quality import CONTRACT_CHECK

__all__ = ["SuiteConfig", "ablation_assets"]

_DOMAINS = ("movies", "books")
_READABLE, _BETTER = "replies_are_readable", "statistical_beats_the_baselines"


class SuiteConfig(dg.Config):
    """What of a suite is run.

    Attributes
    ----------
    grid
        `small` (one option changed at a time) or `full`.
    seeds
        Independent seeds (count).
    models
        Models of the configured engine that are judged beside the raters without one; the
        configured one is judged anyway if `scoring.rater` is `llm`.
    """

    grid: str = "small"
    seeds: int = 3
    models: list[str] = Field(default_factory=list)


def _case_table(domain: str, table: str) -> dg.AssetsDefinition:
    dataset = f"ablations.{domain}_{table}"
    checks = ablations.CHECKS[table]

    @dg.multi_asset(
        name=f"ablations_{domain}_{table}",
        specs=[
            asset_spec(
                dataset,
                deps=list(ablations.needs(table, domain).values()),
                code_version=ablations.CODE_VERSION,
                kinds={"polars", "parquet"},
            )
        ],
        check_specs=[
            contract_spec(dataset),
            *(
                dg.AssetCheckSpec(name, asset=asset_key(dataset), blocking=True, description=what)
                for name, what in checks.items()
            ),
        ],
    )
    def step(
        context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from reported([dataset], lambda: [_cases(workbench, domain, table, context.run_id)])

    return step


def _cases(
    workbench: PipelineContext, domain: str, table: str, run_id: str
) -> dg.MaterializeResult[Any]:
    store = workbench.store
    inputs = {
        name: store.current(dataset) for name, dataset in ablations.needs(table, domain).items()
    }
    snapshot, reused = ablations.write_table(store, domain, table, inputs, run_id=run_id)
    made = committed(workbench, snapshot, reused=reused)
    kept = store.checks(snapshot.dataset, snapshot.version)
    shown = [
        check_result(snapshot.dataset, record)
        for name, record in kept.items()
        if name != CONTRACT_CHECK
    ]
    return made._replace(check_results=[*(made.check_results or []), *shown])


def _scores_asset(domain: str) -> dg.AssetsDefinition:
    dataset = f"ablations.{domain}_scores"
    tables = [f"ablations.{domain}_{table}" for table in ablations.CASE_TABLES]

    @dg.multi_asset(
        name=f"ablations_{domain}_scores",
        specs=[
            asset_spec(
                dataset,
                deps=[*tables, dg.AssetKey(["releases", domain])],
                code_version=f"{ablations.CODE_VERSION}+{raters.CODE_VERSION}",
                kinds={"python", "parquet"},
            )
        ],
        check_specs=[
            contract_spec(dataset),
            dg.AssetCheckSpec(
                _READABLE,
                asset=asset_key(dataset),
                description="No configuration has so many replies without a readable rating that "
                "its score means little.",
            ),
            dg.AssetCheckSpec(
                _BETTER,
                asset=asset_key(dataset),
                description="The statistical rater's baseline is above the random and the mean "
                "rater's, intervals included.",
            ),
        ],
    )
    def step(
        context: dg.AssetExecutionContext,
        config: SuiteConfig,
        workbench: dg.ResourceParam[PipelineContext],
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from reported([dataset], lambda: [_scores(workbench, domain, config, context.run_id)])

    return step


def _scores(
    workbench: PipelineContext, domain: str, config: SuiteConfig, run_id: str
) -> dg.MaterializeResult[Any]:
    from pipelines.llm.answers import AnswerStore
    from sim.ablations import (
        Workshop,
        comparisons,
        markdown,
        plots_of,
        run_suite,
        scores_frame,
    )

    store, settings = workbench.store, workbench.settings
    engines = [settings.engine.model_copy(update={"model": m}) for m in config.models]
    if settings.scoring.rater == "llm" and settings.engine not in engines:
        engines.insert(0, settings.engine)
    specs = [ablations.RaterSpec("llm", engine) for engine in engines]
    answers = AnswerStore(settings.runtime.home, settings.serving) if specs else None
    dataset = f"ablations.{domain}_scores"
    try:
        workshop = Workshop.open(
            store,
            store.release(f"{release_name(settings, domain)}@latest"),
            domain,
            settings,
            answer_store=answers,
            run_id=run_id,
        )
        result = run_suite(
            workshop,
            specs,
            grid=config.grid,  # type: ignore[arg-type]
            seeds=tuple(range(config.seeds)),
            progress=lambda text, done, total: workbench.progress(text, int(done), total),
        )
    finally:
        if answers is not None:
            answers.close()
    frame = scores_frame(result)
    snapshot = store.commit(
        dataset,
        frame,
        code_version=f"{ablations.CODE_VERSION}+{raters.CODE_VERSION}",
        config={"grid": config.grid, "seeds": config.seeds, "models": config.models},
        inputs={s.dataset: s.version for s in workshop.cases.values()},
        run_id=run_id,
        stats={"release": result.release, "counts": result.counts},
    )
    made = committed(
        workbench,
        snapshot,
        metadata={
            "table": dg.MetadataValue.md(markdown(result, differences=comparisons(result))),
            "cells_made": result.made,
            "cells_reused": result.reused,
        },
        plots=plots_of(result),
    )
    flagged = [
        f"{c.rater} {test}" for c in result.configurations
        for test, s in c.scores.items() if s.flagged
    ]  # fmt: skip
    best, *baselines = (result.baseline(name).scores["aggregate"] for name in result.raters[:3])
    checks = [
        dg.AssetCheckResult(
            check_name=_READABLE,
            asset_key=asset_key(dataset),
            passed=not flagged,
            severity=dg.AssetCheckSeverity.WARN,
            metadata={"flagged": dg.MetadataValue.json(flagged)},
        ),
        dg.AssetCheckResult(
            check_name=_BETTER,
            asset_key=asset_key(dataset),
            passed=all(best.low > baseline.high for baseline in baselines),
            severity=dg.AssetCheckSeverity.WARN,
            metadata={
                "statistical": best.score,
                **{name: f.score for name, f in zip(result.raters[1:3], baselines, strict=True)},
            },
        ),
    ]
    return made._replace(check_results=[*(made.check_results or []), *checks])


def ablation_assets() -> list[dg.AssetsDefinition]:
    """Case tables and scores of every suite; no domain's job needs them."""
    return [
        *(_case_table(domain, table) for domain in _DOMAINS for table in ablations.CASE_TABLES),
        *(_scores_asset(domain) for domain in _DOMAINS),
    ]
