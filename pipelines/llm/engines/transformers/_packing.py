"""Packed batches: prompts laid out as prefix tries, and what is kept of their prefixes."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipelines.llm.engines.transformers._model import KeysValues, Model, RowResult
from pipelines.llm.engines.transformers._requests import PreparedRequest
from pipelines.llm.engines.transformers._trie import (
    MIN_BASE,
    Ids,
    PrefixTrie,
    Row,
    common_prefix,
    plan_rows,
    sort_key,
)

#: Share of a cached prefix that a new one repeats to take its place.
_SUPERSEDED = 0.75


@dataclass(frozen=True, slots=True)
class _Entry:
    ids: Ids
    kv: KeysValues


class PrefixCache:
    """The prefixes last used, within ``budget`` tokens.

    A single longer prefix is kept until the next one is computed. A prefix takes the place of one
    that it shares most of, such as that of the same conversation a turn before.
    """

    def __init__(self, model: Model, budget: int) -> None:
        self._model = model
        self._budget = budget
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self.tokens = 0

    def longest(self, ids: Ids) -> int:
        """Length of a prompt's longest cached prefix (tokens)."""
        return max((common_prefix(k.ids, ids) for k in self._entries.values()), default=0)

    def get(self, ids: Ids) -> tuple[KeysValues, int]:
        """Keys and values of a prefix, and how many of its tokens were known before.

        The part that is cached, from any prefix that begins alike, is not computed again.
        """
        key = ids.tobytes()
        name, cached = max(
            ((n, common_prefix(k.ids, ids)) for n, k in self._entries.items()),
            key=lambda match: match[1],
            default=(b"", 0),
        )
        kv = _first(self._entries[name].kv, cached) if cached else None
        if cached == len(ids):
            assert kv is not None
            self._entries.move_to_end(name)
            return kv, cached
        grown = self._model.extend(kv, ids[cached:])
        if cached and cached >= _SUPERSEDED * len(self._entries[name].ids):
            self.tokens -= len(self._entries.pop(name).ids)
        self._keep(key, _Entry(ids, grown))
        return grown, cached

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self.tokens = 0

    def _keep(self, key: bytes, entry: _Entry) -> None:
        self._entries[key] = entry
        self.tokens += len(entry.ids)
        while self.tokens > self._budget and len(self._entries) > 1:
            _, dropped = self._entries.popitem(last=False)
            self.tokens -= len(dropped.ids)


def _first(kv: KeysValues, tokens: int) -> KeysValues:
    return [(k[:, :, :tokens], v[:, :, :tokens]) for k, v in kv]


@dataclass(slots=True)
class PackedBatch:
    """A row with its prompts laid out; a caller may add tokens before running it.

    ``ends`` holds, per prompt, its number among the requests and the place of its last token;
    ``paths`` the places of its tokens behind the base.
    """

    model: Model
    kv: KeysValues | None
    trie: PrefixTrie
    ends: list[tuple[int, int]] = field(default_factory=list)
    paths: list[npt.NDArray[np.int64]] = field(default_factory=list)

    def run(
        self,
        reads: Sequence[int],
        *,
        tokens: Sequence[Sequence[int]] = (),
        keep: bool = False,
    ) -> RowResult:
        """The forward pass; see :meth:`Model.row`."""
        return self.model.row(self.kv, self.trie, reads, tokens=tokens, keep=keep)


class BatchPacker:
    """Lays out prompts in rows of ``row_tokens``; shared beginnings are computed once.

    Keys and values of ``kept_tokens`` tokens of prefixes are kept for later prompts.
    """

    def __init__(self, model: Model, row_tokens: int, kept_tokens: int) -> None:
        self._model = model
        self.row_tokens = row_tokens
        self.prefixes = PrefixCache(model, kept_tokens)

    @property
    def part_tokens(self) -> int:
        """Most tokens to read behind one prompt in one row (count)."""
        return max(1, min(self.row_tokens // 2, self._model.row_reads))

    def rows(
        self, requests: Sequence[PreparedRequest], extra: Sequence[int]
    ) -> Iterator[PackedBatch]:
        """Rows that hold every request once, laid out and not yet run.

        The caller will add ``extra`` tokens behind each request. A row is to be run before the next
        is asked for. Each request's `began` and `cached` are set.
        """
        order = sorted(range(len(requests)), key=lambda n: sort_key(requests[n].prompt))
        prompts = [requests[n].prompt for n in order]
        plan = plan_rows(
            prompts,
            [extra[n] for n in order],
            row_tokens=self.row_tokens,
            row_reads=self._model.row_reads,
        )
        for row in plan:
            yield self._laid_out(row, order, prompts, requests)

    def _laid_out(
        self, row: Row, order: list[int], prompts: list[Ids], requests: Sequence[PreparedRequest]
    ) -> PackedBatch:
        began = time.perf_counter()
        first, last = prompts[row.start], prompts[row.stop - 1]
        base = row.base or self._known_base(first, last, prompts[row.start : row.stop])
        kv, cached = self.prefixes.get(first[:base]) if base else (None, 0)
        packed = PackedBatch(self._model, kv, PrefixTrie(base))
        uncounted = base - cached
        for place in range(row.start, row.stop):
            prompt, prepared = prompts[place], requests[order[place]]
            before = len(packed.trie.ids)
            end = packed.trie.add(prompt)
            packed.ends.append((order[place], end))
            packed.paths.append(packed.trie.path())
            # The first prompt of a row pays for what the others share.
            if not prepared.began:
                prepared.began = began
                prepared.cached = len(prompt) - uncounted - (len(packed.trie.ids) - before)
            uncounted = 0
        return packed

    def _known_base(self, first: Ids, last: Ids, prompts: Sequence[Ids]) -> int:
        """Tokens that all prompts of a row begin with and that are known already (count)."""
        # In sorted order the first and the last prompt differ earliest.
        shared = min(common_prefix(first, last), min(len(p) for p in prompts) - 1)
        cached = min(self.prefixes.longest(first), shared)
        return cached if cached >= MIN_BASE else 0
