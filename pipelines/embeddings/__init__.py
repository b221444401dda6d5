"""Text embeddings of items and personas.

The default encoder is bundled, verified against a pinned digest and needs no network. Nothing
here imports torch before an encoder is loaded.
"""

from pipelines.embeddings._protocol import Embedder, Progress
from pipelines.embeddings._sentence_transformers import (
    BUNDLED,
    BUNDLED_LICENCE,
    BUNDLED_SHA256,
    SentenceTransformersEmbedder,
    bundled_model_folder,
    load_embedder,
)
from pipelines.embeddings._table import embed_table, item_text, persona_text, text_sha256

#: Bumped whenever the same rows and encoder give other texts or vectors.
CODE_VERSION = "1"

__all__ = [
    "BUNDLED",
    "BUNDLED_LICENCE",
    "BUNDLED_SHA256",
    "CODE_VERSION",
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
