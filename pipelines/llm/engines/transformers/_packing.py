"""Packed batches: prompts laid out as prefix tries, and what is kept of their prefixes."""

from __future__ import annotations

import bisect
import time
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt

from pipelines.llm.engines.transformers._cache import ReadPrompt, joined
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
class _Block:
    """Keys and values of prompts that were read together, with the sort keys of these."""

    prompts: dict[bytes, ReadPrompt]
    tokens: int


class PrefixCache:
    """Keys and values of the prefixes and prompts last used, within ``budget`` tokens.

    A single longer prefix is kept until the next one is computed. A prefix takes the place of one
    that it shares most of, such as that of the same conversation a turn before.
    """

    def __init__(self, model: Model, budget: int) -> None:
        self._model = model
        self._budget = budget
        self._blocks: OrderedDict[int, _Block] = OrderedDict()
        #: Sort keys of all prompts, ascending, each with its block.
        self._order: list[tuple[bytes, int]] = []
        self._names = count()
        self.tokens = 0

    def longest(self, ids: Ids) -> int:
        """Length of a prompt's longest cached prefix (tokens)."""
        return self.find(ids)[1]

    def find(self, ids: Ids) -> tuple[ReadPrompt | None, int]:
        """What shares most of a prompt's beginning, and the length of that (tokens)."""
        found, known, name = self._find(ids)
        if found is not None:
            self._blocks.move_to_end(name)
        return found, known

    def _find(self, ids: Ids) -> tuple[ReadPrompt | None, int, int]:
        place = bisect.bisect(self._order, (sort_key(ids),))
        best: tuple[ReadPrompt | None, int, int] = (None, 0, -1)
        # Of sorted prompts a neighbour begins most alike.
        for key, name in self._order[max(place - 1, 0) : place + 1]:
            one = self._blocks[name].prompts[key]
            if (shared := common_prefix(one.ids, ids)) > best[1]:
                best = one, shared, name
        return best

    def get(self, ids: Ids) -> tuple[KeysValues, int]:
        """Keys and values of a prefix, and how many of its tokens were known before.

        The part that is cached, from any prefix that begins alike, is not computed again.
        """
        found, known, name = self._find(ids)
        kv = None if found is None else found.part(0, known)
        if known == len(ids):
            assert kv is not None
            self._blocks.move_to_end(name)
            return kv, known
        grown = self._model.extend(kv, ids[known:])
        if found is not None and known >= _SUPERSEDED * self._blocks[name].tokens:
            self._drop(name)
        self.keep([ReadPrompt(ids, grown, np.arange(len(ids)))])
        return grown, known

    def keep(self, prompts: Sequence[ReadPrompt]) -> None:
        """Take in prompts that were read in one pass."""
        name = next(self._names)
        known = {sort_key(one.ids): one for one in prompts}
        self._blocks[name] = _Block(known, prompts[0].kv[0][0].shape[2])
        self.tokens += self._blocks[name].tokens
        for key in known:
            bisect.insort(self._order, (key, name))
        while self.tokens > self._budget and len(self._blocks) > 1:
            self._drop(next(iter(self._blocks)))

    def clear(self) -> None:
        """Forget all."""
        self._blocks.clear()
        self._order.clear()
        self.tokens = 0

    def _drop(self, name: int) -> None:
        self.tokens -= self._blocks.pop(name).tokens
        self._order = [one for one in self._order if one[1] != name]


@dataclass(slots=True)
class PackedBatch:
    """A row with its prompts laid out; a caller may add tokens before running it.

    ``ends`` holds, per prompt, its number among the requests and the place of its last token;
    ``paths`` the places of its tokens behind the base; ``known`` keys and values of the base and
    of what else is known, in the order of the row's columns.
    """

    model: Model
    trie: PrefixTrie
    ends: list[tuple[int, int]] = field(default_factory=list)
    paths: list[npt.NDArray[np.int64]] = field(default_factory=list)
    known: list[KeysValues] = field(default_factory=list)

    def run(self, reads: Sequence[int], *, keep: bool = False) -> RowResult:
        """The forward pass."""
        return self.model.row(joined(self.known), self.trie, reads, keep=keep)

    def places(self) -> list[npt.NDArray[np.int64]]:
        """Of each prompt, the places of its tokens among the row's keys and values."""
        base, columns = np.arange(self.trie.base), self.trie.columns()
        return [np.concatenate([base, len(base) + columns[path]]) for path in self.paths]


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
            # A prompt's last token is always computed: its answer is read there.
            known=[min(self.prefixes.longest(p), len(p) - 1) for p in prompts],
        )
        for row in plan:
            yield self._laid_out(row, order, prompts, requests)

    def _laid_out(
        self, row: Row, order: list[int], prompts: list[Ids], requests: Sequence[PreparedRequest]
    ) -> PackedBatch:
        began = time.perf_counter()
        first, last = prompts[row.start], prompts[row.stop - 1]
        base = row.base or self._known_base(first, last, prompts[row.start : row.stop])
        kv, known = self.prefixes.get(first[:base]) if base else (None, 0)
        packed = PackedBatch(self._model, PrefixTrie(base))
        if kv is not None:
            packed.known.append(kv)
        uncounted = base - known
        for place in range(row.start, row.stop):
            prompt, prepared = prompts[place], requests[order[place]]
            before = len(packed.trie.ids)
            found, known = self.prefixes.find(prompt)
            known = min(known, len(prompt) - 1)
            end = packed.trie.add(prompt, known)
            taken = packed.trie.taken()
            if found is not None and taken:
                packed.known.append(found.part(known - taken, known))
            packed.ends.append((order[place], end))
            packed.paths.append(packed.trie.path())
            # The first prompt of a row pays for what the others share.
            if not prepared.began:
                prepared.began = began
                new = len(packed.trie.ids) - before - taken
                prepared.cached = len(prompt) - uncounted - new
            uncounted = 0
        return packed

    def _known_base(self, first: Ids, last: Ids, prompts: Sequence[Ids]) -> int:
        """Tokens that all prompts of a row begin with and that are known already (count)."""
        # In sorted order the first and the last prompt differ earliest.
        shared = min(common_prefix(first, last), min(len(p) for p in prompts) - 1)
        known = min(self.prefixes.longest(first), shared)
        return known if known >= MIN_BASE else 0
