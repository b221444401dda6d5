"""The table of faults and promises: complete, generated, and held by tests that exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from support.promises import FAULTS, PAGE, SUBJECTS, Fault, page, step_kinds

TESTS = Path(__file__).resolve().parents[1]

pytestmark = pytest.mark.faults


def test_reliability_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name[:40])
def test_promise_is_held_by_tests_that_exist(fault: Fault) -> None:
    assert fault.tests
    for reference in fault.tests:
        file, _, name = reference.partition("::")
        tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
        if name:
            assert name in {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}


def test_every_axis_is_in_the_table() -> None:
    assert {fault.into for fault in FAULTS} >= set(SUBJECTS)


def test_every_engine_has_a_conformance_test() -> None:
    held = {file for fault in FAULTS if fault.into == "engines" for file in fault.tests}
    for engine in SUBJECTS["engines"]():
        files = [TESTS / file for file in held if f"test_{engine}_" in file]
        assert any("EngineContract)" in file.read_text(encoding="utf-8") for file in files), engine


def test_step_kinds_cover_every_step() -> None:
    assert sum(map(len, step_kinds().values())) == len(SUBJECTS["steps"]())
