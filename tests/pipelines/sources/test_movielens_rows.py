"""The CSV reader: exact lines, every row accounted for, whatever the bytes are."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import SourceError
from pipelines.sources._reader import Column, RowError, Separated, split_record

RATINGS = (
    Column("userId", "user_id", "integer", "bad_id", required=True),
    Column("movieId", "movie_id", "integer", "bad_id", required=True),
    Column("rating", "rating", "number", "bad_rating", required=True),
    Column("timestamp", "timestamp", "seconds", "bad_timestamp", required=True),
)
TAGS = (*RATINGS[:2], Column("tag", "tag"), RATINGS[3])
LINKS = (RATINGS[1], Column("tmdbId", "tmdb_id", "integer", "bad_id"))


def original(data: bytes) -> Any:
    """Bytes in place of a file."""

    def pieces(size: int) -> Iterator[bytes]:
        yield from (data[at : at + size] for at in range(0, len(data), size))

    return SimpleNamespace(name="f.csv", size=len(data), pieces=pieces)


def header(columns: tuple[Column, ...]) -> bytes:
    return ",".join(c.field for c in columns).encode() + b"\n"


class Read:
    """A pass over some bytes."""

    def __init__(self, data: bytes, columns: tuple[Column, ...], block: int = 1 << 20) -> None:
        self.rejected: list[tuple[int, str, str]] = []
        self.rows: list[tuple[object, ...]] = []
        self.texts: list[str] = []
        self.rows_read = 0
        for batch in Separated().rows(original(data), columns, block):
            self.rows_read += batch.frame.height
            for n, row in enumerate(batch.frame.iter_rows()):
                if n in batch.faults:
                    self.rejected.append((row[-1], batch.faults[n][0], batch.text(n)))
                else:
                    self.rows.append(row)
                    self.texts.append(batch.text(n))
        self.rejected.sort()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Read) and vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]


HARD_LINES = [
    b"1,2,fine,3",
    b"1,2,too few",
    b"1,2,a,b,3",
    b'1,2,"two',
    b'lines",4',
    b"5,6,caf\xe9,7",
    b"",
    b'7,8,"closed"early,9',
    b'9,9,"never closed,1',
    b"10,1,after,2",
    b"x,1,tag,2",
    b'11,1,5" disk,2',
    b'"12","1","quoted ""numbers""","2"',
]


@pytest.mark.parametrize("ending", [b"\n", b"\r\n"])
@pytest.mark.parametrize("block", [1, 7, 40, 1 << 20])
def test_every_kind_of_row_comes_out_or_is_rejected_with_its_line(
    ending: bytes, block: int
) -> None:
    data = header(TAGS) + ending.join(HARD_LINES) + ending
    read = Read(data, TAGS, block)
    eol = ending.decode()
    assert read.rows == [
        (1, 2, "fine", 3, 2),
        (1, 2, f"two{eol}lines", 4, 5),
        (10, 1, "after", 2, 11),
        (11, 1, '5" disk', 2, 13),
        (12, 1, 'quoted "numbers"', 2, 14),
    ]
    assert read.texts == [
        "1,2,fine,3",
        f'1,2,"two{eol}lines",4',
        "10,1,after,2",
        '11,1,5" disk,2',
        '"12","1","quoted ""numbers""","2"',
    ]
    assert read.rejected == [
        (3, "wrong_columns", "1,2,too few"),
        (4, "wrong_columns", "1,2,a,b,3"),
        (7, "invalid_utf8", "5,6,caf\ufffd,7"),
        (8, "blank_line", ""),
        (9, "bad_quotes", '7,8,"closed"early,9'),
        (10, "bad_quotes", '9,9,"never closed,1'),
        (12, "bad_id", "x,1,tag,2"),
    ]
    assert read.rows_read == 12  # 13 lines, two of which are one row


def test_an_unclosed_quote_costs_its_own_line_only() -> None:
    lines = [b'1,1,"open,1', *(b"2,%d,tag,1" % n for n in range(1, 200))]
    read = Read(header(TAGS) + b"\n".join(lines), TAGS, block=64)
    assert [r[1] for r in read.rows] == list(range(1, 200))
    assert read.rejected == [(2, "bad_quotes", '1,1,"open,1')]


def test_a_byte_order_mark_and_a_missing_last_line_end_are_fine() -> None:
    read = Read(b"\xef\xbb\xbf" + header(RATINGS) + b"1,2,4.5,6", RATINGS)
    assert read.rows == [(1, 2, 4.5, 6, 2)]
    assert not read.rejected


def test_values_that_a_lenient_parser_would_take_are_rejected() -> None:
    lines = [
        b"0x1F,2,3,4",  # Arrow reads hexadecimal
        b"1.5,2,3,4",
        b"1,2,nan,4",
        b"1,2,infinity,4",
        b"1,2,1_0,4",
        b"1,2,3,9223372036854775808",
        "١,2,3,4".encode(),  # a digit, but not ours
        b"1,2,,4",
        b",2,3,4",
        b"1,2,3,",
        b"1,2,3,9.6E+8",  # digits are lost
        b'1,2,"4,5",4',  # of Germany, or of thousands
    ]
    read = Read(header(RATINGS) + b"\n".join(lines), RATINGS)
    assert read.rows == []
    assert [reason for _, reason, _ in read.rejected] == [
        "bad_id",
        "bad_id",
        "bad_rating",
        "bad_rating",
        "bad_rating",
        "bad_timestamp",
        "bad_id",
        "bad_rating",
        "bad_id",
        "bad_timestamp",
        "bad_timestamp",
        "bad_rating",
    ]


def test_numbers_of_pandas_and_spreadsheets_are_read() -> None:
    lines = [b"63.0,0,4,5.0", b' 1 ,"2", 3.50 ,9.64982703E+08', b"1,2,3,2005-04-02 23:53:47"]
    read = Read(header(RATINGS) + b"\n".join(lines), RATINGS)
    assert read.rejected == []
    assert read.rows == [
        (63, 0, 4.0, 5, 2),
        (1, 2, 3.5, 964982703, 3),
        (1, 2, 3.0, 1112486027, 4),
    ]


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", ["\n\n", "\r\n \t\r\n", "\n,,,\n,,,", "\n" * 100])
def test_blank_lines_at_the_end_are_nothing(block: int, end: str) -> None:
    read = Read(header(RATINGS) + b"1,2,3,4\n\n5,6,3,8" + end.encode(), RATINGS, block)
    assert [row[0] for row in read.rows] == [1, 5]
    assert read.rejected == [(3, "blank_line", "")]
    assert read.rows_read == 3


def test_a_carriage_return_on_its_own_does_not_end_a_line() -> None:
    read = Read(header(RATINGS) + b"1,2,3,4\r5,6,7,8\n9,9,1,1\n", RATINGS)
    assert read.rows == [(9, 9, 1.0, 1, 3)]
    assert read.rejected == [(2, "bare_return", "1,2,3,4\r5,6,7,8")]
    read = Read(header(RATINGS) + b"1,2,3,4\r\r\n9,9,1,1\n", RATINGS)
    assert [r[0] for r in read.rows] == [9]
    assert [line for line, _, _ in read.rejected] == [2]


def test_a_line_of_digits_longer_than_a_piece_is_one_bad_row() -> None:
    long = "9" * 300_000
    found = Read(f"{header(RATINGS).decode()}1,2,3,4\n{long},2,3,4\n5,6,7,8\n".encode(), RATINGS)
    assert found.rows == [(1, 2, 3.0, 4, 2), (5, 6, 7.0, 8, 4)]
    assert [(line, reason) for line, reason, _ in found.rejected] == [(3, "bad_id")]


def test_an_optional_number_may_be_empty() -> None:
    assert Read(header(LINKS) + b"1,\n2,7\n", LINKS).rows == [(1, None, 2), (2, 7, 3)]
    # A bad one beside it changes nothing.
    read = Read(header(LINKS) + b"1,\n2,x\n3,8\n", LINKS)
    assert read.rows == [(1, None, 2), (3, 8, 4)]
    assert read.rejected == [(3, "bad_id", "2,x")]


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "the file is empty"),
        (b"userId,movieId,rating\n1,2,3\n", "found userId,movieId,rating"),
        (b"user,movieId,rating,timestamp\n", "found user,movieId,rating,timestamp"),
        (b"1,2,3,4\n", "expected userId,movieId,rating,timestamp, found 1,2,3,4"),
        ("userId,movieId,rating,timestamp\n".encode("utf-16"), "the header is not"),
        (b"PK\x03\x04\x00\x00", "the header is not"),
    ],
)
def test_a_file_of_another_shape_is_an_error_that_shows_both_headers(
    data: bytes, what: str
) -> None:
    with pytest.raises(SourceError) as caught:
        Read(data, RATINGS)
    assert what in str(caught.value)
    assert "f.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_without_line_ends_is_refused_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pipelines.sources._files.MAX_RECORD", 1000)
    with pytest.raises(SourceError, match="a line is longer"):
        Read(header(RATINGS) + b"1" * 5000, RATINGS, block=100)


# -- laws ----------------------------------------------------------------------------------

_FIELD = st.one_of(
    st.integers(0, 10**20).map(str),
    st.sampled_from(["3.5", ".5", "4.", ".", "", "-1", "nan", "x", " 1", '"7"', "1e0", '"', "é"]),
)
_LINE = st.lists(_FIELD, min_size=0, max_size=6).map(",".join)


@settings(deadline=None, max_examples=40)
@given(st.lists(_LINE, max_size=12), st.sampled_from(["\n", "\r\n"]), st.integers(1, 60))
def test_blocks_do_not_change_what_is_read(lines: list[str], ending: str, block: int) -> None:
    data = header(TAGS) + ending.join(lines).encode()
    assert Read(data, TAGS, block) == Read(data, TAGS)


@settings(deadline=None, max_examples=50)
@given(st.lists(_LINE, max_size=12))
def test_rows_out_and_rejected_rows_are_the_rows_read(lines: list[str]) -> None:
    for columns in (RATINGS, TAGS):
        read = Read(header(columns) + "\n".join(lines).encode(), columns)
        assert read.rows_read == len(read.rows) + len(read.rejected)
        places = [r[-1] for r in read.rows] + [line for line, _, _ in read.rejected]
        assert len(set(places)) == len(places)


@settings(deadline=None, max_examples=25)
@given(st.lists(_LINE.filter(lambda line: '"' not in line and line.strip(", ")), max_size=12))
def test_bulk_and_single_row_parsing_agree(lines: list[str]) -> None:
    """Each line alone is the reference for the whole."""
    read = Read(header(RATINGS) + "\n".join(lines).encode(), RATINGS)
    alone = [Read(header(RATINGS) + line.encode(), RATINGS) for line in lines]
    assert read.rows == [(*row[:-1], n) for n, one in enumerate(alone, start=2) for row in one.rows]
    assert read.rejected == [
        (n, *fault[1:]) for n, one in enumerate(alone, start=2) for fault in one.rejected
    ]


@settings(deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=5))
def test_quoted_fields_come_back_as_they_were(fields: list[str]) -> None:
    record = ",".join('"' + f.replace('"', '""') + '"' for f in fields)
    assert split_record(record) == fields


@settings(deadline=None)
@given(st.text(alphabet='a",\n\r', max_size=12))
def test_splitting_always_ends_with_fields_or_a_named_fault(record: str) -> None:
    try:
        assert all(isinstance(f, str) for f in split_record(record))
    except RowError as error:
        assert error.fault[0] in ("open", "bad_quotes", "bare_return")  # noqa: PT017
