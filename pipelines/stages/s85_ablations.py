"""Case tables of the ablation suites, made by rule from a domain's tables."""

from __future__ import annotations

import polars as pl

from pipelines import ablations
from pipelines.ablations import CaseRule
from pipelines.config import Settings
from pipelines.errors import ContractError
from pipelines.stages._stage import Check, Inputs, Report, Stage

__all__ = ["STAGES", "case_stage"]


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


STAGES = [
    case_stage(domain, table) for domain in ("movies", "books") for table in ablations.CASE_TABLES
]
