"""A domain's preference scores: what each persona would give to each item, cohort by cohort."""

# No postponed annotations here: Dagster reads the types of a step when it is defined.

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypedDict

import dagster as dg
import numpy as np
import polars as pl

from orchestration.assets import COHORTS
from orchestration.builds import committed, dataset_asset, full_name
from pipelines import raters
from pipelines.context import PipelineContext
from pipelines.domains import DOMAINS, cohort_domain
from pipelines.errors import LockedError
from pipelines.llm.answers import AnswerStore
from pipelines.prompts import rating_prompt_digest
from pipelines.seeding import combine, hash_ids
from pipelines.store import Snapshot, build_key

__all__ = ["scoring_assets"]

_PLANNED_FROM = ("personas", "items", "item_stats")
_LEARNED_FROM = ("item_stats", "item_embeddings", "interactions", "splits")
_SCORED_FROM = ("score_plan", "personas", "persona_embeddings", "items", *_LEARNED_FROM)
#: What each rater without a model is fitted on as a whole: another version may change every
#: score. Models learn nothing here; what their prompts say of an item decides that item's alone.
_FITTED_ON = {
    "random": (),
    "mean": ("item_stats", "interactions"),
    "statistical": ("items", *_LEARNED_FROM),
}
_MODELS = ("llm", "ensemble")
#: Pairs at most, of whole personas, that the summary of a table is about (count).
_SUMMARISED = 1_000_000


class _Learned(TypedDict):
    """The human ratings that raters are fitted on and judged by."""

    item_stats: pl.DataFrame
    interactions: pl.LazyFrame
    splits: pl.LazyFrame


def score_plan(
    workbench: PipelineContext, domain: str, run_id: str, cohort: str
) -> dg.MaterializeResult[Any] | None:
    """Choose the pairs of one cohort, beside those of the others."""
    store, settings = workbench.store, workbench.settings
    if not _rates(workbench, domain, cohort):
        return None
    inputs = _inputs(workbench, domain, _PLANNED_FROM)
    people = inputs["personas"].scan().filter(pl.col("cohort") == cohort).collect()
    plan = raters.plan_pairs(
        people,
        inputs["items"].read(["item_id"]),
        inputs["item_stats"].read(),
        settings.scoring,
    )
    dataset = full_name(domain, "score_plan")
    with (
        _alone(workbench, dataset, cohort),
        store.write(
            dataset,
            code_version=raters.CODE_VERSION,
            config={**settings.identity("scoring"), "cohort": cohort},
            inputs=_made_from(inputs),
            run_id=run_id,
        ) as writer,
    ):
        pairs = {cohort: plan.height}
        for name, frames in _in_order(workbench, dataset, cohort, iter([plan])):
            for frame in frames:
                writer.append(frame)
                pairs[name] = pairs.get(name, 0) + (frame.height if name != cohort else 0)
        writer.note(pairs=pairs)
    snapshot = writer.snapshot
    return committed(workbench, snapshot, reused=snapshot.manifest.run_id != run_id, plots={})


def preference_scores(
    workbench: PipelineContext, domain: str, run_id: str, cohort: str
) -> dg.MaterializeResult[Any] | None:
    """Ask the configured rater what each persona of a cohort would give each planned item."""
    if not _rates(workbench, domain, cohort):
        return None
    dataset = full_name(domain, "preference_scores")
    with _alone(workbench, dataset, cohort):
        return _scored(workbench, domain, dataset, run_id, cohort)


def _scored(
    workbench: PipelineContext, domain: str, dataset: str, run_id: str, cohort: str
) -> dg.MaterializeResult[Any]:
    store, settings = workbench.store, workbench.settings
    inputs = _inputs(workbench, domain, _SCORED_FROM)
    previous = store.current(dataset) if store.has(dataset) else None
    made_from = _made_from(inputs)
    rated_by = _rated_by(workbench, inputs)
    config = {**settings.identity("scoring"), "rated_by": rated_by, "cohort": cohort}
    known = store.find_build(dataset, build_key(raters.CODE_VERSION, config, made_from))
    if known and previous and known.version == previous.version:
        noted = known.manifest.stats.get("shards", {}).get(cohort, {})
        if not noted.get("failed"):
            return committed(workbench, known, reused=True, metadata={"cohort": cohort})
    people = inputs["personas"].scan().filter(pl.col("cohort") == cohort).collect()
    items = inputs["items"].read()
    shards = raters.Shards(
        cohort,
        inputs["score_plan"].scan().filter(raters.in_cohort(cohort)).collect(),
        people,
        items,
        rated_by,
        settings.scoring.shards,
        store.home / "scratch" / "scores" / domain / cohort,
        previous,
        _about(workbench, inputs, people),
    )
    stats: dict[str, Any] = dict(previous.manifest.stats) if previous else {}
    if shards.missing():
        learned = _Learned(
            item_stats=inputs["item_stats"].read(),
            interactions=inputs["interactions"].scan(),
            splits=inputs["splits"].scan(),
        )
        with _rater(workbench, domain, inputs, people, items, learned, previous) as rater:
            shards.score(
                rater,
                seed=settings.scoring.seed,
                batch=_batch(workbench),
                explain=settings.scoring.explain,
                error_budget=settings.serving.error_budget,
                progress=lambda done, total: workbench.progress(
                    f"{domain}: score pairs of {cohort}", done, total
                ),
            )
            some = _sampled_rows(shards, settings.scoring.seed)
            if (some["status"] == raters.OK).any():
                stats["quality"] = {
                    "cohort": cohort,
                    **raters.quality_summary(
                        some, rater=rater, seed=settings.scoring.seed, **learned
                    ),
                }
            facts = raters.scoring_facts(rater, shards)
            stats["scoring"] = {**stats.get("scoring", {}), cohort: facts}
            stats["examples"] = {
                **stats.get("examples", {}),
                cohort: raters.prompt_examples(rater, some, people, items),
            }
    stats["shards"] = {
        **stats.get("shards", {}),
        cohort: {"count": shards.count, "keys": shards.keys, "failed": shards.failed},
    }
    with store.write(
        dataset,
        code_version=raters.CODE_VERSION,
        config=config,
        inputs=made_from,
        run_id=run_id,
    ) as writer:
        there = set()
        for name, frames in _in_order(workbench, dataset, cohort, shards.rows()):
            there.add(name)
            for frame in frames:
                writer.append(frame)
        # Of cohorts that are gone nothing is said: they would be taken for scored.
        for part in ("scoring", "examples", "shards"):
            if part in stats:
                stats[part] = {name: said for name, said in stats[part].items() if name in there}
        writer.note(**stats)
    shards.clear()
    snapshot = writer.snapshot
    return committed(
        workbench,
        snapshot,
        reused=not shards.scored,
        metadata={"cohort": cohort, "scored_now": shards.scored, **_shown(stats, cohort)},
    )


def _shown(stats: dict[str, Any], cohort: str) -> dict[str, Any]:
    """Figures of this cohort beside the table's, each an entry of its own to be plotted."""
    facts = stats.get("scoring", {}).get(cohort, {})
    return {name: v for name, v in facts.items() if isinstance(v, int | float)}


def _rated_by(workbench: PipelineContext, inputs: dict[str, Snapshot]) -> dict[str, Any]:
    """What decides every score of a cohort, whoever and whatever it is of."""
    settings = workbench.settings
    rater = settings.scoring.rater
    names = {rater, *(member.rater for member in settings.scoring.ensemble)}
    fitted = {table for name in names for table in _FITTED_ON.get(name, ())}
    decides: dict[str, Any] = {
        "code": raters.CODE_VERSION,
        # Sizes of the plan and of its pieces show in the pairs, that of the report nowhere.
        "scoring": settings.scoring.model_dump(
            mode="json", exclude={"shards", "max_pairs", "judged"}
        ),
        "fitted_on": {table: inputs[table].version for table in sorted(fitted)},
    }
    if rater in _MODELS:
        decides["engine"] = settings.engine.identity_values()
        decides["prompt"] = rating_prompt_digest()
    return decides


def _about(
    workbench: PipelineContext, inputs: dict[str, Snapshot], people: pl.DataFrame
) -> dict[str, pl.DataFrame]:
    """Tables whose rows decide the scores of one persona or one item."""
    scoring = workbench.settings.scoring
    names = {scoring.rater, *(member.rater for member in scoring.ensemble)}
    about = {}
    if "statistical" in names:
        about["persona_embeddings"] = _of_cohort(inputs["persona_embeddings"], people)
    if "llm" in names:
        about["item_stats"] = inputs["item_stats"].read(["item_id", "train_mean_rating"])
    return about


def _batch(workbench: PipelineContext) -> int:
    """Pairs that a rater is given at once: models take longer and are asked fewer."""
    return 16_384 if workbench.settings.scoring.rater in _MODELS else 65_536


def _sampled_rows(shards: raters.Shards, seed: int) -> pl.DataFrame:
    """Scores of so many personas, chosen by hash, as the summary is about."""
    people = shards.plan["persona_id"].unique().sort()
    most = max(1, _SUMMARISED * len(people) // shards.plan.height)
    order = np.argsort(combine(seed, hash_ids(people)), kind="stable")
    chosen = people[np.sort(order[:most])].implode()
    return pl.concat(frame.filter(pl.col("persona_id").is_in(chosen)) for frame in shards.rows())


def _rates(workbench: PipelineContext, domain: str, cohort: str) -> bool:
    """Whether the cohort's personas rate this domain's items."""
    return cohort_domain(cohort, workbench.settings.personas.domain) == domain


def _inputs(
    workbench: PipelineContext, domain: str, tables: tuple[str, ...]
) -> dict[str, Snapshot]:
    return {table: workbench.store.current(full_name(domain, table)) for table in tables}


def _made_from(inputs: dict[str, Snapshot]) -> dict[str, str]:
    return {snapshot.dataset: snapshot.version for snapshot in inputs.values()}


@contextmanager
def _rater(
    workbench: PipelineContext,
    domain: str,
    inputs: dict[str, Snapshot],
    people: pl.DataFrame,
    items: pl.DataFrame,
    learned: _Learned,
    previous: Snapshot | None,
) -> Iterator[raters.Rater]:
    """The configured rater, its model released and its answers committed afterwards."""
    settings = workbench.settings
    replayed = previous if settings.scoring.rater == "replay" else None
    rater = raters.open_rater(
        settings,
        items=items,
        item_embeddings=inputs["item_embeddings"].read(),
        persona_embeddings=_of_cohort(inputs["persona_embeddings"], people),
        scores=None if replayed is None else replayed.read(),
        domain=domain,
        store=_answers(workbench),
        **learned,
    )
    with ExitStack() as stack:
        close = getattr(rater, "close", None)
        if close is not None:
            stack.callback(close)
        yield rater


def _answers(workbench: PipelineContext) -> AnswerStore | None:
    settings = workbench.settings
    if settings.scoring.rater not in _MODELS:
        return None
    return AnswerStore(settings.runtime.home, settings.serving)


def _of_cohort(vectors: Snapshot, people: pl.DataFrame) -> pl.DataFrame:
    return (
        vectors.scan()
        .join(people.lazy().select("persona_id"), on="persona_id", how="semi")
        .collect()
    )


def _in_order(
    workbench: PipelineContext, dataset: str, cohort: str, made: Iterator[pl.DataFrame]
) -> Iterator[tuple[str, Iterator[pl.DataFrame]]]:
    """The cohort's new rows and the others' old ones, in the order of ids."""
    store = workbench.store
    before = store.current(dataset) if store.has(dataset) else None
    known = _cohorts(before) if before else set()
    # Whose cohort is gone from the personas is gone from here.
    there = {str(c) for c in _current_cohorts(workbench)}
    for name in sorted({*(known & there), cohort}, key=lambda n: f"{n}:"):
        if name == cohort:
            yield name, made
        else:
            assert before is not None
            kept = before.scan().filter(raters.in_cohort(name))
            yield name, kept.collect_batches(maintain_order=True)


def _cohorts(snapshot: Snapshot) -> set[str]:
    names = snapshot.scan().select(raters.cohort_of().alias("c")).unique().collect()
    return set(names["c"])


def _current_cohorts(workbench: PipelineContext) -> list[str]:
    table = workbench.store.current("personas")
    return table.scan().select(pl.col("cohort").unique()).collect()["cohort"].to_list()


@contextmanager
def _alone(workbench: PipelineContext, dataset: str, cohort: str) -> Iterator[None]:
    """One process at a time writes this table; a second one is told so at once."""
    import filelock

    path = Path(workbench.store.home) / "_locks" / f"{dataset}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise LockedError(
            f"another process is writing {dataset}",
            where=f"cohort {cohort}",
            hint="try again later",
        ) from None
    try:
        yield
    finally:
        lock.release()


def scoring_assets() -> list[dg.AssetsDefinition]:
    """Plan and scores of every domain that personas rate."""
    assets = []
    for domain in (name for name, d in DOMAINS.items() if d.personas):
        assets += [
            dataset_asset(
                domain,
                "score_plan",
                score_plan,
                deps=_PLANNED_FROM,
                code_version=raters.CODE_VERSION,
                kinds={"python", "parquet"},
                partitions_def=COHORTS,
            ),
            dataset_asset(
                domain,
                "preference_scores",
                preference_scores,
                deps=_SCORED_FROM,
                code_version=raters.CODE_VERSION,
                kinds={"numpy", "parquet"},
                partitions_def=COHORTS,
            ),
        ]
    return assets
