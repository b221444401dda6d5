"""The table of faults and promises (docs/reliability.md) names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pipelines.seams import ENGINES

TESTS = Path(__file__).resolve().parents[1]
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text("utf-8")
#: Fault, where it is injected, the promise, and the tests in code spans.
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("| held by |")[2].partition("\n\n")[0].splitlines()[2:]
]

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:40])
def test_promise_is_held_by_tests_that_exist(row: list[str]) -> None:
    references = re.findall(r"`([^`]+)`", row[3])
    assert references
    for reference in references:
        file, _, name = reference.partition("::")
        folder = TESTS.parent if file.startswith("benchmarks/") else TESTS
        tree = ast.parse((folder / file).read_text("utf-8"))
        if name:
            assert name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_every_engine_has_a_conformance_test() -> None:
    held = [file for row in ROWS if row[1] == "every engine" for file in row[3].split("`")]
    for engine in ENGINES:
        files = [TESTS / file for file in held if f"test_{engine}_" in file]
        assert any("EngineContract)" in file.read_text("utf-8") for file in files), engine
