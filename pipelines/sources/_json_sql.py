"""Records of JSON as SQL values: what DuckDB is asked about a block of lines.

It reads the values of the declared fields and the JSON types that they had, for conversion alone
takes ``"5"`` for 5. Types are told by one number per combination of them: a file has few, and
each is judged once, here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import orjson

__all__ = [
    "SHAPE",
    "JsonField",
    "Shape",
    "kept_query",
    "shape_query",
    "types_query",
]

#: The column that numbers combinations of JSON types.
SHAPE = "_shape"

Kind = Literal["text", "number", "integer", "boolean", "texts", "json"]

#: DuckDB's name of the column's type, and the JSON types that a field may have.
_KINDS: dict[str, tuple[str, tuple[str, ...]]] = {
    "text": ("VARCHAR", ("VARCHAR",)),
    "number": ("DOUBLE", ("DOUBLE", "UBIGINT", "BIGINT", "HUGEINT", "UHUGEINT")),
    "integer": ("BIGINT", ("UBIGINT", "BIGINT")),
    "boolean": ("BOOLEAN", ("BOOLEAN",)),
    "texts": ("VARCHAR[]", ("ARRAY",)),
    "json": ("JSON", ()),
}


@dataclass(frozen=True, slots=True)
class JsonField:
    """A field of the record and the column it becomes.

    Attributes
    ----------
    key
        The record's key, at its top level.
    name
        The column.
    kind
        ``text``, ``number`` (float64), ``integer`` (int64), ``boolean``, ``texts`` (list of
        text; an absent one is empty, a single text a list of one), or ``json``: the value as
        JSON text, whatever it is.
    reason
        Reason code of a row whose field has another type (or, if required, is absent).
    required
        Whether a record without it, or with null, is rejected.
    """

    key: str
    name: str
    kind: Kind = "text"
    reason: str = "wrong_type"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """What a combination of JSON types means.

    Attributes
    ----------
    reason
        Why such a record is rejected; None if it isn't.
    present
        Keys that are there, with another value than null.
    single
        Keys with a text where a list is expected.
    """

    reason: str | None
    present: frozenset[str] = frozenset()
    single: frozenset[str] = frozenset()

    @classmethod
    def of(cls, kinds: Sequence[str | None] | None, fields: Sequence[JsonField]) -> Shape:
        """Judge the types of a record and of its fields, as DuckDB names them."""
        if kinds is None:
            return cls("not_json")
        if kinds[0] != "OBJECT":
            return cls("not_object")
        present, single = set(), set()
        for field, kind in zip(fields, kinds[1:], strict=True):
            if kind is None or kind == "NULL":
                if field.required:
                    return cls(field.reason)
                continue
            present.add(field.key)
            if field.kind == "texts" and kind == "VARCHAR":
                single.add(field.key)
            elif field.kind != "json" and kind not in _KINDS[field.kind][1]:
                return cls(field.reason)
        return cls(None, frozenset(present), frozenset(single))


def types_query(fields: Sequence[JsonField]) -> str:
    """The JSON types of one record, given as a parameter, and of its fields."""
    return f"select {_types(fields, '?')}"


def _types(fields: Sequence[JsonField], record: str) -> str:
    """The JSON types of a record and of its fields; null if it is not JSON."""
    paths = ", ".join(_path(f.key) for f in fields)
    return f"try(json_type({record}, ['$', {paths}]))"


def shape_query(fields: Sequence[JsonField]) -> str:
    """Each line of ``block`` with its values and a number for the types of its fields."""
    structure = orjson.dumps({f.key: _KINDS[f.kind][0] for f in fields}).decode()
    structure = structure.replace('"VARCHAR[]"', '["VARCHAR"]')
    columns = []
    for field in fields:
        value = f"got[{_text(field.key)}]"
        if field.kind == "texts":
            value = f"coalesce({value}, [])"
        elif field.kind == "json":
            value = f"cast(nullif({value}, 'null') as varchar)"
        columns.append(f'{value} as "{field.name}"')
    return f"""
        with made as (
            select
                line,
                hash({_types(fields, "record")}) as {SHAPE},
                try(json_transform(record, {_text(structure)})) as got
            from block
        )
        select line, {SHAPE}, {", ".join(columns)} from made
    """  # noqa: S608 (fields are declared in code)


def kept_query(fields: Sequence[JsonField]) -> str | None:
    """Each line of ``block`` with what is kept as JSON text of it; None if nothing is.

    An error if a record is no JSON.
    """
    kept = [f for f in fields if f.kind == "json"]
    if not kept:
        return None
    paths = ", ".join(_path(f.key) for f in kept)
    columns = [
        f"cast(nullif(got[{n}], 'null') as varchar) as \"{f.name}\"" for n, f in enumerate(kept, 1)
    ]
    return f"""
        with made as (select line, json_extract(record, [{paths}]) as got from block)
        select line, {", ".join(columns)} from made
    """  # noqa: S608 (fields are declared in code)


def _path(key: str) -> str:
    """The JSON path of a key of the record, as a SQL string.

    >>> print(_path("also_buy"))
    '$."also_buy"'
    """
    return _text(f'$."{key}"')


def _text(value: str) -> str:
    """A SQL string.

    >>> _text("it's")
    "'it''s'"
    """
    return "'" + value.replace("'", "''") + "'"
