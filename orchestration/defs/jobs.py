"""Jobs and schedules."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

import sys
from typing import Any

import dagster as dg
from dagster._core.storage.tags import PARTITION_NAME_TAG

from orchestration.assets import COHORTS
from orchestration.defs.warehouse import model_assets
from orchestration.instance import add_cohorts
from orchestration.naming import SHARED, asset_key
from pipelines.domains import DOMAINS, Domain
from pipelines.sources import SOURCES

__all__ = ["DOMAIN_JOBS", "OPTIONAL_JOBS", "REPORTS", "SCHEDULES", "ingest"]

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
