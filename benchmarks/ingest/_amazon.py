"""Amazon's formats: how a file of each is grown, and how DuckDB reads it.

Files are grown block by block from a seeded stream of
words, with the lengths and quirks of the published ones; ids and times run on, so that a key
occurs as often as at the origin.
"""

from __future__ import annotations

import gzip
import itertools
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

__all__ = ["AMAZON", "Format"]

_BLOCK = 20_000


@dataclass(frozen=True, slots=True)
class Format:
    """A format.

    Attributes
    ----------
    source
        The loader, by its name in the registry.
    file
        The grown file, relative to the data folder; packed if its name ends with ``.gz``.
    table
        Raw dataset that its rows become.
    lines
        Lines of a file of this many rows, in blocks, with line ends.
    scan
        DuckDB's way to read ``{file}``: the same columns of the same types.
    share
        Rows per row that is asked for (products are fewer than reviews).
    """

    source: str
    file: str
    table: str
    lines: Callable[[int], Iterator[bytes]]
    scan: str
    share: float = 1.0

    def write(self, folder: Path, rows: int) -> int:
        """Grow the file; the number of its rows."""
        rows = max(1, round(rows * self.share))
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        packed = path.suffix == ".gz"
        with gzip.open(path, "wb", compresslevel=1) if packed else path.open("wb") as file:
            out: IO[bytes] = file  # type: ignore[assignment]
            for block in self.lines(rows):
                out.write(block)
        return rows


class _Prose:
    """Texts cut from a long stream of words: no two alike, and packed as prose is.

    The words hold what JSON has to escape: quotes, tags, line breaks, letters beyond ASCII. Cheap
    texts from a few phrases would be packed a hundredfold, and reading them would be all there is.
    """

    def __init__(self, seed: int, low: int, high: int) -> None:
        rng = random.Random(seed)
        plain = ["".join(rng.choices("etaoinshrdlucmf", k=rng.randint(2, 9))) for _ in range(9_000)]
        special = ['\\"really\\"', "<br />", "caf\u00e9", "\\n", "don\u2019t"]
        # Zipf's law, roughly: few words are most of a text.
        words = [plain[int(9_000 * rng.random() ** 3)] for _ in range(600_000)]
        words[::97] = [special[n % len(special)] for n in range(len(words[::97]))]
        encoded = [word.encode() for word in words]
        self._starts = [0, *itertools.accumulate(len(word) + 1 for word in encoded)]
        self._text = b" ".join(encoded)
        self._low, self._range = low, high - low
        self._random = rng.random

    def __call__(self) -> bytes:
        """The next text."""
        first = int(self._random() * 599_000)
        # Many short texts, few long ones.
        last = first + self._low + int(self._range * self._random() ** 2)
        return self._text[self._starts[first] : self._starts[last] - 1]


def _blocks(rows: int, line: Callable[[int], bytes]) -> Iterator[bytes]:
    for start in range(0, rows, _BLOCK):
        yield b"".join(line(n) for n in range(start, min(rows, start + _BLOCK)))


def _reviews_2018(rows: int) -> Iterator[bytes]:
    texts, heads = _Prose(1, 2, 200), _Prose(2, 1, 7)

    def line(n: int) -> bytes:
        return (
            b'{"overall": %d.0, "verified": %s, "reviewTime": "06 17, 2018", "reviewerID": '
            b'"A%013d", "asin": "%010d", "style": {"Format:": " Paperback"}, "reviewerName": '
            b'"Reader", "reviewText": "%s", "summary": "%s", "unixReviewTime": %d}\n'
        ) % (
            1 + n * 7 % 5, b"true" if n % 4 else b"false", n % (1 + rows // 9),
            n * 31 % (1 + rows // 20), texts(), heads(),
            1_000_000_000 + n * 86_400 % 500_000_000,
        )  # fmt: skip

    return _blocks(rows, line)


def _reviews_2023(rows: int) -> Iterator[bytes]:
    texts, heads = _Prose(3, 2, 200), _Prose(4, 1, 7)

    def line(n: int) -> bytes:
        asin = b"B%09d" % (n * 31 % (1 + rows // 20))
        return (
            b'{"rating": %d.0, "title": "%s", "text": "%s", "images": [], "asin": "%s", '
            b'"parent_asin": "%s", "user_id": "AE%026d", "timestamp": %d, "helpful_vote": %d, '
            b'"verified_purchase": true}\n'
        ) % (
            1 + n * 7 % 5, heads(), texts(), asin, asin, n % (1 + rows // 9),
            1_300_000_000_000 + n * 7_919, n % 3,
        )  # fmt: skip

    return _blocks(rows, line)


def _meta_2018(rows: int) -> Iterator[bytes]:
    texts, heads = _Prose(5, 10, 400), _Prose(6, 2, 12)

    def line(n: int) -> bytes:
        also = b", ".join(b'"%010d"' % ((n * 17 + k * 101) % rows) for k in range(n % 40))
        rank = b'">#%d in Books"' % n if n % 3 else b'["#%d in Books"]' % n
        return (
            b'{"category": ["Books", "Literature &amp; Fiction", "Shelf %d"], "tech1": "", '
            b'"description": ["%s", ""], "fit": "", "title": "%s", "also_buy": [%s], "tech2": "", '
            b'"brand": "Visit Amazon\'s Somebody Page", "feature": [], "rank": %s, "also_view": '
            b'[%s], "details": {"Publisher:": "House; 1 edition (May 2, 2006)", "Language:": '
            b'"English"}, "main_cat": "Books", "date": "", "price": "$9.99", "asin": "%010d"}\n'
        ) % (n % 90, texts(), heads(), also, rank, also, n)

    return _blocks(rows, line)


def _scan(**columns: str) -> str:
    listed = ", ".join(f"'{name}': '{kind}'" for name, kind in columns.items())
    return (
        "select * from read_json('{file}', format='newline_delimited', columns={{" + listed + "}})"
    )


_SCAN_2018 = _scan(
    reviewerID="VARCHAR", asin="VARCHAR", overall="DOUBLE", unixReviewTime="BIGINT",
    verified="BOOLEAN", vote="JSON", summary="VARCHAR", reviewText="VARCHAR", style="JSON",
)  # fmt: skip

#: By name, in the order in which they are measured.
AMAZON: Mapping[str, Format] = {
    "amazon-2018": Format(
        "amazon", "amazon/2018/Books.json", "raw.amazon_reviews_2018", _reviews_2018, _SCAN_2018
    ),
    "amazon-2018-gz": Format(
        "amazon", "amazon/2018/Books.json.gz", "raw.amazon_reviews_2018", _reviews_2018, _SCAN_2018
    ),
    "amazon-2018-meta": Format(
        "amazon",
        "amazon/2018/meta_Books.json",
        "raw.amazon_meta_2018",
        _meta_2018,
        _scan(
            asin="VARCHAR", title="VARCHAR", brand="VARCHAR", main_cat="VARCHAR",
            category="VARCHAR[]", description="VARCHAR[]", feature="VARCHAR[]",
            also_buy="VARCHAR[]", also_view="VARCHAR[]", price="JSON", date="JSON", rank="JSON",
            details="JSON",
        ),
        share=0.1,
    ),
    "amazon-2023": Format(
        "amazon",
        "amazon/2023/Books.jsonl",
        "raw.amazon_reviews_2023",
        _reviews_2023,
        _scan(
            user_id="VARCHAR", parent_asin="VARCHAR", asin="VARCHAR", rating="DOUBLE",
            timestamp="BIGINT", verified_purchase="BOOLEAN", helpful_vote="BIGINT",
            title="VARCHAR", text="VARCHAR",
        ),
    ),
}  # fmt: skip
