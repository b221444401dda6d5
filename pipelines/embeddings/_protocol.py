"""Protocol of text encoders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

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
