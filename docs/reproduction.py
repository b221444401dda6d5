"""Write the table of experiments in docs/reproduction.md; rows that the report lacks stay.

understudy experiment run all --json > report.json
python docs/reproduction.py report.json
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from sim.experiments import open_experiment, paper_rows

PAGE = Path(__file__).with_name("reproduction.md")
BLOCK = re.compile(r"(?<=<!-- docs/reproduction\.py -->\n\n)\|.*?\|(?=\n\n)", re.S)


def published(name: str) -> str:
    """The papers' values of the figure by which a claim is judged, else of their first figure."""
    rows, claim = paper_rows(name), open_experiment(name).claim
    figures = dict.fromkeys(figure for row in rows for figure in row.figures)
    figure = claim.figure if claim and claim.figure in figures else next(iter(figures), "")
    quoted: dict[str, list[str]] = {}
    for row in rows:
        if (value := row.figures.get(figure)) is not None:
            labels = [v for label, v in row.labels.items() if label != "paper" and v]
            quoted.setdefault(row.labels["paper"], []).append(f"{' '.join(labels)} {value:g}")
    # Of a long table the first two rows, mostly baselines, and the last.
    tables = [
        f"{table}: {', '.join([*values[:2], *values[2:][-1:]])}" for table, values in quoted.items()
    ]
    return f"`{figure}`. {'; '.join(tables)}" if tables else "no number"


def lines(report: Mapping[str, Any], table: str) -> Iterator[str]:
    """The table, a line each; ``table`` is the one on the page."""
    results = {result["name"]: result for result in report["experiments"]}
    for line in table.splitlines():
        name = re.match(r"\| \[`(\w+)`\]", line)
        result = results.get(name[1]) if name else None
        yield line if result is None else row(result)


def row(result: Mapping[str, Any]) -> str:
    """The line of an experiment."""
    name, answer = result["name"], result["answer"] or {}
    cells = [
        f"[`{name}`](experiments.md#{name})",
        f"{result['claim']} ({result['anchor']})",
        published(name),
        answer.get("measured") or f"Not run: {result['too_few']}",
        answer.get("verdict", "not tested"),
    ]
    return f"| {' | '.join(cell.replace('|', ', ') for cell in cells)} |"


def main() -> None:
    """Replace the table on the page."""
    report = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    text, count = BLOCK.subn(lambda m: "\n".join(lines(report, m[0])), PAGE.read_text("utf-8"))
    assert count == 1, f"{PAGE} has no table"
    PAGE.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
