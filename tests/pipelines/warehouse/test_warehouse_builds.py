"""Build records and the checks before an export, on artefacts in dbt's shape, written by hand.

`model.p.a` is a view on one raw table, of the group `amazon`; `model.p.b` a table of the books made
from it. Each has one test, and `b` also a unit test and a test that only warns. What the real dbt
writes is tested in tests/integration/test_dbt_warehouse.py.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from pipelines.config import Settings
from pipelines.errors import ContractError, StoreError
from pipelines.store import Store
from pipelines.warehouse import (
    MartEvidence,
    Outcome,
    WarehouseLayout,
    code_versions,
    dbt_vars,
    link_sources,
    linked_sources,
    mart_tests,
    record_dbt_run,
    up_to_date_outcomes,
)
from pipelines.warehouse._builds import BuildRecords, mart_evidence
from pipelines.warehouse._folder import last_builds, open_warehouse

Json = dict[str, Any]
A, B, TEST_A, TEST_B = "model.p.a", "model.p.b", "test.p.a_ok", "test.p.b_ok"
UNIT, WARN = "unit_test.p.b.unit", "test.p.b_warn"
RAW = "source.p.raw.tmdb_missing"


def node(kind: str, name: str, *needs: str, **more: Any) -> Json:
    return {
        "resource_type": kind,
        "name": name,
        "description": "",
        "relation_name": f'"{name}"',
        "tags": [],
        "raw_code": f"select {name}",
        "config": {"materialized": "table", "severity": "ERROR"} | more.pop("config", {}),
        "depends_on": {"nodes": list(needs), "macros": more.pop("macros", [])},
        "columns": {},
        **more,
    }


MANIFEST: Json = {
    "metadata": {"project_name": "p"},
    "nodes": {
        A: node("model", "a", RAW, config={"materialized": "view"}, tags=["amazon", "books"]),
        B: node("model", "b", A, tags=["books"]),
        TEST_A: node("test", "a_ok", A),
        TEST_B: node("test", "b_ok", B),
        WARN: node("test", "b_warn", B, config={"severity": "warn"}),
        "operation.p.hook": node("operation", "hook"),
    },
    "unit_tests": {UNIT: node("unit_test", "unit", B, given=[1], expect={"rows": []})},
    "sources": {RAW: {"source_name": "raw", "name": "tmdb_missing"}},
    "macros": {
        "macro.p.own": {"package_name": "p", "macro_sql": "own"},
        "macro.dbt.ref": {"package_name": "dbt", "macro_sql": "x"},
    },
}
ALL = (A, B, TEST_A, TEST_B, WARN)


BOOKS = (B, TEST_B, WARN)
VARIABLES = dbt_vars(Settings())


class Dbt:
    """Writes the artefacts of one invocation after the other, and its log of builds."""

    def __init__(self, store: Store) -> None:
        self.home = store.home
        self.target = store.home / "target"
        self.target.mkdir()
        self.manifest = copy.deepcopy(MANIFEST)
        self._count = itertools.count(1)
        layout = WarehouseLayout(self.home)
        with duckdb.connect(str(layout.database)) as database:
            database.execute("create schema understudy_meta")
            database.execute(
                "create table understudy_meta.builds "
                "(model varchar, invocation_id varchar, built_at timestamptz)"
            )

    def run(
        self, *nodes: str, record: bool = True, variables: Json = VARIABLES, **statuses: str
    ) -> None:
        number = next(self._count)
        start = datetime.now(UTC) + timedelta(hours=number)
        results = []
        for key in nodes:
            kind = key.split(".")[0]
            usual = "success" if kind in ("model", "operation") else "pass"
            status = statuses.get(key.split(".")[-1], usual)
            if kind == "model" and status == "success":
                with duckdb.connect(str(WarehouseLayout(self.home).database)) as database:
                    row = [key, f"i{number}", start]
                    database.execute("insert into understudy_meta.builds values (?, ?, ?)", row)
            timing = {"name": "execute", "completed_at": start.isoformat().replace("+00:00", "Z")}
            results.append(
                {
                    "unique_id": key,
                    "status": status,
                    "failures": 2 if status in ("fail", "warn") else 0,
                    "timing": [timing] if status != "skipped" else [],
                }
            )
        self.write("run_results", f"i{number}", results=results, args={"vars": variables})
        self.write("manifest", f"i{number}", **self.manifest)
        if record:
            record_dbt_run(self.home, self.target)

    def write(self, name: str, invocation: str, **content: Any) -> None:
        content["metadata"] = {**content.get("metadata", {}), "invocation_id": invocation}
        (self.target / f"{name}.json").write_bytes(orjson.dumps(content))

    def evidence(self, variables: Json = VARIABLES) -> MartEvidence:
        with open_warehouse(WarehouseLayout(self.home)) as connection:
            in_database = last_builds(connection)
        return mart_evidence(
            BuildRecords.load(self.home),
            "b",
            linked=linked_sources(self.home),
            variables=variables,
            in_database=in_database,
        )

    def up_to_date(self, group: str = "books", **sections: Any) -> dict[str, Outcome] | None:
        settings = Settings(runtime={"home": self.home}, **sections)
        return up_to_date_outcomes(settings, self.manifest, group)


@pytest.fixture
def dbt(raw_store: Store) -> Dbt:
    link_sources(raw_store)
    return Dbt(raw_store)


def statuses(dbt: Dbt) -> dict[str, str]:
    return {t.name: t.status for t in mart_tests(dbt.home, "b")}


def test_a_whole_build_is_evidence(dbt: Dbt) -> None:
    dbt.run("operation.p.hook", *ALL)
    evidence = dbt.evidence()
    assert evidence.relation == '"b"'
    assert evidence.variables["books_min_category_size"] == 100
    version = linked_sources(dbt.home)["raw.tmdb_missing"]
    assert evidence.sources == {"raw.tmdb_missing": version}
    assert [(t.name, t.direct) for t in evidence.tests] == [
        ("a_ok", False),
        ("b_ok", True),
        ("b_warn", True),
    ]


def test_groups_are_recorded_by_themselves(dbt: Dbt) -> None:
    dbt.run(A, TEST_A)
    dbt.run(*BOOKS)
    assert dbt.evidence().tests


def test_what_an_invocation_left_out_was_never_run(dbt: Dbt) -> None:
    dbt.run(*ALL)
    dbt.run(B)
    with pytest.raises(ContractError, match=r"1 blocking tests did not pass: b_ok \(never run\)"):
        dbt.evidence()
    dbt.run(TEST_B)
    with pytest.raises(StoreError, match=r"dbt has not built this model .*: b"):
        dbt.evidence()
    dbt.run(*BOOKS)
    assert dbt.evidence().tests


def test_a_failing_test_blocks_and_a_warning_does_not(dbt: Dbt) -> None:
    dbt.run(*ALL, b_ok="fail", b_warn="warn")
    with pytest.raises(ContractError, match=r"b_ok \(fail, 2 rows\)"):
        dbt.evidence()
    dbt.run(*ALL, b_warn="warn")
    assert {t.name for t in dbt.evidence().tests if not t.passed} == {"b_warn"}


@pytest.mark.parametrize("status", ["error", "skipped"])
def test_a_test_that_did_not_finish_blocks(dbt: Dbt, status: str) -> None:
    dbt.run(*ALL, a_ok=status)
    with pytest.raises(ContractError, match=rf"a_ok \({status}\)"):
        dbt.evidence()


@pytest.mark.parametrize("status", ["error", "skipped"])
def test_a_model_that_was_not_built_is_refused(dbt: Dbt, status: str) -> None:
    dbt.run(*ALL)
    dbt.run(*ALL, b=status)
    with pytest.raises(StoreError, match=r"dbt has not built this model .*: b"):
        dbt.evidence()
    with pytest.raises(StoreError, match="dbt has not built this mart: c"):
        mart_tests(dbt.home, "c")


def test_descriptions_and_dbt_s_own_macros_are_no_code(dbt: Dbt) -> None:
    dbt.run(*ALL)
    dbt.manifest["nodes"][B]["description"] = "new words"
    dbt.manifest["macros"]["macro.dbt.ref"]["macro_sql"] = "y"
    assert dbt.up_to_date() is not None


def test_other_sources_or_settings_than_now_are_refused(dbt: Dbt, raw_store: Store) -> None:
    dbt.run(*ALL)
    with pytest.raises(StoreError, match=r"split_test = 0\.1, the settings say 0.2"):
        dbt.evidence({**VARIABLES, "split_test": 0.2})
    frame = raw_store.current("raw.tmdb_missing").read()
    frame = frame.with_columns(tmdb_id=frame["tmdb_id"] + 8)
    new = raw_store.commit("raw.tmdb_missing", frame, code_version="t").version
    assert dbt.evidence().sources  # committed, but not linked
    link_sources(raw_store)
    with pytest.raises(StoreError, match=rf"but {new} is linked now"):
        dbt.evidence()
    dbt.run(*BOOKS)
    # The view that they are made from is of the old rows.
    with pytest.raises(StoreError, match=rf"but {new} is linked now: amazon"):
        dbt.evidence()
    dbt.run(*ALL)
    assert dbt.evidence().sources == {"raw.tmdb_missing": new}


def test_a_build_that_was_never_recorded_is_refused(dbt: Dbt) -> None:
    dbt.run(*ALL)
    dbt.run(B, record=False)  # killed before anybody could note it
    with pytest.raises(StoreError, match="another build of this model than the one on record: b"):
        dbt.evidence()
    assert dbt.up_to_date() is None
    assert dbt.up_to_date("amazon") is not None


def test_artefacts_of_two_invocations_or_none_are_refused(dbt: Dbt, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no readable artefact.*run_results\.json"):
        record_dbt_run(dbt.home, tmp_path)
    dbt.run(*ALL, record=False)
    dbt.write("manifest", "another", **dbt.manifest)
    with pytest.raises(StoreError, match="artefacts are of two invocations"):
        record_dbt_run(dbt.home, dbt.target)
    (dbt.target / "manifest.json").write_text("{}")
    with pytest.raises(StoreError, match=r"no readable artefact.*manifest\.json"):
        record_dbt_run(dbt.home, dbt.target)
    assert BuildRecords.load(dbt.home).groups == {}


# Groups that need not be built again ------------------------------------------------------------


def test_what_was_built_and_passed_is_up_to_date_parents_first(dbt: Dbt) -> None:
    assert dbt.up_to_date() is None
    dbt.run(*ALL, b_warn="warn")
    assert dbt.up_to_date("amazon") == {A: Outcome("success", 0), TEST_A: Outcome("pass", 0)}
    outcomes = dbt.up_to_date()
    assert outcomes == {
        B: Outcome("success", 0),
        TEST_B: Outcome("pass", 0),
        WARN: Outcome("warn", 2),
    }
    assert next(iter(outcomes)) == B
    assert dbt.up_to_date("movies") is None


@pytest.mark.parametrize("status", ["fail", "error", "skipped"])
def test_group_with_a_test_that_did_not_pass_is_built_again(dbt: Dbt, status: str) -> None:
    dbt.run(*ALL, b_ok=status)
    assert dbt.up_to_date() is None
    assert dbt.up_to_date("amazon") is not None


def test_a_unit_test_is_no_part_of_a_build(dbt: Dbt) -> None:
    dbt.run(*ALL, UNIT, unit="fail")
    assert set(dbt.up_to_date() or ()) == {*BOOKS}
    assert "unit" not in statuses(dbt)
    dbt.manifest["unit_tests"][UNIT].update(given=[2])
    assert dbt.up_to_date() is not None


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m["nodes"][A].update(raw_code="select other"),
        lambda m: m["nodes"][B]["config"].update(materialized="incremental"),
        lambda m: m["nodes"][B]["columns"].update(x={"data_type": "bigint"}),
        lambda m: m["nodes"][TEST_B].update(raw_code="select other"),
        lambda m: m["nodes"][WARN]["config"].update(severity="ERROR"),
        lambda m: m["macros"]["macro.p.own"].update(macro_sql="other"),
        lambda m: m["nodes"].update({"test.p.new": node("test", "new", B)}),
        lambda m: m["nodes"].pop(TEST_B),
        lambda m: m["metadata"].update(dbt_version="9"),
    ],
    ids=[
        *("parent", "materialization", "column type", "test", "severity", "macro"),
        *("new test", "removed test", "dbt"),
    ],
)
def test_whatever_shapes_the_rows_or_judges_them_is_part_of_the_code(
    dbt: Dbt, edit: Callable[[Json], Any]
) -> None:
    dbt.run(*ALL)
    before = code_versions(Settings(), dbt.manifest)[B], dbt.evidence().code
    edit(dbt.manifest)
    assert dbt.up_to_date() is None
    dbt.run(*dbt.manifest["nodes"])
    after = code_versions(Settings(), dbt.manifest)[B], dbt.evidence().code
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_group_is_built_again_for_another_variable_of_its_own_or_another_source(
    dbt: Dbt, raw_store: Store
) -> None:
    dbt.run(*ALL)
    assert dbt.up_to_date(splits={"test": 0.2}) is None
    assert dbt.up_to_date(books={"min_category_size": 7}) is None
    assert dbt.up_to_date("amazon", books={"min_category_size": 7}) is not None
    assert dbt.up_to_date(games={"review_year": 2019}) is not None
    table = raw_store.current("raw.tmdb_missing")
    raw_store.commit(
        "raw.tmdb_missing", table.read().head(0), code_version="another", allow_empty=True
    )
    assert dbt.up_to_date() is not None
    link_sources(raw_store)
    assert dbt.up_to_date() is None


def test_models_of_a_moved_home_are_built_again(dbt: Dbt, tmp_path: Path) -> None:
    dbt.run(*ALL)
    assert dbt.up_to_date() is not None
    dbt.home = dbt.home.rename(tmp_path / "moved")  # views name the folder of the sources
    assert dbt.up_to_date() is None


def test_lost_or_broken_files_of_the_warehouse_are_built_again(dbt: Dbt) -> None:
    dbt.run(*ALL)
    layout = WarehouseLayout(dbt.home)
    layout.builds.write_text("{")
    assert dbt.up_to_date() is None
    dbt.run(*ALL, record=False)
    layout.builds.unlink()
    record_dbt_run(dbt.home, dbt.target)
    assert dbt.up_to_date() is not None
    layout.database.write_bytes(b"not a database" * 1000)
    assert dbt.up_to_date() is None
    layout.database.unlink()
    assert dbt.up_to_date() is None
