"""Answers as Parquet: written for others, and read once from homes of earlier versions."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson

from pipelines.errors import IntegrityError
from pipelines.llm.answers._file import AnswerFile, Row, checksum, identity_number, packed
from pipelines.llm.answers._scope import Scope
from pipelines.store.files import storage_errors, whole_file
from pipelines.store.locks import PATIENCE, mutex

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.llm.answers._record import StoredAnswer

_BATCH = 10_000


def write_parquet(answers: Iterable[StoredAnswer], target: Path) -> int:
    """Write answers to a file; how many. StoreError if it can't be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema, remaining, count = _schema(), iter(answers), 0
    with whole_file(target) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        while some := [_columns(answer) for answer in islice(remaining, _BATCH)]:
            writer.write_table(pa.Table.from_pylist(some, schema))
            count += len(some)
    return count


def _schema() -> pa.Schema:
    import pyarrow as pa

    text, count = pa.string(), pa.int64()
    return pa.schema(
        {
            "key": text,
            "status": text,
            "max_tokens": count,
            "stored_at": pa.timestamp("us", tz="UTC"),
            "text": pa.large_string(),
            "probabilities": pa.list_(pa.float64()),
            "mass": pa.float64(),
            "finish_reason": text,
            "prompt_tokens": count,
            "completion_tokens": count,
            "cached_tokens": count,
            "latency": pa.float64(),
            "detail": text,
            "engine": text,
            "model": text,
            "identity": text,
            "request": pa.large_string(),
        }
    )


def _columns(answer: StoredAnswer) -> dict[str, Any]:
    fields = answer.to_dict()
    identity = fields["identity"]
    return {
        **fields,
        "stored_at": answer.stored_at,
        "engine": identity["engine"],
        "model": identity["model"],
        "identity": orjson.dumps(identity, option=orjson.OPT_SORT_KEYS).decode(),
        "request": answer.request,
    }


def adopt_parts(home: Path, file_of: Callable[[Scope | None], AnswerFile]) -> None:
    """Move the answers of a home of an earlier version, which are Parquet parts, into files.

    Raises
    ------
    IntegrityError
        A part can't be read: it and the later ones stay where they are.
    StoreError
        The disk is full or can't be written. Running again goes on.
    """
    folder = home / "answers"
    if not _parts(folder):
        return
    with mutex(home / "_locks" / "answers-parts.lock", timeout=PATIENCE):
        for path in _parts(folder):
            place = path.relative_to(folder).parts
            scope = _scope(place[1]) if place[0] == "tables" else None
            _adopt(path, file_of(scope))
            with storage_errors(path):
                path.unlink()
        for name in ("tables", "uses"):
            shutil.rmtree(folder / name, ignore_errors=True)


def _parts(folder: Path) -> list[Path]:
    """Parts of an earlier version, the oldest first."""
    parts = [*folder.glob("part-*.parquet"), *folder.glob("tables/*/*/part-*.parquet")]
    return sorted(parts, key=lambda path: path.name)


def _scope(name: str) -> Scope:
    table, _, cohort = name.partition(":")
    return Scope(unquote(table), unquote(cohort))


def _adopt(path: Path, file: AnswerFile) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        for batch in pq.ParquetFile(path, page_checksum_verification=True).iter_batches(_BATCH):
            rows = batch.set_column(
                batch.schema.get_field_index("stored_at"),
                "stored_at",
                batch.column("stored_at").cast(pa.int64()),
            ).to_pylist()
            documents = {identity_number(row["identity"]): row["identity"] for row in rows}
            file.store([_row(row) for row in rows], documents)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise IntegrityError(
            "a part of an earlier version's answers can't be read",
            where=str(path),
            hint="move it elsewhere: its answers are asked for again",
        ) from error


def _row(fields: Mapping[str, Any]) -> Row:
    changed = {
        "probabilities": packed(fields["probabilities"]),
        "identity": identity_number(fields["identity"]),
    }
    columns = tuple({**fields, **changed}[name] for name in Row._fields[:-1])
    return Row._make((*columns, checksum(columns)))
