"""Keys and values of a batch of answers that are being written.

Prompts of a batch begin alike: with the same instructions, often with the same shelf or person.
Their common keys and values are held once, and one matrix product asks them for all answers that
share them; read row by row they would take most of the time of a token on a CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.llm.engines.transformers._trie import Ids, common_prefix

if TYPE_CHECKING:
    import torch

    from pipelines.llm.engines.transformers._model import KeysValues

#: Room for tokens that is added when a cache is full (count).
_ROOM = 64
#: Tokens that could be read in the time that one more shared prefix takes (count).
_APART = 600
#: Most tokens that prompts have behind a prefix (count), tried in turn.
_OWN = (16, 48, 96, 192, 384)


@dataclass(frozen=True, slots=True)
class ReadPrompt:
    """A prompt that was read in a packed row.

    ``kv``: keys and values of the row's base and tokens; ``places``: those of the prompt's tokens
    in it, int64.
    """

    ids: Ids
    kv: KeysValues
    places: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """Keys and values, of shape (heads, tokens, size), of rows `start` to `stop` of a batch."""

    start: int
    stop: int
    keys: torch.Tensor
    values: torch.Tensor


def shared_spans(prompts: Sequence[Ids]) -> list[tuple[int, int, int]]:
    """Partition of sorted prompts into runs that share a prefix.

    Returns ``(start, stop, tokens)`` of each run. A prompt by itself is all prefix. What prompts
    have of their own is padded to the longest, so a few lengths of it are tried, and the one with
    the fewest tokens to read is taken.

    >>> prompts = np.array([[1] * 900 + [2], [1] * 900 + [3], [4] * 901])
    >>> shared_spans(prompts)
    [(0, 2, 900), (2, 3, 901)]
    """
    after = [common_prefix(prompt, other) for prompt, other in pairwise(prompts)]
    partitions = [_spans_of(list(map(len, prompts)), after, tail) for tail in _OWN]
    return min(partitions)[1]


def _spans_of(
    lengths: list[int], after: list[int], tail: int
) -> tuple[int, list[tuple[int, int, int]]]:
    """Tokens to read, and runs whose prompts have at most ``tail`` tokens behind the prefix."""
    # Of the first n prompts: tokens to read, where the last run begins, and what it shares.
    best: list[tuple[int, int, int]] = [(0, 0, 0)]
    for stop in range(1, len(lengths) + 1):
        longest = shared = lengths[stop - 1]
        option = (best[-1][0] + _APART + shared, stop - 1, shared)
        for start in range(stop - 2, -1, -1):
            shared, longest = min(shared, after[start]), max(longest, lengths[start])
            if longest - shared > tail:
                break
            option = min(option, (best[start][0] + _APART + shared, start, shared))
        best.append(option)
    spans, stop = [], len(lengths)
    while stop:
        _, start, shared = best[stop]
        spans.append((start, stop, shared))
        stop = start
    behind = max(max(lengths[start:stop]) - shared for start, stop, shared in spans)
    return best[-1][0] + behind * len(lengths), spans[::-1]


def writing_cache(prompts: Sequence[ReadPrompt], *, share: bool) -> Any:
    """A cache of transformers with a row per prompt, sorted by their tokens.

    A prompt's last token is left out: `generate` reads it, and its logits are the first that are
    drawn from. With ``share`` common prefixes are held once, for an attention that looks for them
    (:func:`attend`).
    """
    import torch
    from transformers.cache_utils import Cache

    read = [prompt.places[:-1] for prompt in prompts]
    length = max(map(len, read))
    spans = shared_spans([prompt.ids[:-1] for prompt in prompts]) if share else []
    held = np.zeros(len(prompts), np.int64)
    for start, stop, tokens in spans:
        held[start:stop] = tokens
    longest = max(len(places) - cached for places, cached in zip(read, held, strict=True))
    index = np.zeros((len(prompts), longest), np.int64)
    for row, places, cached in zip(index, read, held, strict=True):
        row[longest - len(places) + cached :] = places[cached:]
    pads = torch.tensor([longest - len(p) + int(k) for p, k in zip(read, held, strict=True)])
    # Rows of one pass are neighbours: they are picked together.
    starts = [n for n, prompt in enumerate(prompts) if n == 0 or prompt.kv is not prompts[n - 1].kv]
    parts = [slice(n, m) for n, m in pairwise([*starts, len(prompts)])]
    layers = []
    with torch.inference_mode():
        for layer in range(len(prompts[0].kv)):
            keys_values = [
                torch.cat([_picked(prompts[p.start].kv[layer][half], index[p]) for p in parts])
                for half in (0, 1)
            ]
            prefixes = [
                SharedPrefix(
                    start,
                    stop,
                    *(_picked(half, read[start][None, :tokens])[0] for half in kv[layer]),
                )
                for start, stop, tokens in spans
                if tokens
                for kv in [prompts[start].kv]
            ]
            layers.append(_layer()(*keys_values, length, pads, prefixes))
    return Cache(layers=layers)


def _picked(kv: torch.Tensor, index: npt.NDArray[np.int64]) -> torch.Tensor:
    """From (1, heads, row, size), by an index (prompts, tokens): (prompts, heads, tokens, size)."""
    import torch

    places = torch.from_numpy(index).to(kv.device)
    return kv[0][:, places].transpose(0, 1).contiguous()


def rows_of(cache: Any, rows: Sequence[int], padding: int) -> Any:
    """Some rows of a cache, ascending, without the padding that they have in common (tokens)."""
    import torch
    from transformers.cache_utils import Cache

    with torch.inference_mode():
        return Cache(layers=[layer.rows(rows, padding) for layer in cache.layers])


@lru_cache(maxsize=1)
def _layer() -> Any:
    """The class of a cache layer with shared prefixes and room to grow.

    The one of transformers copies all its keys and values at every token.
    """
    import torch
    from transformers.cache_utils import DynamicLayer

    class WritingLayer(DynamicLayer):  # type: ignore[no-untyped-call]
        def __init__(
            self,
            keys: torch.Tensor,
            values: torch.Tensor,
            length: int,
            pads: torch.Tensor,
            prefixes: Sequence[SharedPrefix],
        ) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.dtype, self.device = keys.dtype, keys.device
            self.is_initialized = True
            self.length, self.pads, self.prefixes = length, pads, prefixes
            self._room_k, self._room_v = with_room(keys), with_room(values)
            self._view(keys.shape[2])

        def _view(self, tokens: int) -> None:
            self.keys = self._room_k[:, :, :tokens]
            self.values = self._room_v[:, :, :tokens]

        def update(
            self, key_states: torch.Tensor, value_states: torch.Tensor, *_: Any, **__: Any
        ) -> tuple[torch.Tensor, torch.Tensor]:
            assert self.keys is not None
            assert self.values is not None
            have, more = self.keys.shape[2], key_states.shape[2]
            if have + more > self._room_k.shape[2]:
                self._room_k, self._room_v = with_room(self.keys), with_room(self.values)
            self._room_k[:, :, have : have + more] = key_states
            self._room_v[:, :, have : have + more] = value_states
            self._view(have + more)
            self.length += more
            if self.prefixes:
                self.keys.layer = self  # type: ignore[attr-defined]  # for the attention
            return self.keys, self.values

        def get_seq_length(self) -> int:
            return self.length

        def rows(self, rows: Sequence[int], padding: int) -> WritingLayer:
            """Some of the rows, ascending, without their common padding."""
            assert self.keys is not None
            assert self.values is not None
            spans = [(p, np.searchsorted(rows, [p.start, p.stop]).tolist()) for p in self.prefixes]
            pads = self.pads[list(rows)]
            spare = int(pads.min()) if self.prefixes else padding
            return WritingLayer(
                self.keys[rows, :, spare:],
                self.values[rows, :, spare:],
                self.length - padding,
                pads - spare,
                [
                    SharedPrefix(start, stop, prefix.keys, prefix.values)
                    for prefix, (start, stop) in spans
                    if start < stop
                ],
            )

    def with_room(tensor: torch.Tensor) -> torch.Tensor:
        rows, heads, tokens, size = tensor.shape
        shape = (rows, heads, tokens + _ROOM, size)
        # Zeros, because attention reads the whole room.
        room = torch.zeros(shape, dtype=tensor.dtype, device=tensor.device)
        room[:, :, :tokens] = tensor
        return room

    return WritingLayer
