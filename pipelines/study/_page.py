"""Pages of studies: Markdown, CSV, one HTML file."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from pipelines.markdown import html_page
from pipelines.store.files import storage_errors
from pipelines.study._statistics import Figure
from pipelines.study._study import Row, Study, shown


def markdown(study: Study, *, release: str, level: int = 1) -> str:
    """A study's section: question, claim, our number, verdict; then tables, tests and notes."""
    parts = [f"{'#' * level} {study.name}", f"**{study.question}**"]
    named = f" ({study.paper})" if study.paper else ""
    if study.claim is not None:
        parts.append(f"Claim of the paper{named}: {study.claim.text}")
    if study.too_few is not None:
        parts.append(f"No figures: {study.too_few}.")
        return "\n\n".join([*parts, _origin(study, release)]) + "\n"
    answer = study.answer()
    if answer is not None:
        parts += [f"Measured: {answer.measured}", f"**Verdict**: {answer.verdict}"]
    parts.append(_origin(study, release))
    for measure in sorted({row.measure for row in study.rows}):
        if measure:
            parts.append(f"Not comparable with the other rows: {measure}.")
        parts.append(_table(study, [row for row in study.rows if row.measure == measure]))
    if study.legend:
        parts.append(study.legend)
    if study.published:
        parts.append("For context, rows of the papers (other people, items and models):")
        parts.append(_table(study, study.published))
    if study.comparisons:
        parts.append(f"{study.compared}, q by Benjamini and Hochberg:")
        parts.append(_compared(study.comparisons_frame()))
    parts.append(" ".join(f"`{name}`: {text}." for name, text in study.figures.items()))
    parts += study.notes
    if study.counts:
        counted = ", ".join(f"{name} {count:,}" for name, count in study.counts.items())
        parts.append(f"Counts: {counted}.")
    parts.append(study.footer)
    return "\n\n".join(filter(None, parts)) + "\n"


def _origin(study: Study, release: str) -> str:
    chosen = ", ".join(f"{name} {_plain(value)}" for name, value in study.settings.items())
    papers = f"Papers: {study.paper}. " if study.paper and study.claim is None else ""
    named = f"Release {release}." if release else ""
    return f"{papers}{named}{f' Settings: {chosen}.' if chosen else ''}".strip()


def _plain(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _table(study: Study, rows: Sequence[Row]) -> str:
    labels = list(dict.fromkeys(name for row in rows for name in row.labels))
    used = {name for row in rows for name in row.figures}
    names = [n for n in study.figures if n in used]
    numbers = any(row.n is not None for row in rows)
    notes = any(row.note for row in rows)
    lines = [[*labels, "source", *names, *["n"] * numbers, *["note"] * notes]]
    for row in rows:
        line = [row.labels.get(name, "") for name in labels] + [row.source]
        line += [shown(row.figures.get(name)) for name in names]
        line += [f"{row.n:,}" if row.n is not None else ""] * numbers
        lines.append(line + [row.note] * notes)
    return table(lines, numeric=range(len(labels) + 1, len(labels) + 1 + len(names)))


def _compared(frame: pl.DataFrame) -> str:
    lines = [["left", "right", "figure", "difference", "p", "q", "n"]]
    for row in frame.iter_rows(named=True):
        difference = Figure(row["difference"], row["low"], row["high"])
        tests = ["" if row[k] is None else f"{row[k]:.4f}" for k in ("p", "q")]
        sides = [row["left"], row["right"], row["figure"]]
        lines.append([*sides, shown(difference), *tests, f"{row['n']:,}"])
    return table(lines, numeric=range(3, 7))


def table(lines: Sequence[Sequence[object]], *, numeric: Sequence[int] = ()) -> str:
    r"""Lines of cells as a Markdown table, the first its header; ``numeric`` columns align right.

    >>> print(table([["a", "b"], ["x|y", 1]], numeric=[1]))
    | a | b |
    | --- | --: |
    | x\|y | 1 |
    """
    rule = ["--:" if n in numeric else "---" for n in range(len(lines[0]))]
    return "\n".join(
        "| " + " | ".join(str(c).replace("|", "\\|") for c in line) + " |"
        for line in (lines[0], rule, *lines[1:])
    )


def page(studies: Mapping[str, Study], *, release: str, title: str) -> str:
    """One HTML page that needs nothing else: each study's section, its pictures on top."""
    sections = []
    document = html_page(title, "", {})
    for name, study in studies.items():
        document = html_page(
            title,
            markdown(study, release=release),
            {f"{name}, {key}": png for key, png in study.pictures.items()},
        )
        body = document[document.index("<body>") + 6 : document.rindex("</body>")]
        sections.append(f"<section id='{html.escape(name)}'>{body}</section>")
    links = " · ".join(
        f"<a href='#{html.escape(name)}'>{html.escape(name)}</a>" for name in studies
    )
    head = document[: document.index("<body>") + 6]
    return f"{head}<nav>{links}</nav>{''.join(sections)}</body></html>\n"


def write_report(
    studies: Mapping[str, Study],
    folder: Path,
    *,
    release: str,
    title: str = "Experiments on simulated users",
    stem: str = "experiments",
) -> dict[str, Path]:
    """Write the reports of studies and return the files by kind.

    Per study ``<name>.md``, ``<name>.csv`` (rows), ``<name>-paired.csv`` and its pictures
    ``<name>-<picture>.png``; and ``<stem>.html``, one page with every table and picture. The folder
    is made if it does not exist.
    """
    written: dict[str, tuple[str, bytes]] = {}
    for name, study in studies.items():
        file = name.replace("/", "_")
        written[f"{name} markdown"] = (f"{file}.md", markdown(study, release=release).encode())
        if study.too_few is not None:
            continue
        frames = {"csv": study.rows_frame(), "paired": study.comparisons_frame()} | study.tables
        for kind, frame in frames.items():
            if kind == "csv" and not study.rows:
                continue
            suffix = "" if kind == "csv" else f"-{kind}"
            written[f"{name} {kind}"] = (f"{file}{suffix}.csv", frame.write_csv().encode())
        for picture, png in study.pictures.items():
            written[f"{name} {picture}"] = (f"{file}-{picture}.png", png)
    written["html"] = (f"{stem}.html", page(studies, release=release, title=title).encode())
    return write_files(written, folder)


def write_files(files: Mapping[str, tuple[str, bytes]], folder: Path) -> dict[str, Path]:
    """Write files (name and bytes, by kind) into a folder and return their paths by kind."""
    with storage_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for file, data in files.values():
            (folder / file).write_bytes(data)
    return {kind: folder / file for kind, (file, _) in files.items()}
