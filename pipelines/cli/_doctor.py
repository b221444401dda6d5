"""``understudy doctor``: what is in order on this machine, and what to do about the rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pipelines.cli.options import (
    ConfigOption,
    HomeOption,
    JsonOption,
    emit,
    open_settings,
    progress_bar,
    table,
)

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.cli._doctor_checks import Finding

__all__ = ["doctor"]

_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(
    home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Check this installation, machine and language model; exit code 1 if a line fails.

    If a language model is configured it is loaded and asked one question.

    JSON: {"checks": [{"name", "status": "ok", "warn" or "fail", "found",
    "advice"}], "summary": {"ok", "warn", "fail"}}.
    """
    from pipelines.cli._doctor_checks import CHECKS
    from pipelines.cli._doctor_engines import check_engines, model_findings

    settings = open_settings(home, config)
    checks = {**CHECKS, "engines": check_engines}
    rows: list[dict[str, str]] = []

    def note(name: str, finding: Finding) -> None:
        rows.append({"name": name, **asdict(finding)})

    with progress_bar("checking", total=len(checks) + 1, unit="checks", disable=as_json) as advance:
        for name, check in checks.items():
            advance(0, text=name)
            note(name, check(settings, Path(settings.runtime.home)))
            advance()
        advance(0, text="language model")
        for name, finding in model_findings(settings):
            note(name, finding)
        advance()
    counts = Counter(str(row["status"]) for row in rows)
    summary = {status: counts[status] for status in _STYLE}

    def render(screen: Console) -> None:
        grid = table("check", "", "found")
        for row in rows:
            found = str(row["found"]) + (f"\n→ {row['advice']}" if row["advice"] else "")
            grid.add_row(str(row["name"]), _mark(str(row["status"])), found)
        screen.print(grid)
        screen.print(", ".join(f"{n} {status}" for status, n in summary.items()))

    emit({"checks": rows, "summary": summary}, render, as_json=as_json)
    if summary["fail"]:
        raise typer.Exit(1)


def _mark(status: str) -> Any:
    from rich.text import Text

    return Text(status, style=_STYLE[status])
