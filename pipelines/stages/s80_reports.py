"""Reports on raters and populations, and the cases of the ablation suites."""

from __future__ import annotations

from typing import Any

import polars as pl

from pipelines import ablations, personas, raters
from pipelines.ablations import CaseRule
from pipelines.config import Settings
from pipelines.domains import DOMAINS
from pipelines.errors import ContractError
from pipelines.plugins import closing, code_of
from pipelines.seams import RATERS
from pipelines.stages._stage import Check, Inputs, Report, Stage, tables
from pipelines.store.files import sha256_of

#: Raters that are always in the report; the configured one comes beside them.
_ALWAYS = ("statistical", "mean", "random")


def rater_report(inputs: Inputs, settings: Settings, report: Report) -> list[pl.DataFrame]:
    """Evaluate raters and baselines on held-out human ratings, with intervals."""
    items = inputs["items"].read()
    learned: dict[str, Any] = {
        "item_stats": inputs["item_stats"].read(),
        "interactions": inputs["interactions"].scan(),
        "splits": inputs["splits"].scan(),
    }
    vectors = inputs["item_embeddings"].read()
    scoring = settings.scoring
    judged: list[raters.Rater] = [
        raters.fit_rater(
            name,
            scale=scoring.scale,
            items=items,
            item_embeddings=vectors,
            seed=scoring.seed,
            **learned,
        )
        for name in _ALWAYS
    ]
    extra: raters.Rater | None = None
    # A replay and a surrogate know personas only, and have nothing to say about people.
    if scoring.rater not in (*_ALWAYS, "replay", "surrogate"):
        extra = raters.open_rater(
            settings, items=items, item_embeddings=vectors, domain=inputs.domain, **learned
        )
        judged.append(extra)
    with closing(extra):
        evaluation = raters.whole_report(
            judged,
            items=items,
            item_embeddings=vectors,
            **learned,
            human_users=inputs["human_users"].read(),
            limits={extra.name: scoring.judged} if extra else None,
            seed=scoring.seed,
        )
    report.stats.update(report=evaluation.metadata, reliability=evaluation.reliability)
    report.texts["figures"] = evaluation.study().markdown(level=2)
    report.plots["reliability"] = raters.reliability_plot(evaluation.reliability)
    return [evaluation.table]


def _identity(settings: Settings) -> dict[str, Any]:
    identity, name = settings.identity("scoring", "engine"), settings.scoring.rater
    calibration = raters.calibration_file(settings, settings.scoring)
    if calibration is not None:
        identity["calibration"] = sha256_of(calibration)
    if name not in RATERS:
        identity["rater"] = code_of(RATERS[name])
    return identity


def population(inputs: Inputs, settings: Settings, report: Report) -> list[pl.DataFrame]:
    """Compare the tastes, levels and spreads of personas with those of people, with intervals."""
    scoring = settings.scoring
    items = inputs["items"].read()
    learned: dict[str, Any] = {
        "items": items,
        "interactions": inputs["interactions"].scan(),
        "splits": inputs["splits"].scan(),
    }
    # Item features and people's expected ratings come from this rater, whichever one scored.
    rater = raters.fit_statistical(
        scale=raters.scale_named(scoring.scale),
        item_stats=inputs["item_stats"].read(),
        item_embeddings=inputs["item_embeddings"].read(),
        seed=scoring.seed,
        **learned,
    )
    tables = {name: learned[name] for name in ("interactions", "splits")}
    model = raters.fit_exposure(rater, **tables, seed=scoring.seed)
    comparison = raters.population_report(
        inputs["preference_scores"].scan(),
        personas=inputs["personas"].read(),
        rater=rater,
        plan=inputs["score_plan"].scan(),
        selection=raters.judge_exposure(model, rater, **tables, seed=scoring.seed),
        seed=scoring.seed,
        **learned,
    )
    comparison.metadata["reading"] = personas.noted_readings(
        inputs["preference_scores"].manifest.stats
    )
    report.stats["population"] = comparison.metadata
    report.texts["figures"] = raters.population_markdown(comparison.table, comparison.metadata)
    report.plots.update(raters.population_pictures(comparison.table, comparison.metadata))
    return [comparison.table]


STAGES = [
    Stage(
        datasets=(f"{domain.name}.rater_report",),
        inputs=tables(
            domain.name,
            *("items", "item_stats", "interactions", "splits", "item_embeddings", "human_users"),
        ),
        identity=lambda inputs, settings: _identity(settings),
        settings=_identity,
        code_version=f"{raters.CODE_VERSION}.2",
        make=rater_report,
    )
    for domain in DOMAINS.values()
    if not domain.choice_sets
] + [
    Stage(
        datasets=(f"{domain.name}.population",),
        inputs=tables(
            domain.name,
            *("personas", "preference_scores", "items", "item_stats", "interactions", "splits"),
            *("item_embeddings", "score_plan"),
        ),
        identity=("scoring",),
        code_version=f"{raters.CODE_VERSION}.2",
        make=population,
    )
    for domain in DOMAINS.values()
    if not domain.choice_sets
]


def case_stage(domain: str, table: str, rule: CaseRule | None = None) -> Stage:
    """The stage of one case table."""
    dataset, rule = f"ablations.{domain}_{table}", rule or CaseRule()

    def make(inputs: Inputs, settings: Settings, report: Report) -> pl.DataFrame:
        """Make the cases and check them."""
        frame, facts = ablations.make_cases(domain, table, inputs, rule)
        report.stats.update(facts)
        report.checks += ablations.check_cases(table, frame, inputs)
        for record in report.checks:
            if not record.passed:
                raise ContractError(
                    f"the check {record.name} failed: {record.details['message']}",
                    where=dataset,
                    details=record.details,
                )
        return frame

    return Stage(
        datasets=(dataset,),
        inputs=ablations.needs(table, domain),
        identity=lambda inputs, settings: rule.metadata(),
        code_version=ablations.CODE_VERSION,
        make=make,
        kinds=("polars", "parquet"),
        checks=tuple(Check(*check) for check in ablations.CHECKS[table].items()),
        # A domain may have no series at all, or no rating outside the training split.
        allow_empty=True,
    )


STAGES += [
    case_stage(domain, table) for domain in ("movies", "books") for table in ablations.CASE_TABLES
]
