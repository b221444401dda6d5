"""Text embeddings of items and personas.

The default encoder is bundled, verified against a pinned digest and needs no network. Nothing
here imports torch before an encoder is loaded.
"""

from pipelines.config import EmbeddingSettings, RuntimeSettings
from pipelines.embeddings._minilm import BundledEmbedder
from pipelines.embeddings._protocol import Embedder, Progress
from pipelines.embeddings._sentence_transformers import (
    BUNDLED,
    BUNDLED_LICENCE,
    BUNDLED_SHA256,
    SentenceTransformersEmbedder,
    bundled_model_folder,
)
from pipelines.embeddings._table import embed_table, item_text, persona_text, text_sha256

#: Bumped whenever the same rows and encoder give other texts or vectors.
CODE_VERSION = "3"

__all__ = [
    "BUNDLED",
    "BUNDLED_LICENCE",
    "BUNDLED_SHA256",
    "CODE_VERSION",
    "BundledEmbedder",
    "Embedder",
    "Progress",
    "SentenceTransformersEmbedder",
    "bundled_model_folder",
    "embed_table",
    "item_text",
    "load_embedder",
    "persona_text",
    "text_sha256",
]


def load_embedder(settings: EmbeddingSettings, runtime: RuntimeSettings) -> Embedder:
    """The encoder that the settings name."""
    if (settings.model, settings.dtype) == (BUNDLED, "float32"):
        return BundledEmbedder(threads=runtime.threads)
    return SentenceTransformersEmbedder(
        settings.model, dtype=settings.dtype, threads=runtime.threads
    )
