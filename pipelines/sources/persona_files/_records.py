"""One line of a persona file: its text and attributes, or why it can't be taken."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson

__all__ = [
    "MAX_TEXT",
    "MIN_TEXT",
    "NOT_SAID",
    "PersonaRow",
    "RecordFaultError",
    "from_json",
    "from_text",
]

#: Shortest and longest text that is taken for a persona (characters).
MIN_TEXT, MAX_TEXT = 40, 8000
#: Longest attribute, and most of them in a record (characters, count).
_MAX_VALUE, _MAX_ATTRIBUTES = 1000, 200

#: What stands in attributes for "not said", in small letters.
NOT_SAID = frozenset(
    ("", "n/a", "na", "none", "not applicable", "not available", "null", "unknown")
)

# What chat templates put around messages: in a prompt such a text could end the persona's part
# and begin another's. No description of a person has them.
_TEMPLATE = re.compile(
    r"<\|[^<>|]{0,64}\|>"  # <|im_start|>, <|eot_id|>, <|endoftext|>
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]"
    r"|<</?SYS>>"
    r"|</?s>"
    r"|<(?:start|end)_of_turn>|<(?:bos|eos|pad|unk)>"
    r"|\{\{|\}\}|\{%|%\}"
    r"|<｜[^<>｜]{0,64}｜>",
    re.IGNORECASE,
)
# Characters that nobody sees; without them the text could read otherwise than it looks.
_INVISIBLE = re.compile(r"[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_TEXT_KEYS = ("persona", "description", "text", "input_persona")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "name": ("name", "first_name"),
    "age": ("age", "age_band", "age_group"),
    "gender": ("sex", "gender"),
    "job": ("career", "occupation", "job", "profession"),
    "writer": ("writer", "model", "generated_by", "author"),
}


class PersonaRow(NamedTuple):
    """A row of ``raw.persona_files`` without its place."""

    text: str | None
    name: str | None
    age: str | None
    gender: str | None
    job: str | None
    writer: str | None
    attributes: str


class RecordFaultError(Exception):
    """A line that can't be taken; ``reason`` is the code it is rejected for."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def from_text(line: str) -> PersonaRow:
    """A line of plain text: the persona and nothing else.

    >>> from_text("A retired teacher who restores clocks and sings in a choir.").attributes
    '{}'

    Raises
    ------
    RecordFaultError
        ``too_short``, ``too_long`` or ``template_token``.
    """
    return PersonaRow(_checked(line.strip()), None, None, None, None, None, "{}")


def from_json(line: bytes) -> PersonaRow:
    """A record: a text under ``persona`` (or ``description``, ``text``), attributes, or both.

    Keys count the same in capitals, and with spaces or hyphens instead of underscores.

    >>> from_json(b'{"AGE": "25 to 34 years", "SEX": "Female", "CAREER": "Student"}').age
    '25 to 34 years'

    Raises
    ------
    RecordFaultError
        ``not_json``, ``not_object``, ``no_persona`` (neither text nor attributes),
        ``wrong_type`` (a text that is none, a nested attribute), ``too_many_attributes``, and
        what :func:`from_text` raises.
    """
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        raise RecordFaultError("not_json") from None
    if not isinstance(record, dict):
        raise RecordFaultError("not_object")
    if len(record) > _MAX_ATTRIBUTES:
        raise RecordFaultError("too_many_attributes")
    keys = {re.sub(r"[ -]+", "_", key.strip().lower()): key for key in record}
    own = next((keys[k] for k in _TEXT_KEYS if k in keys), None)
    told = record.pop(own) if own is not None else None
    if told is not None and not isinstance(told, str):
        raise RecordFaultError("wrong_type")
    attributes = {key: _value(value) for key, value in record.items()}
    attributes = {key: value for key, value in attributes.items() if value}
    text = told.strip() if told else ""
    if not text and all(value.lower() in NOT_SAID for value in attributes.values()):
        raise RecordFaultError("no_persona")
    for key, value in attributes.items():
        if _has_token(key) or _has_token(value):
            raise RecordFaultError("template_token")
    named = {
        field: next((attributes[keys[k]] for k in known if keys.get(k) in attributes), None)
        for field, known in _KEYS.items()
    }
    packed = orjson.dumps(attributes, option=orjson.OPT_SORT_KEYS).decode()
    return PersonaRow(_checked(text) if text else None, **named, attributes=packed)


def _checked(text: str) -> str:
    if _has_token(text):
        raise RecordFaultError("template_token")
    if len(text) < MIN_TEXT:
        raise RecordFaultError("too_short")
    if len(text) > MAX_TEXT:
        raise RecordFaultError("too_long")
    return text


def _has_token(text: str) -> bool:
    return _TEMPLATE.search(_INVISIBLE.sub("", text)) is not None


def _value(value: Any) -> str:
    """An attribute as text; lists of plain values as one list with commas."""
    if value is None:
        return ""
    if isinstance(value, list) and not any(isinstance(v, list | dict) for v in value):
        value = ", ".join(str(v) for v in value if v is not None)
    if isinstance(value, list | dict):
        raise RecordFaultError("wrong_type")
    shown = str(value).lower() if isinstance(value, bool) else str(value).strip()
    if len(shown) > _MAX_VALUE:
        raise RecordFaultError("too_long")
    return shown
