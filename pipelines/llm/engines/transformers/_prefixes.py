"""Keys and values of prefixes that were computed, kept for the prompts to come."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from pipelines.llm.engines.transformers._forest import Ids, common_prefix
from pipelines.llm.engines.transformers._model import KeysValues, Model

__all__ = ["Prefixes"]


@dataclass(frozen=True, slots=True)
class _Kept:
    ids: Ids
    kv: KeysValues


class Prefixes:
    """The prefixes last used, within a budget of tokens.

    Parameters
    ----------
    model
        The model that computes them.
    budget
        Most tokens kept (count); a single longer prefix is kept until the next one comes.
    """

    def __init__(self, model: Model, budget: int) -> None:
        self._model = model
        self._budget = budget
        self._kept: OrderedDict[bytes, _Kept] = OrderedDict()
        self.tokens = 0

    def longest(self, ids: Ids) -> int:
        """How many first tokens of a prompt are known (count)."""
        return max((common_prefix(k.ids, ids) for k in self._kept.values()), default=0)

    def get(self, ids: Ids) -> tuple[KeysValues, int]:
        """Keys and values of a prefix, and how many of its tokens were known before.

        What is known of it, from any prefix that begins alike, is not computed again.
        """
        key = ids.tobytes()
        name, known = max(
            ((n, common_prefix(k.ids, ids)) for n, k in self._kept.items()),
            key=lambda found: found[1],
            default=(b"", 0),
        )
        kv = _first(self._kept[name].kv, known) if known else None
        if known == len(ids):
            assert kv is not None
            self._kept.move_to_end(name)
            return kv, known
        grown = self._model.extend(kv, ids[known:])
        self._keep(key, _Kept(ids, grown))
        return grown, known

    def clear(self) -> None:
        """Forget all."""
        self._kept.clear()
        self.tokens = 0

    def _keep(self, key: bytes, entry: _Kept) -> None:
        self._kept[key] = entry
        self.tokens += len(entry.ids)
        while self.tokens > self._budget and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self.tokens -= len(dropped.ids)


def _first(kv: KeysValues, tokens: int) -> KeysValues:
    return [(k[:, :, :tokens], v[:, :, :tokens]) for k, v in kv]
