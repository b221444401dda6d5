"""The summary of a release for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipelines.quality._summary import RATER_TABLES

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

__all__ = ["render_summary"]


def render_summary(summary: Mapping[str, Any]) -> Group:
    """What a release holds and how good it is, as tables for a rich console.

    Parameters
    ----------
    summary
        Of :func:`~pipelines.quality.release_summary`.
    """
    from rich.console import Group
    from rich.text import Text

    parts = [("Contents", _contents(summary))]
    means = {"human ratings (scale of the source)": summary.get("mean_rating")}
    for scale, mean in summary.get("mean_score", {}).items():
        means[f"persona scores (scale {scale})"] = mean
    known = [{"mean of": k, "value": m["value"], **m} for k, m in means.items() if m]
    if known:
        parts.append(("Means", _estimates("mean of", "value", known)))
    raters = summary.get("raters") or {}
    parts += [
        (text, _estimates(who, measure, raters[key]))
        for key, who, measure, text in RATER_TABLES
        if raters.get(key)
    ]
    # A table's own title would wrap at the table's width.
    return Group(
        *(line for title, table in parts for line in (Text(f"\n{title}", style="bold"), table))
    )


def _contents(summary: Mapping[str, Any]) -> Table:
    from rich.text import Text

    table = _table(("what", "count", "share"))
    items, item = summary.get("items"), summary.get("item", "item")
    lines: list[tuple[str, int, int | None]] = []
    if items is not None:
        lines.append((f"{item}s", items, None))
        features = summary.get("items_with", {})
        lines += [
            (f"  with {k.replace('_', ' ').replace('tmdb', 'TMDB')}", n, items)
            for k, n in features.items()
        ]
    lines += [
        (label, summary[key], None)
        for key, label in (
            ("ratings", "human ratings"),
            ("users", "human users"),
            ("personas", "personas"),
        )
        if summary.get(key) is not None
    ]
    pairs = summary.get("pairs")
    if pairs:
        lines.append(("scored pairs", pairs["scored"], pairs["planned"]))
    if summary.get("triples"):
        lines.append(("graph triples", sum(summary["triples"].values()), None))
    for label, count, whole in lines:
        share = "" if not whole else f"{count / whole:.1%}"
        # Text, not markup: a bracket in a name is a bracket.
        table.add_row(Text(label), f"{count:,}", share)
    return table


def _estimates(who: str, measure: str, rows: list[dict[str, Any]]) -> Table:
    from rich.text import Text

    table = _table((who, measure, "95 % interval"))
    for row in rows:
        interval = f"{row['low']:.3f} to {row['high']:.3f}"
        table.add_row(Text(str(row[who])), f"{row[measure]:.3f}", interval)
    return table


def _table(columns: tuple[str, str, str]) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column(columns[0])
    for name in columns[1:]:
        table.add_column(name, justify="right")
    return table
