"""A small language model with nothing clever: one plain forward pass per prompt.

It is what the test server answers with and what tests compare answers with.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["PlainModel", "Written", "plain_model"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Written:
    """A text: its tokens, how it ended, and each step's log-probabilities of all tokens."""

    text: str
    tokens: list[int]
    finish: str
    steps: list[Floats]


@lru_cache(maxsize=2)
def plain_model(folder: Path) -> PlainModel:
    """The model of a folder, loaded once per process."""
    return PlainModel(folder)


class PlainModel:
    """A checkpoint run by transformers, in 32 bits, on one thread."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        torch.set_num_threads(1)
        self._torch = torch
        self.tokenizer: Any = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        self._model = AutoModelForCausalLM.from_pretrained(
            str(folder), dtype=torch.float32, local_files_only=True
        ).eval()
        self.context = int(self._model.config.max_position_embeddings)
        self.vocabulary = int(self._model.config.vocab_size)
        self._guide: Any = None

    def logprobs(self, ids: Sequence[int]) -> Floats:
        """Log-probabilities of the next token behind each position, (length, vocabulary)."""
        with self._torch.inference_mode():
            logits = self._model(self._torch.tensor([list(ids)])).logits[0]
            return np.asarray(logits.double().log_softmax(-1), dtype=np.float64)

    def sequence(self, ids: Sequence[int], tokens: Sequence[int]) -> float:
        """Log-probability of tokens behind a prompt."""
        rows = self.logprobs([*ids, *tokens])
        return float(sum(rows[len(ids) - 1 + n, t] for n, t in enumerate(tokens)))

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, special tokens read as such, none added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def prompt(self, messages: Sequence[dict[str, str]], *, go_on: bool = False) -> str:
        """A conversation in the chat template."""
        turns = list(messages[:-1]) if go_on else list(messages)
        text = self.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
        return str(text) + (messages[-1]["content"] if go_on else "")

    def write(
        self,
        ids: Sequence[int],
        *,
        limit: int,
        temperature: float = 1.0,
        top_p: float = 1.0,
        min_p: float = 0.0,
        penalty: float = 1.0,
        seed: int = 0,
        stop: Sequence[str] = (),
        grammar: str | None = None,
    ) -> Written:
        """Draw a text token by token; temperature 0 takes the most probable."""
        dice = np.random.default_rng(seed)
        matcher = self._matcher(grammar) if grammar else None
        tokens: list[int] = []
        steps: list[Floats] = []
        past: Any = None
        feed = list(ids)
        while True:
            row, past = self._step(feed, past)
            steps.append(row - np.logaddexp.reduce(row))
            row = _penalised(row, {*ids, *tokens}, penalty)
            token = _draw(_allowed(row, matcher), temperature, top_p, min_p, dice)
            if matcher is not None:
                matcher.consume_token(token)
            if token == self.tokenizer.eos_token_id:
                return Written(self._text(tokens), tokens, "stop", steps)
            tokens.append(token)
            text = self._text(tokens)
            places = [text.index(s) for s in stop if s in text]
            if places:
                return Written(text[: min(places)], tokens, "stop", steps)
            if matcher is not None and matcher.is_stopped():
                return Written(text, tokens, "stop", steps)
            if len(tokens) >= limit or len(ids) + len(tokens) >= self.context:
                return Written(text, tokens, "length", steps)
            feed = [token]

    def _step(self, feed: list[int], past: Any) -> tuple[Floats, Any]:
        with self._torch.inference_mode():
            out = self._model(self._torch.tensor([feed]), past_key_values=past, use_cache=True)
            row = out.logits[0, -1].double()
        return np.asarray(row, dtype=np.float64), out.past_key_values

    def _text(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def _matcher(self, grammar: str) -> Any:
        import llguidance.hf
        from llguidance import LLMatcher

        if self._guide is None:
            self._guide = llguidance.hf.from_tokenizer(self.tokenizer, n_vocab=self.vocabulary)
        wrong = LLMatcher.validate_grammar(grammar, self._guide)
        if wrong:
            raise ValueError(wrong)
        return LLMatcher(self._guide, grammar, log_level=0)


def _allowed(row: Floats, matcher: Any) -> Floats:
    if matcher is None:
        return row
    bits = np.frombuffer(matcher.compute_bitmask(), dtype=np.uint8)
    keep = np.unpackbits(bits, bitorder="little")[: len(row)].astype(bool)
    return np.where(keep, row, -np.inf)


def _penalised(row: Floats, seen: set[int], penalty: float) -> Floats:
    """Logits, tokens seen so far divided by the penalty where positive, else multiplied."""
    out = row.copy()
    for token in seen if penalty != 1 else ():
        out[token] = row[token] / penalty if row[token] > 0 else row[token] * penalty
    return out


def _draw(
    row: Floats, temperature: float, top_p: float, min_p: float, dice: np.random.Generator
) -> int:
    if temperature == 0:
        return int(row.argmax())
    scaled = row / temperature
    weights = np.exp(scaled - scaled.max())
    weights[weights < min_p] = 0
    weights /= weights.sum()
    order = np.argsort(-weights)
    keep = order[: int((np.cumsum(weights[order]) < top_p).sum()) + 1]
    return int(dice.choice(keep, p=weights[keep] / weights[keep].sum()))
