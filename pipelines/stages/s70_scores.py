"""Preference scores of a domain: the rating that each persona would give each planned item."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypedDict

import numpy as np
import polars as pl

from pipelines import raters
from pipelines.config import Settings
from pipelines.domains import DOMAINS, cohort_domain
from pipelines.llm.answers import AnswerStore
from pipelines.personas import is_matched
from pipelines.plugins import closing
from pipelines.prompts import rating_prompt_digest
from pipelines.seeding import combine, hash_ids
from pipelines.stages._stage import Inputs, Report, Stage, tables
from pipelines.store import Snapshot

__all__ = ["STAGES"]

_LEARNED_FROM = ("item_stats", "item_embeddings", "interactions", "splits")
_MODELS = ("llm", "ensemble")
#: Pairs at most, of whole personas, that the summary of a table is about (count).
_SUMMARISED = 1_000_000


class _Learned(TypedDict):
    """The human ratings that raters are fitted on and judged by."""

    item_stats: pl.DataFrame
    interactions: pl.LazyFrame
    splits: pl.LazyFrame


def score_plan(inputs: Inputs, settings: Settings, report: Report) -> list[pl.DataFrame]:
    """Choose the pairs of one cohort, beside those of the others, with their exposure."""
    people, scoring = _people(inputs), settings.scoring
    learned: dict[str, Any] = {
        "interactions": inputs["interactions"].scan(),
        "splits": inputs["splits"].scan(),
    }
    exposure = None
    if not learned["splits"].filter(pl.col("split") == "train").head(1).collect().is_empty():
        rater = raters.fit_statistical(
            scale=raters.scale_named(scoring.scale),
            items=inputs["items"].read(),
            item_stats=inputs["item_stats"].read(),
            item_embeddings=inputs["item_embeddings"].read(),
            seed=scoring.seed,
            taste=scoring.taste,
            **learned,
        )
        model = raters.fit_exposure(rater, **learned, seed=scoring.seed)
        exposure = model.of(people["persona_id"], rater.persona_tastes(people))
        report.stats["exposure"] = model.metadata
    plan = raters.plan_pairs(
        people, inputs["items"].read(["item_id"]), inputs["item_stats"].read(), scoring, exposure
    )
    report.cohort_stats["pairs"] = plan.height
    return [plan]


def preference_scores(inputs: Inputs, settings: Settings, report: Report) -> Iterator[pl.DataFrame]:
    """Ask the configured rater what each persona of a cohort would give each planned item.

    The cohort is scored in shards. Those that the last version holds are kept, and those that a
    killed run finished are in the scratch folder.
    """
    cohort, seed = str(inputs.partition), settings.scoring.seed
    people, items = _people(inputs), inputs["items"].read()
    shards = raters.Shards(
        cohort,
        inputs["score_plan"].scan().filter(raters.in_cohort(cohort)).collect(),
        people,
        items,
        _rated_by(inputs, settings),
        settings.scoring.shards,
        inputs.scratch,
        inputs.previous,
        _about(inputs, settings, people),
    )
    own = report.cohort_stats
    if inputs.previous is not None:
        noted = inputs.previous.manifest.stats
        own.update(
            {k: noted[k][cohort] for k in ("scoring", "examples") if cohort in noted.get(k, ())}
        )
    if shards.missing():
        learned = _Learned(
            item_stats=inputs["item_stats"].read(),
            interactions=inputs["interactions"].scan(),
            splits=inputs["splits"].scan(),
        )
        with _rater(inputs, settings, people, items, learned) as rater:
            shards.score(
                rater,
                seed=seed,
                # Models take longer and are asked fewer pairs at once.
                batch=16_384 if settings.scoring.rater in _MODELS else 65_536,
                explain=settings.scoring.explained if settings.scoring.explain else 0.0,
                error_budget=settings.serving.error_budget,
                progress=report.advance(f"{inputs.domain}: score pairs of {cohort}"),
            )
            some = _sampled_rows(shards, seed)
            if (some["status"] == raters.OK).any():
                quality = raters.quality_summary(
                    some,
                    rater=rater,
                    seed=seed,
                    item_stats=learned["item_stats"],
                    interactions=learned["interactions"],
                )
                report.stats["quality"] = {"cohort": cohort, **quality}
            own["scoring"] = raters.scoring_facts(rater, shards)
            own["examples"] = raters.prompt_examples(rater, some, people, items)
    own["shards"] = {"count": shards.count, "keys": shards.keys, "failed": shards.failed}
    report.shown["scored_now"] = shards.scored
    # Figures of this cohort beside the table's, each an entry of its own to be plotted.
    facts = own.get("scoring", {})
    report.shown.update({name: v for name, v in facts.items() if isinstance(v, int | float)})
    return shards.rows()


def _identity(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    return {**settings.identity("scoring"), "rated_by": _rated_by(inputs, settings)}


def _rated_by(inputs: Inputs, settings: Settings) -> dict[str, Any]:
    """Inputs and settings that decide all scores of a cohort."""
    rater = settings.scoring.rater
    fitted = {table for name in _raters(settings) for table in _fitted_on(name, inputs)}
    decides: dict[str, Any] = {
        "code": raters.CODE_VERSION,
        # Sizes of the plan and of its pieces show in the pairs, that of the report nowhere.
        "scoring": settings.scoring.model_dump(
            mode="json",
            exclude={"shards", "max_pairs", "plan", "judged"}
            | (set() if settings.scoring.explain else {"explained"}),
        ),
        "fitted_on": {table: inputs[table].version for table in sorted(fitted)},
    }
    if rater in _MODELS:
        decides["engine"] = settings.engine.identity_values()
        decides["prompt"] = rating_prompt_digest()
    elif ":" in rater:
        decides["rater"] = getattr(raters.rater_class(rater), "code_version", "1")
    return decides


def _fitted_on(name: str, inputs: Inputs) -> tuple[str, ...]:
    """Tables another version of which may change every score.

    Models learn nothing here: what their prompts say of an item decides that item's alone.
    """
    if name in (*_MODELS, "replay"):
        return ()
    # Of the statistical rater, a persona's vector decides that persona's alone.
    alone = () if ":" in name else ("persona_embeddings",)
    return tuple(t for t in raters.needs_of(name) if t in inputs and t not in alone)


def _raters(settings: Settings) -> set[str]:
    return {settings.scoring.rater, *(member.rater for member in settings.scoring.ensemble)}


def _about(inputs: Inputs, settings: Settings, people: pl.DataFrame) -> dict[str, pl.DataFrame]:
    """Tables whose rows decide the scores of one persona or one item."""
    about = {}
    if "statistical" in _raters(settings):
        about["persona_embeddings"] = _of_cohort(inputs["persona_embeddings"], people)
    if "llm" in _raters(settings):
        about["item_stats"] = inputs["item_stats"].read(["item_id", "train_mean_rating"])
    return about


def _sampled_rows(shards: raters.Shards, seed: int) -> pl.DataFrame:
    """Scores of some personas, chosen by hash, that the summary is about."""
    people = shards.plan["persona_id"].unique().sort()
    count = max(1, _SUMMARISED * len(people) // shards.plan.height)
    order = np.argsort(combine(seed, hash_ids(people)), kind="stable")
    chosen = people[np.sort(order[:count])].implode()
    return pl.concat(frame.filter(pl.col("persona_id").is_in(chosen)) for frame in shards.rows())


@contextmanager
def _rater(
    inputs: Inputs,
    settings: Settings,
    people: pl.DataFrame,
    items: pl.DataFrame,
    learned: _Learned,
) -> Iterator[raters.Rater]:
    """The configured rater, its model released and its answers committed afterwards."""
    name = settings.scoring.rater
    replayed = inputs.previous if name == "replay" else None
    rater = raters.open_rater(
        settings,
        items=items,
        item_embeddings=inputs["item_embeddings"].read(),
        persona_embeddings=_of_cohort(inputs["persona_embeddings"], people),
        preference_scores=None if replayed is None else replayed.read(),
        domain=inputs.domain,
        store=AnswerStore(settings.runtime.home, settings.serving) if name in _MODELS else None,
        **learned,
    )
    with closing(rater):
        yield rater


def _people(inputs: Inputs) -> pl.DataFrame:
    return inputs["personas"].scan().filter(pl.col("cohort") == inputs.partition).collect()


def _of_cohort(vectors: Snapshot, people: pl.DataFrame) -> pl.DataFrame:
    return (
        vectors.scan()
        .join(people.lazy().select("persona_id"), on="persona_id", how="semi")
        .collect()
    )


def _all_answered(inputs: Inputs) -> bool:
    """Whether no call of the cohort's last scoring failed: failed ones are asked again."""
    noted = inputs.previous.manifest.stats.get("shards", {}) if inputs.previous else {}
    return not noted.get(str(inputs.partition), {}).get("failed")


def _stages(domain: str) -> list[Stage]:
    def left_out(settings: Settings, cohort: str | None) -> str | None:
        if is_matched(str(cohort)) and not settings.matching.scored:
            return f"{cohort} is matched, and matching.scored is false"
        if cohort_domain(str(cohort), settings.personas.domain) == domain:
            return None
        return f"{cohort} is no cohort of the {domain}"

    return [
        Stage(
            datasets=(f"{domain}.score_plan",),
            inputs=tables(
                domain,
                "personas",
                "items",
                "item_stats",
                "interactions",
                "splits",
                "item_embeddings",
            ),
            identity=("scoring",),
            code_version=raters.CODE_VERSION,
            make=score_plan,
            by_cohort=True,
            left_out=left_out,
        ),
        Stage(
            datasets=(f"{domain}.preference_scores",),
            inputs=tables(
                domain, "score_plan", "personas", "persona_embeddings", "items", *_LEARNED_FROM
            ),
            identity=_identity,
            code_version=raters.CODE_VERSION,
            make=preference_scores,
            reusable=_all_answered,
            by_cohort=True,
            left_out=left_out,
            kinds=("numpy", "parquet"),
        ),
    ]


STAGES = [stage for name, d in DOMAINS.items() if d.personas for stage in _stages(name)]
