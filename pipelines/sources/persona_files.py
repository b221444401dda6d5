"""Persona files: JSON lines or plain text that somebody else wrote, as one raw table."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import orjson

from pipelines.errors import SourceError
from pipelines.licences import Licence
from pipelines.sources import _values as values
from pipelines.sources._folders import check_file, given_files, pick_files, relative_name
from pipelines.sources._protocol import Source
from pipelines.sources._reader import Batch, RowError, parsed_lines, record_blocks, text_blocks
from pipelines.sources._tables import RawTable, Workspace, raw_table

if TYPE_CHECKING:
    import polars as pl

__all__ = ["NOT_SAID", "PersonaFilesSource"]


#: Shortest and longest text that is taken for a persona (characters).
MIN_TEXT, MAX_TEXT = 40, 8000
#: Longest attribute, and most of them in a record (characters, count).
_MAX_VALUE, _MAX_ATTRIBUTES = 1000, 200

#: Values of attributes that stand for "not stated", in lower case.
NOT_SAID = frozenset(
    ("", "n/a", "na", "none", "not applicable", "not available", "null", "unknown")
)

# Marks that chat templates put around messages: in a prompt they could end the persona's part
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
# Invisible characters: with them a text could read otherwise than it looks.
_INVISIBLE = re.compile(r"[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]")
_TEXT_KEYS = ("persona", "description", "text", "input_persona")
_KEYS: Mapping[str, tuple[str, ...]] = {
    "name": ("name", "first_name"),
    "age": ("age", "age_band", "age_group"),
    "gender": ("sex", "gender"),
    "job": ("career", "occupation", "job", "profession"),
    "writer": ("writer", "model", "generated_by", "author"),
}


Row = dict[str, str | None]


def from_text(line: bytes) -> Row:
    """A line of plain text: the persona and nothing else.

    >>> from_text(b"A retired teacher who restores clocks and sings in a choir.")["attributes"]
    '{}'

    Raises :class:`RowError`: ``too_short``, ``too_long`` or ``template_token``.
    """
    return {"text": _checked(line.decode().strip()), "attributes": "{}"}


def from_json(line: bytes) -> Row:
    """A record: a text under ``persona`` (or ``description``, ``text``), attributes, or both.

    Keys count the same in capitals, and with spaces or hyphens instead of underscores.

    >>> from_json(b'{"AGE": "25 to 34 years", "SEX": "Female", "CAREER": "Student"}')["age"]
    '25 to 34 years'

    Raises :class:`RowError`: ``not_json``, ``not_object``, ``no_persona`` (neither text nor
    attributes), ``wrong_type`` (a text that is none, a nested attribute), ``too_many_attributes``,
    and what :func:`from_text` raises.
    """
    content = line.decode()
    try:
        record = values.loads(content)
    except ValueError:
        raise RowError("not_json") from None
    if not isinstance(record, dict):
        raise RowError("not_object")
    if len(record) > _MAX_ATTRIBUTES:
        raise RowError("too_many_attributes")
    keys = {re.sub(r"[ -]+", "_", key.strip().lower()): key for key in record}
    text_key = next((keys[k] for k in _TEXT_KEYS if k in keys), None)
    given = record.pop(text_key) if text_key is not None else None
    if values.is_missing(given):
        given = None
    if given is not None and not isinstance(given, str):
        raise RowError("wrong_type", text_key, given)
    attributes = {key: _value(key, value) for key, value in record.items()}
    attributes = {key: value for key, value in attributes.items() if value}
    text = given.strip() if given else ""
    if not text and all(stated.lower() in NOT_SAID for stated in attributes.values()):
        raise RowError("no_persona")
    for key, value in attributes.items():
        if _has_token(key) or _has_token(value):
            raise RowError("template_token")
    named = {
        field: next((attributes[keys[k]] for k in aliases if keys.get(k) in attributes), None)
        for field, aliases in _KEYS.items()
    }
    packed = orjson.dumps(attributes, option=orjson.OPT_SORT_KEYS).decode()
    return {"text": _checked(text) if text else None, **named, "attributes": packed}


def _checked(text: str) -> str:
    if _has_token(text):
        raise RowError("template_token")
    if len(text) < MIN_TEXT:
        raise RowError("too_short")
    if len(text) > MAX_TEXT:
        raise RowError("too_long")
    return text


def _has_token(text: str) -> bool:
    return _TEMPLATE.search(_INVISIBLE.sub("", text)) is not None


def _value(key: str, value: Any) -> str:
    """An attribute as text; lists of plain values as one list with commas."""
    if values.is_missing(value):
        return value.strip() if isinstance(value, str) else ""
    if isinstance(value, list | dict | str):
        try:
            value = ", ".join(v for v in values.texts(value) if v is not None)
        except values.UnreadableError:
            raise RowError("wrong_type", key, value) from None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    shown = str(value).lower() if isinstance(value, bool) else str(value).strip()
    if len(shown) > _MAX_VALUE:
        raise RowError("too_long", key, shown)
    return shown


_SUFFIXES = (".jsonl", ".jsonl.gz", ".txt", ".txt.gz")


class PersonaFilesSource(Source):
    """Personas that somebody else made: JSON lines or plain text, one persona a line.

    A record has a text under ``PERSONA`` (or ``persona``, ``description``, ``text``), attributes
    such as ``AGE``, ``SEX``, ``CAREER`` and ``name``, or both; ``writer`` (or ``model``) names the
    text's author. A line of a text file is the text. Everything stays as published.
    Rejected are, by reason:

    =======================  ===============================================================
    ``invalid_utf8``         bytes that are not UTF-8
    ``not_json``             no JSON: unescaped quotes, a record cut short, two on a line
    ``not_object``           JSON, but not one object
    ``no_persona``           neither a text nor an attribute
    ``wrong_type``           a text that is none, or an attribute with a structure of its own
    ``too_many_attributes``  more than 200 of them
    ``too_short``            a text of fewer than 40 characters
    ``too_long``             a text of more than 8,000 characters, an attribute of over 1,000,
                             a line of more than 1 MiB
    ``template_token``       a chat template's mark-up, such as ``<|im_start|>`` or ``[INST]``,
                             with which a text could pass for another part of a prompt
    ``duplicate_text``       a text that was there before (attributes alone may repeat: two
                             people may be of one age, sex and state)
    =======================  ===============================================================
    """

    name: ClassVar[str] = "persona_files"
    folder_name: ClassVar[str] = "personas"
    expected: ClassVar[str] = f"files that end in {', '.join(_SUFFIXES)}"
    code_version: ClassVar[str] = "persona-files-2"
    datasets: ClassVar[tuple[str, ...]] = ("raw.persona_files", "raw.persona_files_rejected")
    licence: ClassVar[Licence] = Licence(
        name="Terms of the personas' author",
        url="",
        terms="Files given by the user; their makers' terms hold.",
    )

    def present(self, folder: Path) -> bool:
        """Whether files are named in the settings or lie in ``folder/personas``."""
        return bool(self.settings.data.personas.files) or bool(self._in_folder(folder))

    def files(self, folder: Path) -> list[Path]:
        """Return the named files, else those in the folder by name.

        Raises :class:`SourceError` if two files have the same name in rejections, or the folder
        can't be read.
        """
        named = self.settings.data.personas.files
        paths = given_files(named, self.settings) if named else self._in_folder(folder)
        names = Counter(relative_name(path, folder) for path in paths)
        doubled = [name for name, times in names.items() if times > 1]
        if doubled:
            raise SourceError(
                "two persona files of one name", where=", ".join(doubled), hint="rename one"
            )
        for path in paths:
            check_file(path, self.expected)
        return sorted(paths, key=lambda path: relative_name(path, folder))

    def _in_folder(self, folder: Path) -> list[Path]:
        return pick_files(folder / self.folder_name, _is_name, self.expected)

    def read(self, folder: Path, work: Workspace) -> Iterator[RawTable]:
        """Read all files into one table."""
        import polars as pl

        schema = dict.fromkeys(("text", *_KEYS, "attributes"), pl.String)
        # 16 bytes for each text, whatever its length: a million of them take some 80 MB.
        texts: set[bytes] = set()

        def rows(path: Path, name: str) -> Iterator[Batch]:
            plain = path.name.lower().removesuffix(".gz").endswith(".txt")
            original = work.original(path, name)

            def parse(line: bytes) -> Row:
                row = from_text(line) if plain else from_json(line)
                if row["text"] is not None:
                    text = row["text"].encode("utf-8", "replace")
                    digest = hashlib.blake2b(text, digest_size=16).digest()
                    if digest in texts:
                        raise RowError("duplicate_text")
                    texts.add(digest)
                return row

            blocks = (text_blocks if plain else record_blocks)(original, "one persona per line")
            return parsed_lines(blocks, parse, schema)

        def finish(frame: pl.DataFrame) -> pl.DataFrame:
            for name, given in (
                ("with_text", frame["text"].is_not_null()),
                ("with_attributes", frame["attributes"] != "{}"),
                ("with_name", frame["name"].is_not_null()),
            ):
                table.stats[name] = table.stats.get(name, 0) + int(given.sum())
            return frame

        names = {relative_name(path, folder): path for path in self.files(folder)}
        table = raw_table(
            "raw.persona_files", {name: rows(path, name) for name, path in names.items()}, work,
            file=self.folder_name, finish=finish, filtered=("blank_line",),
        )  # fmt: skip
        yield table


def _is_name(name: str) -> bool:
    return name.lower().endswith(_SUFFIXES)
