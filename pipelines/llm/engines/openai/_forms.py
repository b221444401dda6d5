"""Grammars on servers that have none: the fields of a form are asked for, read and checked.

A grammar that is a sequence of fixed texts and fields needs no grammar on the server's side: the
model is asked for the fields, as JSON under a schema, as JSON, or as lines with labels, and the
sentence is put together here.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from pipelines.llm.engines._protocol import FormField, GrammarConstraint, Message

#: How fields are asked for. ``lines``: ``name: text``.
FormStyle = Literal["json_schema", "json_object", "lines"]

JSON_MODE: dict[str, Any] = {"response_format": {"type": "json_object"}}
#: Tokens of a reply beside its fields: for the reply, and for each name.
_FRAME, _NAMED = 64, 24
_PLAIN = str.maketrans({"’": "'", "‘": "'", "–": "-", "—": "-", "…": ".", "“": "", "”": ""})
#: Characters that no field takes.
_NOISE = re.compile(r"[^A-Za-z0-9 ,;:'().!?&/-]")


def json_format(schema: dict[str, Any]) -> dict[str, Any]:
    """Fields of a chat's body that ask for JSON under a schema."""
    named = {"name": "answer", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def form_format(
    style: FormStyle, constraint: GrammarConstraint, *, patterns: bool
) -> dict[str, Any]:
    """Fields of a request's body that ask for the style, with the fields' ``patterns`` or not."""
    if style != "json_schema":
        return JSON_MODE if style == "json_object" else {}
    properties: dict[str, Any] = {}
    for field in _fields(constraint):
        rule: dict[str, Any] = {"enum": [*field.options]} if field.options else {}
        if not field.options and patterns:
            # Converters of schemas know plain groups, and no escaped space.
            plain = field.pattern.replace("(?:", "(").replace("\\ ", " ")
            rule = {"pattern": f"^({plain})$"}
        properties[field.name] = {"type": "string"} | rule
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    return json_format(schema | {"additionalProperties": False})


def form_room(constraint: GrammarConstraint) -> int:
    """Tokens of the longest reply beside those of its sentence (count)."""
    return _FRAME + _NAMED * len(_fields(constraint))


def _fields(constraint: GrammarConstraint) -> list[FormField]:
    return [part for part in constraint.form if isinstance(part, FormField)]


def form_messages(
    messages: Sequence[Message], style: FormStyle, constraint: GrammarConstraint
) -> tuple[Message, ...]:
    """The conversation with the form under its last message."""
    fields = _fields(constraint)
    shown = "".join(p if isinstance(p, str) else f"[{p.name}]" for p in constraint.form)
    lines = ["", "Write what goes into each pair of square brackets here:", shown, ""]
    if style == "lines":
        lines.append("Reply with one line for each and nothing else:")
        lines += [f"{field.name}: {_described(field)}" for field in fields]
    else:
        lines.append("Reply with one JSON object and nothing else; its fields are texts:")
        lines += [f'"{field.name}": {_described(field)}' for field in fields]
    last = messages[-1]
    return (*messages[:-1], replace(last, content="\n".join([last.content, *lines])))


def _described(field: FormField) -> str:
    if field.options:
        return "one of " + ", ".join(field.options)
    return f"begins with: {field.opening.strip()}" if field.opening else "..."


def read_form(constraint: GrammarConstraint, reply: str) -> str | None:
    """The sentence that a reply fills the form to; None if a field is absent or does not fit.

    Examples
    --------
    >>> form = ("Ann likes ", FormField("what", "[a-z ]{4,20}"), ".")
    >>> constraint = GrammarConstraint("", form)
    >>> read_form(constraint, 'Sure: {"what": "Old films!"}')
    'Ann likes old films.'
    >>> read_form(constraint, "**what**: old films")
    'Ann likes old films.'
    >>> read_form(constraint, "42") is None
    True
    """
    fields = _fields(constraint)
    values = _of_json(reply) or _of_lines(reply, fields)
    texts: list[str] = []
    for part in constraint.form:
        if isinstance(part, str):
            texts.append(part)
            continue
        text = _fitted(part, values.get(part.name.lower(), ""))
        if text is None:
            return None
        texts.append(text)
    return "".join(texts)


def json_part(reply: str) -> str:
    """The JSON object in a reply that has a fence or words around it; else the reply."""
    begin, end = reply.find("{"), reply.rfind("}")
    return reply[begin : end + 1] if 0 <= begin < end else reply


def _of_json(reply: str) -> Mapping[str, str]:
    try:
        parsed = json.loads(json_part(reply))
    except ValueError:
        return {}
    if not isinstance(parsed, dict):
        return {}
    lists = {k: ", ".join(map(str, v)) for k, v in parsed.items() if isinstance(v, list)}
    return {str(name).lower(): str(value) for name, value in (parsed | lists).items()}


def _of_lines(reply: str, fields: Sequence[FormField]) -> Mapping[str, str]:
    names = "|".join(re.escape(f.name) for f in sorted(fields, key=lambda f: -len(f.name)))
    label = re.compile(rf"^\W*({names})\W*?[:=]\W*", re.IGNORECASE | re.MULTILINE)
    pieces = label.split(reply)
    if len(pieces) == 1 and len(fields) == 1:
        return {fields[0].name.lower(): reply}
    return {n.lower(): text for n, text in zip(pieces[1::2], pieces[2::2], strict=True)}


def _fitted(field: FormField, value: str) -> str | None:
    """The longest beginning of a text, in whole words, that the field takes."""
    value = " ".join(value.translate(_PLAIN).split())
    if field.options:
        bare = value.strip(" .\"'*").lower()
        return next((option for option in field.options if option.lower() == bare), None)
    fits = re.compile(field.pattern)
    for text in _spellings(field, value):
        words = text.split(" ")
        for count in range(len(words), 0, -1):
            if fits.fullmatch(begun := " ".join(words[:count])):
                return begun
    return None


def _spellings(field: FormField, value: str) -> Iterator[str]:
    """A text as it is, in the letters that fields take, and in small letters alone."""
    yield value
    letters = unicodedata.normalize("NFKD", value).encode("ascii", "ignore").decode()
    plain = " ".join(_NOISE.sub("", letters).split())
    if field.opening and not plain.startswith(field.opening):
        plain = field.opening + plain[:1].lower() + plain[1:]
    yield from (plain, plain[:1].upper() + plain[1:], plain + ".")
    small = " ".join(re.sub(r"[^a-z '-]", "", plain.lower()).split())
    yield small
