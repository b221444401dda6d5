"""Synthetic users: cohorts as partitions, and their vectors."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from orchestration.naming import asset_spec
from orchestration.results import contract_spec, materialize, reported
from orchestration.workbench import Workbench
from pipelines import embeddings, personas
from pipelines.sources import ingest
from pipelines.store import Snapshot, build_key
from pipelines.worlds import prepare_world

__all__ = ["COHORTS", "persona_assets"]

#: One partition per cohort: `default`, a name given by hand, or a week such as `2026-w47`
#: that the schedule adds. Dynamic, because both kinds must live side by side.
COHORTS = dg.DynamicPartitionsDefinition(name="cohort")

_VECTORS = "persona_embeddings"


@dg.multi_asset(
    name="write_personas",
    specs=[
        asset_spec(
            "personas",
            code_version=personas.CODE_VERSION,
            kinds={"python", "parquet"},
            partitions_def=COHORTS,
        )
    ],
    check_specs=[contract_spec("personas")],
)
def personas_asset(
    context: dg.AssetExecutionContext, workbench: dg.ResourceParam[Workbench]
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Generate one cohort and put it beside the others in a new version of the table."""
    cohort, run_id = context.partition_key, context.run_id
    yield from reported(["personas"], lambda: [_personas(cohort, run_id, workbench)])


def _personas(cohort: str, run_id: str, workbench: Workbench) -> dg.MaterializeResult[Any]:
    store, settings = workbench.store, workbench.settings
    written = personas.write_cohort(
        store,
        settings,
        cohort,
        code_version=personas.CODE_VERSION,
        run_id=run_id,
        progress=lambda done, total: workbench.progress(f"personas of {cohort}", done, total),
        raw=persona_files(workbench, run_id) if cohort.startswith(personas.IMPORTED) else None,
    )
    snapshot = written.snapshot
    return materialize(
        store,
        snapshot,
        reused=snapshot.manifest.run_id != run_id,
        metadata={
            "cohort": cohort,
            "personas_in_cohort": written.personas,
            "writing": dg.MetadataValue.json(written.facts),
        },
        plots=workbench.plots(snapshot),
    )


def persona_files(workbench: Workbench, run_id: str | None) -> Snapshot | None:
    """The world's persona files, read now; None if there are none.

    A dependency on the raw asset would leave out every cohort where there are no files.
    """
    world = prepare_world(workbench.settings)
    if not world.has("persona_files"):
        return None
    made = ingest("persona_files", world, workbench.store, workbench.settings, run_id=run_id)
    return made["raw.persona_files"]


@dg.multi_asset(
    name="persona_embeddings",
    specs=[
        asset_spec(
            _VECTORS,
            deps=["personas"],
            code_version=embeddings.CODE_VERSION,
            kinds={"huggingface", "parquet"},
        )
    ],
    check_specs=[contract_spec(_VECTORS)],
)
def persona_embeddings(
    context: dg.AssetExecutionContext, workbench: dg.ResourceParam[Workbench]
) -> Iterator[dg.MaterializeResult[Any] | dg.AssetCheckResult]:
    """Encode every persona's description; unchanged texts keep their vectors."""
    yield from reported(
        [_VECTORS],
        lambda: [
            embed(
                workbench,
                "personas",
                _VECTORS,
                key="persona_id",
                text=embeddings.persona_text,
                run_id=context.run_id,
            )
        ],
    )


def embed(
    workbench: Workbench, source: str, target: str, *, key: str, text: Any, run_id: str
) -> dg.MaterializeResult[Any]:
    """Commit the vectors of ``source``'s rows as ``target``."""
    store, settings = workbench.store, workbench.settings
    upstream = store.current(source)
    inputs = {source: upstream.version}
    config = settings.identity("embedding")
    known = store.find_build(target, build_key(embeddings.CODE_VERSION, config, inputs))
    if known:
        store.point(target, known.version)
        return materialize(store, known, reused=True, preview=False)
    snapshot: Snapshot
    frame = upstream.read()
    texts = text(frame)
    previous = store.current(target).read() if store.has(target) else None

    def advance(done: int, total: int) -> None:
        workbench.progress(f"embed {source}", done, total)

    embedder = embeddings.load_embedder(settings.embedding, settings.runtime)
    table = embeddings.embed_table(
        frame.select(key), key, texts, embedder, previous=previous, progress=advance
    )
    snapshot = store.commit(
        target,
        table,
        code_version=embeddings.CODE_VERSION,
        config=config,
        inputs=inputs,
        run_id=run_id,
        stats={"model": embedder.name, "dimension": embedder.dimension},
    )
    return materialize(store, snapshot, preview=False)


persona_assets = [personas_asset, persona_embeddings]
