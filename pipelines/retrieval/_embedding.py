"""Retrieval by the cosine of two items' text embeddings."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.retrieval._protocol import Floats, Ints, SimilarityRetriever

#: Values of vectors that are gathered at once (count): 16 MiB of float32, about the cache.
_GATHERED = 4_000_000


class EmbeddingRetriever(SimilarityRetriever):
    """Selects the items whose text is most like the query's, by cosine.

    ``vectors``, of shape (items, dimension) and any length, hold a row of zeros (or NaN) where
    there is none. An item without a vector comes after all that have one; a query without one gets
    the last items, as all are equally unlike it. Not thread-safe.

    Examples
    --------
    >>> retriever = EmbeddingRetriever(np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]))
    >>> retriever.select(np.array([2]), np.array([[0, 1, 0]]), np.ones((1, 3)), 1).tolist()
    [[1]]
    """

    name = "embedding"

    def __init__(self, vectors: npt.ArrayLike) -> None:
        rows = np.nan_to_num(np.asarray(vectors, dtype=np.float32))
        length = np.linalg.norm(rows, axis=1, keepdims=True)
        self._vectors = rows / np.where(length > 0, length, np.float32(1))
        self._present = length[:, 0] > 0
        self._complete = bool(self._present.all())
        self._room = np.empty((0, rows.shape[1]), np.float32)

    def similarity(self, items: Ints, others: Ints) -> Floats:
        """Cosines of each item and its row of others, of shape (n, h); NaN where unknown."""
        out = np.empty(others.shape)
        most = max(1, min(others.size, _GATHERED // max(1, self._vectors.shape[1])))
        if len(self._room) < max(most, others.shape[1]):
            # Kept: fresh pages for every query would cost more than what is put there.
            self._room = np.empty((max(most, others.shape[1]), self._vectors.shape[1]), np.float32)
        step = max(1, _GATHERED // max(1, others.shape[1] * self._vectors.shape[1]))
        for start in range(0, len(items), step):
            part = slice(start, start + step)
            compared = others[part]
            gathered = self._room[: compared.size]
            self._vectors.take(compared.reshape(-1), axis=0, mode="wrap", out=gathered)
            gathered = gathered.reshape(*compared.shape, -1)
            out[part] = np.vecdot(gathered, self._vectors[items[part], None, :])
        if not self._complete:
            out[~(self._present[others] & self._present[items][:, None])] = np.nan
        return out


def item_vectors(items: pl.DataFrame, embeddings: pl.DataFrame) -> npt.NDArray[np.float32]:
    """Vectors in the order of `items`, zeros where there is none, of shape (items, dimension)."""
    dimension = len(embeddings["vector"][0]) if embeddings.height else 0
    out = np.zeros((items.height, dimension), np.float32)
    rows = (
        items.select("item_id")
        .with_row_index("row")
        .join(embeddings.select("item_id", "vector"), on="item_id", how="inner")
    )
    if rows.height:
        flat = rows["vector"].cast(pl.List(pl.Float32)).explode().to_numpy()
        out[rows["row"].to_numpy()] = flat.reshape(rows.height, dimension)
    return out
