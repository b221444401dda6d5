"""dbt's models as assets, and its tests as checks."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import dagster as dg
from dagster_dbt import DbtCliInvocation, DbtCliResource, dbt_assets
from packaging.version import Version

from orchestration import dbt_program
from orchestration.assets import automation
from orchestration.dbt_project import PROJECT, ModelNames, manifest_path, parsed_path
from orchestration.naming import step_tags
from orchestration.results import failure_of, table, transient_retry
from pipelines import warehouse
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.errors import StoreError
from pipelines.stages.s20_marts import DUCKDB_POOL, held_warehouse
from pipelines.store.files import full_disk_error, full_disk_now
from pipelines.worlds import prepare_world

__all__ = ["MODELS_TAG", "configured_models", "dbt_resource", "model_assets"]

#: Tag of a run: the groups of models that its command builds in this and later runs, with commas;
#: their raw tables are there. One invocation of dbt builds them all.
MODELS_TAG = "understudy/models"


class _DbtCli(DbtCliResource):
    """The dbt project of the warehouse and the program that builds it."""

    # For every invocation dagster-dbt loads dbt in this process too, with all its macros (6 s), to
    # be able to ask for column types afterwards: `_with_rows` reads what it shows from DuckDB. And
    # in every run it asks the program for its version (4 s): it is the installed package's.

    @property
    def _cli_version(self) -> Version:
        return Version(version("dbt-core"))

    def _initialize_dbt_core_adapter(self, args: Any) -> Any:  # noqa: ARG002
        return None


def dbt_resource() -> dg.ResourceDefinition:
    """The dbt command line of this environment; nothing of it is a setting of a run."""
    return dg.ResourceDefinition.hardcoded_resource(
        _DbtCli(
            project_dir=str(PROJECT),
            profiles_dir=str(PROJECT),
            dbt_executable=sys.executable,
            global_config_flags=["-P", "-m", dbt_program.__name__],
        ),
        description="The dbt project of the warehouse and the program that builds it.",
    )


#: Time for dbt to end after an interrupt before it is killed (seconds).
DBT_GRACE = 3.0

#: The models of sources that several domains are made from: a group of their own.
_SHARED = "amazon"


def _models(group: str) -> dg.AssetsDefinition:
    @dbt_assets(
        manifest=manifest_path(),
        name=f"dbt_{group}",
        select=f"tag:{group}",
        exclude=None if group == _SHARED else f"tag:{_SHARED}",
        dagster_dbt_translator=ModelNames(),
        pool=DUCKDB_POOL,
        retry_policy=transient_retry,
        op_tags=step_tags(f"dbt_{group}"),
    )
    def models(
        context: dg.AssetExecutionContext,
        dbt: dg.ResourceParam[DbtCliResource],
        workbench: dg.ResourceParam[PipelineContext],
    ) -> Iterator[Any]:
        world = prepare_world(workbench.settings)
        present = [name for name in warehouse.GROUPS if name in {_SHARED, *world.domains}]
        if group not in present:
            context.log.warning(f"{group} are left out: no files for them in {world.folder}")
            return
        yield from _build(group, present, context, dbt, workbench)

    return models


@cache
def model_assets() -> dict[str, dg.AssetsDefinition]:
    """The dbt models of each group."""
    return {group: _models(group) for group in warehouse.GROUPS}


def configured_models(settings: Settings, domains: Iterable[str]) -> list[dg.AssetsDefinition]:
    """The dbt models of domains; variables and macros are part of their code versions."""
    versions = warehouse.code_versions(settings, _manifest())
    condition = automation(settings)

    def configured(spec: dg.AssetSpec) -> dg.AssetSpec:
        version = versions[str(spec.metadata["dagster_dbt/unique_id"])]
        return spec.replace_attributes(code_version=version, automation_condition=condition)

    return [model_assets()[g].map_asset_specs(configured) for g in (_SHARED, *domains)]


def _manifest() -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(manifest_path().read_text(encoding="utf-8"))
    return manifest


def _build(
    group: str,
    present: list[str],
    context: dg.AssetExecutionContext,
    dbt: DbtCliResource,
    workbench: PipelineContext,
) -> Iterator[Any]:
    """Build a group of models as a whole, together with others of those ``present``."""
    settings, store = workbench.settings, workbench.store
    project = _manifest()  # as dbt starts with it: its files may change while it runs
    models = warehouse.Project(project)
    with held_warehouse(workbench):
        linked = warehouse.link_sources(store, required=models.sources(group))
        context.log.info(f"dbt reads {json.dumps(linked)}")
        up_to_date = _up_to_date(group, context, workbench, project)
        if up_to_date is not None:
            context.log.info("nothing changed since these models were built and tested")
            yield from up_to_date
            return
        groups = [
            name
            for name in _built_together(group, present, context, models)
            if name == group
            or (
                linked.keys() >= {*models.sources(name)}
                and warehouse.up_to_date_outcomes(settings, project, name) is None
            )
        ]
        command = ["build", "--exclude-resource-type", "unit_test"]
        command += ["--vars", json.dumps(warehouse.dbt_vars(settings))]
        # Tests between these groups and those before them run here; those with later ones wait.
        command += ["--indirect-selection", "buildable"]
        command += ["--select", " ".join(f"tag:{name}" for name in groups)]
        command += [] if _SHARED in groups else ["--exclude", f"tag:{_SHARED}"]
        target = dbt_program.prepared(
            warehouse.dbt_environment(settings),
            f"{group}-{context.run.run_id[:7]}",
            parsed_path(),
        )
        invocation = dbt.cli(
            command,
            manifest=project,
            dagster_dbt_translator=ModelNames(),
            raise_on_error=False,
            target_path=target,
        )
        # Rows and counts can be read once dbt has let go of the DuckDB file; checks wait with
        # the tables, or Dagster would take them for checks of the tables' last versions.
        events = _streamed(invocation, context)
        try:
            warehouse.record_dbt_run(store.home, invocation.target_path, project)
        except StoreError as error:
            # dbt broke off before it could say how it went.
            full = _disk_fault(invocation, store.home) or full_disk_now(store.home)
            failure = failure_of(full or _start_fault(invocation, store.home) or error)
            # Somebody who has the DuckDB file open may do so for hours: it is said at once.
            failure.allow_retries = False
            raise failure from error
        yield from _with_rows(events, workbench)
    if not invocation.is_successful():
        if full := _disk_fault(invocation, store.home):
            raise failure_of(full)
        failures = _failures(invocation.target_path)
        of_group = {k: text for k, text in failures.items() if models.groups.get(k) == group}
        if warehouse.up_to_date_outcomes(settings, project, group) is not None:
            context.log.warning(f"{_first(failures)}: the step that they belong to reports them")
            return
        raise dg.Failure(
            description=_first(of_group or failures) or str(invocation.get_error()),
            # SQL that failed on these rows fails on them again; a warehouse that another
            # process holds was waited for above.
            allow_retries=False,
        )


def _built_together(
    group: str, present: list[str], context: dg.AssetExecutionContext, models: warehouse.Project
) -> list[str]:
    """The group, those that one invocation can build with it, and those that they are made from.

    It can build those of the same command whose raw tables earlier runs have read; else those of
    the same run that are made from no other raw tables.
    """
    if tag := context.run.tags.get(MODELS_TAG):
        others = {*tag.split(",")}
    else:
        selected = context.job_def.asset_layer.selected_asset_keys
        others = {
            name
            for name, assets in model_assets().items()
            if assets.keys & selected and {*models.sources(name)} <= {*models.sources(group)}
        }
    nodes = models.upstream(*(key for name in {group, *others} for key in models.members(name)))
    needed = {models.groups[key] for key in nodes if key in models.groups}
    return [name for name in present if name in needed]


def _disk_fault(invocation: DbtCliInvocation, home: Path) -> StoreError | None:
    """The full disk or file size limit that a failed dbt run met, if it says so."""
    log = invocation.target_path / "dbt.log"
    text = log.read_text(encoding="utf-8", errors="replace")[-20_000:] if log.exists() else ""
    reported = f"{_first(_failures(invocation.target_path))} {invocation.get_error()} {text}"
    return full_disk_error(reported, home)


def _start_fault(invocation: DbtCliInvocation, home: Path) -> StoreError | None:
    """Error of a dbt run that left no results, in dbt's words; None if it wrote them."""
    target = invocation.target_path
    if (target / "run_results.json").exists():
        return None
    file, code = target / dbt_program.FAILURE, invocation.process.returncode
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if fault := warehouse.database_fault(text, warehouse.WarehouseLayout(home).database):
        return fault
    ended = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return StoreError(
        f"dbt {ended} and left no results" + (f": {text}" if text else ""),
        where=str(target / "dbt.log"),
        hint="" if text else "did it run out of memory? see the log",
    )


def _streamed(invocation: DbtCliInvocation, context: dg.AssetExecutionContext) -> list[Any]:
    """Events of the selected models and tests; the process has ended when this returns or raises.

    Of what was built beside them Dagster hears from the steps that it belongs to.
    """
    invocation.termination_timeout_seconds = DBT_GRACE
    models, tests = _selected(context)
    selected = {*models, *tests}
    events: list[Any] = []
    try:
        for message in invocation.stream_raw_events():
            if message.raw_event["data"].get("node_info", {}).get("unique_id") in selected:
                events += message.to_default_asset_events(
                    invocation.manifest,
                    invocation.dagster_dbt_translator,
                    context,
                    invocation.target_path,
                )
    except subprocess.TimeoutExpired:
        # dbt did not end in time after the interrupt that this raises again.
        raise dg.DagsterExecutionInterruptedError from None
    finally:
        if invocation.process.poll() is None:
            invocation.process.kill()
            invocation.process.wait()
    return events


def _selected(
    context: dg.AssetExecutionContext,
) -> tuple[dict[str, dg.AssetKey], dict[str, dg.AssetCheckKey]]:
    """The selected models and tests by dbt's unique id."""
    models = {
        str(spec.metadata["dagster_dbt/unique_id"]): spec.key
        for spec in context.assets_def.specs
        if spec.key in context.selected_asset_keys
    }
    tests = {
        str(spec.metadata["dagster_dbt/unique_id"]): spec.key
        for spec in context.assets_def.check_specs
        if spec.key in context.selected_asset_check_keys
    }
    return models, tests


def _up_to_date(
    group: str,
    context: dg.AssetExecutionContext,
    workbench: PipelineContext,
    project: dict[str, Any],
) -> list[dg.MaterializeResult[Any] | dg.AssetCheckResult] | None:
    """Recorded results of the selected models and tests; None if dbt must run."""
    settings, home = workbench.settings, workbench.store.home
    models, tests = _selected(context)
    outcomes = warehouse.up_to_date_outcomes(settings, project, group)
    # Definitions are older than the project if it was edited while Dagster runs.
    if outcomes is None or not outcomes.keys() >= {*models, *tests}:
        return None
    views = warehouse.describe_models(
        home, models, memory_limit_mb=settings.runtime.memory_limit_mb
    )
    if len(views) < len(models):
        # The build records name relations that were dropped by hand.
        return None
    versions = warehouse.code_versions(settings, project)
    events: list[dg.MaterializeResult[Any] | dg.AssetCheckResult] = [
        dg.MaterializeResult(
            models[key],
            metadata={"reused": True, **_shown(views[key])},
            tags={"dagster/code_version": versions[key]},
        )
        for key in outcomes
        if key in models
    ]
    for unique_id, key in tests.items():
        outcome = outcomes[unique_id]
        result = dg.AssetCheckResult(
            passed=outcome.status == "pass",
            asset_key=key.asset_key,
            check_name=key.name,
            severity=dg.AssetCheckSeverity.WARN
            if outcome.status == "warn"
            else dg.AssetCheckSeverity.ERROR,
            metadata={"status": outcome.status, "failures": outcome.failures, "reused": True},
        )
        events.append(result if result.passed else _with_failing_rows(result, home))
    return events


def _with_rows(events: list[Any], workbench: PipelineContext) -> Iterator[Any]:
    """The events of a dbt run: models with row count and preview, failed tests with their rows."""
    built = {
        str(event.metadata["unique_id"].value): event
        for event in events
        if not isinstance(event, dg.AssetCheckResult) and "unique_id" in (event.metadata or {})
    }
    settings, home = workbench.settings, workbench.store.home
    memory = settings.runtime.memory_limit_mb
    views = warehouse.describe_models(home, built, memory_limit_mb=memory) if built else {}
    versions = warehouse.code_versions(settings, _manifest())
    for event in events:
        if isinstance(event, dg.AssetCheckResult):
            yield event if event.passed else _with_failing_rows(event, home)
            continue
        unique_id = str(event.metadata["unique_id"].value) if "unique_id" in event.metadata else ""
        view = views.get(unique_id)
        yield dg.Output(
            None,
            event.output_name,
            metadata={**event.metadata, **(_shown(view) if view else {})},
            tags={"dagster/code_version": versions[unique_id]},
        )


def _shown(view: warehouse.ModelView) -> dict[str, Any]:
    import polars as pl

    frame = pl.DataFrame(view.head, infer_schema_length=None, strict=False)
    return {
        "dagster/row_count": view.rows,
        "preview": table(frame),
    }


def _with_failing_rows(check: dg.AssetCheckResult, home: Path) -> dg.AssetCheckResult:
    import polars as pl

    rows = warehouse.failing_rows(home, check.check_name or "")
    shown = table(pl.DataFrame(rows, infer_schema_length=None, strict=False), rows=len(rows))
    return check._replace(metadata={**check.metadata, "failing_rows": shown})


def _failures(target_path: Path) -> dict[str, str]:
    """Messages of the models and tests that failed, by dbt's unique id."""
    path = target_path / "run_results.json"
    if not path.exists():
        return {}
    results = json.loads(path.read_text(encoding="utf-8")).get("results", [])
    failed = [r for r in results if r["status"] in {"error", "fail"}]
    return {r["unique_id"]: " ".join(str(r.get("message")).split()) for r in failed}


def _first(failures: dict[str, str]) -> str:
    lines = [f"{key}: {text}" for key, text in list(failures.items())[:3]]
    return f"{len(failures)} dbt nodes failed: " + "; ".join(lines) if failures else ""
