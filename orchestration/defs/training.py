"""Recommendation policies trained on the latest release of a domain."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from orchestration.builds import committed
from orchestration.defs.releases import release_name
from orchestration.naming import asset_spec
from orchestration.results import contract_spec, reported
from pipelines.config import TrainingSettings
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS
from pipelines.store import build_key

__all__ = ["training_assets"]

DATASET = "trained_policy"
#: Bumped whenever the same release and settings give other policies.
CODE_VERSION = "1"


def trained_policy(workbench: PipelineContext, run_id: str) -> dg.MaterializeResult[Any]:
    """Train a policy per configured seed, and judge them beside the baselines.

    A run that died goes on from its latest checkpoint; an equal one is not repeated.
    """
    settings, store = workbench.settings, workbench.store
    chosen = settings.training
    stored = store.release(f"{release_name(settings, chosen.domain)}@latest")
    config = _identity(chosen)
    inputs = {stored.name: stored.version}
    key = build_key(CODE_VERSION, config, inputs)
    known = store.find_build(DATASET, key)
    if known:
        store.point(DATASET, known.version)
        return committed(workbench, known, reused=True, preview=False)
    # Torch and stable-baselines3 come with these: not when definitions are loaded.
    from sim import Release
    from sim.environment import World
    from sim.training import policy_table, run_settings, train

    world = World.open(Release(stored), rater=chosen.rater, retriever=chosen.retriever)
    report = train(
        world,
        run_settings(chosen, seed=chosen.seeds[0]),
        chosen.seeds,
        store.home / "training" / f"{stored.name}-{chosen.algo}-{key[:12]}",
        resume=True,
        progress=lambda done, total: workbench.progress("training", done, total),
    )
    told = report.as_json()
    snapshot = store.commit(
        DATASET,
        policy_table(report),
        code_version=CODE_VERSION,
        config=config,
        inputs=inputs,
        run_id=run_id,
        stats={"release": told["release"], "note": told["note"], "users": told["users"]},
    )
    reward = report.rows[chosen.algo]["average_reward"]
    return committed(
        workbench,
        snapshot,
        preview=False,
        metadata={
            "figures": dg.MetadataValue.md(report.markdown()),
            "average_reward": reward.value,
            "language_model": dg.MetadataValue.bool(told["language_model"]),
            "folder": dg.MetadataValue.path(str(report.runs[0].folder.parent)),
        },
        plots=report.pictures(),
    )


def _identity(training: TrainingSettings) -> dict[str, Any]:
    """What decides the policies: not how often checkpoints are written."""
    return {"training": training.model_dump(mode="json", exclude={"checkpoint_every"})}


def training_assets() -> list[dg.AssetsDefinition]:
    """The one asset of the job `train_policy`; no domain's job needs it."""
    releases = [dg.AssetKey(["releases", name]) for name, d in DOMAINS.items() if d.personas]

    @dg.multi_asset(
        name=DATASET,
        description=trained_policy.__doc__,
        specs=[
            asset_spec(
                DATASET,
                deps=list(releases),
                code_version=CODE_VERSION,
                kinds={"pytorch", "parquet"},
            )
        ],
        check_specs=[contract_spec(DATASET)],
    )
    def step(
        context: dg.AssetExecutionContext, workbench: dg.ResourceParam[PipelineContext]
    ) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
        yield from reported([DATASET], lambda: [trained_policy(workbench, context.run_id)])

    return [step]
