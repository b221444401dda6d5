"""The bundled encoder in NumPy: a text's vector depends on the text alone.

Torch's matrix product selects its kernels by the processor's maker, whatever its settings, and its
rounding depends on the texts of the same batch (decision 17).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pipelines.embeddings._sentence_transformers import (
    BUNDLED,
    BUNDLED_SHA256,
    bundled_model_folder,
    verified,
)
from pipelines.instructions import portable
from pipelines.progress import advance

_Floats = npt.NDArray[np.float32]
#: Architecture of the pinned weights (its ``config.json``), and its window (tokens).
_LAYERS, _HEADS, _WINDOW = 6, 12, 256
_EPSILON = np.float32(1e-12)
#: Texts that a thread takes at a time, and tokens that are multiplied at once.
_TEXTS, _TOKENS = 16, 384
#: Rows that OpenBLAS's AVX2 kernel takes at a time; a row's rounding depends on its place among
#: them, so that every text is padded to a multiple.
_GROUP = 12


class _Linear(NamedTuple):
    """A linear layer, ``(in, out)`` and ``(out,)``; or scale and shift of a normalisation."""

    weight: _Floats
    bias: _Floats

    def __call__(self, x: _Floats) -> _Floats:
        out = x @ self.weight
        out += self.bias
        return out

    def norm(self, x: _Floats) -> _Floats:
        """`x` normalised in place by rows."""
        x -= x.mean(axis=-1, keepdims=True)
        x /= np.sqrt((x * x).mean(axis=-1, keepdims=True) + _EPSILON)
        x *= self.weight
        x += self.bias
        return x


class _Layer(NamedTuple):
    attention: _Linear
    heads: _Linear
    heads_norm: _Linear
    inner: _Linear
    outer: _Linear
    outer_norm: _Linear


class BundledEmbedder:
    """all-MiniLM-L6-v2 on the CPU, in float32.

    Within 1e-6 of what sentence-transformers computes. Where `pipelines.instructions.portable`
    holds, vectors are equal bytes on every x86-64 processor, with any number of threads, and
    whatever other texts are encoded with them. ``threads`` (count) encode side by side; 0 takes
    every core. Raises IntegrityError if the bundled weights are not the pinned ones.
    """

    def __init__(self, *, threads: int = 0) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        folder = bundled_model_folder()
        weights = folder / "model.safetensors"
        digest = verified(weights, BUNDLED_SHA256)
        stored: dict[str, _Floats] = load_file(weights)

        def linear(*names: str) -> _Linear:
            # Linear layers are stored as (out, in); the product wants (in, out).
            parts = [stored[f"{name}.weight"].T for name in names]
            return _Linear(
                np.ascontiguousarray(np.concatenate(parts, axis=-1)),
                np.concatenate([stored[f"{name}.bias"] for name in names]),
            )

        self._words = stored["embeddings.word_embeddings.weight"]
        self._places = (
            stored["embeddings.position_embeddings.weight"][:_WINDOW]
            + stored["embeddings.token_type_embeddings.weight"][0]
        )
        self._norm = linear("embeddings.LayerNorm")
        self._layers = [
            _Layer(
                linear(*(f"{at}.attention.self.{part}" for part in ("query", "key", "value"))),
                linear(f"{at}.attention.output.dense"),
                linear(f"{at}.attention.output.LayerNorm"),
                linear(f"{at}.intermediate.dense"),
                linear(f"{at}.output.dense"),
                linear(f"{at}.output.LayerNorm"),
            )
            for at in (f"encoder.layer.{number}" for number in range(_LAYERS))
        ]
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(_WINDOW)
        self._threads = threads or len(os.sched_getaffinity(0))
        # Other kernels than AVX2's may round by other groups.
        self._tokens = _TOKENS if portable() else 1
        self.name = f"{BUNDLED}@{digest[:16]}"

    @property
    def dimension(self) -> int:
        """384."""
        return int(self._norm.bias.size)

    def encode(self, texts: Sequence[str]) -> _Floats:
        """Unit vectors of shape (texts, dimension); texts beyond 256 tokens are cut."""
        from threadpoolctl import threadpool_limits

        out = np.zeros((len(texts), self.dimension), dtype=np.float32)
        shares = [texts[at : at + _TEXTS] for at in range(0, len(texts), _TEXTS)]
        done = 0
        # OpenBLAS splits its sums by the number of its threads; texts are independent.
        with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(self._threads) as pool:
            for vectors in pool.map(self._share, shares):
                out[done : done + len(vectors)] = vectors
                done += len(vectors)
                advance("embedding", done, len(texts))
        return out

    def _share(self, texts: Sequence[str]) -> _Floats:
        tokens = [self._tokenizer.encode(text).ids for text in texts]
        return np.concatenate([self._vectors(batch) for batch in self._batches(tokens)])

    def _batches(self, texts: Sequence[list[int]]) -> Iterator[list[list[int]]]:
        batch: list[list[int]] = []
        for text in texts:
            if batch and sum(map(_padded, batch)) + _padded(text) > self._tokens:
                yield batch
                batch = []
            batch.append(text)
        yield batch

    def _vectors(self, texts: Sequence[list[int]]) -> _Floats:
        ends = np.cumsum([_padded(text) for text in texts])
        places = [
            slice(end - _padded(text), end - _padded(text) + len(text))
            for end, text in zip(ends, texts, strict=True)
        ]
        x = np.zeros((ends[-1], self.dimension), np.float32)
        for place, text in zip(places, texts, strict=True):
            np.add(self._words[text], self._places[: len(text)], out=x[place])
        self._norm.norm(x)
        heads = np.zeros_like(x)
        for layer in self._layers:
            attention = layer.attention(x)
            for place in places:
                _attend(attention[place], heads[place])
            x = layer.heads_norm.norm(layer.heads(heads) + x)
            inner = layer.inner(x)
            _gelu(inner)
            x = layer.outer_norm.norm(layer.outer(inner) + x)
        means = np.stack([x[place].mean(axis=0) for place in places])
        return np.asarray(means / np.sqrt((means * means).sum(axis=1, keepdims=True)), np.float32)


def _padded(text: Sequence[int]) -> int:
    return -(-len(text) // _GROUP) * _GROUP


def _attend(attention: _Floats, out: _Floats) -> None:
    """Write the heads' values of one text, whose queries, keys and values stand side by side."""
    tokens = len(attention)
    query, key, value = attention.reshape(tokens, 3, _HEADS, -1).transpose(1, 2, 0, 3)
    query *= np.float32(1 / np.sqrt(query.shape[-1]))
    heads = out.reshape(tokens, _HEADS, -1).transpose(1, 0, 2)
    # As many heads at once as a core's own cache holds.
    step = max(1, 2**16 // tokens**2)
    for some in (slice(at, at + step) for at in range(0, _HEADS, step)):
        shares = query[some] @ key[some].transpose(0, 2, 1)
        shares -= shares.max(axis=-1, keepdims=True)
        np.exp(shares, out=shares)
        heads[some] = (shares @ value[some]) / shares.sum(axis=-1, keepdims=True)


def _gelu(x: _Floats) -> None:
    """Gaussian error linear units in place.

    The error function is Abramowitz and Stegun's 7.1.26, whose error is at most 1.5e-7; SciPy's
    takes three times as long.
    """
    terms = np.array([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592], "f4")
    # A few rows at a time stay in a core's own cache.
    for rows in (x[at : at + 48] for at in range(0, len(x), 48)):
        size = np.abs(rows)
        size *= np.float32(np.sqrt(0.5))
        inverse = 1 / (size * np.float32(0.3275911) + 1)
        tail = inverse * terms[0]
        for term in terms[1:]:
            tail += term
            tail *= inverse
        size *= size
        np.negative(size, out=size)
        tail *= np.exp(size, out=size)
        # The error function of the size is 1 - tail.
        np.subtract(1, tail, out=tail)
        np.copysign(tail, rows, out=tail)
        tail += 1
        tail *= np.float32(0.5)
        rows *= tail
