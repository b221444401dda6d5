"""Perplexity of texts under a checkpoint, as a measure of fluent English."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pipelines.llm.models._folder import StoredModel

#: Tokens of each text that are read (count), and texts per forward pass.
TOKENS, _BATCH = 128, 8


class TextScorer:
    """Nats per token of texts under a stored model, in float32 on the CPU.

    The checkpoint (:class:`~pipelines.llm.models.ModelFolder`) is loaded by the first call.
    """

    def __init__(self, model: StoredModel) -> None:
        self.model = model
        self._loaded: tuple[Any, Any] | None = None

    def __call__(self, texts: Sequence[str]) -> list[float]:
        """Mean negative log-likelihood (nats) of the first :data:`TOKENS` tokens of each text.

        The perplexity per token is its exponential. The first token is predicted from the
        model's mark of a beginning.
        """
        import torch

        model, tokenizer = self._open()
        begin = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else 0
        rows = [[begin, *tokenizer.encode(text)[:TOKENS]] for text in texts]
        out: list[float] = []
        with torch.inference_mode():
            for start in range(0, len(rows), _BATCH):
                part = rows[start : start + _BATCH]
                longest = max(map(len, part))
                # Padded behind: a causal model does not see it.
                ids = torch.tensor([row + [begin] * (longest - len(row)) for row in part])
                logs = model(ids).logits[:, :-1].log_softmax(-1)
                logprobs = logs.gather(2, ids[:, 1:, None])[..., 0]
                out += [
                    float(-logprobs[n, : len(row) - 1].mean()) if len(row) > 1 else float("inf")
                    for n, row in enumerate(part)
                ]
        return out

    def _open(self) -> tuple[Any, Any]:
        if self._loaded is None:
            import torch
            from transformers import AutoModelForCausalLM

            from pipelines.llm.engines.checkpoints import no_progress_bars
            from pipelines.llm.engines.tokens import load_tokenizer

            self.model.verify()
            with no_progress_bars():
                loaded: Any = AutoModelForCausalLM.from_pretrained(
                    self.model.folder, dtype=torch.float32, local_files_only=True
                )
            self._loaded = loaded.eval(), load_tokenizer(self.model.folder)
        return self._loaded
