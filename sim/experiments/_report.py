"""Reports of experiments: Markdown, CSV, one HTML page; the papers' rows beside ours."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import polars.selectors as cs

from pipelines.packaged import packaged_yaml
from sim.agents import ASSUMED_FILE
from sim.experiments._protocol import Experiment, Result, Row, TooFew
from sim.metrics import Figure, false_discovery

#: Result of an experiment, or why there is none.
Outcome = Result | TooFew


def paper_rows(name: str) -> list[Row]:
    """Published rows of an experiment, for context: other data, other models."""
    return [
        Row(
            labels={"paper": row["table"], **row.get("labels", {})},
            source="paper",
            figures={k: float(v) for k, v in row["figures"].items()},
            n=row.get("n"),
            note=row.get("note", ""),
        )
        for row in packaged_yaml("sim.experiments", "papers.yaml").get(name) or []
    ]


def rows_frame(experiment: Experiment, result: Result) -> pl.DataFrame:
    """All rows, long: a line per row and figure, those of the papers last.

    Columns: ``experiment``, ``row``, ``source``, ``labels`` (text), ``figure``, ``value``, ``low``,
    ``high`` (95 %; null for a paper's), ``n``, ``note``.
    """
    lines = []
    for number, row in enumerate([*result.rows, *paper_rows(experiment.name)]):
        for name, found in row.figures.items():
            value = found.value if isinstance(found, Figure) else found
            lines.append(
                {
                    "experiment": experiment.name,
                    "row": number,
                    "source": row.source,
                    "labels": "; ".join(f"{k}: {v}" for k, v in row.labels.items()),
                    "figure": name,
                    "value": value,
                    "low": found.low if isinstance(found, Figure) else None,
                    "high": found.high if isinstance(found, Figure) else None,
                    "n": row.n,
                    "note": row.note,
                }
            )
    return _stable(pl.DataFrame(lines, schema=_ROWS))


_ROWS: dict[str, Any] = {
    "experiment": pl.String,
    "row": pl.Int64,
    "source": pl.String,
    "labels": pl.String,
    "figure": pl.String,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "n": pl.Int64,
    "note": pl.String,
}


def comparisons_frame(experiment: Experiment, result: Result) -> pl.DataFrame:
    """Paired tests, with Benjamini and Hochberg's q over the experiment.

    Columns: ``experiment``, ``left``, ``right``, ``figure``, ``difference``, ``low``, ``high`` (95
    %), ``p``, ``q``, ``n``.
    """
    qs = false_discovery([c.p for c in result.comparisons])
    lines = [
        {
            "experiment": experiment.name,
            "left": c.left,
            "right": c.right,
            "figure": c.figure,
            "difference": c.difference.value,
            "low": c.difference.low,
            "high": c.difference.high,
            "p": c.p,
            "q": q,
            "n": c.n,
        }
        for c, q in zip(result.comparisons, qs, strict=True)
    ]
    floats = dict.fromkeys(("difference", "low", "high", "p", "q"), pl.Float64)
    texts = dict.fromkeys(("experiment", "left", "right", "figure"), pl.String)
    return _stable(pl.DataFrame(lines, schema={**texts, **floats, "n": pl.Int64}))


def _stable(frame: pl.DataFrame) -> pl.DataFrame:
    """A frame with nulls for NaN, rounded to 9 decimals.

    The last bits of sums depend on the number of threads and on where arrays lie in memory.
    """
    return frame.fill_nan(None).with_columns(cs.float().round(9))


def markdown(experiment: Experiment, outcome: Outcome, *, release: str, level: int = 1) -> str:
    """An experiment's section, with a heading of ``level``: question, table, comparisons, notes."""
    parts = [
        f"{'#' * level} {experiment.name}",
        experiment.question,
        f"Papers: {experiment.anchor}. Release {release}.",
    ]
    if isinstance(outcome, TooFew):
        return "\n\n".join([*parts, f"No figures: {outcome}."]) + "\n"
    ours, theirs = outcome.rows, paper_rows(experiment.name)
    parts.append(_table(ours, list(experiment.figures)))
    parts.append(outcome.legend)
    if theirs:
        parts.append("For context, rows of the papers (other people, items and models):")
        parts.append(_table(theirs, list(experiment.figures)))
    if outcome.comparisons:
        parts.append(
            "Paired differences (left minus right), permutation test, q by Benjamini and Hochberg:"
        )
        parts.append(_compared(comparisons_frame(experiment, outcome)))
    parts.append(" ".join(f"`{name}`: {text}." for name, text in experiment.figures.items()))
    parts += outcome.notes
    if outcome.counts:
        counted = ", ".join(f"{name} {count:,}" for name, count in outcome.counts.items())
        parts.append(f"Counts: {counted}.")
    if outcome.assumed and any(row.source == "statistical" for row in ours):
        parts.append(f"The statistical brain's assumptions are in `{ASSUMED_FILE}`.")
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Row], known: Sequence[str]) -> str:
    labels = list(dict.fromkeys(name for row in rows for name in row.labels))
    used = {name for row in rows for name in row.figures}
    names = [n for n in known if n in used]
    numbers = any(row.n is not None for row in rows)
    notes = any(row.note for row in rows)
    header = [*labels, "source", *names, *(["n"] if numbers else []), *(["note"] if notes else [])]
    lines = [header, ["---"] * len(labels) + ["---"] + ["--:"] * len(names)]
    lines[1] += ["---"] * (len(header) - len(lines[1]))
    for row in rows:
        line = [row.labels.get(name, "") for name in labels] + [row.source]
        line += [shown(row.figures.get(name)) for name in names]
        line += [f"{row.n:,}" if row.n is not None else ""] if numbers else []
        lines.append(line + ([row.note] if notes else []))
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def shown(found: Figure | float | None) -> str:
    """A figure as text.

    >>> shown(Figure(0.5, 0.25, 0.75)), shown(1234.5), shown(None)
    ('0.500 [0.250, 0.750]', '1234.5', '')
    """
    if found is None:
        return ""
    if not isinstance(found, Figure):
        return _number(found)
    return f"{_number(found.value)} [{_number(found.low)}, {_number(found.high)}]"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"


def _compared(frame: pl.DataFrame) -> str:
    lines = [["left", "right", "figure", "difference", "p", "q", "n"]]
    lines.append(["---", "---", "---", "--:", "--:", "--:", "--:"])
    for row in frame.iter_rows(named=True):
        found = Figure(row["difference"], row["low"], row["high"])
        tests = ["" if row[k] is None else f"{row[k]:.4f}" for k in ("p", "q")]
        lines.append(
            [row["left"], row["right"], row["figure"], shown(found), *tests, f"{row['n']:,}"]
        )
    return "\n".join(
        "| " + " | ".join(c.replace("|", "\\|") for c in line) + " |" for line in lines
    )


def write_report(
    outcomes: Mapping[str, tuple[Experiment, Outcome]],
    folder: Path,
    *,
    release: str,
    title: str = "Experiments on simulated users",
    stem: str = "experiments",
) -> dict[str, Path]:
    """Write the reports of experiments and return the files by kind.

    Per experiment ``<name>.md``, ``<name>.csv`` (rows), ``<name>-paired.csv`` and its pictures
    ``<name>-<picture>.png``; and ``<stem>.html``, one page with every table and picture. The folder
    is made if it does not exist.
    """
    from pipelines.store.files import storage_errors

    written: dict[str, tuple[str, bytes]] = {}
    for name, (experiment, outcome) in outcomes.items():
        file = name.replace("/", "_")
        text = markdown(experiment, outcome, release=release)
        written[f"{name} markdown"] = (f"{file}.md", text.encode())
        if isinstance(outcome, TooFew):
            continue
        rows, pairs = rows_frame(experiment, outcome), comparisons_frame(experiment, outcome)
        written[f"{name} csv"] = (f"{file}.csv", rows.write_csv().encode())
        written[f"{name} paired"] = (f"{file}-paired.csv", pairs.write_csv().encode())
        for picture, png in outcome.pictures.items():
            written[f"{name} {picture}"] = (f"{file}-{picture}.png", png)
    written["html"] = (f"{stem}.html", page(outcomes, release=release, title=title).encode())
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in written.values():
            (folder / file).write_bytes(data)
    return {kind: folder / file for kind, (file, _) in written.items()}


def page(outcomes: Mapping[str, tuple[Experiment, Outcome]], *, release: str, title: str) -> str:
    """One HTML page that needs nothing else: the pictures of each experiment below its heading."""
    from pipelines.markdown import html_page

    sections = []
    whole = ""
    for name, (experiment, outcome) in outcomes.items():
        pictures = {} if isinstance(outcome, TooFew) else outcome.pictures
        whole = html_page(
            title,
            markdown(experiment, outcome, release=release),
            {f"{name}, {key}": png for key, png in pictures.items()},
        )
        sections.append(whole[whole.index("<body>") + 6 : whole.rindex("</body>")])
    if not whole:
        whole = html_page(title, "", {})
    links = " · ".join(
        f"<a href='#{html.escape(name)}'>{html.escape(name)}</a>" for name in outcomes
    )
    body = "".join(
        f"<section id='{html.escape(name)}'>{section}</section>"
        for name, section in zip(outcomes, sections, strict=True)
    )
    head = whole[: whole.index("<body>") + 6]
    return f"{head}<nav>{links}</nav>{body}</body></html>\n"
