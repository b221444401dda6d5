"""The engine that runs a model of transformers in this process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import EngineError
from pipelines.llm.engines._protocol import Answer, EngineIdentity, Request
from pipelines.llm.engines.chat import read_template, template_of
from pipelines.llm.engines.checkpoints import Checkpoint, find_checkpoint
from pipelines.llm.engines.tokens import load_tokenizer
from pipelines.llm.engines.transformers._model import Model, load_model
from pipelines.llm.engines.transformers._packing import BatchPacker
from pipelines.llm.engines.transformers._requests import PreparedRequest, Preparer, Vocabulary
from pipelines.llm.engines.transformers._scoring import score, score_plainly
from pipelines.llm.engines.transformers._trie import PrefixTrie
from pipelines.llm.engines.transformers._writing import fitting, write, write_plainly

#: Bumped when the same request on the same model gets another answer from this code.
_RULES = 1
#: Tokens of a packed row, by kind of device. A row's attention grows with its square: on a CPU
#: 512 was fastest of 256 to 2,048 (15M parameters, prompts of 1,056 tokens, 40 per user).
_ROW_TOKENS = {"cpu": 512, "cuda": 4_096}


class TransformersEngine:
    """Engine of a checkpoint in this process, on the CPU or one GPU; opened by :meth:`open`.

    Prompts that begin alike are laid out in one row, where what they share is computed once;
    see :mod:`pipelines.llm.engines.transformers._trie`. Distributions of choices are read from
    the model's next-token probabilities (:mod:`pipelines.llm.engines.choices`); other answers are
    written in batches by transformers' `generate`, constrained by llguidance. An engine serves one
    iteration at a time.

    Memory beyond the weights: keys and values of at most ``batch_tokens`` tokens of answers
    being written (twice while a batch begins) and as many of prefixes kept, and what one forward
    pass over a row takes.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        model: Model,
        tokenizer: Any,
        engine: EngineSettings,
        serving: ServingSettings,
        ends: list[int],
    ) -> None:
        self._serving = serving
        self._model: Model | None = model
        self._vocabulary = Vocabulary(tokenizer, model.vocabulary, ends)
        template = read_template(serving.chat_template)
        self._template_of = template_of(tokenizer, template)[1]
        self._preparer = Preparer(self._vocabulary, template, model.context, model.embeddings)
        self._packer = _packer(model, serving)
        self._identity = _identity(checkpoint, model, engine, template)
        self._device, self._dtype = str(model.device), self._identity.dtype
        self._context = model.context

    @classmethod
    def open(cls, engine: EngineSettings, serving: ServingSettings) -> TransformersEngine:
        """Load the checkpoint that the settings name.

        Raises
        ------
        ConfigError
            If the folder, the device, the quantisation or the chat template is not there.
        EngineError
            If the model can't be loaded.
        """
        checkpoint = find_checkpoint(engine.model, engine.revision, serving.models, serving.home)
        tokenizer = load_tokenizer(checkpoint.folder)
        model, ends = load_model(checkpoint, engine, serving)
        if tokenizer.eos_token_id is not None:
            ends = sorted({*ends, int(tokenizer.eos_token_id)})
        return cls(checkpoint, model, tokenizer, engine, serving, ends)

    @property
    def identity(self) -> EngineIdentity:
        """Versions, model, digests of its files, and dtype."""
        return self._identity

    def submit(self, requests: Iterable[Request]) -> Iterator[Answer]:
        """One answer per request.

        Raises EngineError if the engine is closed, or the model fails or runs out of memory.
        """
        if self._model is None:
            raise EngineError("the engine is closed", where=self._identity.model)
        if self._packer is None:
            return self._plain_answers(iter(requests), self._model)
        return self._answers(iter(requests), self._model, self._packer)

    def _answers(
        self, requests: Iterator[Request], model: Model, packer: BatchPacker
    ) -> Iterator[Answer]:
        window, more = self._serving.window, True
        to_write: list[PreparedRequest] = []
        while more or to_write:
            to_score: list[PreparedRequest] = []
            # Drawn by halves of the window, so that prompts that begin alike meet.
            if more and 2 * len(to_write) <= window:
                while len(to_write) + len(to_score) < window:
                    try:
                        request = next(requests)
                    except StopIteration:
                        more = False
                        break
                    prepared = self._preparer.prepare(request)
                    if isinstance(prepared, Answer):
                        yield prepared
                    else:
                        (to_write if prepared.tree is None else to_score).append(prepared)
            yield from score(packer, to_score)
            if to_write:
                budget = self._serving.batch_tokens
                count = fitting(to_write, budget)
                together, to_write = to_write[:count], to_write[count:]
                yield from write(model, self._vocabulary, packer, together, budget)

    def _plain_answers(self, requests: Iterator[Request], model: Model) -> Iterator[Answer]:
        """Answer requests singly, without sharing: to measure and to check against."""
        for request in requests:
            prepared = self._preparer.prepare(request)
            if isinstance(prepared, Answer):
                yield prepared
            elif prepared.tree is not None:
                yield score_plainly(model, prepared)
            else:
                yield self._write(model, prepared)

    def _write(self, model: Model, prepared: PreparedRequest) -> Answer:
        """Write one answer by itself."""
        return write_plainly(model, self._vocabulary, prepared)

    def metadata(self) -> dict[str, Any]:
        """Device, precision, context, packing and how answers are read."""
        prefix_tokens = self._packer.prefixes.tokens if self._packer else 0
        return {
            "device": self._device,
            "dtype": self._dtype,
            "context": self._context,
            "window": self._serving.window,
            "batch_tokens": self._serving.batch_tokens,
            "packing": "shared beginnings once per row" if self._packer else "off: plain passes",
            "row_tokens": self._packer.row_tokens if self._packer else None,
            "kept_prefix_tokens": prefix_tokens,
            "chat_template": self._template_of,
            "distributions": "next-token probabilities at every token of every option; an option "
            "that begins another has what is left of its probability",
            "constraints": "llguidance",
            "rules": _RULES,
        }

    def close(self) -> None:
        """Free the model."""
        self._model = None
        if self._packer is not None:
            self._packer.prefixes.clear()
            self._packer = None


def _identity(
    checkpoint: Checkpoint, model: Model, engine: EngineSettings, template: str | None
) -> EngineIdentity:
    import torch
    import transformers

    return EngineIdentity(
        engine="transformers",
        engine_version=f"{transformers.__version__}, torch {torch.__version__}, rules {_RULES}",
        model=checkpoint.name,
        revision=engine.revision,
        weights=checkpoint.weights_digest(),
        tokenizer=checkpoint.tokenizer_digest(template),
        dtype=str(model.dtype).removeprefix("torch."),
        quantisation=engine.quantisation,
    )


def _packer(model: Model, serving: ServingSettings) -> BatchPacker | None:
    """The layout of prompts; None where plain passes are asked for."""
    if not serving.prefix_reuse:
        return None
    error = _packing_error(model)
    if not error <= model.tolerance:
        raise EngineError(
            "the model can't read packed prompts",
            where=f"log-probabilities differ from plain passes by {error:.1%}",
            hint="use the vllm engine, or set serving.prefix_reuse to false (slow)",
        )
    rows = _ROW_TOKENS["cpu" if model.device.type == "cpu" else "cuda"]
    return BatchPacker(model, min(rows, serving.batch_tokens), serving.batch_tokens)


def _packing_error(model: Model) -> float:
    """Relative error of a packed row's log-probabilities, against plain passes.

    The root mean square of the difference is divided by that between the prompts' distributions,
    so that it is about 1 where the row answers for another prompt. Some models (recurrent layers,
    positions that are not given) can't be packed.
    """
    import torch

    dice = np.random.default_rng(0)
    size = min(model.embeddings, model.vocabulary)
    # Long enough for a row that is read by runs.
    length = min(32, model.context // 2)
    shared = length // 4
    prompts = dice.integers(size, size=(4, length)).astype(np.int32)
    prompts[:, :shared] = prompts[0, :shared]
    prompts = prompts[np.lexsort(prompts.T[::-1])]
    kv = model.extend(None, prompts[0, :shared])
    plain = torch.log_softmax(torch.stack([model.plain(p.tolist()) for p in prompts]), dim=-1)
    spread = (plain - plain.mean(dim=0)).norm()
    errors = []
    for base, prefix in ((0, None), (shared, kv)):
        trie = PrefixTrie(base)
        ends = [trie.add(p) for p in prompts]
        packed = torch.log_softmax(model.row(prefix, trie, ends).logits, dim=-1)
        errors.append(float((packed - plain).norm() / spread))
    return float(np.max(errors))
