"""Preference scores of a domain: the rating that each persona would give each planned item.

Of the products, whole choice sets are planned and scored, on 0-100 (BIEL, section 4).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import numpy as np
import polars as pl

from pipelines import raters
from pipelines.cohorts import block_size
from pipelines.config import EngineSettings, ScoringSettings, Settings
from pipelines.domains import DOMAINS, cohort_domain
from pipelines.errors import ConfigError
from pipelines.execution import Executor, LocalExecutor, open_executor
from pipelines.llm.answers import ANSWERS, AnswerStore
from pipelines.llm.engines.cluster import ClusterEngine
from pipelines.personas import is_matched
from pipelines.plugins import closing, code_of
from pipelines.progress import advance, heard
from pipelines.prompts import list_prompt_digest, rating_prompt_digest
from pipelines.seams import RATERS
from pipelines.seeding import combine, hash_ids
from pipelines.stages._stage import Inputs, Report, Stage, tables
from pipelines.store import OF_COHORT, Snapshot
from pipelines.store.files import sha256_of

__all__ = ["STAGES"]

_LEARNED_FROM = ("item_stats", "item_embeddings", "interactions", "splits")
_MODELS = ("llm", "listwise")
#: Tables of one domain that raters may read beside what all domains have.
_OWN = {"products": ("choice_set_items", "facets")}
#: Probabilities at most, of pairs of whole personas, that the summary of a table is about (count).
_SUMMARISED = 4_000_000
#: Personas that the comparison of replicates draws from (count): more than it takes.
_CONSISTENT = 100
#: Probabilities of the pairs that are scored together, unless one persona has more (count).
_PROBABILITIES = 8_388_608
#: Pairs of a scale of ten answers that are rated at once (counts): models take longer.
_BATCH, _BATCH_OF_MODELS = 65_536, 16_384


class _Learned(TypedDict):
    """The human ratings that raters are fitted on and judged by."""

    item_stats: pl.DataFrame
    interactions: pl.LazyFrame
    splits: pl.LazyFrame


def score_plan(inputs: Inputs, settings: Settings, report: Report) -> Iterator[pl.DataFrame]:
    """Select the pairs of one cohort to score, with their exposure; other cohorts are kept."""
    scoring, ids = settings.scoring_of(inputs.domain), _ids(inputs)
    learned: dict[str, Any] = {
        "interactions": inputs["interactions"].scan(),
        "splits": inputs["splits"].scan(),
    }
    items, item_stats = inputs["items"].read(["item_id"]), inputs["item_stats"].read()
    rater = model = None
    if not learned["splits"].filter(pl.col("split") == "train").head(1).collect().is_empty():
        rater = raters.fit_statistical(
            scale=raters.scale_named(scoring.scale),
            items=inputs["items"].read(),
            item_stats=item_stats,
            item_embeddings=inputs["item_embeddings"].read(),
            seed=scoring.seed,
            taste=scoring.taste,
            **learned,
        )
        model = raters.fit_exposure(rater, **learned, seed=scoring.seed)
        report.stats["exposure"] = model.metadata
    report.cohort_stats["pairs"] = 0
    size = block_size(raters.pairs_each(len(ids), items.height, scoring))
    for block in _blocks(ids, size):
        people, exposure = _people(inputs, block), None
        if rater is not None and model is not None:
            exposure = model.of(people["persona_id"], rater.persona_tastes(people))
        plan = raters.plan_pairs(people, items, item_stats, scoring, exposure, cohort=len(ids))
        report.cohort_stats["pairs"] += plan.height
        yield plan


def choice_plan(inputs: Inputs, settings: Settings, report: Report) -> Iterator[pl.DataFrame]:
    """Plan whole choice sets for every persona of one cohort; other cohorts are kept."""
    sets = inputs["choice_set_items"].read(["category_id", "item_id"])
    scoring, ids = settings.scoring_of(inputs.domain), _ids(inputs)
    report.cohort_stats["pairs"] = 0
    size = block_size(raters.pairs_each(len(ids), sets["item_id"].n_unique(), scoring))
    planned = sets.head(0)
    for block in _blocks(ids, size):
        plan = raters.plan_choice_sets(_people(inputs, block), sets, scoring, cohort=len(ids))
        report.cohort_stats["pairs"] += plan.height
        planned = raters.planned_sets(sets, plan["item_id"].unique())
        yield plan
    report.cohort_stats["choice_sets"] = {
        "planned": planned["category_id"].n_unique(),
        "of": sets["category_id"].n_unique(),
    }


def preference_scores(inputs: Inputs, settings: Settings, report: Report) -> Iterator[pl.DataFrame]:
    """Ask the configured rater how each persona of one cohort would rate its planned items.

    What a model answered is stored as it comes: a run that was killed asks only the rest.
    """
    cohort, scoring = str(inputs.partition), settings.scoring_of(inputs.domain)
    ids, items = _ids(inputs), inputs["items"].read()
    stats = report.cohort_stats
    planned = inputs["score_plan"].of_cohort(cohort).select(pl.len()).collect().item()
    drawn = _drawn(ids, scoring.seed)
    answers = len(raters.scale_named(scoring.scale))
    sample = drawn[: max(1, _SUMMARISED // answers * len(ids) // max(planned, 1))].implode()
    scores = raters.CohortScores(cohort, planned, settings.serving.error_budget)
    blocks = _blocks(
        ids, block_size(-(-planned // max(len(ids), 1)), most=_PROBABILITIES // answers)
    )
    few = max(1, 100 // len(blocks))
    readings: Counter[str] = Counter()
    sampled: list[pl.DataFrame] = []
    calls = 1 + (scoring.explained if scoring.explain else 0.0)

    def answered(step: str, done: int, _: int | None) -> None:
        """Between parts, what a model has answered so far, in pairs."""
        if step == ANSWERS:
            advance("scoring pairs", max(scores.scored, min(int(done / calls), planned)), planned)

    learned = _learned(inputs)
    with ExitStack() as stack:
        executor = stack.enter_context(closing(open_executor(settings.execution)))
        rater = stack.enter_context(
            closing(_open_rater(inputs, settings, items, learned, executor))
        )

        def parts() -> Iterator[raters.Part]:
            for block in blocks:
                people = _people(inputs, block)
                readings.update(raters.persona_readings(rater, people, items, max_texts=few))
                plan = inputs["score_plan"].of_cohort(cohort).filter(block.rows()).collect()
                yield raters.Part(plan, people, _of_personas(inputs["persona_embeddings"], people))

        work = raters.ScorePart(
            rater,
            items,
            scoring.seed,
            _batch(scoring, answers),
            scoring.explained if scoring.explain else 0.0,
            {"raters.CODE_VERSION": raters.CODE_VERSION},
        )
        # A model is asked from here: its engine's requests go to the workers.
        here = LocalExecutor() if raters.models_of(rater) else executor
        for frame in heard(scores.rows(work, parts(), here), answered):
            advance("scoring pairs", scores.scored, planned)
            sampled.append(frame.filter(pl.col("persona_id").is_in(sample)))
            yield frame
        some = pl.concat(sampled)
        by_set = DOMAINS[inputs.domain].choice_sets
        if not by_set and (some["status"] == raters.OK).any():
            quality = raters.quality_summary(
                some,
                rater=rater,
                seed=scoring.seed,
                item_stats=learned["item_stats"],
                interactions=learned["interactions"],
            )
            report.stats["quality"] = {"cohort": cohort, **quality}
        stats["failed"] = scores.statuses["engine_error"]
        stats["scoring"] = raters.scoring_metadata(rater, scores, readings=readings)
        examples = raters.example_pairs(some)
        people = _people_named(inputs, examples["persona_id"])
        stats["examples"] = raters.prompt_examples(rater, examples, people, items)
        if by_set:
            # A superset of those that the check draws, by the same hashes.
            people = _people_named(inputs, drawn[:_CONSISTENT])
            stats["consistency"] = raters.consistency(
                raters.for_personas(rater, _of_personas(inputs["persona_embeddings"], people)),
                people,
                items,
                _sets(inputs),
                seed=scoring.seed,
            )
            report.texts["consistency"] = raters.consistency_markdown(stats["consistency"])
    report.shown["scored_now"] = scores.scored
    # Figures of this cohort beside the table's, each an entry of its own to be plotted.
    report.shown.update(
        {name: v for name, v in stats["scoring"].items() if isinstance(v, int | float)}
    )


@dataclass(frozen=True)
class _Block:
    """Personas who are scored together: from one id up to the next block's first (None: open)."""

    first: str | None = None
    end: str | None = None

    def rows(self, column: str = "persona_id") -> pl.Expr:
        """Filter of the rows of the block's personas."""
        chosen = pl.lit(value=True)
        if self.first is not None:
            chosen &= pl.col(column) >= self.first
        return chosen if self.end is None else chosen & (pl.col(column) < self.end)


def _blocks(ids: pl.Series, size: int) -> list[_Block]:
    """All personas in blocks of so many; at least one block."""
    # The ends are open: somebody in the plan who is not among the personas is found.
    edges = [None, *ids.gather_every(size)[1:], None]
    return list(itertools.starmap(_Block, itertools.pairwise(edges)))


def _ids(inputs: Inputs) -> pl.Series:
    """Ids of the cohort's personas, ascending."""
    mine = inputs["personas"].of_cohort(str(inputs.partition))
    return mine.select("persona_id").collect()["persona_id"].sort()


def _drawn(ids: pl.Series, seed: int) -> pl.Series:
    """The ids in the order of their hashes."""
    return ids.gather(np.argsort(combine(seed, hash_ids(ids)), kind="stable"))


def _identity(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    return {**_scoring_identity(inputs, settings), "rated_by": _rated_by(inputs, settings)}


def _scoring_identity(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    """Identity of the domain's section of scores."""
    return {"scoring": settings.scoring_of(inputs.domain).identity_values()}


def _batch(scoring: ScoringSettings, answers: int) -> int:
    pairs = _BATCH_OF_MODELS if _names(scoring) & {*_MODELS, "ensemble"} else _BATCH
    return max(1, pairs * 10 // max(10, answers))


def _rated_by(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    """Inputs and settings that decide all scores of a cohort."""
    scoring = settings.scoring_of(inputs.domain)
    names = _names(scoring)
    fitted = {table for name in names for table in _fitted_on(name, inputs)}
    decides: dict[str, Any] = {
        "code": raters.CODE_VERSION,
        # Sizes of the plan and of its pieces show in the pairs, that of the report nowhere.
        "scoring": {
            name: value
            for name, value in scoring.identity_values().items()
            if name not in {"max_pairs", "plan", "judged"}
            and (scoring.explain or name != "explained")
        },
        "fitted_on": {table: inputs[table].version for table in sorted(fitted)},
    }
    if "listwise" in names:
        decides["choice_sets"] = _sets(inputs)["category_id"].unique().sort().to_list()
    return {**decides, **_asked(settings, inputs.domain)}


def _asked(settings: Settings, domain: str) -> dict[str, Any]:
    """Model and prompts that scores are asked of, or the version of a rater given by its class."""
    scoring = settings.scoring_of(domain)
    names = _names(scoring)
    if names & {*_MODELS}:
        lists = list_prompt_digest() if "listwise" in names else ""
        calibration = raters.calibration_file(settings, scoring)
        decided = {} if calibration is None else {"calibration": sha256_of(calibration)}
        return {
            "engine": settings.engine.identity_values(),
            "prompt": rating_prompt_digest(scoring.layout, scoring.question) + lists,
            **decided,
        }
    if "surrogate" in names:
        home, version = settings.runtime.home, settings.surrogate.snapshot
        return {"surrogate": raters.surrogate_version(home, domain, version)}
    if scoring.rater not in RATERS:
        return {"rater": code_of(RATERS[scoring.rater])}
    return {}


def _engines(scoring: ScoringSettings, engine: EngineSettings) -> list[tuple[EngineSettings, bool]]:
    """Engines of the rater, or of an ensemble's members; ``engine`` has those that name none."""
    engines = [m.engine or engine for m in scoring.ensemble if m.rater in _MODELS]
    if scoring.rater in _MODELS:
        engines.append(engine)
    return [(engine, True) for engine in engines]


def _fitted_on(name: str, inputs: Inputs) -> tuple[str, ...]:
    """Tables another version of which may change every score.

    A model that is asked about pairs learns nothing here: what its prompts say of an item decides
    that item's alone.
    """
    if name == "listwise":
        # A prompt shows the other products of the set as well.
        return ("choice_set_items", "items")
    if name in ("llm", "replay", "ensemble"):
        return ()
    # Of the statistical rater, a persona's vector decides that persona's alone.
    alone = () if name not in RATERS else ("persona_embeddings",)
    return tuple(t for t in raters.needs_of(name) if t in inputs and t not in alone)


def _names(scoring: ScoringSettings) -> set[str]:
    """Names of the rater and of an ensemble's members."""
    return {scoring.rater, *(member.rater for member in scoring.ensemble)}


def _sets(inputs: Inputs) -> pl.DataFrame:
    """Choice sets that are planned as a whole: a model is asked about no others."""
    mine = inputs["score_plan"].of_cohort(str(inputs.partition))
    planned = mine.select(pl.col("item_id").unique()).collect(engine="streaming")["item_id"]
    return raters.planned_sets(inputs["choice_set_items"].read(), planned)


def _learned(inputs: Inputs) -> _Learned:
    return _Learned(
        item_stats=inputs["item_stats"].read(),
        interactions=inputs["interactions"].scan(),
        splits=inputs["splits"].scan(),
    )


def _answers(settings: Settings, domain: str) -> AnswerStore | None:
    """The stored answers, if a model is asked."""
    if not _names(settings.scoring_of(domain)) & {*_MODELS}:
        return None
    return AnswerStore(settings.runtime.home, settings.serving)


def _open_rater(
    inputs: Inputs,
    settings: Settings,
    items: pl.DataFrame,
    learned: _Learned,
    executor: Executor,
) -> raters.Rater:
    """The configured rater; closing it releases its model and commits its answers."""
    names = _names(settings.scoring_of(inputs.domain))
    replayed = inputs.previous if "replay" in names else None
    options: dict[str, Any] = {t: inputs[t].read() for t in _OWN.get(inputs.domain, ())}
    if "listwise" in names:
        options["choice_set_items"] = _sets(inputs)
    if settings.execution.executor != "local":
        options["load"] = partial(ClusterEngine, executor=executor)
    rater = raters.open_rater(
        settings,
        items=items,
        item_embeddings=inputs["item_embeddings"].read(),
        persona_embeddings=_vectors_for(inputs, settings),
        preference_scores=None if replayed is None else replayed.read(),
        domain=inputs.domain,
        store=_answers(settings, inputs.domain),
        **learned,
        **options,
    )
    scale = settings.scoring_of(inputs.domain).scale
    if rater.scale.name != scale and "surrogate" in names:
        raise ConfigError(
            f"{rater.name} answers on {rater.scale.name}",
            where=f"scoring.scale is {scale}",
            hint=f"scoring.scale={rater.scale.name}",
        )
    return rater


def _people(inputs: Inputs, block: _Block) -> pl.DataFrame:
    """The cohort's personas of a block."""
    mine = inputs["personas"].of_cohort(str(inputs.partition))
    return mine.filter(block.rows()).collect().sort("persona_id")


def _people_named(inputs: Inputs, ids: pl.Series) -> pl.DataFrame:
    mine = inputs["personas"].of_cohort(str(inputs.partition))
    return mine.filter(pl.col("persona_id").is_in(ids.unique().implode())).collect()


def _vectors_for(inputs: Inputs, settings: Settings) -> pl.DataFrame:
    """Vectors that a rater is opened with: one persona's, if it can take those of others."""
    name = settings.scoring_of(inputs.domain).rater
    every = name not in RATERS and not hasattr(RATERS[name], "for_personas")
    ids = _ids(inputs).to_frame()
    return _of_personas(inputs["persona_embeddings"], ids if every else ids.head(1))


def _of_personas(vectors: Snapshot, people: pl.DataFrame) -> pl.DataFrame:
    ids = people["persona_id"]
    among = pl.col("persona_id").is_between(pl.lit(ids.min()), pl.lit(ids.max()))
    return (
        vectors.scan()
        .filter(among)
        .join(people.lazy().select("persona_id"), on="persona_id", how="semi")
        .collect()
    )


def _all_answered(inputs: Inputs) -> bool:
    """Return True if no call of the cohort's last scoring failed: failed ones are asked again."""
    if inputs.previous is None:
        return True
    return not inputs.previous.manifest.stats[OF_COHORT].get("failed")


def _stages(domain: str) -> list[Stage]:
    def left_out(settings: Settings, cohort: str | None) -> str | None:
        if is_matched(str(cohort)) and not settings.matching.scored:
            return f"{cohort} is matched, and matching.scored is false"
        if cohort_domain(str(cohort), settings.personas.domain) == domain:
            return None
        return f"{cohort} is not a cohort of the {domain}"

    by_set = DOMAINS[domain].choice_sets
    planned = ("choice_set_items",) if by_set else ("items", *_LEARNED_FROM)
    return [
        Stage(
            datasets=(f"{domain}.score_plan",),
            inputs=tables(domain, "personas", *planned),
            identity=_scoring_identity,
            settings=lambda settings: {"scoring": settings.scoring_of(domain).identity_values()},
            code_version=raters.CODE_VERSION,
            make=choice_plan if by_set else score_plan,
            by_cohort=True,
            left_out=left_out,
        ),
        Stage(
            datasets=(f"{domain}.preference_scores",),
            inputs=tables(
                domain,
                *("score_plan", "personas", "persona_embeddings", "items", *_LEARNED_FROM),
                *_OWN.get(domain, ()),
            ),
            identity=_identity,
            settings=lambda settings: {
                "scoring": settings.scoring_of(domain).identity_values(),
                **_asked(settings, domain),
            },
            code_version=raters.CODE_VERSION,
            make=preference_scores,
            reusable=_all_answered,
            by_cohort=True,
            left_out=left_out,
            asks=lambda settings, _: _engines(settings.scoring_of(domain), settings.engine),
            kinds=("numpy", "parquet"),
        ),
    ]


STAGES = [stage for name in DOMAINS for stage in _stages(name)]
