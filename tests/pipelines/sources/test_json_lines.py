"""JSON lines: every fault with its line, whatever the block size; values as they stand there."""

from __future__ import annotations

import gzip
import json
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.errors import SourceError
from pipelines.sources._files import any_file
from pipelines.sources._reader import Column, json_rows, record_blocks
from pipelines.sources._tables import ahead

FIELDS = (
    Column("stars", "rating", "number", "bad_rating", required=True),
    Column("title", "title"),
    Column("tags", "tags", "texts"),
    Column("more", "more", "json"),
    Column("votes", "votes", "integer", "bad_votes"),
    Column("seen", "seen", "boolean"),
)
NOTHING: dict[str, Any] = {"title": None, "tags": [], "more": None, "votes": None, "seen": None}

#: A line as bytes, and either what it becomes or why it is rejected.
LINES: list[tuple[bytes, dict[str, Any] | str]] = [
    (b'{"stars":5.0,"title":"x","tags":["p","q"],"more":{"k":1},"votes":3,"seen":true}',
     {"rating": 5.0, "title": "x", "tags": ["p", "q"], "more": '{"k":1}', "votes": 3,
      "seen": True}),
    (b'{"stars":4}', {"rating": 4.0}),
    (b' {"stars":4, "other":[{}]} \r', {"rating": 4.0}),
    (b'{"stars":1,"title":null,"tags":null,"more":null,"votes":null,"seen":null}', {"rating": 1.0}),
    (b'{"stars":2.5,"stars":3}', {"rating": 3.0}),
    (b'{"stars":1,"tags":"one","more":[1,"x"]}',
     {"rating": 1.0, "tags": ["one"], "more": '[1,"x"]'}),
    (b'{"stars":1,"tags":""}', {"rating": 1.0}),
    ('{"stars":1,"title":"\u00e9 \\" \\u00e9"}'.encode(), {"rating": 1.0, "title": 'é " é'}),
    (b'{"stars":1,"title":"an "open" quote"}', "not_json"),
    (b'{"stars":1,"title":"cut', "not_json"),
    (b'{"stars":1}{"stars":2}', "not_json"),
    (b'{"stars":1,"title":"\\ud83d"}', "not_json"),
    (b"[1]", "not_object"),
    (b'"text"', "not_object"),
    (b"", "blank_line"),
    (b"  \t", "blank_line"),
    (b'{"stars":1,"title":"\xff"}', "invalid_utf8"),
    (b'{"title":"no stars"}', "bad_rating"),
    (b'{"stars":null}', "bad_rating"),
    (b'{"stars":"5"}', {"rating": 5.0}),
    (b'{"stars":"five"}', "bad_rating"),
    (b'{"stars":NaN}', "bad_rating"),
    (b'{"stars":1e999}', "bad_rating"),
    (b'{"stars":1,"title":1984}', {"rating": 1.0, "title": "1984"}),
    (b'{"stars":1,"title":1984.0}', "wrong_type"),
    (b'{"stars":1,"tags":[{"name":"p"}]}', "wrong_type"),
    (b'{"stars":1,"tags":"[\'p\', \'q"}', "wrong_type"),
    (b'{"stars":1,"tags":{"a":1}}', "wrong_type"),
    (b'{"stars":1,"seen":"yes"}', "wrong_type"),
    (b'{"stars":1,"votes":1.5}', "bad_votes"),
    (b'{"stars":1,"votes":18446744073709551615}', "bad_votes"),
    (b'{"stars":3,"votes":-7}', {"rating": 3.0, "votes": -7}),
    (b'{"stars":3,"title":NaN,"votes":NaN,"seen":NaN,"more":NaN,"tags":NaN}', {"rating": 3.0}),
    (b'{"stars":3,"votes":"63.0","seen":"True"}', {"rating": 3.0, "votes": 63, "seen": True}),
    (b'{"stars":"4.50","votes":63.0,"seen":0}', {"rating": 4.5, "votes": 63, "seen": False}),
    (b'{"stars":3,"tags":[["p","q"],["r"]]}', {"rating": 3.0, "tags": ["p", "q", "r"]}),
    (b'{"stars":3,"tags":"[\'p\', \\"q\\"]"}', {"rating": 3.0, "tags": ["p", "q"]}),
    (b'{"stars":3,"tags":["[New] prose"]}', {"rating": 3.0, "tags": ["[New] prose"]}),
    (b'{"stars":3,"more":"{\\"k\\": [1]}"}', {"rating": 3.0, "more": '{"k":[1]}'}),
    (b'{"stars":3,"more":"{\'k\': None}"}', {"rating": 3.0, "more": '{"k":null}'}),
    (b"{'stars': 3, 'title': u'it\\'s', 'seen': True}",
     {"rating": 3.0, "title": "it's", "seen": True}),
]  # fmt: skip


def read(
    path: Path, fields: tuple[Column, ...] = FIELDS, **options: Any
) -> tuple[list[dict[str, Any]], list[tuple[int, str, str]], int]:
    """Rows with their line, rejections, and rows read."""
    blocks = record_blocks(any_file(path, "a/b.jsonl"), "one JSON object per line", **options)
    rows, faults, count = [], [], 0
    for batch in json_rows(blocks, fields):
        count += batch.frame.height
        for n, row in enumerate(batch.frame.to_dicts()):
            if n in batch.faults:
                faults.append((row["line"], batch.faults[n][0], batch.text(n)))
            else:
                rows.append(row)
    return rows, faults, count


@pytest.mark.parametrize("block", [7, 300, 1 << 20])
@pytest.mark.parametrize("ending", [b"\n", b""])
def test_every_kind_of_line_comes_out_or_is_rejected_with_its_number(
    tmp_path: Path, block: int, ending: bytes
) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(b"\n".join(line for line, _ in LINES) + ending)
    rows, faults, count = read(path, block=block)
    assert count == len(LINES)
    numbered = list(enumerate((outcome for _, outcome in LINES), start=1))
    assert rows == [
        {**NOTHING, **outcome, "line": n} for n, outcome in numbered if isinstance(outcome, dict)
    ]
    assert [(n, why) for n, why, _ in faults] == [(n, o) for n, o in numbered if isinstance(o, str)]
    shown = {n: text for n, _, text in faults}
    assert shown[9] == '{"stars":1,"title":"an "open" quote"}'
    assert shown[17] == '{"stars":1,"title":"\N{REPLACEMENT CHARACTER}"}'


def test_packed_and_marked_files_read_the_same(tmp_path: Path) -> None:
    data = b'{"stars":1}\n{"stars":"x"}\n{"stars":3}\n'
    plain, packed, parts, marked = (tmp_path / name for name in "abcd")
    plain.write_bytes(data)
    packed.write_bytes(gzip.compress(data))
    parts.write_bytes(gzip.compress(data[:12]) + gzip.compress(data[12:]) + b"\0" * 9)
    marked.write_bytes(b"\xef\xbb\xbf" + data)
    expected = read(plain)
    assert [row["line"] for row in expected[0]] == [1, 3]
    assert read(packed) == read(parts) == read(marked) == expected


@pytest.mark.parametrize("cut", [40, -4, -9])
def test_a_cut_gzip_file_is_named_with_what_was_expected(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "b.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"stars":1,"title":"%d"}\n' % 7 * 5_000)[:cut])
    with pytest.raises(SourceError, match=r"a whole gzip file was expected.*a/b\.jsonl"):
        read(path)


def test_damage_and_junk_in_a_gzip_file_are_faults_of_the_file(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"stars":1}\n')
    for n, data in enumerate((whole + b"junk", whole[:12] + b"\0" + whole[13:])):
        path = tmp_path / str(n)
        path.write_bytes(data)
        with pytest.raises(SourceError, match=r"the archive is corrupt.*a/b\.jsonl"):
            read(path)


@pytest.mark.parametrize("data", [b"", gzip.compress(b"", mtime=0)], ids=["plain", "packed"])
def test_an_empty_file_says_what_was_expected(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(data)
    with pytest.raises(SourceError, match=r"empty: a/b.jsonl \(expected one JSON object per line"):
        read(path)


def test_one_json_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_text('\n [{"stars":1},\n{"stars":2}]')
    with pytest.raises(SourceError, match="one JSON array"):
        read(path)


def test_a_file_without_line_ends_is_refused_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.sources._files.MAX_RECORD", 1 << 16)
    path = tmp_path / "b.jsonl"
    path.write_bytes(b'{"stars":1}\n' + b" " * 300_000)
    with pytest.raises(SourceError, match=r"a line is longer.*b\.jsonl:2"):
        read(path, block=1000)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)


#: Sound lines whose values can be spelled in more than one way.
SPELLED = [
    b'{"stars":4,"title":"a","votes":1,"seen":false}',
    b'{"stars":4e0,"more":{"a" : [1.0, 1e3, "\\u00e9\\/"], "b": 2},"tags":[]}',
    b'{"more":"text","stars":1,"more":"again","tags":["x","\\n"]}',
    b'{"stars":1,"more":5,"tags":null,"title":"\\ud83d\\ude00"}',
    b'{"stars":2,"tags":[null,"x"],"more":true}',
    '{"stars":2,"title":"\u2665","more":["\u2665"]}'.encode(),
]


def test_values_that_can_be_spelled_in_several_ways(tmp_path: Path) -> None:
    path = tmp_path / "b.jsonl"
    path.write_bytes(b"\n".join(SPELLED) + b"\n")
    rows, faults, _ = read(path)
    assert faults == []
    assert [row["more"] for row in rows] == [
        None, '{"a":[1.0,1000.0,"é/"],"b":2}', '"again"', "5", "true", '["\u2665"]'
    ]  # fmt: skip
    assert [row["tags"] for row in rows] == [[], [], ["x", "\n"], [], [None, "x"], []]


@pytest.mark.pipeline
@settings(max_examples=30, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"stars": st.floats(allow_nan=False, allow_infinity=False)},
            optional={
                "title": st.text(),
                "tags": st.lists(st.text()),
                "more": VALUES,
                "votes": st.integers(-(2**63), 2**63 - 1),
                "extra": VALUES,
            },
        ),
        min_size=1,
        max_size=20,
    ),
    st.integers(1, 200),
)
def test_what_was_written_is_what_is_read(
    tmp_path_factory: pytest.TempPathFactory, records: list[dict[str, Any]], block: int
) -> None:
    path = tmp_path_factory.mktemp("json") / "b.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
    rows, faults, count = read(path, block=block)
    assert (faults, count) == ([], len(records))
    for row, record in zip(rows, records, strict=True):
        assert row["rating"] == record["stars"]
        assert row["title"] == record.get("title")
        assert row["tags"] == record.get("tags", [])
        assert row["votes"] == record.get("votes")
        given_more = record.get("more")
        assert (None if row["more"] is None else json.loads(row["more"])) == given_more


#: Prints the memory that every second block of 32 gives back when it is freed, and how many pages
#: the system maps for a block of 6 MiB that is made and freed a hundred times afterwards.
FREES_BLOCKS = """
import resource
import psutil
from pipelines.sources._ingest import large_blocks_given_back

process = psutil.Process()
with large_blocks_given_back() as is_set:
    assert is_set
    blocks = [b"x" * (6 << 20) for _ in range(32)]
    full = process.memory_info().rss
    kept, blocks = blocks[::2], []
    print(full - process.memory_info().rss)
del kept
b"x" * (6 << 20)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    b"x" * (6 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.pipeline
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="a matter of glibc")
def test_large_blocks_go_back_to_the_system_during_an_ingest_and_are_kept_after_it() -> None:
    # A process of its own: a test before this one may have left free blocks that serve these.
    words = [sys.executable, "-c", FREES_BLOCKS]
    printed = subprocess.run(words, check=True, capture_output=True, timeout=120).stdout
    freed, mapped = map(int, printed.split())
    assert freed > 60 << 20
    # Mapped anew, a hundred blocks of 6 MiB are 153,600 pages of 4 KiB.
    assert mapped < 10_000


def test_working_ahead_keeps_order_and_raises_in_place() -> None:
    def items() -> Iterator[int]:
        yield 1
        yield 2
        raise SourceError("broken")

    made = ahead(items())
    assert (next(made), next(made)) == (1, 2)
    with pytest.raises(SourceError, match="broken"):
        next(made)


def test_a_consumer_that_stops_closes_the_producer() -> None:
    closed = []

    def items() -> Iterator[int]:
        try:
            yield from range(1_000_000)
        finally:
            closed.append(True)

    made = ahead(items(), depth=2)
    assert next(made) == 0
    made.close()  # type: ignore[attr-defined]  # a generator
    assert closed == [True]
