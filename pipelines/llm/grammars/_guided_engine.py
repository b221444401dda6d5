"""Guidance's transformers engine with three faults of version 0.3.1 mended.

Imported only by functions that run a model: it loads torch and transformers.

1. It crops the KV cache with ``cache.crop(n)``, n being the length to keep. From transformers
   5.14 that argument is a (negative) number of tokens to remove; a positive one is still read as
   a length until 5.19 and raises from 5.20, and 0, which is what two prompts without a common
   first token give, removes nothing: the next forward pass attends to the old prompt.
2. It draws with ``np.random.choice``: from one generator for the whole process.
3. Where a reply could end, it draws from all tokens and takes an illegal one for the end, so the
   same grammar has another distribution than under llguidance's mask.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from guidance._schema import GenTokenExtra
from guidance.chat import ChatMLTemplate
from guidance.models._transformers import TransformersEngine, TransformersTokenizer

from pipelines.llm.engines import Sampling


class LimitReachedError(Exception):
    """A reply is longer than its limit; `tokens` are those within it."""

    def __init__(self, tokens: list[int]) -> None:
        super().__init__(f"the reply is longer than {len(tokens)} tokens")
        self.tokens = tokens


class _Endless(TransformersTokenizer):
    """A tokenizer that hides its begin and end tokens from Guidance's loop.

    Without an end token the loop samples under the mask throughout; the mask comes from
    llguidance and allows the end token wherever a reply may end.
    """

    @property
    def eos_token_id(self) -> int:
        return None  # type: ignore[return-value]

    @property
    def bos_token_id(self) -> int | None:
        return None  # the prompt has one where it should


class CroppingEngine(TransformersEngine):
    """Serves one prompt at a time; callers hold a lock.

    The prompt is stored here, as token ids: Guidance's loop has the reply alone. From prompts given
    as text, and again when it aligns their last tokens with the grammar, Guidance reads special
    tokens, so that a film's plot could end the user's turn.
    """

    def __init__(self, model: Any, tokenizer: Any) -> None:
        # The template is never used; a class spares a warning about the model's own.
        super().__init__(
            model,
            tokenizer,
            chat_template=ChatMLTemplate,
            enable_monitoring=False,
            enable_token_probabilities=False,
        )
        self.tokenizer: _Endless = _Endless(hf_tokenizer=tokenizer, chat_template=ChatMLTemplate)  # type: ignore[arg-type]
        self._rng = np.random.default_rng(0)
        self._sampling = Sampling(temperature=0.0)
        self._prompt: list[int] = []
        self._limit: int | None = None
        end = getattr(tokenizer, "eos_token_id", None)
        self._ends = set() if end is None else {int(end)}

    def begin(
        self, prompt: tuple[int, ...], seed: int, sampling: Sampling, limit: int | None = None
    ) -> None:
        """State the prompt, how the tokens behind it are drawn, and how many there may be."""
        self._limit = limit
        self._prompt = list(prompt)
        self._rng = np.random.default_rng(seed)
        self._sampling = sampling

    def forget(self) -> None:
        """Drop the KV cache."""
        self._past_key_values = None
        self._cached_logits = None
        self._cached_token_ids = []

    def get_logits(self, token_ids: list[int], include_all_uncached_tokens: bool = False) -> Any:
        """Logits behind the prompt and `token_ids`, from a cache that holds a prefix of them."""
        if self._limit is not None and len(token_ids) > self._limit:
            raise LimitReachedError(token_ids[: self._limit])
        token_ids = self._prompt + token_ids
        self._keep_common_prefix(token_ids)
        try:
            return super().get_logits(token_ids, include_all_uncached_tokens)
        except BaseException:
            # A pass that was cut short may have appended to the cache.
            self.forget()
            raise

    def _keep_common_prefix(self, token_ids: list[int]) -> None:
        cache: Any = self._past_key_values
        if cache is None:
            return
        keep = 0
        for old, new in zip(self._cached_token_ids, token_ids, strict=False):
            if old != new:
                break
            keep += 1
        if keep == len(token_ids) == len(self._cached_token_ids):
            return  # the very same tokens: their logits are at hand
        keep = min(keep, len(token_ids) - 1)  # at least one token goes through the model
        held = cache.get_seq_length()
        if held == keep:
            return
        if keep == 0 or held < keep:
            self.forget()
            return
        try:
            cache.crop(keep - held)
        except (RuntimeError, NotImplementedError, AttributeError):
            # Sliding windows and recurrent states can't go back.
            self.forget()
            return
        if cache.get_seq_length() != keep:
            self.forget()
            return
        self._cached_token_ids = self._cached_token_ids[:keep]
        self._cached_logits = None

    def get_next_token_with_top_k(
        self,
        logits: Any,
        logits_lat_ms: float,
        token_ids: list[int],
        mask: bytes | None,
        temperature: float,  # noqa: ARG002
        k: int,  # noqa: ARG002
        compute_unmasked_probs: bool,  # noqa: ARG002
        sampling_params: Any,  # noqa: ARG002
    ) -> GenTokenExtra:
        """Draw a token: as :meth:`begin` set it, from our own generator, under the mask."""
        if mask is None:
            raise AssertionError("the loop never samples without a mask: see _Endless")
        allowed = np.frombuffer(mask, dtype=np.uint8)[: len(logits)] != 0
        scores = np.array(logits, dtype=np.float64)
        seen = np.union1d(self._prompt, token_ids).astype(np.int64)
        penalty = self._sampling.repetition_penalty
        scores[seen] = np.where(scores[seen] > 0, scores[seen] / penalty, scores[seen] * penalty)
        scores = np.where(allowed, scores, -np.inf)
        token = int(scores.argmax())
        if self._sampling.temperature > 0:
            token = _draw(scores, self._sampling, self._rng)
        full = self._limit is not None and len(token_ids) >= self._limit
        if full and token not in self._ends:
            raise LimitReachedError(token_ids)
        return GenTokenExtra(
            token_id=token,
            prob=float("nan"),
            bytes=self.tokenizer.decode([token]),
            latency_ms=logits_lat_ms,
            is_generated=True,
            top_k=[],
        )


def _draw(scores: Any, sampling: Sampling, rng: np.random.Generator) -> int:
    weights = np.exp((scores - scores.max()) / sampling.temperature)
    weights[weights < sampling.min_p * weights.max()] = 0.0
    weights /= weights.sum()
    order = np.argsort(-weights, kind="stable")
    reached = np.cumsum(weights[order])
    # The nucleus holds the token that reaches top_p.
    inside = int(np.searchsorted(reached, min(sampling.top_p, 1.0) - 1e-12)) + 1
    reached = reached[:inside]
    place = int(np.searchsorted(reached, rng.random() * reached[-1], side="right"))
    return int(order[min(place, len(reached) - 1)])
