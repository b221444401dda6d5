"""Settings of one run, as the Launchpad shows them."""

# No postponed annotations here: Dagster reads the types of a configuration when it is defined.

from collections.abc import Mapping
from dataclasses import replace
from functools import reduce
from typing import Any

import dagster as dg
from pydantic import Field, create_model

from pipelines.config import Settings, read_value
from pipelines.context import PipelineContext

__all__ = ["RunSettings", "workbench_resource"]

#: Fields of the Launchpad: the settings that each is a name for.
_MEANS = {
    "cohort_size": ("personas.count",),
    "writer": ("personas.writer",),
    "seed": ("personas.seed",),
    "domain": ("personas.domain",),
    "rater": ("scoring.rater",),
    "max_pairs": ("scoring.max_pairs", "product_scoring.max_pairs"),
    "max_tokens": ("serving.max_tokens",),
    "max_cost": ("serving.max_cost",),
}


class RunSettings(dg.Config):
    """Settings that override file and environment in this run, like ``--set``."""

    cohort_size: int | None = Field(
        None,
        description="Personas in a generated cohort (count): the simulated people of the run's "
        "partition, made together with the same settings.",
    )
    writer: str | None = Field(
        None, description="Writer of the descriptions: statistical, or model (of `engine`)."
    )
    seed: int | None = Field(None, description="Seed of a generated cohort.")
    domain: str | None = Field(
        None,
        description="Domain of cohorts whose name does not begin with one: movies, books, games or "
        "products.",
    )
    rater: str | None = Field(
        None, description="Rater of the scores: statistical, llm, ensemble, ... or module:Class."
    )
    max_pairs: int | None = Field(None, description="Maximum (persona, item) pairs (count).")
    max_tokens: int | None = Field(
        None, description="Tokens in and out after which a run that asks a model stops (count)."
    )
    max_cost: float | None = Field(
        None, description="Cost after which a run that asks a model stops (currency of the prices)."
    )
    set: dict[str, Any] = Field(
        default_factory=dict,
        description="Any other setting by section.key (docs/reference/settings.md).",
    )

    def overrides(self) -> dict[str, Any]:
        """The nested mapping of settings that these values stand for.

        >>> RunSettings(cohort_size=50, set={"graph.alpha": 0.5}).overrides()
        {'personas': {'count': 50}, 'graph': {'alpha': 0.5}}
        """
        named = {key: getattr(self, field) for field, keys in _MEANS.items() for key in keys}
        out: dict[str, Any] = {}
        for name, value in ({k: v for k, v in named.items() if v is not None} | self.set).items():
            *sections, key = name.split(".")
            node = out
            for section in sections:
                node = node.setdefault(section, {})
            node[key] = read_value(value) if isinstance(value, str) else value
        return out


def workbench_resource(base: PipelineContext) -> dg.ResourceDefinition:
    """Settings and store of a run: those of the code location, with those of the Launchpad."""
    shown = _shown(base.settings)

    def make(context: dg.InitResourceContext) -> PipelineContext:
        # Values left as the Launchpad shows them don't override settings file and environment.
        given = {
            name: value
            for name, value in (context.resource_config or {}).items()
            if value not in (None, {}) and value != shown.get(name)
        }
        if not given:
            return base
        # Settings are read when a step asks for them: a wrong one fails the step in one line.
        return replace(base, overrides=_merged(base.overrides, RunSettings(**given).overrides()))

    return dg.ResourceDefinition(
        make,
        config_schema=_with_defaults(shown).to_config_schema(),
        description="Settings of this run. Omitted ones are taken from the settings file and the "
        "environment. The run's partition is a cohort: people who are made together with them.",
    )


def _shown(settings: Settings) -> dict[str, Any]:
    """Values of the code location by field; none where a field's settings differ or are unset."""
    found = {}
    for name, keys in _MEANS.items():
        values = [reduce(getattr, key.split("."), settings) for key in keys]
        if values[0] is not None and all(value == values[0] for value in values):
            found[name] = values[0]
    return found


def _with_defaults(shown: Mapping[str, Any]) -> type[RunSettings]:
    """The fields with these defaults, with which the Launchpad opens."""
    fields: dict[str, Any] = {
        name: (field.annotation, Field(shown[name], description=field.description))
        for name, field in RunSettings.model_fields.items()
        if name in shown
    }
    return create_model("RunSettings", __base__=RunSettings, **fields)


def _merged(first: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, Any]:
    out = {k: dict(v) if isinstance(v, Mapping) else v for k, v in first.items()}
    for key, value in then.items():
        old = out.get(key)
        both = isinstance(value, Mapping) and isinstance(old, Mapping)
        out[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return out
