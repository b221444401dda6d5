"""Keys and values of answers that are being written, a row per answer, aligned at their end."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pipelines.llm.engines.transformers._model import KeysValues

__all__ = ["Batch"]

#: Room for tokens that is added when a cache is full (count).
_ROOM = 64


class Batch:
    """Answers that are decoded together.

    Attributes
    ----------
    cache
        What the model reads and grows: shape (answers, heads, tokens, size) per layer.
    seen
        Which of the tokens are an answer's own; those to the left of a shorter prompt are not.
        Shape (answers, tokens).
    """

    def __init__(self, kv: KeysValues, seen: torch.Tensor) -> None:
        from transformers.cache_utils import Cache

        #: What the model reads and grows.
        self.cache: Any = Cache(layers=[_growing_layer()(k, v) for k, v in kv])
        self.seen = seen

    @classmethod
    def of_rows(cls, kv: KeysValues, places: Sequence[torch.Tensor]) -> Batch:
        """Answers whose prompts stand in one packed row.

        Parameters
        ----------
        kv
            Keys and values of the row and its base.
        places
            Per answer, the places of its prompt's tokens in order.
        """
        import torch

        longest = max(len(p) for p in places)
        device = kv[0][0].device
        index = torch.zeros((len(places), longest), dtype=torch.long)
        seen = torch.zeros((len(places), longest), dtype=torch.bool)
        for row, at in enumerate(places):
            index[row, longest - len(at) :] = at
            seen[row, longest - len(at) :] = True
        index = index.to(device)
        with torch.inference_mode():
            picked = [(_pick(k, index), _pick(v, index)) for k, v in kv]
        return cls(picked, seen.to(device))

    def __len__(self) -> int:
        return int(self.seen.shape[0])

    @property
    def tokens(self) -> int:
        """Tokens per answer, unseen ones included (count)."""
        return int(self.seen.shape[1])

    def grow(self) -> torch.Tensor:
        """Make room for one token; return what each answer sees with it."""
        import torch

        new = torch.ones((len(self), 1), dtype=torch.bool, device=self.seen.device)
        self.seen = torch.cat([self.seen, new], dim=1)
        return self.seen

    def keep(self, rows: Sequence[int]) -> Batch:
        """The batch with only these answers, and without tokens that none of them sees."""
        import torch

        with torch.inference_mode():
            index = torch.tensor(rows, device=self.seen.device)
            seen = self.seen[index]
            first = int(seen.any(dim=0).int().argmax())
            kv = [
                (layer.keys[index, :, first:], layer.values[index, :, first:])
                for layer in self.cache.layers
            ]
            return Batch(kv, seen[:, first:])

    def join(self, other: Batch) -> Batch:
        """Both batches as one."""
        import torch

        longest = max(self.tokens, other.tokens)
        with torch.inference_mode():
            kv = []
            for mine, theirs in zip(self.cache.layers, other.cache.layers, strict=True):
                keys = torch.cat([_padded(mine.keys, longest), _padded(theirs.keys, longest)])
                values = torch.cat([_padded(mine.values, longest), _padded(theirs.values, longest)])
                kv.append((keys, values))
            seen = torch.cat(
                [_padded(self.seen, longest, dim=1), _padded(other.seen, longest, dim=1)]
            )
            return Batch(kv, seen)


def _pick(kv: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """From (1, heads, row, size), by an index (answers, tokens): (answers, heads, tokens, size)."""
    return kv[0][:, index].transpose(0, 1).contiguous()


def _padded(tensor: torch.Tensor, size: int, *, dim: int = 2) -> torch.Tensor:
    """The tensor with zeros before it along a dimension."""
    missing = size - tensor.shape[dim]
    if not missing:
        return tensor
    import torch

    shape = list(tensor.shape)
    shape[dim] = missing
    zeros = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
    return torch.cat([zeros, tensor], dim=dim)


@lru_cache(maxsize=1)
def _growing_layer() -> Any:
    """The class of a cache layer with room to grow.

    The one of transformers copies all its keys and values at every token.
    """
    from transformers.cache_utils import DynamicLayer

    class GrowingLayer(DynamicLayer):  # type: ignore[no-untyped-call]
        def __init__(self, keys: torch.Tensor, values: torch.Tensor) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.dtype, self.device = keys.dtype, keys.device
            self.keys, self.values = keys, values
            self._room_k, self._room_v = keys, values
            self.is_initialized = True

        def update(
            self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            assert self.keys is not None
            have, more = self.keys.shape[2], key_states.shape[2]
            if have + more > self._room_k.shape[2]:
                self._room_k = _with_room(self.keys, more + _ROOM)
                self._room_v = _with_room(self.values, more + _ROOM)
            self._room_k[:, :, have : have + more] = key_states
            self._room_v[:, :, have : have + more] = value_states
            self.keys = self._room_k[:, :, : have + more]
            self.values = self._room_v[:, :, : have + more]
            return self.keys, self.values

    return GrowingLayer


def _with_room(tensor: Any, more: int) -> torch.Tensor:
    import torch

    rows, heads, tokens, size = tensor.shape
    shape = (rows, heads, tokens + more, size)
    room = torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
    room[:, :, :tokens] = tensor
    return room
