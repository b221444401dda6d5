"""The dbt project's documentation: written once in the contracts, repeated exactly."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from pipelines.contracts import CONTRACTS
from pipelines.warehouse import SOURCES

PROJECT = Path(__file__).resolve().parents[3] / "dbt"


def documents() -> list[dict[str, Any]]:
    files = sorted(PROJECT.glob("models/**/*.yml"))
    return [yaml.safe_load(f.read_text(encoding="utf-8")) for f in files]


def models() -> dict[str, dict[str, Any]]:
    return {m["name"]: m for d in documents() for m in d.get("models", [])}


def own_tests(model: dict[str, Any]) -> list[dict[str, Any]]:
    listed = list(model.get("data_tests", []))
    for column in model["columns"]:
        listed += column.get("data_tests", [])
    return [spec for test in listed for spec in test.values()]


def test_sources_have_exactly_the_raw_contracts_columns() -> None:
    (source,) = [s for d in documents() for s in d.get("sources", [])]
    assert source["name"] == "raw"
    assert tuple(f"raw.{t['name']}" for t in source["tables"]) == SOURCES
    for table in source["tables"]:
        contract = CONTRACTS[f"raw.{table['name']}"]
        assert table["description"] == contract.description
        documented = [(c["name"], c["description"]) for c in table["columns"]]
        assert documented == [(c.name, c.description) for c in contract.columns()]


def test_every_raw_table_has_one_staging_model() -> None:
    files = {f.stem for f in PROJECT.glob("models/staging/**/*.sql")}
    assert files == {"stg_" + s.removeprefix("raw.").replace("_", "__", 1) for s in SOURCES}
    read = {
        f.stem: re.findall(r"source\('raw', '(\w+)'\)", f.read_text(encoding="utf-8"))
        for f in PROJECT.glob("models/**/*.sql")
    }
    for name, tables in read.items():
        # No other model reads the raw tables.
        wanted = [name.removeprefix("stg_").replace("__", "_")] if name in files else []
        assert tables == wanted, name


def test_every_model_column_and_test_is_described() -> None:
    described = models()
    assert set(described) == {f.stem for f in PROJECT.glob("models/**/*.sql")}
    names: list[str] = []
    for name, model in described.items():
        assert model["description"].endswith("."), name
        for column in model["columns"]:
            assert column["description"].endswith("."), (name, column["name"])
        for test in own_tests(model):
            assert test["description"].endswith("."), test["name"]
            assert test["name"].startswith(f"{name}_"), test["name"]
            names.append(test["name"])
    for document in documents():
        for unit in document.get("unit_tests", []):
            assert unit["description"].endswith("."), unit["name"]
            names.append(unit["name"])
    # Checks are recorded by name, so that a name says which test it was.
    assert len(names) == len(set(names))


def test_every_macro_and_own_test_is_used() -> None:
    text = "".join(f.read_text(encoding="utf-8") for f in PROJECT.rglob("*.sql"))
    text += "".join(f.read_text(encoding="utf-8") for f in PROJECT.rglob("*.yml"))
    for name in re.findall(r"{% (?:macro|test) (\w+)\(", text):
        if name != "generate_schema_name":  # dbt calls it
            assert len(re.findall(rf"\b{name}\b", text)) > 1, name
