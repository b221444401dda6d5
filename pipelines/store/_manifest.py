"""Manifest of a snapshot, and the version that follows from its content."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import orjson

from pipelines.errors import IntegrityError, StoreError

#: Name of the manifest in a snapshot's folder.
MANIFEST = "_manifest.json"

#: Within Manifest, `bytes` is a size.
_Bytes: TypeAlias = bytes

#: Name of a fact in ``stats`` that keeps a version from becoming the current one: the reason.
WITHHELD = "withheld"

#: Name of a fact in ``stats`` of a cohort's snapshot: facts of the cohort, which a union shows by
#: cohort.
OF_COHORT = "of_cohort"

#: A file with one cohort's rows, of a version from before cohorts were snapshots.
_COHORT_PART = re.compile(r"part-([a-z0-9][a-z0-9-]*)_\d{5,}\.parquet")
_DATASET = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*(-[a-z0-9][a-z0-9-]*)?")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file of a snapshot: its name, SHA-256 (hex), size (bytes) and rows (count).

    A plain file beside the rows has none.
    """

    name: str
    sha256: str
    bytes: int
    rows: int

    @property
    def cohort(self) -> str | None:
        """The cohort that all its rows are of, or None if its name has none.

        >>> FileEntry("part-books-2_00000.parquet", "", 0, 1).cohort
        'books-2'
        """
        match = _COHORT_PART.fullmatch(self.name)
        return match[1] if match else None


@dataclass(frozen=True, slots=True)
class Manifest:
    """The record beside a snapshot's files."""

    #: Dataset, and the first 16 hex digits of the SHA-256 over its canonical (dataset, schema,
    #: files with hashes and rows).
    dataset: str
    version: str
    #: Totals over the files.
    rows: int
    bytes: int
    #: The files, in the order in which their rows are read.
    files: tuple[FileEntry, ...]
    #: ``{"name", "type", "nullable"}`` per column, in order; types are Arrow's names.
    schema: tuple[dict[str, Any], ...]
    #: The build that first made this content: its code version, identity configuration, input
    #: versions (``dataset -> version`` or ``file:<name> -> sha256``), the key of these three, the
    #: time (ISO 8601, UTC) and the run. Later builds that gave the same content are in
    #: ``<home>/builds/<dataset>/``.
    code_version: str
    config: dict[str, Any]
    inputs: dict[str, str]
    build_key: str
    created_at: str
    run_id: str | None = None
    #: Facts the builder noted (JSON).
    stats: dict[str, Any] = field(default_factory=dict)
    #: Columns that identify a row; empty if the contract has none.
    key: tuple[str, ...] = ()

    def to_json(self) -> _Bytes:
        """The stored form, which carries a digest of itself."""
        content = asdict(self)
        return pretty_json({**content, "digest": _digest(content)})

    @classmethod
    def from_json(cls, data: _Bytes, where: Path) -> Manifest:
        """Parse and check the stored form; IntegrityError, naming the file, if it was changed."""
        try:
            content = orjson.loads(data)
            digest = content.pop("digest")
            manifest = cls(
                **{
                    **content,
                    "files": tuple(FileEntry(**f) for f in content["files"]),
                    "schema": tuple(content["schema"]),
                    "key": tuple(content["key"]),
                }
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            raise IntegrityError(
                "the manifest is damaged",
                where=str(where),
                hint="remove its folder and build the table again",
            ) from None
        if digest != _digest(content) or manifest.version != content_version(
            manifest.dataset, manifest.schema, manifest.files
        ):
            raise IntegrityError(
                "the manifest was changed after it was written",
                where=str(where),
                hint="remove its folder and build the table again",
            )
        return manifest


def content_version(
    dataset: str, schema: tuple[dict[str, Any], ...], files: tuple[FileEntry, ...]
) -> str:
    """Version of a table: the hash of its name, schema and file hashes."""
    return hash16(
        {
            "dataset": dataset,
            "schema": list(schema),
            "files": [{"sha256": f.sha256, "rows": f.rows} for f in files],
        }
    )


def build_key(code_version: str, config: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Key (32 hex digits) of a build, by its code, identity settings and inputs.

    StoreError if ``config`` holds something JSON can't express.

    Examples
    --------
    >>> build_key("1", {"b": 2, "a": 1}, {}) == build_key("1", {"a": 1, "b": 2}, {})
    True
    >>> build_key("1", {}, {"raw.x": "v1"}) == build_key("1", {}, {"raw.x": "v2"})
    False
    """
    content = {"code_version": code_version, "config": dict(config), "inputs": dict(inputs)}
    return hashlib.sha256(canonical_json(content)).hexdigest()[:32]


def canonical_json(value: Any) -> bytes:
    """Canonical JSON: keys sorted, no white space.

    >>> canonical_json({"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """
    return _dumps(value, orjson.OPT_SORT_KEYS)


def pretty_json(value: Any) -> bytes:
    """JSON for people to read: sorted keys, indented, a final newline."""
    return _dumps(value, orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def _dumps(value: Any, option: int) -> bytes:
    try:
        return orjson.dumps(value, option=option)
    except TypeError as error:
        raise StoreError(
            f"configuration, inputs and notes must be plain JSON values ({error})",
            hint="pass model_dump(mode='json')",
        ) from None


def hash16(value: Any) -> str:
    """First 16 hex digits of the SHA-256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical_json(value)).hexdigest()[:16]


def now() -> str:
    """The present time, ISO 8601, UTC, in microseconds."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def check_dataset_name(dataset: str) -> str:
    """The name, which becomes a folder name.

    StoreError unless it is lower-case words with dots, and a cohort after a hyphen, if any.
    """
    if not _DATASET.fullmatch(dataset):
        raise StoreError(
            "not a dataset name", where=repr(dataset), hint="lower-case words, dots between them"
        )
    return dataset


def cohort_dataset(dataset: str, cohort: str) -> str:
    """The dataset of a cohort's rows of a table.

    >>> cohort_dataset("movies.personas", "2026-w47")
    'movies.personas-2026-w47'
    """
    return f"{dataset}-{cohort}"


def split_cohort(dataset: str) -> tuple[str, str]:
    """Table and cohort of a dataset; without a cohort ``""``.

    >>> split_cohort("movies.personas-2026-w47"), split_cohort("movies.items")
    (('movies.personas', '2026-w47'), ('movies.items', ''))
    """
    table, _, cohort = dataset.partition("-")
    return table, cohort


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(canonical_json(content)).hexdigest()
