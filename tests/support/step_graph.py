"""The steps of a job as its asset graph has them, with what each needs and how it is selected."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import dagster as dg
from dagster._core.execution.api import create_execution_plan

__all__ = ["Step", "steps_of_job", "upstream"]


@dataclass(frozen=True)
class Step:
    """A step.

    Attributes
    ----------
    name
        As Dagster and ``understudy run`` name it.
    needs
        Steps that must have ended before it.
    assets
        Values of ``--select`` that run it.
    """

    name: str
    needs: frozenset[str]
    assets: frozenset[str]


@cache
def steps_of_job(job: str = "everything") -> dict[str, Step]:
    """The steps of a job by name, each after those that it needs."""
    from pipelines.domains import DOMAINS

    found: dict[str, Step] = {}
    if job == "everything":  # runs of several jobs, as the command plans them
        for name in ("ingest", *DOMAINS):
            if name == "own":  # the sample world has no files of one's own
                continue
            for key, step in steps_of_job(name).items():
                before = found.get(key, Step(key, frozenset(), frozenset()))
                found[key] = Step(key, before.needs | step.needs, before.assets | step.assets)
        del found["ingest_own"]
        return found
    resolved = _definitions().resolve_job_def(job)
    for step in create_execution_plan(resolved).get_all_steps_in_topo_order():
        keys = resolved.asset_layer.get_selected_entity_keys_for_node(step.node_handle)
        assets = {k.asset_key if isinstance(k, dg.AssetCheckKey) else k for k in keys}
        found[step.key] = Step(
            step.key,
            frozenset(step.get_execution_dependency_keys()),
            frozenset(key.to_user_string() for key in assets),
        )
    return found


@cache
def _definitions() -> dg.Definitions:
    from orchestration.definitions import build_defs

    return build_defs(executor=dg.in_process_executor)


def upstream(steps: dict[str, Step], name: str) -> set[str]:
    """All steps that a step needs, directly or not."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        for needed in steps[waiting.pop()].needs - found:
            found.add(needed)
            waiting.append(needed)
    return found
