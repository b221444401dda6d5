"""Python literals, as `repr` writes them, put into JSON: line by line, without evaluating any.

The Steam files have one dictionary a line, in Python's spelling (``{'recommend': True}``,
``u'…'`` in files that Python 2 wrote) or in JSON's with ``NaN``. Only strings and the few words
outside them differ from JSON, and both are found in a whole block of lines at once: only lines
with rare escapes, or quotes within quotes, are read string by string. What is no literal stays no
JSON, and is rejected where the line is read.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import orjson

from pipelines.downloads import Progress, no_progress
from pipelines.errors import SourceError
from pipelines.sources.formats.files import MadeStream, Original, Stream
from pipelines.sources.formats.json_lines import JsonBatch, JsonField, JsonLinesReader
from pipelines.sources.formats.lines import MAX_RECORD, line_starts, lines_at

if TYPE_CHECKING:
    import numpy as np
    import polars as pl

__all__ = ["LiteralReader", "as_json", "literal_lines"]


_BLOCK = 8 << 20
#: A line holds all of a user's games (bytes): of the longest published list about 1 MiB.
_MAX_LINE = 16 << 20


class LiteralReader:
    """Rows of one file of literals; iterate once.

    ``reject`` is called by :meth:`close`: only then are the texts fetched, as the parsed JSON is
    not the line as it stands in the file. The rest is as for :class:`JsonLinesReader`. ``lines``
    and ``rejected`` count lines so far.
    """

    def __init__(
        self,
        original: Original,
        fields: Sequence[JsonField],
        reject: Callable[[pl.DataFrame], None],
        *,
        progress: Progress = no_progress,
        threads: int = 0,
    ) -> None:
        self.name = original.name
        self.rejected = 0
        self._original = original
        self._list_rejects = reject
        self._faults: list[pl.DataFrame] = []
        self._reader = JsonLinesReader(
            literal_lines(original),
            fields,
            self.reject,
            progress=progress,
            threads=threads,
            max_line=_MAX_LINE,
        )

    @property
    def lines(self) -> int:
        """Lines read so far (count)."""
        return self._reader.rows_read

    def __iter__(self) -> Iterator[JsonBatch]:
        """Batches of rows, without the rejected ones."""
        return iter(self._reader)

    def reject(self, faults: pl.DataFrame) -> None:
        """Reject whole lines: ``line``, ``reason``."""
        self.rejected += faults.height
        if faults.height:
            self._faults.append(faults.select("line", "reason"))

    def close(self) -> None:
        """List the rejected lines as they stand in the file."""
        import polars as pl

        if not self._faults:
            return
        faults = pl.concat(self._faults).sort("line")
        texts = [text for _, text in lines_at(self._original, faults["line"].to_numpy(), _BLOCK)]
        self._list_rejects(
            faults.with_columns(file=pl.lit(self.name), text=pl.Series(texts, dtype=pl.String))
        )
        self._faults = []


_SINGLE, _DOUBLE, _SLASH, _SPACE = b"'\"\\ "
_PREFIXES = list(b"uU")

#: In a line with more than one kind of quote or with escapes: as many strings as possible that
#: are in single quotes and have neither inside; as many in double quotes without escapes; else
#: one string. None spans lines: `repr` writes none that does.
_STRINGS = re.compile(
    rb"""((?:[^'"\\\n]*'[^'"\\\n]*')+)"""
    rb"""|(?:[^'"\\uU\n]*"[^"\\\n]*")+"""
    rb"""|([uU]?(?:"[^"\\\n]*(?:\\.[^"\\\n]*)*"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'))"""
)
_PREFIXED = re.compile(rb"[uU]?'([^']*)'")
_REQUOTE = bytes.maketrans(b"'", b'"')
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
#: Escapes that JSON has too; a `u` is always followed by four digits in what `repr` writes.
_SHARED = frozenset(b'"\\/bfnrtu')
_MAX_CODE = 0x10FFFF


def as_json(block: bytes) -> bytes:
    r"""Whole lines of Python literals as as many lines of JSON.

    Lines are UTF-8. One that is JSON already stays as it is, but for ``NaN``; ``None`` and ``nan``
    become null, strings get double quotes. A line that is no literal does not become
    valid JSON.

    >>> print(as_json(b"{'a': True, u'b': [None, 'it\\'s \\xe9'], 'c': nan}").decode())
    {"a": true, "b": [null, "it's \u00e9"], "c":null}
    """
    return _with_words(_with_quotes(block) if b"'" in block else block)


def _with_quotes(block: bytes) -> bytes:
    """The same with every string in double quotes.

    Nearly every line is done at once with all others: its escapes, if any, are JSON's too, and
    an even number of single quotes stands before, between and after its strings in double
    quotes. Then these are certain, and each other single quote begins
    or ends a string, in turn.
    """
    import numpy as np

    data = np.frombuffer(block, dtype=np.uint8)
    starts = line_starts(block)
    lines = np.arange(len(starts) - 1)
    single, double = np.flatnonzero(data == _SINGLE), np.flatnonzero(data == _DOUBLE)
    singles, doubles = np.searchsorted(single, starts), np.searchsorted(double, starts)
    awkward = np.diff(doubles) % 2 == 1
    slash = np.flatnonzero(data == _SLASH)
    strange = ~_plain_escapes()[data[np.minimum(slash + 1, len(data) - 1)]]
    awkward[np.searchsorted(starts, slash[strange], side="right") - 1] = True
    if len(double):
        line = np.repeat(lines, np.diff(doubles))
        nth = np.arange(len(double)) - doubles[line]
        before = np.searchsorted(single, double)
        since = before - np.where(nth == 0, singles[line], np.roll(before, 1))
        awkward[line[(nth % 2 == 0) & (since % 2 == 1)]] = True
        last = doubles[1:][np.diff(doubles) > 0] - 1
        after = singles[1:][line[last]] - before[last]
        awkward[line[last[after % 2 == 1]]] = True
        # An escaped quote would make closing ones look like opening ones.
        _blank_prefixes(data, out := data.copy(), double[(nth % 2 == 0) & ~awkward[line]])
    else:
        out = data.copy()
    awkward &= np.diff(singles) > 0
    line = np.repeat(lines, np.diff(singles))
    outside = (np.searchsorted(double, single) - doubles[line]) % 2 == 0
    single, line = single[outside], line[outside]
    nth = np.arange(len(single)) - np.searchsorted(single, starts)[line]
    easy = ~awkward[line]
    out[single[easy]] = _DOUBLE
    _blank_prefixes(data, out, single[easy & (nth % 2 == 0)])
    return _mended(block, out, awkward, starts)


def _mended(
    block: bytes,
    out: np.ndarray[Any, Any],
    awkward: np.ndarray[Any, Any],
    starts: np.ndarray[Any, Any],
) -> bytes:
    """The lines of ``out``, but for the awkward ones, which are read string by string."""
    import numpy as np

    if not awkward.any():
        return out.tobytes()
    edges = np.flatnonzero(np.diff(awkward)) + 1
    bounds = starts[np.concatenate([[0], edges, [len(awkward)]])].tolist()
    parts = []
    for n, (start, end) in enumerate(itertools.pairwise(bounds)):
        if bool(awkward[0]) is (n % 2 == 0):
            parts.append(_STRINGS.sub(_strings, block[start:end]))
        else:
            parts.append(out[start:end].tobytes())
    return b"".join(parts)


def _blank_prefixes(
    data: np.ndarray[Any, Any], out: np.ndarray[Any, Any], opening: np.ndarray[Any, Any]
) -> None:
    """Have a space where Python 2's prefix of a string stands."""
    before = data[opening - 1]
    prefix = ((before == _PREFIXES[0]) | (before == _PREFIXES[1])) & (opening > 0)
    out[opening[prefix] - 1] = _SPACE


@cache
def _plain_escapes() -> np.ndarray[Any, Any]:
    """Bytes after a backslash that make an escape of JSON without a quote or backslash."""
    import numpy as np

    table = np.zeros(256, dtype=np.bool_)
    table[list(b"/bfnrtu")] = True
    return table


def _with_words(block: bytes) -> bytes:
    """The same with JSON's words outside strings, in as many bytes."""
    import numpy as np

    found = {word: _places(block, word) for word in (b"True", b"False", b"None", b"NaN", b"nan")}
    found[b"L"] = _long_ends(block)
    places = np.concatenate(list(found.values())).astype(np.int64)
    if not len(places):
        return block
    out = np.frombuffer(block, dtype=np.uint8).copy()
    quotes = np.flatnonzero(out == _DOUBLE)
    quotes = quotes[~_escaped(out, quotes)]
    starts = line_starts(block)
    # A place is outside strings if an even number of quotes stand before it in its line.
    before = np.searchsorted(quotes, starts)
    line = np.searchsorted(starts, places, side="right") - 1
    outside = (np.searchsorted(quotes, places) - before[line]) % 2 == 0
    kinds = np.repeat(np.arange(len(found)), [len(p) for p in found.values()])
    true, false, none, *nan, long = (places[outside & (kinds == n)] for n in range(len(found)))
    out[true], out[false], out[long] = ord("t"), ord("f"), _SPACE
    # The space before a `nan` gives the room that `null` needs; without one it is made.
    nans = np.concatenate(nan)
    spaced = out[nans - 1] == _SPACE
    tight, nans = nans[~spaced], nans[spaced] - 1
    for n, letter in enumerate(b"null"):
        out[none + n] = out[nans + n] = letter
        if n < 3:
            out[tight + n] = letter
    return (np.insert(out, tight + 3, ord("l")) if len(tight) else out).tobytes()


def _places(block: bytes, word: bytes) -> np.ndarray[Any, Any]:
    """Positions of a word."""
    import numpy as np

    found, place = [], block.find(word)
    while place >= 0:
        found.append(place)
        place = block.find(word, place + len(word))
    return np.array(found, dtype=np.int64)


def _long_ends(block: bytes) -> np.ndarray[Any, Any]:
    """Positions of the `L` of Python 2's long numbers."""
    import numpy as np

    data = np.frombuffer(block, dtype=np.uint8)
    ends = np.flatnonzero(data == ord("L"))
    return ends[(ends > 0) & (data[ends - 1] >= ord("0")) & (data[ends - 1] <= ord("9"))]


def _escaped(data: np.ndarray[Any, Any], quotes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Places behind an odd number of backslashes, as booleans."""
    import numpy as np

    odd = np.zeros(len(quotes), dtype=np.bool_)
    if not (data == _SLASH).any():
        return odd
    reach = np.ones(len(quotes), dtype=np.int64)
    active = np.flatnonzero(quotes >= 1)
    while len(active):
        active = active[data[quotes[active] - reach[active]] == _SLASH]
        odd[active] ^= True
        reach[active] += 1
        active = active[quotes[active] >= reach[active]]
    return odd


def _strings(match: re.Match[bytes]) -> bytes:
    """Some simple strings and what is between them, or one other string, as JSON's."""
    simple, other = match.groups()
    if other is not None:
        return _string(other)
    if simple is None:
        return match[0]
    if b"u'" in simple or b"U'" in simple:
        return _PREFIXED.sub(rb'"\1"', simple)
    return simple.translate(_REQUOTE)


def _string(text: bytes) -> bytes:
    """A string's literal as JSON's; one that is not understood stays as it is."""
    body = text.lstrip(b"uU")
    quote, inner = body[:1], body[1:-1]
    if quote == b"'" and b'"' in inner:
        inner = _quoted(inner)
    try:
        return b'"' + _ESCAPE.sub(_escape, inner) + b'"'
    except ValueError:
        return _evaluated(body)


def _quoted(inner: bytes) -> bytes:
    """Double quotes within escaped, where they are not yet."""
    return re.sub(rb'(\\.)|"', lambda m: m[1] or b'\\"', inner, flags=re.DOTALL)


def _escape(match: re.Match[bytes]) -> bytes:
    """An escape of Python as one of JSON.

    Raises :class:`ValueError` if JSON has no such escape.
    """
    short, long, other = match.groups()
    if short is not None:
        return b"\\u00" + short
    if long is not None:
        code = int(long, 16)
        if code > _MAX_CODE:
            raise ValueError("no such character")
        return orjson.dumps(chr(code))[1:-1]
    if other == b"'":
        return b"'"
    if other[0] not in _SHARED:
        raise ValueError("not an escape of JSON")
    return match[0]


def _evaluated(body: bytes) -> bytes:
    """A string with a rare escape (octal, a name), read by Python's own parser of literals."""
    try:
        value = ast.literal_eval(body.decode())
        return orjson.dumps(value)
    except (SyntaxError, ValueError, orjson.JSONEncodeError):
        return body


def literal_lines(original: Original) -> Original:
    """The same file with its lines as JSON, made as it is read."""

    def opened() -> Stream:
        return _Literals(original.open(), original.name)

    return replace(original, size=None, open=opened)


class _Literals(MadeStream):
    """Lines of JSON made of lines of literals; a read gives whole lines, however many."""

    def __init__(self, stream: Stream, name: str) -> None:
        super().__init__(stream)
        self._name = name
        self._held: list[bytes] = []
        self._ended = False

    def read(self, size: int) -> bytes:
        while not self._ended:
            data = self._stream.read(size)
            self._ended = not data
            cut = len(data) if self._ended else data.rfind(b"\n") + 1
            if not cut and not self._ended:
                self._held.append(data)
                if sum(map(len, self._held)) > MAX_RECORD:
                    raise SourceError(
                        f"a line is longer than {MAX_RECORD >> 20} MiB",
                        where=self._name,
                        hint="expected one record per line",
                    )
                continue
            body = b"".join([*self._held, data[:cut]])
            self._held = [data[cut:]] if cut < len(data) else []
            if body:
                return as_json(body)
        return b""
