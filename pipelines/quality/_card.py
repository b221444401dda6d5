"""The dataset card of a release, as Markdown whose bytes follow from its content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from pipelines.markdown import code_span, escape_markdown
from pipelines.quality._summary import RATER_TABLES, means_of, shown_population
from pipelines.renames import current_name
from pipelines.sources import rejected_line

if TYPE_CHECKING:
    from jinja2 import Template

    from pipelines.config import Settings
    from pipelines.licences import Licence
    from pipelines.store import Snapshot

#: Writers and raters that use no language model.
_STATISTICAL = frozenset({"statistical", "random", "mean", "facets", "text", "words"})


def dataset_card(
    name: str,
    *,
    world: str,
    tables: Mapping[str, Snapshot],
    licences: Mapping[str, Licence] | Iterable[Licence],
    summary: Mapping[str, Any],
    settings: Settings,
) -> str:
    """Markdown card of a release: contents, origin, quality and terms.

    Only identity sections of the settings are shown: no path, no secret, nothing of the machine,
    and no times. The release's version is not in it, because it follows from what is released.
    """
    named = licences if isinstance(licences, Mapping) else {item.name: item for item in licences}
    writers, raters = list(summary.get("writers", {})), list(summary.get("rater", []))
    if "ensemble" in raters:
        raters = [member.rater for member in settings.scoring_of(name).ensemble]
    used = {current_name(name) for name in (*writers, *raters)}
    figures = summary.get("raters") or {}
    # A plug-in's facts may have another shape.
    noted = figures.get("facts", {}).get("fitted")
    fitted = noted if isinstance(noted, Mapping) else {}
    card = _template().render(
        name=name,
        world=world,
        generated=world.startswith("sample"),
        item=summary.get("item", "item"),
        summary=summary,
        contents=_contents(summary),
        rejected=[rejected_line(entry) for entry in summary.get("rejected", ())],
        tables=_tables(tables),
        config=yaml.safe_dump(settings.identity(), sort_keys=True, allow_unicode=True).rstrip(),
        checks=summary.get("checks", {}),
        means=means_of(summary),
        rater_tables=[
            {"title": title, "who": who, "measure": measure, "rows": figures[key]}
            for key, who, measure, title in RATER_TABLES
            if figures.get(key)
        ],
        population=shown_population(summary),
        reading=_reading(summary),
        interval=figures.get("interval"),
        writers=writers,
        raters=raters,
        no_model=used <= _STATISTICAL,
        without_model=sorted(used & _STATISTICAL),
        taste_prior=str(fitted.get("taste_prior", "")),
        licences=sorted(named.items()),
    )
    return card.rstrip() + "\n"


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    # Markdown, not HTML: every value goes through a filter of ours.
    environment = Environment(
        autoescape=False,  # noqa: S701
        undefined=StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "text": lambda value: escape_markdown(str(value)),
        "code": code_span,
        "n": lambda value: f"{value:,}",
        "address": lambda url: "".join(c for c in url if c.isprintable() and c not in " <>`|"),
    }
    return environment.from_string(Path(__file__).with_name("card.md.jinja").read_text("utf-8"))


def _contents(summary: Mapping[str, Any]) -> list[str]:
    """Counts of what a release holds, as phrases."""
    counts = {
        f"{summary.get('item', 'item')}s": summary.get("items"),
        "human ratings": summary.get("ratings"),
        "human users": summary.get("users"),
        _personas(summary): summary.get("personas"),
        "scored pairs of persona and item": (summary.get("pairs") or {}).get("scored"),
        "graph triples": sum(summary.get("triples", {}).values()) or None,
    }
    return [f"{count:,} {what}" for what, count in counts.items() if count is not None]


def _personas(summary: Mapping[str, Any]) -> str:
    """Word for personas in the card, with the number of those that have a score."""
    scored = summary.get("scored_personas")
    return "personas" if scored is None else f"personas ({scored:,} of them scored)"


def _reading(summary: Mapping[str, Any]) -> str:
    """Sources of the personas' tastes (fields or text), and the models that read texts."""
    from pipelines.personas import reading_statement

    sentences = (
        [f"Personas: {reading_statement(summary['reading'])}"] if "reading" in summary else []
    )
    sentences += [
        f"The texts of cohort {cohort} were read by the model {reader['model']}: something in "
        f"{reader['read']:,} of {reader['texts']:,}."
        for cohort, reader in sorted(summary.get("text_readers", {}).items())
        if reader
    ]
    return " ".join(sentences)


def _tables(tables: Mapping[str, Snapshot]) -> list[dict[str, Any]]:
    from pipelines.contracts import CONTRACTS

    shown = []
    for name, snapshot in sorted(tables.items()):
        contract, manifest = CONTRACTS.get(snapshot.dataset), snapshot.manifest
        shown.append(
            {
                "name": name,
                "rows": snapshot.rows,
                "bytes": snapshot.bytes,
                "version": snapshot.version,
                "description": contract.description if contract else "",
                "columns": contract.columns() if contract else [],
                "code_version": manifest.code_version,
                "inputs": [f"{k}@{v[:16]}" for k, v in sorted(manifest.inputs.items())],
            }
        )
    return shown
