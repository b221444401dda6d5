"""Python literals, as `repr` writes them, put into JSON: line by line, without evaluating any.

The Steam files have one dictionary a line, in Python's spelling (``{'recommend': True}``,
``u'…'`` in files that Python 2 wrote) or in JSON's with ``NaN``. Only strings and the few words
outside them differ from JSON, and both are found in a whole block of lines at once: only strings
with rare escapes are read one by one. What is no literal stays no JSON, and is rejected where the
line is read.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any, TypeAlias

import orjson

if TYPE_CHECKING:
    import numpy as np

    Bytes: TypeAlias = np.ndarray[Any, np.dtype[np.uint8]]
    Places: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

__all__ = ["as_json"]


#: Bytes that become JSON at a time. With twice as many, numpy's arrays are so large that their
#: memory goes back to the system after each piece, and has to be cleared for the next.
_PIECE = 128 << 10

_SINGLE, _DOUBLE, _SLASH, _SPACE, _END = b"'\"\\ \n"
#: Placeholders for text that is longer or shorter in JSON: bytes that UTF-8 never has.
_DELETED, _INNER, _HEX, _NAN = range(0xFC, 0x100)
_MARKS = {_DELETED: b"", _INNER: rb"\"", _HEX: b"u00", _NAN: b"ll"}
#: Such bytes of the file become another that UTF-8 never has: the line is rejected either way.
_UNMARKED = bytes.maketrans(bytes(_MARKS), b"\xfb" * len(_MARKS))
#: Escapes that JSON has too, and the two that have placeholders (``\'`` and ``\x``).
_COMMON = list(b"'\"\\bfnrtux")
_WORDS = {
    b"True": b"true",
    b"False": b"false",
    b"None": b"null",
    b"NaN": b"nu%c" % _NAN,
    b"nan": b"nu%c" % _NAN,
}
#: A long integer of Python 2.
_LONG = re.compile(rb"(?<=[\s:,\[])(-?[0-9]+)L")


def as_json(block: bytes) -> bytes:
    r"""Whole lines of Python literals as as many lines of JSON.

    Lines are UTF-8. One that is JSON already keeps its meaning; ``None``, ``nan`` and ``NaN``
    become null, strings get double quotes and JSON's escapes. A line that is no literal does not
    become valid JSON.

    >>> print(as_json(b"{'a': True, u'b': [None, 'it\\'s \\xe9'], 'c': nan}").decode())
    {"a": true,  "b": [null, "it's \u00e9"], "c": null}
    """
    if not block.endswith(b"\n"):
        return as_json(block + b"\n")[:-1]
    parts, done = [], 0
    while done < len(block):
        # Whole lines: as many as fit, or a longer one.
        end = block.rfind(b"\n", done, done + _PIECE) + 1 or block.find(b"\n", done) + 1
        parts.append(_converted(block[done:end]))
        done = end
    return b"".join(parts)


def _converted(block: bytes) -> bytes:
    """Some lines, each with its end, as JSON."""
    import numpy as np

    data = np.frombuffer(block, dtype=np.uint8)
    if data.max() >= min(_MARKS):
        block = block.translate(_UNMARKED)
        data = np.frombuffer(block, dtype=np.uint8)
    escaped = _escaped(data) if b"\\" in block else np.zeros(0, dtype=np.int64)
    letters = data[escaped]
    opening, closing, inner = _quotes(data, escaped[letters != _END])
    out = data.copy()
    out[inner] = _INNER
    out[escaped[letters == _SINGLE] - 1] = _DELETED
    out[escaped[letters == ord("x")]] = _HEX
    out[opening] = _DOUBLE
    out[closing] = _DOUBLE
    out[closing[data[closing] == _END]] = _END
    # Python 2's prefix of a string. The block's first quote has its last line end before it.
    before = opening - 1
    out[before[(data[before] | 0x20) == ord("u")]] = _SPACE
    _put_words(out, opening, closing)
    rare = escaped[~np.isin(letters, _COMMON)]
    begun, ended = np.searchsorted(opening, rare), np.searchsorted(closing, rare)
    parts, done = [], 0
    for n in np.unique(ended[begun > ended]) if len(rare) else ():
        start, end = int(opening[n]), int(closing[n]) + 1
        parts += [_finished(out[done:start]), _evaluated(block[start:end])]
        done = end
    return b"".join([*parts, _finished(out[done:])])


def _escaped(data: Bytes) -> Places:
    """Positions of the characters that a backslash escapes."""
    import numpy as np

    slashes = np.flatnonzero(data == _SLASH)
    nth = np.arange(len(slashes))
    first = np.where(np.diff(slashes, prepend=-2) > 1, nth, 0)
    escaped: Places = slashes[(nth - np.maximum.accumulate(first)) % 2 == 0] + 1
    return escaped


def _quotes(data: Bytes, escaped: Places) -> tuple[Places, Places, Places]:
    """Positions of opening quotes, of closing quotes, and of double quotes within single ones.

    Each opening quote has a closing one: the line's end, if the string is never closed.

    The state after each quote is outside (0), in double quotes (1) or in single quotes (2). A
    double quote swaps 0 and 1, a single quote 0 and 2; that is ``1 - state`` and ``2 - state``
    modulo 3. So the states of all quotes are one cumulative sum with alternating signs.
    """
    import numpy as np

    marked = (data == _SINGLE) | (data == _DOUBLE) | (data == _END)
    marked[escaped] = False
    places = np.flatnonzero(marked)
    kinds = data[places]
    ends = np.flatnonzero(kinds == _END)
    # Of the two, the code of the single quote is odd.
    steps = (kinds & 1) + np.int32(1)
    steps[::2] *= -1
    sums = np.cumsum(steps, dtype=np.int32)
    # A line begins outside strings, however the one before ended.
    begun = np.append(np.int32(0), sums[ends[:-1]])
    state = sums - np.repeat(begun, np.diff(ends, prepend=-1))
    state[::2] *= -1
    state %= 3
    state[ends] = 0
    outside, single = state == 0, state == 2
    turns = places[outside != np.append(True, outside[:-1])]
    return turns[::2], turns[1::2], places[1:][single[1:] & single[:-1]]


def _put_words(out: Bytes, opening: Places, closing: Places) -> None:
    """Replace Python's words outside strings with JSON's."""
    import numpy as np

    # A gap between strings begins with a closing quote, so that words of two gaps never join.
    starts, ends = np.append(0, closing), np.append(opening, len(out))
    # Most gaps are a comma or colon and a space: too short for a word.
    long = ends - starts > 3
    starts, lengths = starts[long], (ends - starts)[long]
    places = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths) + np.arange(lengths.sum())
    outside = out[places].tobytes()
    replaced = _LONG.sub(rb"\1 ", outside) if b"L" in outside else outside
    for word, other in _WORDS.items():
        # One byte is found much faster than a word.
        if word[:1] in outside:
            replaced = replaced.replace(word, other)
    if replaced is not outside:
        out[places] = np.frombuffer(replaced, dtype=np.uint8)


def _finished(out: Bytes) -> bytes:
    """Replace placeholders."""
    encoded = out.tobytes()
    for mark, text in _MARKS.items():
        encoded = encoded.replace(b"%c" % mark, text)
    return encoded


def _evaluated(text: bytes) -> bytes:
    """A string with a rare escape (octal, a name) as JSON; one that is invalid stays as it is."""
    try:
        # `\/` is an escape in JSON only.
        if text.startswith(b'"'):
            orjson.loads(text)
            return text
    except orjson.JSONDecodeError:
        pass
    try:
        value = ast.literal_eval(text.decode())
        # A pair of escaped surrogates is one character in JSON.
        paired = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
        return orjson.dumps(paired)
    except (SyntaxError, ValueError):
        return text
