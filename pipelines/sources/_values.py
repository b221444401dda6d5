"""Values as publishers, pandas, spreadsheets and JSON write them.

A spelling that can mean one thing only is read: ``63``, ``63.0`` and ``"63"`` are the same whole
number, and a list may be given as JSON text or as a Python literal. Any other spelling is an
:class:`UnreadableError`, for which its row is rejected. The readers of all formats share these
rules; they are for single values, as nearly all values are plain and read in bulk.
"""

from __future__ import annotations

import ast
import json
import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import orjson

#: A quoted string, with Python 2's prefix before it.
_STRING = re.compile(r"""(?:\b[uU])?('(?:[^'\\\x00-\x1f]|\\.)*'|"(?:[^"\\\x00-\x1f]|\\.)*")""")
#: Words outside strings, and a long integer of Python 2.
_WORDS = {"True": "true", "False": "false", "None": "null", "NaN": "null", "nan": "null"}
_WORD = re.compile(rf"(?<![\w.])(-?[0-9]+)L\b|\b(?:{'|'.join(_WORDS)})\b")


class UnreadableError(ValueError):
    """A value with no meaning, or with more than one."""


#: Texts that stand for no value where a number is expected, in lower case.
MISSING = frozenset(("", "nan", "null", "none", "na", "n/a", "<na>", "nat"))
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", re.ASCII)
_MAX_DIGITS = 40
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
_ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Beginning of a text that holds a structure; ``[Updated]`` alone may be prose.
_STRUCTURE = re.compile(r"\s*[\[{]")
_LIST = re.compile(r"\s*\[\s*(?:['\"\[{]|[uU]['\"])")


def is_missing(value: object) -> bool:
    """Whether a field has no value: null, NaN or, for numbers, a text that stands for it.

    >>> [is_missing(v) for v in (None, float("nan"), "", "NaN", 0, "0")]
    [True, True, True, True, False, False]
    """
    if isinstance(value, str):
        return value.strip().lower() in MISSING
    return value is None or (isinstance(value, float) and math.isnan(value))


def whole_number(value: object) -> int:
    """A whole number of 64 bits.

    Digits that rounding may have cost (``9.65E+08``) make the number ambiguous.

    >>> [whole_number(v) for v in (63, 63.0, "63", " 63.0 ", "9.64982703E+08")]
    [63, 63, 63, 63, 964982703]

    Raises :class:`UnreadableError`.
    """
    if type(value) is float and value.is_integer() and abs(value) <= 1 << 53:
        value = int(value)
    if isinstance(value, str):
        written = value.strip()
        if len(written) > _MAX_DIGITS or not _NUMBER.fullmatch(written):
            raise UnreadableError
        decimal = Decimal(written)
        if int(decimal.as_tuple().exponent) > 0 or decimal != int(decimal):
            raise UnreadableError
        value = int(decimal)
    if type(value) is not int or not -(1 << 63) <= value < 1 << 63:
        raise UnreadableError
    return value


def number(value: object) -> float:
    """A finite number.

    >>> [number(v) for v in (4, "4.5", " 4.50 ")]
    [4.0, 4.5, 4.5]

    Raises :class:`UnreadableError`, also for a comma: it may separate decimals or thousands.
    """
    if isinstance(value, str) and _NUMBER.fullmatch(value.strip()):
        value = float(value)
    if type(value) not in (int, float):
        raise UnreadableError
    try:
        result = float(value)  # type: ignore[arg-type]
    except OverflowError:
        raise UnreadableError from None
    if not math.isfinite(result):
        raise UnreadableError
    return result


def boolean(value: object) -> bool:
    """True or false, as such, as a text or as 1 or 0; raises :class:`UnreadableError`."""
    if isinstance(value, str):
        value = _BOOLEANS.get(value.strip().lower())
    if value not in (True, False):
        raise UnreadableError
    return bool(value)


def timestamp(value: object, per_second: int) -> int:
    """Time since 1970 in units of which a second has ``per_second``; a date in ISO 8601 is UTC.

    >>> timestamp("2005-04-02 23:53:47", 1), timestamp(1112486027000.0, 1000)
    (1112486027, 1112486027000)

    Raises :class:`UnreadableError`.
    """
    if isinstance(value, str) and _ISO.fullmatch(value.strip()):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            raise UnreadableError from None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return (moment - _EPOCH) * per_second // timedelta(seconds=1)
    return whole_number(value)


def text(value: object) -> str:
    """A text; a whole number is its digits (a film may be called 1984).

    Raises :class:`UnreadableError`.
    """
    return str(value) if type(value) is int else _text(value)


def identifier(value: object) -> str:
    """An identifier: a text, or a whole number, which pandas may write as 63.0.

    Raises :class:`UnreadableError`.
    """
    return str(whole_number(value)) if type(value) in (int, float) else _text(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise UnreadableError
    return value


def structure(value: object) -> Any:
    """A list or an object: as such, as JSON text or as a Python literal.

    >>> structure("{'Publisher': 'House', 'Pages': None}")
    {'Publisher': 'House', 'Pages': None}

    Raises :class:`UnreadableError`.
    """
    if isinstance(value, str) and _STRUCTURE.match(value):
        try:
            value = loads(value)
        except ValueError:
            raise UnreadableError from None
    if not isinstance(value, list | dict):
        raise UnreadableError
    return value


def texts(value: object) -> list[str | None]:
    """A list of texts: nested lists are flattened, and a single text is a list of one.

    >>> texts([["Books", "Romance"]]), texts("['Books', 'Romance']"), texts("Books"), texts("")
    (['Books', 'Romance'], ['Books', 'Romance'], ['Books'], [])

    Raises :class:`UnreadableError`, also for a text that begins as a list and is none, and for a
    list of objects.
    """
    if isinstance(value, str):
        try:
            value = structure(value)
        except UnreadableError:
            if _LIST.match(str(value)):
                raise
            return [str(value)] if value else []
    if not isinstance(value, list):
        raise UnreadableError
    return _flat(value)


def _flat(items: list[Any]) -> list[str | None]:
    flat: list[str | None] = []
    for item in items:
        if isinstance(item, list):
            flat += _flat(item)
        elif isinstance(item, dict):
            raise UnreadableError
        else:
            flat.append(item if item is None or isinstance(item, str) else shown(item))
    return flat


def loads(data: str | bytes) -> Any:
    """Value of a JSON text, or of a Python literal; NaN, which pandas writes, is null.

    >>> loads('{"votes": NaN}'), loads("{'recommend': True}")
    ({'votes': None}, {'recommend': True})

    Raises ValueError.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    text = data if isinstance(data, str) else data.decode()
    try:
        value = json.loads(text, parse_constant={"NaN": None}.get)
        orjson.dumps(value)  # refuses half of a surrogate pair
    except (ValueError, RecursionError, TypeError):
        return orjson.loads(_as_json(text))
    return value


def _as_json(literal: str) -> str:
    r"""A Python literal, as `repr` of either Python writes it, in JSON; it is never evaluated.

    Only strings and the few words outside them differ from JSON. What is no literal does not become
    valid JSON.

    >>> print(_as_json("{'a': True, u'b': [None, 'it\\'s \\xe9', 12L], 'c': nan}"))
    {"a": true, "b": [null, "it's é", 12], "c": null}
    """
    parts = _STRING.split(literal)
    parts[::2] = (_WORD.sub(lambda m: m[1] or _WORDS[m[0]], part) for part in parts[::2])
    parts[1::2] = map(_json_string, parts[1::2])
    return "".join(parts)


def _json_string(text: str) -> str:
    """A quoted string in JSON; one that is invalid stays as it is."""
    if "\\" not in text and (text[0] == '"' or '"' not in text):
        return f'"{text[1:-1]}"'
    try:
        if text[0] == '"':
            orjson.loads(text)
            return text
    except orjson.JSONDecodeError:
        pass
    try:
        # A pair of escaped surrogates is one character in JSON.
        value = ast.literal_eval(text).encode("utf-16-le", "surrogatepass")
        return orjson.dumps(value.decode("utf-16-le")).decode()
    except (SyntaxError, ValueError):
        return text


def shown(value: object) -> str | None:
    """A value as it is shown in a list of rejected rows; None for none."""
    plain = value is None or isinstance(value, str)
    return value if plain else json.dumps(value, ensure_ascii=False)  # type: ignore[return-value]
