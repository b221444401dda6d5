"""The dataset card of a release, as Markdown whose bytes follow from its content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from pipelines.markdown import UNPRINTABLE, escape_markdown
from pipelines.quality._summary import RATER_TABLES
from pipelines.renames import current_name

if TYPE_CHECKING:
    from pipelines.config import Settings
    from pipelines.store import Snapshot

__all__ = ["LicenceLike", "dataset_card"]


class LicenceLike(Protocol):
    """What the card needs of a licence (``pipelines.sources.Licence`` has it)."""

    @property
    def name(self) -> str:
        """Short name."""

    @property
    def url(self) -> str:
        """Where the terms can be read."""

    @property
    def terms(self) -> str:
        """What they allow and ask for."""

    @property
    def citation(self) -> str:
        """How to cite the data, or an empty string."""


#: Writers and raters that use no language model.
_STATISTICAL = frozenset({"statistical", "random", "mean"})
_NO_MODEL = (
    "No language model was used. Personas are written by the statistical writer, which combines "
    "phrases of our own; scores come from {raters}. They are a baseline and a stand-in, not "
    "evidence of how people or language models behave."
)
_MODEL = (
    "Personas are written by {writers} and scores come from {raters}; of these only those named "
    "`statistical`, `random` or `mean` use no language model. What a model writes is not evidence "
    "of how people behave."
)
_PERSONAS = (
    "Personas follow US census shares of age and gender and US preference shares of genres; "
    "they stand for no real person and for no other country."
)
_GENERATED = (
    "Items, users and ratings of this world are generated: figures about them say whether the "
    "pipeline works, not how people rate."
)
_POOLED = (
    "The covariance of people's tastes, which personas' tastes are drawn from, is {prior}: there "
    "are too few ratings here for one of their own."
)
_REAL = (
    "Human ratings come from volunteers of one service; items nobody chose to rate say nothing.",
    "Features that the source lacks are null or empty, never guessed.",
)
_SCORES = "Persona scores are not observations. Judge them beside the baselines above."


def dataset_card(
    name: str,
    *,
    world: str,
    tables: Mapping[str, Snapshot],
    licences: Mapping[str, LicenceLike] | Iterable[LicenceLike],
    summary: Mapping[str, Any],
    settings: Settings,
) -> str:
    """Markdown that says what a release is, how it was made, how good it is and on what terms.

    Parameters
    ----------
    name
        Name of the release, such as ``movies``.
    world
        The sources it was made from, such as ``sample`` or ``ml-latest-small``.
    tables
        Snapshots by short name.
    licences
        Licence of every source, by source name or just listed.
    summary
        Of :func:`~pipelines.quality.release_summary`.
    settings
        Only identity sections are shown: no path, no secret, nothing of the machine.

    Returns
    -------
    str
        The same for the same content: no times, paths or host names. The release's version is
        not in it, because the version follows from what is released.
    """
    named = licences if isinstance(licences, Mapping) else {item.name: item for item in licences}
    sections = (
        _head(name, world, summary),
        _tables(tables),
        _making(tables, settings),
        _quality(summary),
        _limitations(world, summary),
        _licences(world, named),
        _columns(tables),
    )
    return "\n\n".join(sections) + "\n"


def _head(name: str, world: str, summary: Mapping[str, Any]) -> str:
    bits = [
        f"{summary[key]:,} {text}"
        for key, text in (
            ("items", f"{summary.get('item', 'item')}s"),
            ("ratings", "human ratings"),
            ("users", "human users"),
            ("personas", "personas"),
        )
        if summary.get(key) is not None
    ]
    if summary.get("pairs"):
        bits.append(f"{summary['pairs']['scored']:,} scored pairs of persona and item")
    if summary.get("triples"):
        bits.append(f"{sum(summary['triples'].values()):,} graph triples")
    holds = f" It holds {', '.join(bits)}." if bits else ""
    people = " and synthetic users (personas) with scored preferences" if "pairs" in summary else ""
    made = "files generated in the original formats" if _generated(world) else "real files"
    return (
        f"# Dataset {escape_markdown(name)}\n\n"
        f"{summary.get('item', 'item').capitalize()}s, human ratings{people}, for building and "
        "judging simulated users of recommender systems. "
        f"World: `{_code(world)}` ({made}).{holds}"
    )


def _tables(tables: Mapping[str, Snapshot]) -> str:
    lines = [
        "## Tables",
        "",
        "Columns are listed at the end, and in `docs/reference/tables.md` of the code.",
        "",
        "| table | rows | bytes | version | what it is |",
        "| --- | ---: | ---: | --- | --- |",
    ]
    contracts = _contracts()
    for short, snapshot in sorted(tables.items()):
        contract = contracts.get(snapshot.dataset)
        text = escape_markdown(contract.description) if contract else ""
        lines.append(
            f"| {escape_markdown(short)} | {snapshot.rows:,} | {snapshot.bytes:,} "
            f"| `{snapshot.version}` | {text} |"
        )
    return "\n".join(lines)


def _making(tables: Mapping[str, Snapshot], settings: Settings) -> str:
    lines = [
        "## How it was made",
        "",
        "| table | code version | made from |",
        "| --- | --- | --- |",
    ]
    for short, snapshot in sorted(tables.items()):
        made = snapshot.manifest
        parents = ", ".join(f"`{_code(f'{k}@{v[:16]}')}`" for k, v in sorted(made.inputs.items()))
        lines.append(f"| {escape_markdown(short)} | `{_code(made.code_version)}` | {parents} |")
    config = yaml.safe_dump(settings.identity(), sort_keys=True, allow_unicode=True)
    return "\n".join([*lines, "", "Configuration:", "", "```yaml", config.rstrip(), "```"])


def _quality(summary: Mapping[str, Any]) -> str:
    lines = ["## Quality", ""]
    checks = summary.get("checks", {})
    lines.append(
        f"Checks: {checks.get('passed', 0)} passed, {checks.get('failed', 0)} failed, "
        f"{checks.get('warned', 0)} warned, {checks.get('not_applicable', 0)} not applicable."
    )
    if checks.get("failing"):
        lines += ["", "Not passed: " + ", ".join(f"`{_code(c)}`" for c in checks["failing"]) + "."]
    items, item = summary.get("items"), summary.get("item", "item")
    if items:
        lines += ["", f"| {item}s with | count | share |", "| --- | ---: | ---: |"]
        for key, count in summary.get("items_with", {}).items():
            label = escape_markdown(str(key).replace("_", " "))
            lines.append(f"| {label} | {count:,} | {count / items:.1%} |")
    means = {"human ratings (scale of the source)": summary.get("mean_rating")}
    for scale, mean in summary.get("mean_score", {}).items():
        means[f"persona scores (scale {scale})"] = mean
    shown = {k: v for k, v in means.items() if v}
    if shown:
        lines += ["", "| mean of | value | 95 % interval | rows |", "| --- | ---: | --- | ---: |"]
        for label, m in shown.items():
            interval = f"{m['low']:.3f} to {m['high']:.3f}"
            lines.append(f"| {label} | {m['value']:.3f} | {interval} | {m['n']:,} |")
    return "\n".join([*lines, *_rater_tables(summary.get("raters") or {})])


def _rater_tables(figures: Mapping[str, Any]) -> list[str]:
    """Tables of the raters' figures; baselines are rows of the same table."""
    lines: list[str] = []
    for key, who, measure, text in RATER_TABLES:
        rows = figures.get(key)
        if not rows:
            continue
        lines += [
            "",
            f"{text}:",
            "",
            f"| {who} | {measure} | 95 % interval |",
            "| --- | ---: | --- |",
        ]
        lines += [
            f"| {escape_markdown(str(row[who]))} | {row[measure]:.3f} "
            f"| {row['low']:.3f} to {row['high']:.3f} |"
            for row in rows
        ]
    if lines and figures.get("interval"):
        lines += ["", f"Intervals: {escape_markdown(str(figures['interval']))}."]
    return lines


def _limitations(world: str, summary: Mapping[str, Any]) -> str:
    writers, raters = list(summary.get("writers", {})), list(summary.get("rater", []))
    named = {current_name(name) for name in (*writers, *raters)}
    text = _NO_MODEL if named <= _STATISTICAL else _MODEL
    who = text.format(writers=_names(writers, "writer"), raters=_names(raters, "rater"))
    limits = [
        *([who, _PERSONAS] if "personas" in summary else []),
        *([_GENERATED] if _generated(world) else _REAL),
    ]
    if "pairs" in summary:
        limits.append(_SCORES)
    fitted = summary.get("raters", {}).get("facts", {}).get("fitted", {})
    if str(fitted.get("taste_prior", "")).startswith("pooled"):
        limits.append(_POOLED.format(prior=escape_markdown(fitted["taste_prior"])))
    return "\n".join(["## Known limits", "", *(f"- {limit}" for limit in limits)])


def _generated(world: str) -> bool:
    return world.startswith("sample")


def _names(names: list[str], what: str) -> str:
    quoted = ", ".join(f"`{_code(name)}`" for name in names or ["statistical"])
    return f"the {quoted} {what}"


def _licences(world: str, licences: Mapping[str, LicenceLike]) -> str:
    lines = ["## Licences and terms of the sources"]
    if _generated(world):
        lines += ["", "The files of this world only have the formats of these sources."]
    for source, licence in sorted(licences.items()):
        lines += [
            "",
            f"### {escape_markdown(source)}",
            "",
            f"{escape_markdown(licence.name)}. {escape_markdown(licence.terms)}",
        ]
        if licence.url:
            lines += ["", f"Terms: <{_address(licence.url)}>"]
        if licence.citation:
            lines += ["", f"Cite: {escape_markdown(licence.citation)}"]
    return "\n".join(lines)


def _columns(tables: Mapping[str, Snapshot]) -> str:
    lines = ["## Columns"]
    contracts = _contracts()
    for short, snapshot in sorted(tables.items()):
        contract = contracts.get(snapshot.dataset)
        if contract is None:
            continue
        lines += ["", f"### {escape_markdown(short)}", ""]
        lines += ["| column | type | unit | null | meaning |", "| --- | --- | --- | --- | --- |"]
        for column in contract.columns():
            unit = " ".join(x for x in (column.unit, column.range) if x)
            lines.append(
                f"| `{column.name}` | {escape_markdown(column.dtype)} | {escape_markdown(unit)} "
                f"| {'yes' if column.nullable else 'no'} | {escape_markdown(column.description)} |"
            )
    return "\n".join(lines)


def _contracts() -> Mapping[str, Any]:
    from pipelines.contracts import CONTRACTS

    return CONTRACTS


def _code(text: str) -> str:
    """Text for a code span in a table cell: one line, no back-ticks, no cell breaks."""
    return " ".join(UNPRINTABLE.sub(" ", text).replace("`", "'").replace("|", "/").split())


def _address(url: str) -> str:
    return "".join(c for c in url if c.isprintable() and c not in " <>`|")
