"""Jobs and schedules."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from typing import Any

import dagster as dg

from orchestration.assets import COHORTS
from orchestration.defs.warehouse import model_assets
from orchestration.naming import asset_key
from pipelines.domains import DOMAINS, Domain
from pipelines.sources import SOURCES

__all__ = ["JOBS", "SCHEDULES", "weekly_personas"]

_TAGS = {"dagster/max_retries": "1", "dagster/retry_on_asset_or_op_failure": "false"}

#: Jobs on published tables, which no domain needs: group of their assets and description, by name.
_REPORTS = {
    "ablations": (
        "ablations",
        "The ablation suites of films and books on the latest releases: case tables, then "
        "every configuration that is not there yet.",
    ),
    "match_personas": (
        "matching",
        "Personas matched to real users of every domain (settings: `matching`), from its "
        "published tables. The cohorts `matched`, `books-matched` and `games-matched` of the job "
        "`personas` take them over.",
    ),
    "caption_items": (
        "captions",
        "Captions of the items' posters in the world's folder `posters` (settings: `captions`).",
    ),
    "train_policy": (
        "training",
        "Recommendation policies on the latest release of a domain (settings: `training`), "
        "judged beside baselines.",
    ),
    "simulate": (
        "agents",
        "Agents that visit recommenders page by page on the latest release of a domain: "
        "who left when, what they watched, rated, felt and remembered.",
    ),
    "experiments": (
        "experiments",
        "Experiments of SimUSER and Agent4Rec on simulated users of the latest release of "
        "a domain, with baselines, controls and intervals.",
    ),
    "dialogues": (
        "dialogue",
        "Shopping dialogues on the latest release of products (BIEL): suites of agents that "
        "question customers, with floors, bounds and intervals (settings: `dialogue`).",
    ),
}

everything = dg.define_asset_job(
    "everything",
    selection=dg.AssetSelection.all()
    - dg.AssetSelection.groups(*(group for group, _ in _REPORTS.values())),
    description="Every domain, from original files to releases.",
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
    made = release | models | dg.AssetSelection.assets(*files)
    return made.upstream().required_multi_asset_neighbors()


domains = [
    dg.define_asset_job(
        domain.name,
        selection=_of_domain(domain),
        description=f"The {domain.name}, from original files ({', '.join(domain.sources)} ...) "
        "to a published release.",
        tags=_TAGS,
    )
    for domain in DOMAINS.values()
]
personas = dg.define_asset_job(
    "personas",
    selection=dg.AssetSelection.assets(
        *(
            asset_key(f"{domain.name}.{table}")
            for domain in DOMAINS.values()
            for table in ("personas", "persona_embeddings")
        )
    ),
    description="One cohort of personas and its vectors, of the domain that the cohort's name "
    "begins with.",
    tags=_TAGS,
)

reports = [
    dg.define_asset_job(
        name, selection=dg.AssetSelection.groups(group), description=text, tags=_TAGS
    )
    for name, (group, text) in _REPORTS.items()
]

JOBS = [everything, *domains, personas, *reports]


@dg.schedule(
    cron_schedule="0 4 * * 1",
    job=personas,
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
    description="Every Monday at 04:00 UTC a new cohort, named after the ISO week. "
    "Off until you switch it on.",
)
def weekly_personas(context: dg.ScheduleEvaluationContext) -> Any:
    """Add the week's cohort and request its run."""
    year, week, _ = context.scheduled_execution_time.isocalendar()
    cohort = f"{year}-w{week:02d}"
    context.instance.add_dynamic_partitions(str(COHORTS.name), [cohort])
    return dg.RunRequest(run_key=cohort, partition_key=cohort)


SCHEDULES = [weekly_personas]
