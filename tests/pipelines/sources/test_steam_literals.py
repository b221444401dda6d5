"""Python literals are read as what they mean, and nothing is ever evaluated."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipelines.sources._values import loads

#: Text with everything that a string's spelling depends on.
TEXT = st.text(
    st.sampled_from("ab'\"\\\n\t\r ué\u2122\U0001f600\x00\x1f\x7f:,{}[]TrueNoneNaN1L"), max_size=30
)
VALUE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(st.lists(st.dictionaries(TEXT, VALUE, max_size=4), min_size=1, max_size=4))
def test_what_repr_writes_means_the_same_in_json(records: list[dict[str, Any]]) -> None:
    assert [loads(repr(record)) for record in records] == records


@example([{"'": None}, {'"': None, "u": None}])
@example([{"'": None}, {'a"u': 1, 'b"': "u"}])
@given(st.lists(st.dictionaries(TEXT, VALUE, max_size=4), min_size=1, max_size=4))
def test_json_stays_what_it_is(records: list[dict[str, Any]]) -> None:
    assert [loads(orjson.dumps(record)) for record in records] == records


#: Bytes that move the ends of strings or lines, that are rare, or that UTF-8 does not have.
ADDED = [
    *rb"""'~"~\~\'~\"~u'~\x41~\101~\N{DASH}~\u00e~,~ ~#~""".split(b"~"),
    *[b"\n", b"\\\n", b"\x00", b"\xc3", b"\xfb", b"\xfc", b"\xfd", b"\xfe", b"\xff"],
]
EDITS = st.lists(
    st.tuples(st.integers(0, 10_000), st.integers(0, 2), st.sampled_from(ADDED)), max_size=4
)
#: Spellings that only one of Python and JSON has, or only Python 2.
MIXED = re.compile(rb"nan|NaN|[0-9]L|true|false|null|\\/")


def read(parse: Callable[[Any], Any], line: bytes) -> tuple[Any, ...]:
    """The value in a tuple, or nothing if the line has none that JSON can have."""
    try:
        value = parse(line.decode())
        return (orjson.loads(orjson.dumps(value)),)
    except (ValueError, SyntaxError, TypeError, MemoryError):
        return ()


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
@given(st.lists(st.tuples(st.dictionaries(TEXT, VALUE, max_size=4), EDITS), min_size=1, max_size=4))
def test_edited_lines_mean_what_python_reads_or_nothing(
    records: list[tuple[dict[str, Any], list[tuple[int, int, bytes]]]],
) -> None:
    lines = []
    for record, edits in records:
        line = repr(record).encode()
        for place, removed, added in edits:
            at = place % (len(line) + 1)
            line = line[:at] + added + line[at + removed :]
        lines += line.split(b"\n")
    for line in lines:
        if not MIXED.search(line):
            assert read(loads, line) in ((), read(ast.literal_eval, line.strip(b" \t")))


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (
            "{u'a': u'it\\u2122s', 'b': U'x', 'c': [u'u', u'']}",
            {"a": "it™s", "b": "x", "c": ["u", ""]},
        ),
        ("{u'a': u\"it's u\", 'b': 'u', 'menu': 'a u'}", {"a": "it's u", "b": "u", "menu": "a u"}),
        ("{'a': 12L, 'b': '12L'}", {"a": 12, "b": "12L"}),
        (
            "{'a': nan, 'b': [nan, NaN], 'c':nan, 'd': 'nan'}",
            {"a": None, "b": [None] * 2, "c": None, "d": "nan"},
        ),
        ('{"a":NaN,"b":"NaN, True","c":true}', {"a": None, "b": "NaN, True", "c": True}),
        ("{'a': '\\xe9\\U0001f600\\101\\N{DIGIT ONE}\\a'}", {"a": "é\U0001f600A1\a"}),
        ("{'a': ': True, x', 'b': True}", {"a": ": True, x", "b": True}),
        (
            "{'a': 'say \"no\"', 'b': \"it's\", 'c': 'both \\' and \"'}",
            {"a": 'say "no"', "b": "it's", "c": "both ' and \""},
        ),
    ],
)
def test_spellings_of_both_pythons_and_of_json_are_read(literal: str, value: Any) -> None:
    assert loads(literal.encode()) == value


@pytest.mark.parametrize(
    "line",
    [
        b"{'a': 'it's'}",
        b"{'a': 'open}",
        b"{'a': __import__('os').getcwd()}",
        b"{'a': 1 + 1}",
        b"{'a': 'x' 'y'}",
        b"{'a': (1, 2)}",
        b"{'a': '\\U00110000'}",
        b"{'a': b'x'}",
    ],
)
def test_what_is_no_plain_literal_is_no_json(line: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        loads(line)


def test_nothing_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(ast, "literal_eval", lambda text: seen.append(text) or "")
    for line in (b"{'a': True, 'b': 'plain', 'c': \"it's\", 'd': __import__('os')}", b"{'a': f()}"):
        with pytest.raises(orjson.JSONDecodeError):
            loads(line)
    assert seen == []
    # Only a string with an escape is handed to Python's parser.
    loads(b"{'a': '\\101'}")
    assert seen == ["'\\101'"]
