"""Values in every spelling with one meaning; any other spelling is unreadable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipelines.sources import _values as values

READABLE: list[tuple[Callable[[Any], object], Any, object]] = [
    (values.whole_number, "63", 63),
    (values.whole_number, "63.0", 63),
    (values.whole_number, " 63. ", 63),
    (values.whole_number, 63.0, 63),
    (values.whole_number, "0", 0),
    (values.whole_number, "-5364000000", -5364000000),
    (values.whole_number, "9.64982703e+08", 964982703),
    (values.number, "4.50", 4.5),
    (values.number, ".5", 0.5),
    (values.number, 4, 4.0),
    (values.boolean, "True", True),
    (values.boolean, 0.0, False),
    (values.identifier, 1000000001, "1000000001"),
    (values.identifier, 63.0, "63"),
    (values.text, 1984, "1984"),
    (values.structure, '{"a": [1]}', {"a": [1]}),
    (values.structure, "{'a': [True, None]}", {"a": [True, None]}),
    (values.texts, [["a", "b"], ["c"]], ["a", "b", "c"]),
    (values.texts, '["a", "b"]', ["a", "b"]),
    (values.texts, "['a', \"b's\"]", ["a", "b's"]),
    (values.texts, "[Updated] prose", ["[Updated] prose"]),
    (values.texts, "", []),
]
UNREADABLE: list[tuple[Callable[[Any], object], Any]] = [
    (values.whole_number, "63.5"),
    (values.whole_number, "1,024"),
    (values.whole_number, "9.65E+08"),
    (values.whole_number, "0x1F"),
    (values.whole_number, "١"),
    (values.whole_number, True),
    (values.whole_number, 1e300),
    (values.whole_number, "9223372036854775808"),
    (values.whole_number, "9" * 300),
    (values.number, "4,5"),
    (values.number, "nan"),
    (values.number, float("inf")),
    (values.boolean, "yes"),
    (values.boolean, 2),
    (values.identifier, 63.5),
    (values.text, 1984.0),
    (values.structure, "{'a': f()}"),
    (values.structure, '{"a": '),
    (values.texts, "['a' 'b']"),
    (values.texts, [{"name": "a"}]),
    (values.texts, {"a": 1}),
]


@pytest.mark.parametrize(("read", "value", "expected"), READABLE)
def test_a_spelling_with_one_meaning_is_read(
    read: Callable[[Any], object], value: Any, expected: object
) -> None:
    assert read(value) == expected
    assert type(read(value)) is type(expected)


@pytest.mark.parametrize(("read", "value"), UNREADABLE)
def test_an_ambiguous_value_is_unreadable(read: Callable[[Any], object], value: Any) -> None:
    with pytest.raises(values.UnreadableError):
        read(value)


@pytest.mark.parametrize(
    ("value", "per_second", "expected"),
    [
        ("2005-04-02 23:53:47", 1, 1112486027),
        ("2005-04-02T23:53:47.5Z", 1000, 1112486027500),
        ("2005-04-03T01:53:47+02:00", 1, 1112486027),
        ("2005-04-02", 1, 1112400000),
        (1112486027.0, 1, 1112486027),
    ],
)
def test_dates_without_a_zone_are_utc(value: Any, per_second: int, expected: int) -> None:
    assert values.timestamp(value, per_second) == expected


@pytest.mark.parametrize("value", ["02/04/2005", "06 17, 2018", "2005-13-01", "20050402T", None])
def test_dates_of_other_forms_are_unreadable(value: Any) -> None:
    with pytest.raises(values.UnreadableError):
        values.timestamp(value, 1)
