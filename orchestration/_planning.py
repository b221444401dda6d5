"""Plan of runs: the steps of each, and the runs that it waits for."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import dagster as dg

from orchestration._lanes import Task
from pipelines.errors import ConfigError


def job_name(name: str) -> str:
    """Dagster's name of a job of the command line.

    Assets of several domains have different partitions, which only its own job of all may have.
    """
    return "__ASSET_JOB" if name in ("everything", "personas") else name


@dataclass(frozen=True)
class JobRun:
    """A job to run."""

    #: Name of the job.
    job: str
    #: Cohort that it is run for; None is the configured one.
    cohort: str | None = None
    #: Asset keys such as ``movies/items``: run only these steps of the job, on what the home
    #: already holds upstream of them. Empty: all of them.
    select: tuple[str, ...] = ()
    #: Start only when all runs before it have ended, where the assets do not imply it.
    last: bool = False


@dataclass(frozen=True)
class PlannedRun:
    """Assets and cohort of a run."""

    job: str
    cohort: str
    steps: tuple[dg.AssetKey, ...]


def plan_runs(defs: dg.Definitions, jobs: Sequence[JobRun], *, split: bool) -> list[Task]:
    """The runs behind `jobs`, each with those that it waits for; payloads are `PlannedRun`.

    Steps that two jobs share run in the first of them alone: a step is not repeated for the same
    cohort. A run waits for earlier ones that make what its steps are made from, and for those
    that add another cohort to the same table.

    Parameters
    ----------
    defs
        Definitions of the jobs.
    jobs
        In order; every cohort is named.
    split
        Make what waits for no earlier run a run of its own, so that it can start at once.

    Raises :class:`ConfigError` if a ``select`` names an asset that is not in the job.
    """
    tasks: list[Task] = []
    makers: dict[dg.AssetKey, list[int]] = {}
    done: set[tuple[dg.AssetKey, str | None]] = set()
    for run in jobs:
        job = defs.resolve_job_def(job_name(run.job))
        wanted = _selected(job, run.select) if run.select else job.asset_layer.selected_asset_keys
        places = _places(job, wanted, run.cohort)
        steps = {key for key, cohort in places if (key, cohort) not in done}
        done.update(places)
        later = _waiting(job, steps, set(makers)) if split else set()
        for part in (steps - later, later):
            if not part:
                continue
            sources = {source for key in part for source in (key, *_parents(job, key))}
            after = frozenset(n for source in sources for n in makers.get(source, ()))
            if run.last:
                after = frozenset(range(len(tasks)))
            for key in part:
                makers.setdefault(key, []).append(len(tasks))
            planned = PlannedRun(run.job, str(run.cohort), tuple(sorted(part)))
            tasks.append(Task(run.job, planned, after))
    return tasks


def _waiting(
    job: dg.JobDefinition, steps: set[dg.AssetKey], made: set[dg.AssetKey]
) -> set[dg.AssetKey]:
    """The steps that need, directly or not, what earlier runs make; and those made with them."""
    graph = job.asset_layer.asset_graph
    beside = {key: set(graph.get(key).assets_def.keys) for key in steps}
    found: set[dg.AssetKey] = set()
    while True:
        more = {
            key
            for key in steps - found
            if key in made or _parents(job, key) & (made | found) or beside[key] & found
        }
        if not more:
            return found
        found |= more


def _parents(job: dg.JobDefinition, key: dg.AssetKey) -> set[dg.AssetKey]:
    return set(job.asset_layer.asset_graph.get(key).parent_keys)


def _places(
    job: dg.JobDefinition, keys: Iterable[dg.AssetKey], cohort: str | None
) -> list[tuple[dg.AssetKey, str | None]]:
    """Assets with the cohort that they are made for, if they are partitioned."""
    graph = job.asset_layer.asset_graph
    return [(key, cohort if graph.get(key).is_partitioned else None) for key in keys]


def _selected(job: dg.JobDefinition, names: Sequence[str]) -> list[dg.AssetKey]:
    known = {key.to_user_string(): key for key in job.asset_layer.selected_asset_keys}
    unknown = [name for name in names if name not in known]
    if unknown:
        near = difflib.get_close_matches(unknown[0], list(known), n=1)
        raise ConfigError(
            f"no such asset in the job {job.name}",
            where=unknown[0],
            hint=f"did you mean {near[0]}?" if near else f"such as {min(known)}",
        )
    return [known[name] for name in names]
