"""The budget of lines of code: what `budget.toml` allows, package by package."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import pytest
from support.code_lines import PACKAGES, code_lines, package_lines

BUDGET = Path(__file__).with_name("budget.toml")
#: A package may exceed its figure by this share.
TOLERANCE = 0.02


@cache
def budget() -> dict[str, dict[str, int]]:
    return tomllib.loads(BUDGET.read_text("utf-8"))


def test_code_lines_leave_out_blanks_comments_and_docstrings() -> None:
    text = '"""Title.\n\nMore.\n"""\n\nimport os  # why\n\n# Alone.\nTEXT = """\n# a line\n\n"""\n'
    assert code_lines(text) == 5


@pytest.mark.parametrize("top", PACKAGES)
def test_package_stays_within_its_budget(repository: Path, top: str) -> None:
    allowed = budget()["lines"]
    lines = package_lines(repository, top)
    unlisted = sorted(set(lines) - set(allowed))
    assert not unlisted, f"{unlisted} have no line in {BUDGET.name}: add one, lower another"
    above = {
        name: f"{count:,} lines of code, {allowed[name]:,} allowed"
        for name, count in lines.items()
        if count > allowed[name] * (1 + TOLERANCE)
    }
    assert not above, (
        f"{above}: remove something, lower another package's figure by as much, or write the "
        f"decision page that the new figure in {BUDGET.name} names"
    )


@pytest.mark.parametrize("top", PACKAGES)
def test_budget_is_lowered_when_lines_go(repository: Path, top: str) -> None:
    lines = package_lines(repository, top)
    slack = {
        name: f"{lines.get(name, 0):,} lines of code, {allowed:,} allowed"
        for name, allowed in budget()["lines"].items()
        if name.split("/")[0] == top and lines.get(name, 0) < allowed * (1 - 2 * TOLERANCE) - 10
    }
    assert not slack, f"lower {BUDGET.name}: {slack}"
