"""Embedding tables: unchanged texts keep their vectors."""

from __future__ import annotations

import hashlib
from io import BytesIO
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.embeddings._protocol import Embedder
from pipelines.errors import ContractError, EngineError
from pipelines.progress import advance, within
from pipelines.store.files import LocalFiles

#: Texts of a part that a stopped run keeps (count); a multiple of the default batch, so that parts
#: move no vector.
_PART = 2_048


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
    folder: Path | None = None,
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
        Texts to encode, one per row; none may be null or empty.
    embedder
        The encoder.
    previous
        An earlier table of this shape: vectors of equal (text, model) are taken from it, so
        that adding items costs only the new ones.
    folder
        Where finished parts of 2,048 texts are kept, so that a stopped run goes on with the next.

    Raises
    ------
    ContractError
        If there is no row, or a text is null or empty.
    EngineError
        If the encoder's vectors are not finite unit vectors of its dimension.
    StoreError
        If a part can't be written.
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
    cache = _known(previous, embedder.name)
    new = table.unique("text_sha256", maintain_order=True).join(cache, on="text_sha256", how="anti")
    if new.height:
        vectors = _encoded(new, embedder, folder)
        fresh = pl.DataFrame({"text_sha256": new["text_sha256"], "vector": _lists(vectors)})
        cache = pl.concat([cache, fresh])
    return (
        table.join(cache, on="text_sha256", how="left", maintain_order="left")
        .select(key, pl.lit(embedder.name).alias("model"), "text_sha256", "vector")
        .sort(key)
    )


def _encoded(new: pl.DataFrame, embedder: Embedder, folder: Path | None) -> npt.NDArray[np.float32]:
    """Vectors of texts, shape (rows, dimension); those of finished parts are read."""
    texts, digests = new["text"].to_list(), new["text_sha256"].to_numpy()
    # As encoders sort them: texts of like length share a batch.
    order = np.argsort([-len(text) for text in texts], kind="stable")
    out = np.empty((new.height, embedder.dimension), np.float32)
    for start in range(0, new.height, _PART):
        rows = order[start : start + _PART]
        key = hashlib.sha256("\0".join([embedder.name, *digests[rows]]).encode()).hexdigest()
        path = None if folder is None else folder / f"{key[:32]}.npy"
        vectors = None if path is None else _stored(path, (len(rows), embedder.dimension))
        if vectors is None:
            with within(before=start, total=new.height):
                vectors = embedder.encode([texts[row] for row in rows])
            _check(vectors, len(rows), embedder)
            if path is not None:
                content = BytesIO()
                np.save(content, vectors, allow_pickle=False)
                LocalFiles(path.parent).put(path, content.getvalue())
        else:
            advance("embedding", start + len(rows), new.height)
        out[rows] = vectors
    return out


def _stored(path: Path, shape: tuple[int, int]) -> npt.NDArray[np.float32] | None:
    """Vectors of a finished part; None if there is none, or it is damaged."""
    data = LocalFiles(path.parent).read(path)
    try:
        vectors = None if data is None else np.load(BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError):
        return None
    valid = vectors is not None and (vectors.shape, vectors.dtype) == (shape, np.float32)
    return vectors if valid else None


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


#: Columns with a story line or description; the first that exists is used.
_PROSE = ("overview", "description")
#: People, makers and keywords: column, how its sentence begins, how many are named. More keywords
#: add little and push the prose out of the encoder's window.
_DETAILS = (
    ("directors", "Directed by ", 2),
    ("authors", "Written by ", 3),
    ("developer", "Developed by ", 1),
    ("brand", "Made by ", 1),
    ("actors", "With ", 4),
    ("keywords", "About ", 8),
    ("tags", "Tagged ", 8),
)


def item_text(items: pl.DataFrame) -> pl.Series:
    """One text per item: title, year, genres, plot or description, then people and keywords.

    The prose comes before names because encoders cut long texts at the end. Unknown features leave
    no trace. Of the columns of an `items` contract, ``title, year, genres`` must be there. Returns
    the series ``text``, in the order of the rows, without nulls.

    Examples
    --------
    >>> item_text(pl.DataFrame({"title": ["Heat"], "year": [1995], "genres": [["Crime"]]}))[0]
    'Heat (1995). Crime.'
    """
    year = pl.format(" ({})", pl.col("year").cast(pl.String))
    parts = [pl.concat_str("title", year.fill_null(""), pl.lit(".")), _joined("genres", "", 20)]
    prose = [c for c in _PROSE if c in items.columns]
    if prose:
        parts.append(pl.col(prose[0]).str.strip_chars().replace("", None))
    for column, opening, most in _DETAILS:
        if column not in items.columns:
            continue
        if isinstance(items.schema[column], pl.List):
            parts.append(_joined(column, opening, most))
        else:
            parts.append(pl.format("{}{}.", pl.lit(opening), pl.col(column).replace("", None)))
    return items.select(
        pl.concat_str(parts, separator=" ", ignore_nulls=True).alias("text")
    ).to_series()


def persona_text(personas: pl.DataFrame) -> pl.Series:
    """One text per persona: its description."""
    return personas["description"].str.strip_chars().alias("text")


def _joined(column: str, opening: str, most: int) -> pl.Expr:
    listed = pl.col(column).list.head(most)
    text = pl.format("{}{}.", pl.lit(opening), listed.list.join(", "))
    return pl.when(listed.list.len() > 0).then(text)
