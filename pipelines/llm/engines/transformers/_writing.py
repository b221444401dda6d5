"""Answers that are texts, written by transformers' `generate` in batches.

What is ours of the loop is one logits processor. It draws each sequence's token by the sequence's
own random numbers under llguidance's mask and leaves that token alone to be chosen, so that an
answer depends neither on its batch nor on its place in it. Prompts are read packed, and `generate`
goes on from their keys and values.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from pipelines.llm.engines._protocol import Answer, Sampling
from pipelines.llm.engines.transformers._cache import ReadPrompt, rows_of, writing_cache
from pipelines.llm.engines.transformers._model import Model
from pipelines.llm.engines.transformers._packing import BatchPacker
from pipelines.llm.engines.transformers._requests import PreparedRequest, Vocabulary

if TYPE_CHECKING:
    import torch


#: Tokens of an answer that a new batch has room for (count); a grammar's longest text is many
#: times what a model writes, and batches by that would be of three or four answers.
_EXPECTED = 256


@dataclass(slots=True, eq=False)
class _Sequence:
    """An answer being written: its request, its random numbers, and the answer once it ended."""

    prepared: PreparedRequest
    dice: np.random.Generator
    answer: Answer | None = None

    @property
    def ids(self) -> npt.NDArray[np.int32]:
        """Prompt and what is written so far."""
        written = np.array(self.prepared.written, np.int32)
        return np.concatenate([self.prepared.prompt, written])


class Sampler:
    """Draws the tokens of the sequences of one batch and ends them."""

    def __init__(self, vocabulary: Vocabulary, sequences: Sequence[_Sequence]) -> None:
        self._vocabulary = vocabulary
        self.sequences = sequences

    def process(self, _: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Leave one token per sequence: a logits processor of transformers.

        Logits are float32 of shape (sequences, vocabulary).
        """
        import torch

        rows = [n for n, s in enumerate(self.sequences) if s.answer is None]
        going = [self.sequences[n] for n in rows]
        tokens = draw_tokens(
            _penalised(scores if len(rows) == len(scores) else scores[rows], going),
            self._allowed(going),
            [s.prepared.request.sampling for s in going],
            [float(s.dice.random()) for s in going],
        )
        for sequence, token in zip(going, tokens, strict=True):
            sequence.answer = self._take(sequence.prepared, token)
        chosen = torch.zeros(len(scores), dtype=torch.long)
        chosen[rows] = torch.tensor(tokens).clamp(min=0)
        left = torch.full_like(scores, float("-inf"))
        return left.scatter_(1, chosen.to(scores.device)[:, None], 0.0)

    def ended(self, ids: torch.Tensor, _: Any, **__: Any) -> torch.Tensor:
        """Sequences that have ended: a stopping criterion of transformers.

        When half of them have, the batch ends: the others go on in a smaller one.
        """
        import torch

        flags = torch.tensor([s.answer is not None for s in self.sequences], device=ids.device)
        return flags | (2 * flags.sum() >= len(flags))

    def _allowed(self, sequences: Sequence[_Sequence]) -> npt.NDArray[np.bool_] | None:
        matchers = [
            (n, s.prepared.matcher)
            for n, s in enumerate(sequences)
            if s.prepared.matcher is not None
        ]
        if not matchers:
            return None
        allowed = np.ones((len(sequences), self._vocabulary.size), dtype=np.bool_)
        allowed[[n for n, _ in matchers]] = self._vocabulary.allowed([m for _, m in matchers])
        return allowed

    def _take(self, prepared: PreparedRequest, token: int) -> Answer | None:
        """Write a token; the answer, if it ends with it."""
        matcher = prepared.matcher
        if token < 0:
            if matcher is None:
                return _failed(prepared, "engine_error", "the model's logits are not numbers")
            return _failed(
                prepared, "invalid", "the tokenizer can't encode what the grammar wants next"
            )
        if token in self._vocabulary.ends:
            return self._done(prepared, "stop")
        prepared.written.append(token)
        if matcher is not None and not matcher.consume_token(token):
            return _failed(prepared, "invalid", "the answer left the grammar")
        stops = prepared.request.sampling.stop
        text = self._vocabulary.text(prepared.written) if stops else ""
        places = [text.index(s) for s in stops if s in text]
        if places:
            return self._done(prepared, "stop", text=text[: min(places)])
        if matcher is not None and matcher.is_stopped():
            return self._done(prepared, "stop")
        return self._done(prepared, "length") if len(prepared.written) >= prepared.limit else None

    def _done(self, prepared: PreparedRequest, reason: str, *, text: str | None = None) -> Answer:
        return Answer(
            prepared.request,
            "ok" if reason == "stop" else "truncated",
            text=self._vocabulary.text(prepared.written) if text is None else text,
            finish_reason=reason,
            prompt_tokens=len(prepared.prompt),
            completion_tokens=len(prepared.written),
            cached_tokens=prepared.cached,
            latency=time.perf_counter() - prepared.began,
        )


def write(
    model: Model,
    vocabulary: Vocabulary,
    packer: BatchPacker,
    requests: Sequence[PreparedRequest],
    budget: int,
) -> Iterator[Answer]:
    """Write answers together, their prompts read packed.

    When keys and values outgrow the budget (tokens), half of the answers wait for the others.
    """
    waiting = [_Sequence(prepared, prepared.dice()) for prepared in requests]
    while waiting:
        count = fitting([s.prepared for s in waiting], budget)
        going, cache = _read(model, packer, waiting[:count])
        late = yield from _generate(model, vocabulary, going, cache, budget)
        waiting = [*waiting[count:], *late]


def _read(
    model: Model, packer: BatchPacker, sequences: Sequence[_Sequence]
) -> tuple[list[_Sequence], Any]:
    """Sequences in the order of their tokens, and the keys and values of what they have so far."""
    prepared = [
        replace(s.prepared, prompt=s.ids) if s.prepared.written else s.prepared for s in sequences
    ]
    read, order = [], []
    for row in packer.rows(prepared, [0] * len(prepared)):
        result = row.run([row.ends[0][1]], keep=True)
        assert result.kv is not None
        base = np.arange(row.trie.base)
        for (number, _), path in zip(row.ends, row.paths, strict=True):
            order.append(sequences[number])
            places = np.concatenate([base, len(base) + path])
            read.append(ReadPrompt(prepared[number].prompt, result.kv, places))
    return order, writing_cache(read, share=model.shares_prefixes)


def write_plainly(model: Model, vocabulary: Vocabulary, prepared: PreparedRequest) -> Answer:
    """Write one answer by itself, nothing packed or padded."""
    prepared.began = time.perf_counter()
    sequence = _Sequence(prepared, prepared.dice())
    [answer] = _generate(model, vocabulary, [sequence], None, 0)
    return answer


def _generate(
    model: Model, vocabulary: Vocabulary, going: list[_Sequence], cache: Any, budget: int
) -> Generator[Answer, None, list[_Sequence]]:
    """Answers as they end, by halves of those that are left; returns those that must wait."""
    waiting: list[_Sequence] = []
    while going:
        prompts = [s.ids for s in going]
        longest = max(map(len, prompts))
        limit = max(s.prepared.limit - len(s.prepared.written) for s in going)
        if len(going) > 1:
            limit = min(limit, budget // len(going) - longest)
        if limit > 0:
            sampler = Sampler(vocabulary, going)
            model.generate(prompts, cache, limit, sampler.process, sampler.ended)
            yield from (s.answer for s in going if s.answer is not None)
        rows = [n for n, s in enumerate(going) if s.answer is None]
        longest_left = max((len(going[n].ids) for n in rows), default=0)
        if limit <= 0 or (len(rows) > 1 and len(rows) * (longest_left + 1) > budget):
            half = len(rows) // 2
            waiting += [going[n] for n in rows[half:]]
            rows = rows[:half]
        if rows:
            cache = rows_of(cache, rows, longest - max(len(prompts[n]) for n in rows))
        going = [going[n] for n in rows]
    return waiting


def fitting(requests: Sequence[PreparedRequest], budget: int) -> int:
    """Number of first requests that begin as a batch, by a budget of keys and values (tokens)."""
    longest = 0
    for count, prepared in enumerate(requests):
        written = len(prepared.written)
        more = min(prepared.limit - written, _EXPECTED)
        longest = max(longest, len(prepared.prompt) + written + more)
        if count and longest * (count + 1) > budget:
            return count
    return len(requests)


def _failed(
    prepared: PreparedRequest, status: Literal["invalid", "engine_error"], detail: str
) -> Answer:
    return Answer(
        prepared.request,
        status,
        prompt_tokens=len(prepared.prompt),
        completion_tokens=len(prepared.written),
        cached_tokens=prepared.cached,
        latency=time.perf_counter() - prepared.began,
        detail=detail,
    )


def _penalised(logits: torch.Tensor, sequences: Sequence[_Sequence]) -> torch.Tensor:
    """Logits with each sequence's repetition penalty (:class:`Sampling`)."""
    import torch

    penalties = [s.prepared.request.sampling.repetition_penalty for s in sequences]
    if all(penalty == 1.0 for penalty in penalties):
        return logits
    logits = logits.clone()
    for row, (sequence, penalty) in enumerate(zip(sequences, penalties, strict=True)):
        if penalty != 1.0:
            seen = np.union1d(sequence.prepared.prompt, sequence.prepared.written).astype(np.int64)
            places = torch.from_numpy(seen).to(logits.device)
            held = logits[row, places]
            logits[row, places] = torch.where(held > 0, held / penalty, held * penalty)
    return logits


def draw_tokens(
    logits: torch.Tensor,
    allowed: npt.NDArray[np.bool_] | None,
    sampling: Sequence[Sampling],
    numbers: Sequence[float],
) -> list[int]:
    """The next token of each answer; -1 where none is allowed or the logits are not numbers.

    The token is where a uniform number in [0, 1) falls among the probabilities laid end to end in
    the order of the vocabulary, in double precision: an answer's draw depends on its own logits and
    number only. ``logits``: float32, shape (answers, vocabulary); ``allowed``: of the same shape,
    None allows all. At temperature 0 the most probable token is taken (of equals the first).
    Repetition penalties are in the logits already.
    """
    import torch

    with torch.inference_mode():
        if allowed is not None:
            hidden = torch.from_numpy(~allowed).to(logits.device)
            logits = logits.masked_fill(hidden, float("-inf"))
        best = logits.argmax(dim=-1)
        top = logits.gather(1, best[:, None])[:, 0]
        chosen = torch.where(torch.isfinite(top), best, -1)
        warm = [n for n, s in enumerate(sampling) if s.temperature > 0]
        if warm:
            rows = torch.tensor(warm, device=logits.device)
            drawn = _drawn(
                logits[rows].double(), [sampling[n] for n in warm], [numbers[n] for n in warm]
            )
            chosen[rows] = torch.where(chosen[rows] >= 0, drawn, -1)
        return [int(t) for t in chosen.tolist()]


def _drawn(
    logits: torch.Tensor, sampling: Sequence[Sampling], numbers: Sequence[float]
) -> torch.Tensor:
    import torch

    heat = torch.tensor([s.temperature for s in sampling], dtype=torch.float64)
    shares = torch.softmax(logits / heat.to(logits.device)[:, None], dim=-1)
    for row, settings in enumerate(sampling):
        if settings.min_p > 0.0:
            likely = shares[row] >= settings.min_p * shares[row].max()
            shares[row] = torch.where(likely, shares[row], 0.0)
            shares[row] /= shares[row].sum()
        if settings.top_p < 1.0:
            shares[row] = _nucleus(shares[row], settings.top_p)
    ends = shares.cumsum(dim=-1)
    total = ends[:, -1]
    points = torch.tensor(numbers, dtype=torch.float64, device=logits.device) * total
    # Rounding may not lift a number to the end of the last share.
    points = torch.minimum(points, torch.nextafter(total, torch.zeros_like(total)))
    return torch.searchsorted(ends, points[:, None], right=True)[:, 0]


def _nucleus(shares: torch.Tensor, top_p: float) -> torch.Tensor:
    """The fewest most probable tokens that have ``top_p`` together, the others at 0."""
    import torch

    ordered, order = shares.sort(descending=True, stable=True)
    before = ordered.cumsum(dim=0) - ordered
    nucleus = torch.zeros_like(shares)
    inside = before < top_p
    nucleus[order[inside]] = ordered[inside]
    return nucleus
