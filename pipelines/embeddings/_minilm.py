"""The bundled encoder in NumPy: a text's vector depends on the text alone.

Torch's matrix product takes other kernels on processors of other makers, whatever it is told, and
its rounding depends on the texts of the same batch (decision 17).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from pipelines.embeddings._protocol import Progress
from pipelines.embeddings._sentence_transformers import (
    BUNDLED,
    BUNDLED_SHA256,
    bundled_model_folder,
    verified,
)

_Floats = npt.NDArray[np.float32]
#: Architecture of the pinned weights (its ``config.json``), and its window (tokens).
_LAYERS, _HEADS, _WINDOW = 6, 12, 256
_EPSILON = np.float32(1e-12)


class BundledEmbedder:
    """all-MiniLM-L6-v2 on the CPU, in float32, each text by itself.

    Within 1e-6 of what sentence-transformers computes. Where `pipelines.instructions.portable`
    holds, vectors are equal bytes on every x86-64 processor, with any number of threads.

    Parameters
    ----------
    threads
        Texts encoded side by side (count); 0 takes every core.

    Raises
    ------
    IntegrityError
        If the bundled weights are not the pinned ones.
    """

    def __init__(self, *, threads: int = 0) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        folder = bundled_model_folder()
        weights = folder / "model.safetensors"
        digest = verified(weights, BUNDLED_SHA256)
        # Linear layers are stored as (out, in); the product wants (in, out).
        self._weights: dict[str, _Floats] = {
            name: np.ascontiguousarray(w.T) if w.ndim == 2 and name.startswith("encoder") else w
            for name, w in load_file(weights).items()
        }
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_WINDOW)
        self._threads = threads or len(os.sched_getaffinity(0))
        self._name = f"{BUNDLED}@{digest[:16]}"

    @property
    def name(self) -> str:
        """``all-MiniLM-L6-v2@53aa51172d142c89``."""
        return self._name

    @property
    def dimension(self) -> int:
        """384."""
        return int(self._weights["embeddings.LayerNorm.bias"].size)

    def encode(self, texts: Sequence[str], *, progress: Progress | None = None) -> _Floats:
        """Unit vectors of shape (texts, dimension); texts beyond 256 tokens are cut."""
        from threadpoolctl import threadpool_limits

        out = np.zeros((len(texts), self.dimension), dtype=np.float32)
        # OpenBLAS splits its sums by the number of its threads; texts are independent.
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(self._threads) as pool:
            for row, vector in enumerate(pool.map(self._vector, texts)):
                out[row] = vector
                if progress is not None:
                    progress(row + 1, len(texts))
        return out

    def _vector(self, text: str) -> _Floats:
        from scipy.special import erf

        ids = self._tokenizer.encode(text).ids
        x = (
            self._weights["embeddings.word_embeddings.weight"][ids]
            + self._weights["embeddings.position_embeddings.weight"][: len(ids)]
            + self._weights["embeddings.token_type_embeddings.weight"][0]
        )
        x = self._normed(x, "embeddings.LayerNorm")
        for number in range(_LAYERS):
            layer = f"encoder.layer.{number}"
            query, key, value = (
                self._linear(x, f"{layer}.attention.self.{part}")
                .reshape(len(ids), _HEADS, -1)
                .transpose(1, 0, 2)
                for part in ("query", "key", "value")
            )
            scores = query @ key.transpose(0, 2, 1) / np.float32(np.sqrt(query.shape[-1]))
            shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
            shares /= shares.sum(axis=-1, keepdims=True)
            heads = (shares @ value).transpose(1, 0, 2).reshape(len(ids), -1)
            x = x + self._linear(heads, f"{layer}.attention.output.dense")
            x = self._normed(x, f"{layer}.attention.output.LayerNorm")
            inner = self._linear(x, f"{layer}.intermediate.dense")
            inner *= np.float32(0.5) * (1 + erf(inner * np.float32(np.sqrt(0.5))))  # GELU
            x = x + self._linear(inner, f"{layer}.output.dense")
            x = self._normed(x, f"{layer}.output.LayerNorm")
        mean = x.mean(axis=0)
        return np.asarray(mean / np.sqrt((mean * mean).sum()), np.float32)

    def _linear(self, x: _Floats, name: str) -> _Floats:
        return x @ self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]

    def _normed(self, x: _Floats, name: str) -> _Floats:
        x = x - x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + _EPSILON)
        return x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
