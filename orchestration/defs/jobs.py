"""Jobs and schedules; original files on disk and what watches them; what tells of failed runs."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

import sys
import warnings
from typing import Any

import dagster as dg
import httpx
from dagster._core.storage.tags import PARTITION_NAME_TAG

from orchestration.assets import COHORTS
from orchestration.defs.warehouse import model_assets
from orchestration.instance import add_cohorts
from orchestration.naming import SHARED, asset_key
from pipelines.config import Settings
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS, Domain
from pipelines.sources import SOURCES
from pipelines.stages.s10_sources import ORIGINALS
from pipelines.worlds import files_fingerprint

# No postponed annotations here: Dagster reads the types of a step when it is defined.


_TAGS = {"dagster/max_retries": "1", "dagster/retry_on_asset_or_op_failure": "false"}

#: Jobs on published tables, which no domain needs: group of their assets and description, by name.
REPORTS = {
    "ablations": (
        "ablations",
        "Ablation suites of films and books on the latest releases: case tables, then every "
        "configuration not yet scored.",
    ),
    "match_personas": (
        "matching",
        "Personas matched to real users of every domain (settings: `matching`), from its "
        "published tables. They become the cohorts `matched`, `books-matched` and `games-matched` "
        "of `personas`.",
    ),
    "caption_items": (
        "captions",
        "Captions of the item posters in the world's folder `posters` (settings: `captions`).",
    ),
    "train_policy": (
        "training",
        "Recommendation policies on the latest release of a domain (settings: `training`), "
        "evaluated with baselines.",
    ),
    "train_rater": (
        "tuning",
        "A rating model trained on people's ratings (settings: `tuning`), calibrated and "
        "evaluated; not part of any release.",
    ),
    "train_surrogate": (
        "surrogates",
        "A small model of the rater with stored scores (settings: `surrogate`), and its fidelity "
        "on held-out pairs; not part of any release.",
    ),
    "simulate": (
        "agents",
        "Agents that visit recommenders page by page on the latest release of a domain: exits, "
        "watched items, ratings, feelings and memories.",
    ),
    "experiments": (
        "experiments",
        "Experiments of SimUSER and Agent4Rec on simulated users of the latest release of "
        "a domain, with baselines, controls and intervals.",
    ),
    "dialogues": (
        "dialogue",
        "Shopping dialogues on the latest release of products (BIEL): suites of agents that "
        "question customers, with baselines, bounds and intervals (settings: `dialogue`).",
    ),
}

ingest = dg.define_asset_job(
    "ingest",
    selection=dg.AssetSelection.groups(
        *(f"{name}_raw" for name in (*DOMAINS, SHARED))
    ).materializable(),
    description="Original files of every source, loaded into raw tables.",
    tags=_TAGS,
)


def _of_domain(domain: Domain) -> dg.AssetSelection:
    """All that a domain is made of, also what its release does not need (rejected rows, ...)."""
    files = [
        asset_key(dataset)
        for source in SOURCES.values()
        if domain.name in source.domains or source.name in domain.sources
        for dataset in source.datasets
    ]
    release = dg.AssetSelection.assets(["releases", domain.name])
    models = dg.AssetSelection.assets(model_assets()[domain.name])
    outputs = release | models | dg.AssetSelection.assets(*files)
    return outputs.upstream().required_multi_asset_neighbors()


def _standing_cohort(domain: Domain) -> dict[str, str]:
    """Partition of a run that Dagster's own command line starts without one.

    Every other run names its cohort, and a backfill over several may not have this tag.
    """
    by_hand = sys.argv[1:3] == ["job", "execute"] or sys.argv[1:2] == ["launch"]
    if not by_hand or any("partition" in word for word in sys.argv):
        return {}
    return {PARTITION_NAME_TAG: COHORTS[domain.name].standing}


#: What the partition of a domain's job is, as the Launchpad shows it.
_COHORT = (
    "Its partition is a cohort: simulated people who were made together, with the same settings. "
    "`{standing}` is the one that every home has; add a partition to make another, and the release "
    "holds all of them."
)

#: The job of each domain.
DOMAIN_JOBS = {
    domain.name: dg.define_asset_job(
        domain.name,
        selection=_of_domain(domain),
        description=f"The {domain.name}, from original files ({', '.join(domain.sources)} ...) "
        f"to a published release. {_COHORT.format(standing=COHORTS[domain.name].standing)}",
        # Runs of one domain wait for each other (`DAGSTER_YAML`): a release is refused while
        # another run is between a cohort's tables.
        tags={**_TAGS, "understudy/domain": domain.name, **_standing_cohort(domain)},
    )
    for domain in DOMAINS.values()
}
OPTIONAL_JOBS = [
    dg.define_asset_job(
        name, selection=dg.AssetSelection.groups(group), description=text, tags=_TAGS
    )
    for name, (group, text) in REPORTS.items()
]


def _weekly(domain: Domain, job: Any) -> dg.ScheduleDefinition:
    @dg.schedule(
        name=f"weekly_{domain.name}",
        cron_schedule="0 4 * * 1",
        job=job,
        execution_timezone="UTC",
        default_status=dg.DefaultScheduleStatus.STOPPED,
        description=f"Every Monday at 04:00 UTC: a new cohort for the {domain.name}, named after "
        "the ISO week, and a release with it. Off until you switch it on.",
    )
    def weekly(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
        year, week, _ = context.scheduled_execution_time.isocalendar()
        prefix = "" if domain.name == "movies" else f"{domain.name}-"
        cohort = f"{prefix}{year}-w{week:02d}"
        add_cohorts(context.instance, [cohort])
        return dg.RunRequest(run_key=cohort, partition_key=cohort)

    return weekly


SCHEDULES = {name: _weekly(DOMAINS[name], job) for name, job in DOMAIN_JOBS.items()}


# No postponed annotations here: Dagster reads the types of a step when it is defined.


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
