"""Embedding tables: unchanged texts keep their vectors."""

from __future__ import annotations

import hashlib

import numpy as np
import polars as pl

from pipelines.embeddings._protocol import Embedder, Progress
from pipelines.errors import ContractError, EngineError


def text_sha256(texts: pl.Series) -> pl.Series:
    """SHA-256 (hex) of each text's UTF-8 bytes."""
    digests = [hashlib.sha256(t.encode()).hexdigest() for t in texts]
    return pl.Series("text_sha256", digests, dtype=pl.String)


def embed_table(
    frame: pl.DataFrame,
    key: str,
    text: pl.Series,
    embedder: Embedder,
    *,
    previous: pl.DataFrame | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """One vector per row: ``<key>, model, text_sha256, vector``, sorted by key.

    The contracts are `item_embeddings` and `persona_embeddings`.

    Parameters
    ----------
    frame
        Rows with the column `key`, at least one.
    key
        ``item_id`` or ``persona_id``.
    text
        What is encoded, one text per row; none may be null or empty.
    embedder
        The encoder.
    previous
        An earlier table of this shape: vectors of equal (text, model) are taken from it, so
        that adding items costs only the new ones.
    progress
        Called with texts done and texts to encode (each distinct new text counts once).

    Raises
    ------
    ContractError
        If there is no row, or a text is null or empty.
    EngineError
        If the encoder's vectors are not finite unit vectors of its dimension.
    """
    if not frame.height:
        raise ContractError("there is nothing to embed", where=key)
    empty = text.is_null() | (text.str.strip_chars() == "")
    if empty.any():
        rows = frame.filter(empty)[key].head(10).to_list()
        raise ContractError(
            f"{int(empty.sum())} rows have no text to embed",
            where=key,
            details={"rows": [{key: r} for r in rows]},
        )
    digest = text_sha256(text)
    table = pl.DataFrame({key: frame[key], "text_sha256": digest, "text": text})
    known = _known(previous, embedder.name)
    new = table.unique("text_sha256", maintain_order=True).join(known, on="text_sha256", how="anti")
    if new.height:
        vectors = embedder.encode(new["text"].to_list(), progress=progress)
        _check(vectors, new.height, embedder)
        fresh = pl.DataFrame({"text_sha256": new["text_sha256"], "vector": _lists(vectors)})
        known = pl.concat([known, fresh])
    return (
        table.join(known, on="text_sha256", how="left", maintain_order="left")
        .select(key, pl.lit(embedder.name).alias("model"), "text_sha256", "vector")
        .sort(key)
    )


def _known(previous: pl.DataFrame | None, model: str) -> pl.DataFrame:
    schema = pl.Schema([("text_sha256", pl.String()), ("vector", pl.List(pl.Float32))])
    if previous is None:
        return pl.DataFrame(schema=schema)
    return (
        previous.filter(pl.col("model") == model)
        .select(*schema)
        .unique("text_sha256", maintain_order=True)
    )


def _check(vectors: np.ndarray, rows: int, embedder: Embedder) -> None:
    if vectors.shape != (rows, embedder.dimension):
        raise EngineError(
            f"the encoder returned shape {vectors.shape}, not {(rows, embedder.dimension)}",
            where=embedder.name,
        )
    length = np.linalg.norm(vectors, axis=1)
    if not np.allclose(length, 1.0, atol=1e-3):
        raise EngineError(
            f"{int((~np.isclose(length, 1.0, atol=1e-3)).sum())} vectors have not length 1",
            where=embedder.name,
        )


def _lists(vectors: np.ndarray) -> pl.Series:
    return pl.Series("vector", vectors.astype(np.float32)).arr.to_list()
