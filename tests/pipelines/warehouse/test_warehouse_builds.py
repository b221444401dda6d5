"""Build records and the checks before an export, on artefacts in dbt's shape, written by hand.

`model.p.a` is a view on one raw table, `model.p.b` a table made from it, each with one test, and
`b` also with a unit test and a test that only warns. What the real dbt writes is tested in
tests/integration/test_dbt_warehouse.py.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from pipelines.config import Settings
from pipelines.errors import ContractError, StoreError
from pipelines.store import Store
from pipelines.warehouse import (
    WarehouseLayout,
    link_sources,
    linked_sources,
    mart_tests,
    out_of_date_names,
    record_dbt_run,
    up_to_date_outcomes,
)
from pipelines.warehouse._builds import (
    BuildRecords,
    MartEvidence,
    Outcome,
    mart_evidence,
    outcomes_on_record,
)

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
        "raw_code": f"select {name}",
        "config": {"materialized": "table", "severity": "ERROR"} | more.pop("config", {}),
        "depends_on": {"nodes": list(needs), "macros": more.pop("macros", [])},
        "columns": {},
        **more,
    }


MANIFEST: Json = {
    "metadata": {"project_name": "p"},
    "nodes": {
        A: node("model", "a", RAW, config={"materialized": "view"}),
        B: node("model", "b", A, macros=["macro.p.outer"]),
        TEST_A: node("test", "a_ok", A),
        TEST_B: node("test", "b_ok", B),
        WARN: node("test", "b_warn", B, config={"severity": "warn"}),
        "operation.p.hook": node("operation", "hook"),
    },
    "unit_tests": {UNIT: node("unit_test", "unit", B, given=[1], expect={"rows": []})},
    "sources": {RAW: {"source_name": "raw", "name": "tmdb_missing"}},
    "macros": {
        "macro.p.outer": {
            "package_name": "p",
            "macro_sql": "outer",
            "depends_on": {"macros": ["macro.p.inner", "macro.dbt.ref"]},
        },
        "macro.p.inner": {
            "package_name": "p",
            "macro_sql": "{{ var('limit') }}",
            "depends_on": {"macros": ["macro.p.outer"]},
        },
        "macro.dbt.ref": {"package_name": "dbt", "macro_sql": "x", "depends_on": {"macros": []}},
    },
}
ALL = (A, B, TEST_A, TEST_B, WARN)


class Dbt:
    """Writes the artefacts of one invocation after the other, each later than the last."""

    def __init__(self, store: Store) -> None:
        self.home = store.home
        self.target = store.home / "target"
        self.target.mkdir()
        self.manifest = copy.deepcopy(MANIFEST)
        self.built: dict[str, str] = {}
        self._count = itertools.count(1)

    def run(self, *nodes: str, record: bool = True, limit: int = 3, **statuses: str) -> str:
        number = next(self._count)
        invocation = f"i{number}"
        start = datetime.now(UTC) + timedelta(hours=number)
        results = []
        for second, key in enumerate(nodes):
            kind = key.split(".")[0]
            status = statuses.get(
                key.split(".")[-1], "success" if kind in ("model", "operation") else "pass"
            )
            if kind == "model" and status == "success":
                self.built[key] = invocation
            begin = start + timedelta(seconds=2 * second)
            results.append(
                {
                    "unique_id": key,
                    "status": status,
                    "failures": 2 if status in ("fail", "warn") else 0,
                    "message": None,
                    "timing": [
                        {
                            "name": "execute",
                            "started_at": begin.isoformat().replace("+00:00", "Z"),
                            "completed_at": (begin + timedelta(seconds=1)).isoformat(),
                        }
                    ]
                    if status != "skipped"
                    else [],
                }
            )
        self.write("run_results", invocation, results=results, args={"vars": {"limit": limit}})
        self.write("manifest", invocation, **self.manifest)
        if record:
            record_dbt_run(self.home, self.target)
        return invocation

    def write(self, name: str, invocation: str, **content: Any) -> None:
        content["metadata"] = {**content.get("metadata", {}), "invocation_id": invocation}
        (self.target / f"{name}.json").write_bytes(orjson.dumps(content))

    def evidence(self, limit: int = 3) -> MartEvidence:
        return mart_evidence(
            BuildRecords.load(self.home),
            "b",
            linked=linked_sources(self.home),
            variables={"limit": limit},
            in_database=self.built,
        )

    def standing(self, *nodes: str, limit: int = 3) -> dict[str, Outcome] | None:
        try:
            return outcomes_on_record(
                BuildRecords.load(self.home),
                self.manifest,
                nodes or (A, B, TEST_A, TEST_B, WARN),
                linked=linked_sources(self.home),
                variables={"limit": limit},
                in_database=self.built,
            )
        except StoreError:
            return None


@pytest.fixture
def dbt(raw_store: Store) -> Dbt:
    link_sources(raw_store)
    return Dbt(raw_store)


def _built(dbt: Dbt, key: str) -> Json:
    return BuildRecords.load(dbt.home).outcome(key) or {}


def statuses(dbt: Dbt) -> dict[str, str]:
    return {t.name: t.status for t in mart_tests(dbt.home, "b")}


def test_a_whole_build_is_evidence(dbt: Dbt) -> None:
    dbt.run("operation.p.hook", *ALL)
    evidence = dbt.evidence()
    assert evidence.relation == '"b"'
    assert evidence.variables == {"limit": 3}
    version = linked_sources(dbt.home)["raw.tmdb_missing"]
    assert evidence.sources == {"raw.tmdb_missing": version}
    assert [(t.name, t.direct) for t in evidence.tests] == [
        ("a_ok", False),
        ("b_ok", True),
        ("b_warn", True),
    ]


def test_recording_twice_changes_nothing(dbt: Dbt) -> None:
    dbt.run(*ALL)
    before = BuildRecords.load(dbt.home).records
    record_dbt_run(dbt.home, dbt.target)
    assert BuildRecords.load(dbt.home).records == before


def test_invocations_of_parts_add_up(dbt: Dbt) -> None:
    dbt.run(A, TEST_A)
    dbt.run(B)
    with pytest.raises(ContractError, match=r"1 blocking tests did not pass: b_ok \(never run\)"):
        dbt.evidence()
    dbt.run(TEST_B)
    assert dbt.evidence().tests


def test_a_failing_test_blocks_and_a_warning_does_not(dbt: Dbt) -> None:
    dbt.run(*ALL, b_ok="fail", b_warn="warn")
    with pytest.raises(ContractError, match=r"b_ok \(fail, 2 rows\)"):
        dbt.evidence()
    dbt.run(TEST_B)
    assert {t.name for t in dbt.evidence().tests if not t.passed} == {"b_warn"}


@pytest.mark.parametrize("status", ["error", "skipped"])
def test_a_test_that_did_not_finish_blocks(dbt: Dbt, status: str) -> None:
    dbt.run(*ALL)
    dbt.run(TEST_A, a_ok=status)
    with pytest.raises(ContractError, match=rf"a_ok \({status}\)"):
        dbt.evidence()


def test_rebuilding_a_table_puts_its_tests_out_of_date(dbt: Dbt) -> None:
    dbt.run(*ALL)
    dbt.run(B)
    assert statuses(dbt) == {
        "a_ok": "pass",
        "b_ok": "out of date",
        "b_warn": "out of date",
    }


def test_rebuilding_a_view_as_it_was_changes_nothing(dbt: Dbt) -> None:
    dbt.run(*ALL)
    dbt.run(A)
    assert dbt.evidence().sources


def test_an_edited_parent_makes_the_mart_stale(dbt: Dbt) -> None:
    dbt.run(*ALL)
    before = dbt.evidence().code
    dbt.manifest["nodes"][A]["raw_code"] = "select something else"
    dbt.run(A, TEST_A)
    with pytest.raises(StoreError, match=r"dbt has not built this model .*: b"):
        dbt.evidence()
    dbt.run(B, TEST_B)
    assert dbt.evidence().code != before


def test_a_mart_whose_code_changed_is_refused_until_it_is_built(dbt: Dbt) -> None:
    dbt.run(*ALL)
    dbt.manifest["nodes"][B]["raw_code"] = "select something else"
    dbt.run(TEST_A)
    # What the change does not reach keeps its outcome.
    assert statuses(dbt)["a_ok"] == "pass"
    assert statuses(dbt)["b_ok"] == "never run"
    with pytest.raises(StoreError, match="dbt has not built this model"):
        dbt.evidence()
    dbt.run(*ALL)
    assert dbt.evidence().tests


def test_a_failed_test_of_an_older_build_still_blocks(dbt: Dbt) -> None:
    dbt.run(*ALL)
    dbt.manifest["nodes"][B]["raw_code"] = "select something else"
    dbt.run(TEST_A, a_ok="fail")
    dbt.run(A, B, TEST_B)
    with pytest.raises(ContractError, match=r"a_ok \(fail, 2 rows\)"):
        dbt.evidence()


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m["macros"]["macro.p.inner"].update(macro_sql="other"),
        lambda m: m["nodes"][B]["config"].update(materialized="incremental"),
        lambda m: m["nodes"][B]["columns"].update(x={"data_type": "bigint"}),
    ],
    ids=["macro of a macro", "materialization", "column type"],
)
def test_whatever_shapes_the_rows_is_part_of_the_code(
    dbt: Dbt, edit: Callable[[Json], None]
) -> None:
    dbt.run(*ALL)
    before = dbt.evidence().code
    edit(dbt.manifest)
    dbt.run(*ALL)
    assert dbt.evidence().code != before


def test_descriptions_and_dbt_s_own_macros_are_not(dbt: Dbt) -> None:
    dbt.run(*ALL)
    before = dbt.evidence().code
    dbt.manifest["nodes"][B]["description"] = "new words"
    dbt.manifest["macros"]["macro.dbt.ref"]["macro_sql"] = "y"
    dbt.run(*ALL)
    assert dbt.evidence().code == before


def test_an_edited_test_must_run_again(dbt: Dbt) -> None:
    dbt.run(*ALL)
    dbt.manifest["nodes"][TEST_A]["raw_code"] = "a stricter test"
    dbt.run(A, B, TEST_B)
    assert statuses(dbt)["a_ok"] == "never run"
    with pytest.raises(ContractError, match=r"a_ok \(never run\)"):
        dbt.evidence()


def test_a_new_test_must_run_first_and_a_removed_one_is_forgotten(dbt: Dbt) -> None:
    dbt.run(*ALL, a_ok="fail")
    dbt.manifest["nodes"]["test.p.new"] = node("test", "new", B)
    del dbt.manifest["nodes"][TEST_A]
    dbt.run(A, B, TEST_B)
    with pytest.raises(ContractError, match=r"1 blocking tests did not pass: new \(never run\)"):
        dbt.evidence()


def test_other_sources_or_settings_than_now_are_refused(dbt: Dbt, raw_store: Store) -> None:
    dbt.run(*ALL)
    with pytest.raises(StoreError, match="built with limit = 3, the settings say 4"):
        dbt.evidence(limit=4)
    frame = raw_store.current("raw.tmdb_missing").read()
    frame = frame.with_columns(tmdb_id=frame["tmdb_id"] + 8)
    new = raw_store.commit("raw.tmdb_missing", frame, code_version="t").version
    assert dbt.evidence().sources  # committed, but not linked
    link_sources(raw_store)
    with pytest.raises(StoreError, match=rf"but {new} is linked now"):
        dbt.evidence()
    dbt.run(B, TEST_B, WARN)
    # Its parents hold the old rows: the table is not entered.
    with pytest.raises(StoreError, match=r"dbt has not built this model .*: a"):
        dbt.evidence()
    dbt.run(*ALL)
    assert dbt.evidence().sources == {"raw.tmdb_missing": new}


def test_a_failed_or_skipped_model_keeps_its_last_build(dbt: Dbt) -> None:
    first = dbt.run(*ALL)
    dbt.run(A, B, a="error", b="skipped")
    assert _built(dbt, B)["invocation"] == first
    assert dbt.evidence().sources


def test_a_build_that_was_never_recorded_is_refused(dbt: Dbt) -> None:
    dbt.run(*ALL)
    dbt.run(B, record=False)
    with pytest.raises(StoreError, match="another build of this model than the one on record: b"):
        dbt.evidence()


def test_a_model_that_was_never_built_is_refused(dbt: Dbt) -> None:
    dbt.run(B, TEST_B)
    with pytest.raises(StoreError, match=r"dbt has not built this model .*: a"):
        dbt.evidence()
    with pytest.raises(StoreError, match="dbt has not built this mart: c"):
        mart_tests(dbt.home, "c")


def test_links_moved_while_dbt_ran_are_noticed(dbt: Dbt, raw_store: Store) -> None:
    dbt.run(*ALL)
    dbt.run(*ALL, record=False)
    links = dbt.home / "warehouse" / "sources.json"
    content = orjson.loads(links.read_bytes())
    content["linked_at"] = (datetime.now(UTC) + timedelta(days=2)).isoformat()
    links.write_bytes(orjson.dumps(content))
    before = BuildRecords.load(dbt.home).records
    with pytest.raises(StoreError, match="linked after dbt had started"):
        record_dbt_run(dbt.home, dbt.target)
    assert BuildRecords.load(dbt.home).records == before


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
    assert BuildRecords.load(dbt.home).records == {}


# Nodes that need not be run again --------------------------------------------------------------


def test_what_was_built_and_passed_stands_parents_first(dbt: Dbt) -> None:
    assert dbt.standing() is None
    dbt.run(*ALL, b_warn="warn")
    standing = dbt.standing()
    assert standing is not None
    assert {key: (o.status, o.failures) for key, o in standing.items()} == {
        A: ("success", 0),
        B: ("success", 0),
        TEST_A: ("pass", 0),
        TEST_B: ("pass", 0),
        WARN: ("warn", 2),
    }
    places = list(standing)
    assert places.index(A) < places.index(B) < places.index(TEST_B)


def test_a_part_stands_by_itself(dbt: Dbt) -> None:
    dbt.run(A, TEST_A)
    assert set(dbt.standing(A, TEST_A) or ()) == {A, TEST_A}
    assert dbt.standing(A, B) is None


@pytest.mark.parametrize("status", ["fail", "error"])
def test_a_test_that_did_not_pass_is_run_again(dbt: Dbt, status: str) -> None:
    dbt.run(*ALL, b_ok=status)
    assert dbt.standing() is None


def test_a_unit_test_is_no_part_of_a_build(dbt: Dbt) -> None:
    dbt.run(*ALL, UNIT, unit="fail")
    assert set(dbt.standing() or ()) == {*ALL}
    assert "unit" not in statuses(dbt)
    dbt.manifest["unit_tests"][UNIT].update(given=[2])
    assert dbt.standing() is not None


def test_a_rebuilt_table_has_its_tests_run_again(dbt: Dbt) -> None:
    dbt.run(*ALL)
    dbt.run(B)
    assert dbt.standing() is None


@pytest.mark.parametrize(
    "edit",
    [
        lambda m: m["nodes"][A].update(raw_code="select other"),
        lambda m: m["nodes"][TEST_B].update(raw_code="select other"),
        lambda m: m["nodes"][WARN]["config"].update(severity="ERROR"),
        lambda m: m["macros"]["macro.p.inner"].update(macro_sql="other"),
        lambda m: m["nodes"].update({"test.p.new": node("test", "new", B)}),
        lambda m: m["nodes"].pop(A),
    ],
    ids=["parent", "test", "severity", "macro", "new test", "no parent"],
)
def test_nothing_stands_after_an_edit(dbt: Dbt, edit: Callable[[Json], Any]) -> None:
    dbt.run(*ALL)
    edit(dbt.manifest)
    assert dbt.standing() is None


def test_nothing_stands_with_another_variable_another_source_or_another_build(
    dbt: Dbt, raw_store: Store
) -> None:
    dbt.run(*ALL)
    assert dbt.standing(limit=4) is None
    dbt.run(B, TEST_B, WARN, record=False)  # killed before anybody could note it
    assert dbt.standing() is None
    dbt.run(*ALL)
    assert dbt.standing() is not None
    versions = linked_sources(dbt.home)
    table = raw_store.current("raw.tmdb_missing")
    raw_store.commit(
        "raw.tmdb_missing", table.read().head(0), code_version="another", allow_empty=True
    )
    link_sources(raw_store)
    assert linked_sources(dbt.home) != versions
    assert dbt.standing() is None


def test_views_of_a_moved_home_are_out_of_date(dbt: Dbt, tmp_path: Path) -> None:
    # Without the model that reads the variable `limit`, which the settings do not have.
    dbt.manifest["nodes"] = {key: MANIFEST["nodes"][key] for key in (A, TEST_A)}
    invocation = dbt.run(A, TEST_A)
    layout = WarehouseLayout(dbt.home)
    with duckdb.connect(str(layout.database)) as database:
        database.execute(
            f"""
            create view a as from read_parquet('{layout.sources}/tmdb_missing/*.parquet');
            create schema understudy_meta;
            create table understudy_meta.builds as
                select '{A}' as model, '{invocation}' as invocation_id, now() as built_at;
            """
        )

    def out_of_date(home: Path) -> list[str]:
        settings = Settings(runtime={"home": home})
        return out_of_date_names(settings, dbt.manifest, [A])

    assert out_of_date(dbt.home) == []
    outcomes = partial(up_to_date_outcomes, manifest=dbt.manifest, nodes=[A])
    assert outcomes(Settings(runtime={"home": dbt.home})) is not None
    moved = tmp_path / "moved"
    dbt.home.rename(moved)
    assert out_of_date(moved) == ["a", "a_ok"]
    assert outcomes(Settings(runtime={"home": moved})) is None


def test_models_of_raw_tables_that_are_not_there_are_not_built_beside_others(
    raw_store: Store,
) -> None:
    settings = Settings(runtime={"home": raw_store.home})
    assert out_of_date_names(settings, MANIFEST, [A, B]) == []
    link_sources(raw_store)
    found = out_of_date_names(settings, MANIFEST, [A, B])
    assert found == ["a", "b", "a_ok", "b_ok", "b_warn"]
