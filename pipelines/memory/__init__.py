"""Episodic memories of simulated users (SimUSER, section 3.2.3).

A memory is an immutable list of entries with a vector each; a visit extends it. What is recalled
are the entries most similar to a query and to questions that the agent asks itself about it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from pipelines.errors import ConfigError, ContractError
from pipelines.retrieval import item_vectors

if TYPE_CHECKING:
    import polars as pl

    from pipelines.config import Settings
    from pipelines.embeddings import Embedder

__all__ = [
    "KINDS",
    "EpisodicMemory",
    "Kind",
    "Opinion",
    "Recalled",
    "TextVectors",
    "opinion_of",
    "recall_many",
]

Kind = Literal["initial", "action", "reflection"]
#: Training interactions; what an agent did; what it concluded.
KINDS: tuple[Kind, ...] = ("initial", "action", "reflection")
Opinion = Literal["liked", "disliked", "neutral"]
#: Ratings on 1-5 from which an item was liked, and up to which it was disliked.
LIKED_FROM, DISLIKED_TO = 4.0, 2.0
#: Entries that are recalled (SimUSER's k1).
RECALLED = 5
#: Decimals of similarities that entries are ranked by: an encoder's last digits depend on what
#: else is in its batch.
_DECIMALS = 5
#: Texts whose vectors are held at a time.
_TEXTS = 100_000

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]


def opinion_of(rating: float) -> Opinion:
    """Opinion of an item that a rating on 1-5 expresses.

    >>> [opinion_of(r) for r in (4, 3.5, 2)]
    ['liked', 'neutral', 'disliked']
    """
    if rating >= LIKED_FROM:
        return "liked"
    return "disliked" if rating <= DISLIKED_TO else "neutral"


class TextVectors:
    """Unit vectors of texts, each text encoded once.

    At most ``size`` vectors are held; beyond it the ones used longest ago are dropped.
    """

    def __init__(self, embedder: Embedder, size: int = _TEXTS) -> None:
        if size < 1:
            raise ConfigError(
                f"{size} vectors can't be held", where="TextVectors", hint="1 or more"
            )
        self.embedder = embedder
        #: Texts that were encoded so far (count).
        self.encoded = 0
        self._size = size
        self._known: OrderedDict[str, Floats] = OrderedDict()

    @classmethod
    def open(cls, settings: Settings) -> TextVectors:
        """With the encoder of the settings.

        Raises
        ------
        IntegrityError, EngineError
            If it can't be loaded.
        """
        from pipelines.embeddings import load_embedder

        return cls(load_embedder(settings.embedding, settings.runtime))

    def of_items(self, items: pl.DataFrame, embeddings: pl.DataFrame) -> Floats:
        """Stored unit vectors of `items`, zero where there is none, of shape (items, dimension).

        ``items`` have ``item_id``, ``embeddings`` is the table `item_embeddings`. Raises
        ConfigError if the table was made by another encoder than that of texts.
        """
        models = embeddings["model"].unique().sort().to_list()
        if models != [self.embedder.name]:
            raise ConfigError(
                f"items were embedded by {', '.join(models) or 'nothing'}, "
                f"texts are by {self.embedder.name}",
                where="item_embeddings",
                hint="set embedding.model to the release's encoder",
            )
        return item_vectors(items, embeddings)

    def __call__(self, texts: Sequence[str]) -> Floats:
        """Vectors of shape (texts, dimension), in the order of the texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        fresh = dict(zip(new, self.embedder.encode(new), strict=True)) if new else {}
        self.encoded += len(new)
        out = np.empty((len(texts), self.embedder.dimension), np.float32)
        for row, text in enumerate(texts):
            out[row] = self._known[text] if text not in fresh else fresh[text]
        for text in dict.fromkeys(texts):
            # A copy: a row would keep its whole batch alive.
            self._known[text] = fresh[text].copy() if text in fresh else self._known[text]
            self._known.move_to_end(text)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return out


@dataclass(frozen=True)
class EpisodicMemory:
    """The entries of one agent, oldest first; an entry's number is its place."""

    kinds: tuple[Kind, ...]
    #: Item number of each entry, -1 for none, of shape (entries,).
    items: Ints
    texts: tuple[str, ...]
    #: Unit vectors (zero where an entry has none), of shape (entries, dimension).
    vectors: Floats

    def __post_init__(self) -> None:
        count = len(self.kinds)
        if not count == len(self.items) == len(self.texts) == len(self.vectors):
            raise ContractError(
                "entries need one kind, item, text and vector each",
                where=f"{count} kinds, {len(self.items)} items, {len(self.texts)} texts, "
                f"{len(self.vectors)} vectors",
            )

    def __len__(self) -> int:
        return len(self.kinds)

    @classmethod
    def initial(cls, items: Ints, texts: Sequence[str], vectors: Floats) -> EpisodicMemory:
        """A memory that begins with training interactions, oldest first.

        ``items`` are numbers, of shape (h,), ``texts`` those of the entries, ``vectors`` the stored
        ones of all items (:meth:`TextVectors.of_items`), so that no history is encoded.
        """
        kind: Kind = "initial"
        return cls((kind,) * len(items), items, tuple(texts), vectors[items])

    def extended(
        self, kinds: Sequence[Kind], items: Ints, texts: Sequence[str], vectors: Floats
    ) -> EpisodicMemory:
        """With further entries, numbered on; this memory stays as it is."""
        return EpisodicMemory(
            (*self.kinds, *kinds),
            np.concatenate([self.items, items]),
            (*self.texts, *texts),
            np.concatenate([self.vectors, vectors]),
        )


@dataclass(frozen=True)
class Recalled:
    """Entries that a query brought back, best first."""

    #: Numbers of the entries.
    entries: Ints
    #: Cosine with the query or question that is nearest, of the same shape.
    scores: npt.NDArray[np.float64]


def recall_many(
    memories: Sequence[EpisodicMemory], queries: Sequence[Floats], k: int = RECALLED
) -> list[Recalled]:
    """The k entries most similar to any of an agent's queries (SimUSER, formula 3).

    ``queries`` are, per memory, unit vectors of the agent's query and self-asked questions, of
    shape (queries, dimension). Scores are merged by the best; ties go to the newer entry. Raises
    ContractError if `k` is below 1, an agent has no query, or the arguments differ in length.
    """
    if k < 1:
        raise ContractError("at least one entry must be requested", where=f"k={k}")
    if len(memories) != len(queries):
        raise ContractError(
            "every memory needs its queries",
            where=f"{len(memories)} memories, {len(queries)} lists of queries",
        )
    out: list[Recalled] = []
    for memory, asked in zip(memories, queries, strict=True):
        if not len(asked):
            raise ContractError("an agent has no query", where=f"memory {len(out)}")
        scores = np.round(np.max(memory.vectors @ asked.T, axis=1, initial=-1.0), _DECIMALS)
        newest = np.arange(len(memory))[::-1]
        order = newest[np.argsort(-scores[newest], kind="stable")][:k]
        out.append(Recalled(order.astype(np.int64), scores[order].astype(np.float64)))
    return out
