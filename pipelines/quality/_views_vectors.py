"""Views of the embeddings: norms, dimensions, spread and whose vectors they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.quality._spec import Evidence, View, ViewFunction

#: Vectors read at once (8,192 of 384 numbers are 25 MB as float64).
BATCH = 8192
#: Cosine from which two descriptions say the same, and vectors compared with all others.
TWIN, PROBES = 0.97, 2_000


def _vectors(evidence: Evidence) -> View:
    """One row per vector: its dimension and norm."""
    return View(_pass(evidence)[0])


def _spread(evidence: Evidence) -> View:
    """One row: the mean cosine of all pairs (null if dimensions differ).

    It needs no pairs: for unit vectors the squared norm of their sum is
    ``n + n * (n - 1) * mean``.
    """
    return View(
        pl.DataFrame({"mean_cosine": [_pass(evidence)[1]]}, schema={"mean_cosine": pl.Float64})
    )


def _pass(evidence: Evidence) -> tuple[pl.DataFrame, float | None]:
    made: tuple[pl.DataFrame, float | None] = evidence.once("vectors", lambda: _read(evidence))
    return made


def _read(evidence: Evidence) -> tuple[pl.DataFrame, float | None]:
    """Dimension and norm of each vector, and the mean cosine of all pairs, in one pass."""
    key = _key(evidence.dataset)
    ids: list[pl.Series] = []
    lengths: list[npt.NDArray[Any]] = []
    norms: list[npt.NDArray[Any]] = []
    total: npt.NDArray[Any] | None = None
    one_length = True
    scan = evidence.snapshot.arrow_dataset()
    for batch in scan.to_batches(columns=[key, "vector"], batch_size=BATCH):
        column = batch.column("vector")
        values = np.asarray(column.flatten().to_numpy(zero_copy_only=False), dtype=np.float64)
        size = np.asarray(
            column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False), np.int64
        )
        owner = np.repeat(np.arange(size.size), size)
        norms.append(np.sqrt(np.bincount(owner, weights=values**2, minlength=size.size)))
        lengths.append(size)
        ids.append(pl.Series(key, batch.column(key).to_pylist(), dtype=pl.String))
        if size.size and one_length and (size == size[0]).all() and size[0] > 0:
            part = values.reshape(size.size, int(size[0])).sum(axis=0)
            one_length = total is None or total.shape == part.shape
            total = part if total is None else total + part if one_length else total
        elif size.size:
            one_length = False
    norm = np.concatenate(norms) if norms else np.empty(0)
    cosine: float | None = None
    if one_length and total is not None:
        n = norm.size
        cosine = (float(total @ total) - float(norm @ norm)) / (n * (n - 1)) if n > 1 else 0.0
    frame = pl.DataFrame(
        {
            key: pl.concat(ids) if ids else pl.Series([], dtype=pl.String),
            "dimension": np.concatenate(lengths) if lengths else np.empty(0, np.int64),
            "norm": norm,
        }
    )
    return frame, cosine


def _vector_models(evidence: Evidence) -> View:
    """One row per encoder."""
    return View.of(evidence.snapshot.scan().group_by("model").agg(vectors=pl.len()).sort("model"))


def _vector_ids(evidence: Evidence) -> View:
    """One row per id that is only on one side: without a vector, or without its row."""
    key = _key(evidence.dataset)
    table = evidence.sibling_name("personas" if key == "persona_id" else "items")
    owner = evidence.needed(table)
    here, there = evidence.snapshot.scan().select(key), owner.scan().select(key)
    frame = pl.concat(
        [
            there.join(here, on=key, how="anti").with_columns(problem=pl.lit("has no vector")),
            here.join(there, on=key, how="anti").with_columns(problem=pl.lit(f"not in {table}")),
        ]
    ).collect(engine="streaming")
    return View(frame)


def _twins(evidence: Evidence) -> View:
    """One row: share of sampled vectors that have a near copy; examples are the pairs.

    All vectors are compared with at most two thousand of them, drawn evenly: the cost grows
    with the number of vectors, not with its square.
    """
    frame = evidence.snapshot.read([_key(evidence.dataset), "vector"])
    people = evidence.sibling("personas")
    if people is not None:
        # Imported texts may be alike, and so may summaries of real ratings.
        alike = pl.col("origin").is_in(["imported", "matched"])
        imported = people.scan().filter(alike).select("persona_id")
        foreign = imported.collect(engine="streaming")
        frame = frame.join(foreign, on="persona_id", how="anti", maintain_order="left")
    if not frame.height:
        return View.skip("there is no written description")
    ids = frame[_key(evidence.dataset)]
    size = frame["vector"].list.len()
    if size.n_unique() != 1 or not size[0]:
        return View.missing("the vectors differ in length")
    vectors = frame["vector"].list.to_array(int(size[0])).to_numpy().astype(np.float32)
    probe = np.linspace(0, len(vectors) - 1, min(len(vectors), PROBES)).astype(np.int64)
    twin = np.full(len(probe), -1, dtype=np.int64)
    nearest = np.full(len(probe), -1.0, dtype=np.float32)
    for start in range(0, len(vectors), BATCH):
        block = vectors[probe] @ vectors[start : start + BATCH].T
        here = (probe >= start) & (probe < start + block.shape[1])
        block[here, probe[here] - start] = -1.0
        best = block.argmax(axis=1)
        value = block[np.arange(len(probe)), best]
        closer = value > nearest
        nearest[closer], twin[closer] = value[closer], start + best[closer]
    same = nearest >= TWIN
    pairs = pl.DataFrame(
        {
            "persona_id": ids.gather(probe[same]),
            "other": ids.gather(twin[same]),
            "cosine": nearest[same].astype(np.float64),
        }
    ).sort("cosine", descending=True)
    share = float(same.mean()) if len(probe) else 0.0
    return View(pl.DataFrame({"share": [share]}), examples=pairs.head(10))


def _key(dataset: str) -> str:
    return "persona_id" if dataset.endswith(".persona_embeddings") else "item_id"


_VIEWS = {"vectors": _vectors, "spread": _spread, "models": _vector_models, "ids": _vector_ids}

#: View functions by dataset, then by name.
VECTOR_VIEWS: Mapping[str, Mapping[str, ViewFunction]] = {
    "persona_embeddings": {**_VIEWS, "twins": _twins},
    "item_embeddings": _VIEWS,
}
