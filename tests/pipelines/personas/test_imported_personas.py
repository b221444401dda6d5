"""Imported personas: rows of files as rows of the contract, with nothing invented."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import polars as pl
import pytest

from pipelines.config import PersonaSettings
from pipelines.contracts import CONTRACTS
from pipelines.errors import ConfigError, ContractError
from pipelines.personas import generate, imported
from sim.environment._world import PersonaTable
from sim.environment.text import persona_lines

TEXT = "A retired teacher who restores clocks and sings in a choir."


def raw(*rows: dict[str, Any]) -> pl.DataFrame:
    schema = CONTRACTS["raw.persona_files"].polars_schema()
    full = [
        dict.fromkeys(schema) | {"file": "personas/a.jsonl", "line": n, "attributes": "{}"} | row
        for n, row in enumerate(rows, start=1)
    ]
    return pl.DataFrame(full, schema=schema)


def one(**row: Any) -> dict[str, Any]:
    frame = CONTRACTS["movies.personas"].validate(imported(raw(row)))
    return frame.row(0, named=True)


def test_a_text_is_imported_with_what_its_row_states() -> None:
    found = one(
        text=TEXT, name="Ada", age="41", gender="Female", job="Clockmaker", writer="writer-7b"
    )
    assert found == {
        "persona_id": "persona:imported:0000000",
        "cohort": "imported",
        "domain": "movies",
        "origin": "imported",
        "writer": "writer-7b",
        "name": "Ada",
        "age": 41,
        "gender": "female",
        "job": "Clockmaker",
        "hobby": None,
        "likes": [],
        "dislikes": [],
        "leniency": None,
        "manner": None,
        "activity": None,
        "conformity": None,
        "description": TEXT,
    }


def test_what_a_row_does_not_state_is_null_and_its_writer_unknown() -> None:
    found = one(text=TEXT)
    unstated = ("name", "age", "gender", "job", "hobby")
    assert [found[k] for k in unstated] == [None] * 5
    assert found["writer"] == "unknown"


@pytest.mark.parametrize(
    ("age", "years"),
    [("41", 41), (" 7 years old ", 7), ("33 years", 33), ("45 to 54 years", None),
     ("85 years and over", None), ("200", None), ("2", None), ("old", None)],
)  # fmt: skip
def test_an_age_is_a_number_of_years_and_a_band_is_none(age: str, years: int | None) -> None:
    assert one(text=TEXT, age=age)["age"] == years


@pytest.mark.parametrize(
    ("stated", "gender"),
    [("Female", "female"), ("M", "male"), ("Non-binary", None), ("Not Applicable", None)],
)
def test_genders_are_the_contract_s_or_unknown(stated: str, gender: str | None) -> None:
    assert one(text=TEXT, gender=stated)["gender"] == gender


def test_jobs_that_say_nothing_are_null() -> None:
    assert one(text=TEXT, job="Not Applicable")["job"] is None
    assert one(text=TEXT, job="Student")["job"] == "student"


def test_attributes_alone_become_a_list_that_is_ours() -> None:
    attributes = {"AGE": "25 to 34 years", "CAREER": "Not Applicable", "STATE_NAME": "Ohio"}
    found = one(age="25 to 34 years", attributes=orjson.dumps(attributes).decode())
    assert found["description"] == (
        "This is what is known of this person. Age: 25 to 34 years. State name: Ohio."
    )
    assert found["writer"] == "statistical"
    assert found["age"] is None


def test_control_and_invisible_characters_and_braces_are_neutralised() -> None:
    dirty = "A retired\r\n\r\nteacher\x00 who\t restores\u200b clo\u202ecks for {everybody}\u2028."
    found = one(text=dirty, name="Ad\u200ba\n", writer="a\x1bb")
    assert found["description"] == "A retired teacher who restores clocks for (everybody) ."
    assert (found["name"], found["writer"]) == ("Ada", "a b")


def test_personas_are_numbered_through_in_the_order_of_the_table() -> None:
    frame = raw(*({"text": f"{TEXT} {n}"} for n in range(5)))
    whole = imported(frame, "pilot")
    parts = [imported(frame[:2], "pilot"), imported(frame[2:], "pilot", start=2)]
    assert pl.concat(parts).equals(whole)
    assert whole["persona_id"].to_list()[-1] == "persona:pilot:0000004"


def test_nobody_to_import_and_too_many_are_errors() -> None:
    with pytest.raises(ContractError, match="no personas to import"):
        imported(raw())
    with pytest.raises(ConfigError, match="numbered from 0"):
        imported(raw({"text": TEXT}), start=10_000_000)
    with pytest.raises(ContractError, match="1 personas have neither"):
        imported(raw({"text": "\x00\u200b"}))


def test_imported_and_generated_personas_stand_in_one_table_that_its_readers_take() -> None:
    both = pl.concat([generate(PersonaSettings(count=2)), imported(raw({"text": TEXT}))])
    CONTRACTS["movies.personas"].validate(both)
    cast = PersonaTable(both.sort("persona_id"))
    assert cast.ages[-1] == 0
    assert np.isfinite(cast.ages).all()
    assert cast.genders[-1] == 0
    lines = persona_lines(both.row(2, named=True))
    assert lines == ["somebody (persona:imported:0000000)", TEXT]


# -- tastes of shoppers --------------------------------------------------------------------


def shopper(**row: Any) -> tuple[list[str], list[str]]:
    frame = imported(raw(row), domain="products")
    CONTRACTS["products.personas"].validate(frame)
    assert frame["domain"].to_list() == ["products"]
    return frame["likes"][0].to_list(), frame["dislikes"][0].to_list()


def test_tastes_for_products_are_read_from_the_text() -> None:
    text = "A baker of 44 who loves wooden toys and vintage things but can't stand plastic things."
    assert shopper(text=text) == (["material:wood", "style:classic"], ["material:plastic"])
    assert shopper(text=TEXT) == ([], [])


@pytest.mark.parametrize(
    ("income", "likes"),
    [
        ("Less than $10,000", ["price:low"]),
        ("$25,000 to $34,999", ["price:low"]),
        ("$35,000 to $49,999", []),
        ("$75,000 to $99,999", []),
        ("$100,000 to $149,999", ["price:high"]),
        ("Not Applicable", []),
    ],
)
def test_an_income_sets_the_taste_for_prices(income: str, likes: list[str]) -> None:
    attributes = orjson.dumps({"CAREER": "Sales", "INCOME_RANGE": income}).decode()
    assert shopper(attributes=attributes) == (likes, [])
    assert imported(raw({"attributes": attributes}))["likes"][0].to_list() == []


def test_a_stated_taste_for_prices_outweighs_the_income() -> None:
    attributes = orjson.dumps({"income": "$200,000 or more"}).decode()
    text = "A collector of clocks who loves bargains and things made of wood."
    assert shopper(text=text, attributes=attributes) == (["material:wood", "price:low"], [])
    text = "A collector of clocks who avoids expensive things."
    assert shopper(text=text, attributes=attributes) == ([], ["price:high"])
