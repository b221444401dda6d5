"""Flattening of one record: what comes out, and which records can't be taken."""

from __future__ import annotations

import re

import orjson
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.tmdb_server import make_record

from pipelines.contracts import RAW
from pipelines.sources._reader import Column
from pipelines.sources.tmdb import FIELDS, published

CONTRACT = RAW["raw.tmdb_movies"]
COLUMNS = list(CONTRACT.polars_schema())


class RecordFaultError(Exception):
    """Field at fault, and its value."""

    def __init__(self, field: Column, value: object) -> None:
        super().__init__(field.reason)
        self.field, self.value, self.reason = field.field, value, field.reason


def as_frame(*records: dict[str, object]) -> pl.DataFrame:
    """The records' row in the contract's columns; raises for the first field that can't be read."""
    faults: dict[int, tuple[str, str | None, str | None]] = {}
    series = [f.of_records(records, faults, strict=False) for f in FIELDS]
    for reason, key, value in faults.values():
        raise RecordFaultError(
            next(f for f in FIELDS if (f.field, f.reason) == (key, reason)), value
        )
    return CONTRACT.validate(published(pl.DataFrame(series)).select(COLUMNS))


def flat(record: dict[str, object]) -> dict[str, object]:
    return as_frame(record).row(0, named=True)


def test_a_full_record_comes_out_flat_in_the_contracts_order() -> None:
    record = make_record(862, belongs_to_collection={"id": 1, "name": "The Harbour Series"})
    assert flat(record) == {
        "tmdb_id": 862,
        "imdb_id": "tt0000862",
        "title": "Film 862",
        "original_title": "Filme 862",
        "original_language": "pt",
        "overview": "What happens in film 862.",
        "genres": ["Drama", "Comedy"],
        "keywords": ["harbour", "letters"],
        "actors": ["First Billed", "Second Billed"],
        "directors": ["Some Director"],
        "collection": "The Harbour Series",
        "release_date": "1972-05-17",
        "runtime": 102,
        "popularity": 3.5,
        "vote_average": 5.5,
        "vote_count": 862,
        "budget": 0,
        "revenue": 1_000_000,
        "poster_path": "/poster862.jpg",
    }


@pytest.mark.parametrize(
    "record",
    [
        {"id": 5},
        {"id": 5} | dict.fromkeys(("title", "overview", "release_date", "imdb_id"), ""),
        {"id": 5}
        | dict.fromkeys(
            (
                "title", "runtime", "budget", "genres", "keywords", "credits", "popularity",
                "belongs_to_collection",
            )
        ),
        {"id": 5, "genres": [], "keywords": {}, "credits": {}},
        {"id": 5, "keywords": {"keywords": None}, "credits": {"cast": None, "crew": None}},
    ],
    ids=["absent", "empty", "null", "empty-parts", "null-parts"],
)  # fmt: skip
def test_what_is_not_there_is_null_or_an_empty_list(record) -> None:
    row = flat(record)
    lists = {"genres", "keywords", "actors", "directors"}
    assert row == {"tmdb_id": 5} | {
        c: [] if c in lists else None for c in COLUMNS if c != "tmdb_id"
    }


def test_zero_is_kept_and_whole_floats_are_whole_numbers() -> None:
    row = flat({"id": 5, "budget": 0, "revenue": 0, "runtime": 81.0, "vote_average": 7})
    assert (row["budget"], row["revenue"], row["runtime"]) == (0, 0, 81)
    assert type(row["runtime"]) is int
    assert type(row["vote_average"]) is float


def test_cast_is_in_billing_order_cut_to_ten_each_name_once() -> None:
    cast = [{"name": f"P{i % 12}", "order": i} for i in reversed(range(24))]
    assert flat({"id": 5, "credits": {"cast": cast}})["actors"] == [f"P{i}" for i in range(10)]


def test_cast_without_billing_numbers_stays_in_the_given_order() -> None:
    cast = [{"name": "B", "order": 1}, {"name": "A"}, {"name": None}, {"name": ""}]
    assert flat({"id": 5, "credits": {"cast": cast}})["actors"] == ["B", "A"]


def test_directors_are_those_with_the_job_not_the_department() -> None:
    crew = [
        {"name": "One", "job": "Director", "department": "Directing"},
        {"name": "Helper", "job": "First Assistant Director", "department": "Directing"},
        {"name": "Two", "job": "Director"},
        {"name": "One", "job": "Director"},
        {"name": 17, "job": "Gaffer"},
    ]
    assert flat({"id": 5, "credits": {"crew": crew}})["directors"] == ["One", "Two"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({}, "bad_id"),
        ({"id": None}, "bad_id"),
        ({"id": "862a"}, "bad_id"),
        ({"id": 0}, "bad_id"),
        ({"id": -3}, "bad_id"),
        ({"id": True}, "bad_id"),
        ({"id": 2**63}, "bad_id"),
        ({"id": 1, "title": 7.5}, "bad_title"),
        ({"id": 1, "overview": ["x"]}, "bad_overview"),
        ({"id": 1, "imdb_id": 1.5}, "bad_imdb_id"),
        ({"id": 1, "release_date": 1995.5}, "bad_release_date"),
        ({"id": 1, "runtime": "1 h 21"}, "bad_runtime"),
        ({"id": 1, "runtime": 81.5}, "bad_runtime"),
        ({"id": 1, "budget": True}, "bad_budget"),
        ({"id": 1, "revenue": 2**63}, "bad_revenue"),
        ({"id": 1, "revenue": float("inf")}, "bad_revenue"),
        ({"id": 1, "vote_average": "8,0"}, "bad_vote_average"),
        ({"id": 1, "popularity": False}, "bad_popularity"),
        ({"id": 1, "genres": "Drama"}, "bad_genres"),
        ({"id": 1, "genres": ["Drama", 3]}, "bad_genres"),
        ({"id": 1, "genres": "[{'name': 'Dra"}, "bad_genres"),
        ({"id": 1, "genres": [{"name": 3}]}, "bad_genres"),
        ({"id": 1, "keywords": {"keywords": "toy"}}, "bad_keywords"),
        ({"id": 1, "credits": []}, "bad_credits"),
        ({"id": 1, "credits": {"cast": {}}}, "bad_credits"),
        ({"id": 1, "credits": {"crew": ["Tom"]}}, "bad_credits"),
        ({"id": 1, "credits": {"crew": [{"job": "Director", "name": 4}]}}, "bad_credits"),
        ({"id": 1, "belongs_to_collection": "Series"}, "bad_collection"),
        ({"id": 1, "belongs_to_collection": {"name": 1}}, "bad_collection"),
    ],
)
def test_a_record_of_the_wrong_shape_is_refused_with_its_reason(record, reason: str) -> None:
    with pytest.raises(RecordFaultError) as caught:
        as_frame(record)
    assert caught.value.reason == reason


def test_numbers_and_structures_may_be_text() -> None:
    plain = flat(
        {"id": 862, "imdb_id": "tt0114709", "title": "1984", "runtime": 81, "popularity": 18.7,
         "vote_count": 9, "genres": [{"name": "Drama"}],
         "keywords": {"keywords": [{"name": "toy"}]},
         "credits": {"cast": [{"name": "B", "order": 0}, {"name": "A", "order": 1}], "crew": []},
         "belongs_to_collection": {"name": "Toys"}}
    )  # fmt: skip
    written = flat(
        {"id": "862.0", "imdb_id": 114709, "title": 1984, "runtime": "81.0", "popularity": "18.7",
         "vote_count": 9.0, "budget": "", "revenue": float("nan"), "overview": float("nan"),
         "genres": "[{'id': 18, 'name': 'Drama'}]", "keywords": '[{"name": "toy"}]',
         "credits": "{'cast': [{'name': 'A', 'order': '1'}, {'name': 'B', 'order': '0'}]}",
         "belongs_to_collection": "{'id': 1, 'name': 'Toys'}"}
    )  # fmt: skip
    assert written == plain


def test_a_refused_record_names_field_and_value() -> None:
    with pytest.raises(RecordFaultError) as caught:
        as_frame({"id": 1, "runtime": "1 h 21"})
    assert (caught.value.field, caught.value.value) == ("runtime", "1 h 21")


def test_nothing_is_repaired_but_control_characters_go() -> None:
    record = make_record(
        1,
        title="AmÃ©lie &amp; Co. ",
        overview="one\x00 two\x1b[31m\tthree\nfour\x7f",
        original_title="\x00 \x07",
        genres=[{"name": "Dra\x00ma"}, {"name": "\x00"}, {"name": " "}],
        credits={"cast": [{"name": "JosÃ©"}]},
    )
    row = flat(record)
    assert row["title"] == "AmÃ©lie &amp; Co. "
    assert row["overview"] == "one two[31m\tthree\nfour"
    assert row["original_title"] is None
    assert row["genres"] == ["Drama"]
    assert row["actors"] == ["JosÃ©"]


def test_a_frame_holds_rows_in_order_with_the_contracts_schema() -> None:
    frame = as_frame(make_record(9), {"id": 2}, make_record(4))
    assert frame.schema == CONTRACT.polars_schema()
    assert frame["tmdb_id"].to_list() == [9, 2, 4]
    assert frame["genres"].to_list() == [["Drama", "Comedy"], [], ["Drama", "Comedy"]]
    assert frame["overview"].to_list()[1] is None


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "job", "order", "cast"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_KEYS = [*make_record(1), "unknown"]


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(_KEYS), _JSON, max_size=4))
@example({"title": "\x00", "genres": [{"name": "\x7f"}]})
@example({"title": "\u2028\u0085"})
def test_any_object_is_either_a_row_of_the_contract_or_refused_with_a_code(changes) -> None:
    record = make_record(3) | changes
    try:
        frame = as_frame(record)
    except RecordFaultError as fault:
        assert re.fullmatch(r"[a-z_]+", fault.reason)  # noqa: PT017 (either a row or a code)
        return
    values = frame.row(0, named=True)
    texts = [v for v in values.values() if isinstance(v, str)]
    assert all(text.strip() or not text.isascii() for text in texts)
    assert not any("\x00" in orjson.loads(orjson.dumps(text)) for text in texts)
    names = frame.select(pl.col("genres", "keywords", "actors", "directors")).row(0)
    assert all(name for column in names for name in column)
