"""Conformance tests for encoders: inherit, and return yours from ``make``."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from pipelines.embeddings import Embedder
from pipelines.progress import listening

__all__ = ["EmbedderContract"]


class EmbedderContract(ABC):
    """Conformance tests of :class:`pipelines.embeddings.Embedder`."""

    texts = ("a", "A space opera with robots.", "Zwei Brüder im Wald. " * 40, "", "映画")

    @abstractmethod
    def make(self) -> Embedder:
        """The encoder under test."""

    def test_vectors_have_length_one_and_the_stated_dimension(self) -> None:
        """Float32, shape (texts, dimension), unit length."""
        embedder = self.make()
        vectors = embedder.encode(self.texts)
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(self.texts), embedder.dimension)
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-4)

    def test_a_vector_does_not_depend_on_its_neighbours(self) -> None:
        """Order and company of a text move its vector by rounding only."""
        embedder = self.make()
        together = embedder.encode(self.texts)
        reverse = embedder.encode(self.texts[::-1])[::-1]
        alone = np.concatenate([embedder.encode([t]) for t in self.texts])
        assert (together * reverse).sum(axis=1).min() > 0.999
        assert (together * alone).sum(axis=1).min() > 0.999

    def test_no_text_gives_no_vector(self) -> None:
        """An empty list is not an error."""
        embedder = self.make()
        assert embedder.encode([]).shape == (0, embedder.dimension)

    def test_the_name_is_stable_and_says_which_weights(self) -> None:
        """`<model>@<digest>`: equal names mean equal vectors."""
        name = self.make().name
        assert name == self.make().name
        assert len(name.partition("@")[2]) >= 8

    def test_progress_ends_at_the_number_of_texts(self) -> None:
        """Counts rise and end at (all, all)."""
        seen: list[tuple[int, int | None]] = []
        with listening(lambda _, done, of: seen.append((done, of))):
            self.make().encode(self.texts)
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert seen[-1] == (len(self.texts), len(self.texts))
