"""dbt's YAML of the marts is generated from the contracts and the declared tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipelines.contracts import CONTRACTS
from pipelines.contracts.dbt import mart_models
from pipelines.domains import DOMAINS

RATINGS = CONTRACTS["books.interactions"]
USERS = {
    "test": "relationships",
    "column": "user_id",
    "description": "Known users.",
    "arguments": {"to": "ref('{domain}_human_users')", "field": "user_id"},
    "games": {"description": "Known players.", "severity": "warn"},
}


def model(domain: str, **tests: Any) -> dict[str, Any]:
    (found,) = yaml.safe_load(
        mart_models(domain, {"interactions": RATINGS}, {"interactions": tests})
    )["models"]
    assert isinstance(found, dict)
    return found


def column(of: dict[str, Any], name: str) -> dict[str, Any]:
    return next(c for c in of["columns"] if c["name"] == name)


def test_columns_are_those_of_the_contract() -> None:
    found = model("books")
    assert found["description"] == RATINGS.description
    assert [c["name"] for c in found["columns"]] == list(RATINGS.polars_schema())
    assert column(found, "rated_at") == {
        "name": "rated_at",
        "data_type": "timestamp with time zone",
        "description": "Time of the rating (UTC).",
    }


def test_a_test_is_declared_once_for_all_domains() -> None:
    (books,) = column(model("books", known_users=USERS), "user_id")["data_tests"]
    assert books["relationships"] == {
        "name": "books_interactions_known_users",
        "description": "Known users.",
        "arguments": {"to": "ref('books_human_users')", "field": "user_id"},
    }
    (games,) = column(model("games", known_users=USERS), "user_id")["data_tests"]
    assert games["relationships"]["description"] == "Known players."
    assert games["relationships"]["config"] == {"severity": "warn"}


def test_required_columns_follow_from_the_contract() -> None:
    complete = {"test": "no_nulls", "description": "Complete.", "only": ["books"]}
    (test,) = model("books", complete=complete)["data_tests"]
    assert test["no_nulls"]["arguments"]["columns"] == [
        c.name for c in RATINGS.columns() if not c.nullable
    ]
    assert "data_tests" not in model("games", complete=complete)


def test_a_column_that_is_none_is_an_error() -> None:
    with pytest.raises(KeyError, match="user"):
        model("books", known_users={**USERS, "column": "user"})


def test_declared_tests_have_no_unknown_field(repository: Path) -> None:
    declared = yaml.safe_load((repository / "dbt" / "mart_tests.yml").read_text())
    fields = {"test", "column", "only", "description", "arguments", "severity", *DOMAINS}
    for tests in declared.values():
        for test in tests.values():
            assert set(test) <= fields
            assert set(test.get("only", [])) <= set(DOMAINS)
