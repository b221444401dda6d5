"""Original files on disk, what watches them, and what tells of failed runs."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

import warnings

import dagster as dg
import httpx

from orchestration.defs.jobs import ingest
from orchestration.naming import SHARED, asset_key
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.stages.s10_sources import ORIGINALS
from pipelines.worlds import files_fingerprint

__all__ = ["original_files", "sensors"]


# Dagster calls them beta, at every load.
warnings.filterwarnings("ignore", message=".*observable_source_asset", category=dg.BetaWarning)


@dg.observable_source_asset(
    key=asset_key(ORIGINALS),
    group_name=f"{SHARED}_raw",
    tags={"domain": SHARED},
    description="Original files on disk: names, sizes and modification times. Observe this asset "
    "after adding or replacing a file, or switch on the sensor `source_files`.",
)
def original_files(workbench: dg.ResourceParam[PipelineContext]) -> dg.DataVersion:
    """Fingerprint of the configured folder."""
    return dg.DataVersion(files_fingerprint(workbench.settings))


@dg.sensor(
    job=ingest,
    minimum_interval_seconds=60,
    description="Re-reads the original files when one was added, replaced or removed. Off until "
    "you switch it on.",
)
def source_files(
    context: dg.SensorEvaluationContext, workbench: dg.ResourceParam[PipelineContext]
) -> dg.SensorResult | dg.SkipReason:
    """Observe the files and request a run if they changed."""
    fingerprint = files_fingerprint(workbench.settings)
    if fingerprint == context.cursor:
        return dg.SkipReason("no file changed")
    seen = dg.AssetObservation(asset_key(ORIGINALS), tags={"dagster/data_version": fingerprint})
    return dg.SensorResult(
        run_requests=[dg.RunRequest(run_key=fingerprint)], asset_events=[seen], cursor=fingerprint
    )


def sensors(settings: Settings) -> list[dg.SensorDefinition]:
    """The sensors of a code location."""
    definitions: list[dg.SensorDefinition] = [source_files, _failure_hook(settings)]
    if settings.runtime.automation:
        definitions.append(
            dg.AutomationConditionSensorDefinition(
                "stale_assets",
                target=dg.AssetSelection.all(),
                default_status=dg.DefaultSensorStatus.RUNNING,
                description="Rebuilds stale assets (runtime.automation).",
            )
        )
    return definitions


def _failure_hook(settings: Settings) -> dg.SensorDefinition:
    address = settings.runtime.failure_webhook

    @dg.run_failure_sensor(
        name="failure_webhook",
        monitor_all_code_locations=True,
        default_status=dg.DefaultSensorStatus.RUNNING
        if address
        else dg.DefaultSensorStatus.STOPPED,
        description="Posts job, run and error of a failed run as JSON to the URL in "
        "UNDERSTUDY_RUNTIME__FAILURE_WEBHOOK. Off if it is not set.",
    )
    def hook(context: dg.RunFailureSensorContext) -> dg.SkipReason | None:
        if address is None:
            return dg.SkipReason("UNDERSTUDY_RUNTIME__FAILURE_WEBHOOK is not set")
        run = context.dagster_run
        steps = [e.step_key for e in context.get_step_failure_events() if e.step_key]
        report = {
            "text": f"Run {run.run_id} of {run.job_name} failed: {', '.join(steps) or 'no step'}",
            "job": run.job_name,
            "run": run.run_id,
            "partition": run.tags.get("dagster/partition"),
            "steps": steps,
            "errors": [_first_line(e) for e in context.get_step_failure_events()],
        }
        try:
            httpx.post(address.get_secret_value(), json=report, timeout=10).raise_for_status()
        except httpx.HTTPStatusError as error:
            context.log.error(f"the webhook answered {error.response.status_code}")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            # The address is a secret, and messages of the library name it.
            context.log.error(f"the webhook can't be reached: {type(error).__name__}")
        return None

    return hook


def _first_line(event: dg.DagsterEvent) -> str:
    data = event.step_failure_data
    if data.user_failure_data and data.user_failure_data.description:
        return str(data.user_failure_data.description)
    error = data.error.cause or data.error if data.error else None
    return error.message.strip().split("\n")[0] if error else "unknown"
