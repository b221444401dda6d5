"""A causal language model of transformers, and the forward passes that the engine needs."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.hints import first_line
from pipelines.llm.engines.checkpoints import Checkpoint, no_progress_bars
from pipelines.llm.engines.transformers._attention import GROUPED, attention_on, mark_runs
from pipelines.llm.engines.transformers._trie import Ids, PrefixTrie, Run, triangle

if TYPE_CHECKING:
    import torch

_log = logging.getLogger(__name__)

#: Keys and values per layer, each of shape (1, heads, tokens, size of a head).
KeysValues = list[tuple["torch.Tensor", "torch.Tensor"]]

#: Most numbers of one block of logits (512 MB in float32).
_MAX_LOGITS = 2**27
#: Tokens of one forward pass over a prefix.
_CHUNK = 2_048


@dataclass(frozen=True, slots=True)
class RowResult:
    """Outcome of a pass over a row.

    ``logits``: next-token logits at the places asked for, float32, shape (places, vocabulary);
    ``kv``: keys and values of the base and the row, where asked for.
    """

    logits: torch.Tensor
    kv: KeysValues | None


class Model:
    """A causal language model on its device; ``context`` limits prompt and answer (tokens)."""

    def __init__(self, model: Any, context: int) -> None:
        self.causal = model
        self.context = context
        self.device = model.device
        self.dtype = model.dtype
        config = model.config.get_text_config(decoder=True)
        self.layers = int(config.num_hidden_layers)
        self.vocabulary = int(model.get_output_embeddings().out_features)
        self.embeddings = int(model.get_input_embeddings().weight.shape[0])
        self._keeps = "logits_to_keep" in inspect.signature(model.forward).parameters

    @property
    def tolerance(self) -> float:
        """Relative error allowed between two ways to compute log-probabilities, by precision.

        Measured in 16 bits: 0.07 at most where rows are packed rightly, 0.26 at least with a wrong
        mask or wrong positions.
        """
        import torch

        return 1e-3 if self.dtype == torch.float32 else 0.15

    @property
    def shares_prefixes(self) -> bool:
        """True if its attention takes prefixes that several rows have in common."""
        return bool(self.causal.config._attn_implementation == GROUPED)

    @property
    def row_reads(self) -> int:
        """Most next-token distributions of one pass (count)."""
        return max(1, _MAX_LOGITS // self.vocabulary)

    def plain(self, ids: Sequence[int]) -> torch.Tensor:
        """Next-token logits behind a prompt, float32, shape (vocabulary,), by a plain pass."""
        import torch

        with _failing("a forward pass"), torch.inference_mode():
            row = torch.tensor([list(ids)], device=self.device)
            output = self.causal(input_ids=row, use_cache=False, **self._keep([len(ids) - 1]))
            return self._entries(output.logits, [len(ids) - 1])[0]

    def extend(self, kv: KeysValues | None, ids: Ids) -> KeysValues:
        """Keys and values of a prefix, going on from those of its beginning."""
        import torch
        from transformers import DynamicCache

        with _failing("a prefix"), torch.inference_mode():
            cache = DynamicCache(ddp_cache_data=kv)
            for start in range(0, len(ids), _CHUNK):
                row = torch.from_numpy(ids[start : start + _CHUNK].astype(np.int64))
                mask = None
                if self.shares_prefixes:
                    runs = [Run(0, len(row), ())]
                    mask = self._bias(triangle(len(row)), cache.get_seq_length(), runs)
                self.causal(
                    input_ids=row[None].to(self.device),
                    attention_mask=mask,
                    past_key_values=cache,
                    use_cache=True,
                    **self._keep([len(row) - 1]),
                )
            return self._taken(cache)

    def row(
        self,
        kv: KeysValues | None,
        trie: PrefixTrie,
        reads: Sequence[int],
        *,
        tokens: Sequence[Sequence[int]] = (),
        keep: bool = False,
    ) -> RowResult:
        """Next-token logits at the places ``reads`` of a row, by one pass over it.

        ``kv`` holds keys and values of the trie's base (None if it has none); with ``keep`` those
        of the row are returned too. ``tokens`` are those of each read whose logits are compared:
        in 16 bits they are computed anew in float32, as rounding would make many of them equal.
        """
        import torch
        from transformers import DynamicCache

        with _failing("a packed row"), torch.inference_mode(), self._last_hidden() as last:
            cache = DynamicCache(ddp_cache_data=kv) if kv is not None or keep else None
            output = self.causal(
                input_ids=torch.tensor([trie.ids], device=self.device),
                position_ids=torch.tensor([trie.positions], device=self.device),
                attention_mask=self._bias(trie.mask(), trie.base, trie.runs()),
                past_key_values=cache,
                use_cache=cache is not None,
                **self._keep(reads),
            )
            logits = self._entries(output.logits, reads)
            if tokens and last and self.dtype != torch.float32:
                hidden = last[0][0] if self._keeps else last[0][0, list(reads)]
                self._refine(logits, hidden, tokens)
            return RowResult(logits, self._taken(cache) if keep else None)

    @contextmanager
    def _last_hidden(self) -> Iterator[list[torch.Tensor]]:
        """Inputs of the output layer during the pass, each of shape (1, places, width)."""
        given: list[torch.Tensor] = []
        head = self.causal.get_output_embeddings()
        hook = head.register_forward_pre_hook(lambda _, inputs: given.append(inputs[0]))
        try:
            yield given
        finally:
            hook.remove()

    def _refine(
        self, logits: torch.Tensor, hidden: torch.Tensor, tokens: Sequence[Sequence[int]]
    ) -> None:
        """Replace the logits of some tokens of each place by the sums before rounding.

        Only where they differ by rounding: a model may cap or scale its logits afterwards.
        """
        import torch

        head = self.causal.get_output_embeddings()
        rows = torch.tensor([n for n, some in enumerate(tokens) for _ in some], device=self.device)
        columns = torch.tensor([t for some in tokens for t in some], device=self.device)
        if not isinstance(head, torch.nn.Linear):
            return
        exact = (hidden[rows].float() * head.weight[columns].float()).sum(dim=-1)
        if head.bias is not None:
            exact += head.bias[columns].float()
        rounded = logits[rows, columns]
        close = (exact - rounded).abs() <= 2 * torch.finfo(self.dtype).eps * rounded.abs() + 1e-3
        logits[rows, columns] = torch.where(close, exact, rounded)

    def generate(
        self, prompts: Sequence[Ids], cache: Any, limit: int, process: Any, ended: Any
    ) -> None:
        """Write several answers of at most ``limit`` tokens.

        ``cache`` holds keys and values of all prompts but their last tokens, aligned at the end
        (None: of none); ``process`` leaves one token per answer; ``ended`` is the stopping
        criterion per answer.
        """
        import torch

        longest = max(map(len, prompts))
        ids = torch.zeros((len(prompts), longest), dtype=torch.long)
        seen = torch.zeros_like(ids)
        for row, prompt in enumerate(prompts):
            ids[row, longest - len(prompt) :] = torch.from_numpy(prompt)
            seen[row, longest - len(prompt) :] = 1
        with _failing("writing"), torch.inference_mode():
            self.causal.generate(
                ids.to(self.device),
                attention_mask=seen.to(self.device),
                past_key_values=cache,
                max_new_tokens=limit,
                logits_processor=[process],
                stopping_criteria=[ended],
            )

    def _bias(self, seen: npt.NDArray[np.bool_], base: int, runs: list[Run]) -> torch.Tensor:
        """A mask as numbers to add, every token seeing the whole base; it knows its runs."""
        import torch

        size = len(seen)
        bias = torch.zeros((size, base + size), dtype=self.dtype, device=self.device)
        hidden = torch.from_numpy(~seen).to(self.device)
        bias[:, base:].masked_fill_(hidden, torch.finfo(self.dtype).min)
        mask = bias[None, None]
        mark_runs(mask, runs)
        return mask

    def _keep(self, reads: Sequence[int]) -> dict[str, Any]:
        import torch

        return {"logits_to_keep": torch.tensor(reads, device=self.device)} if self._keeps else {}

    def _entries(self, logits: torch.Tensor, reads: Sequence[int]) -> torch.Tensor:
        return (logits[0] if self._keeps else logits[0, list(reads)]).float()

    @staticmethod
    def _taken(cache: Any) -> KeysValues:
        return [(layer.keys, layer.values) for layer in cache.layers]


@contextmanager
def _failing(what: str) -> Iterator[None]:
    """Out of memory, or a model that can't do it, ends the run in our terms."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        line = first_line(error)
        full = "memory" in line.lower()
        raise EngineError(
            "the model ran out of memory" if full else "the model failed",
            where=f"{what}: {line}",
            hint="lower serving.batch_tokens" if full else "stored answers are kept; run again",
        ) from error


def load_model(
    checkpoint: Checkpoint, engine: EngineSettings, serving: ServingSettings
) -> tuple[Model, list[int]]:
    """A model from its folder, and the tokens that end its answers.

    Only ``.safetensors`` weights are read, and no code of the checkpoint is run. Raises ConfigError
    if the device or the quantisation is not to be had, EngineError if it can't be loaded.
    """
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM, GenerationConfig

    from pipelines.llm.engines.transformers._linear import can_pack, pack_linear_layers

    device = _device(serving.device)
    dtype = _dtype(engine.dtype, device)
    try:
        with no_progress_bars():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                str(checkpoint.folder),
                dtype=dtype,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=False,
                attn_implementation=attention_on(device),
            )
        loaded = loaded.to(device).eval()
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, SafetensorError) as error:
        line = first_line(error)
        raise EngineError(
            "the model can't be loaded",
            where=f"{checkpoint.folder}: {line}",
            hint="engine.model takes the folder of a causal language model in safetensors",
        ) from error
    _check_quantisation(loaded.config, engine.quantisation)
    if can_pack(loaded):
        pack_linear_layers(loaded)
    ends = _ends(loaded)
    # Penalties and temperatures of the checkpoint would change what is drawn from.
    loaded.generation_config = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False, pad_token_id=0
    )
    return Model(loaded, _context(loaded.config, serving.max_context)), ends


def _ends(loaded: Any) -> list[int]:
    """Tokens that end an answer, by the checkpoint's configuration."""
    for place in (loaded.generation_config, loaded.config):
        given = getattr(place, "eos_token_id", None)
        if given is not None:
            return [int(t) for t in (given if isinstance(given, list) else [given])]
    return []


def _device(device: str) -> str:
    import torch

    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ConfigError(
            "no GPU that torch can use", where=f"serving.device is {device}", hint="set it to cpu"
        )
    try:
        return str(torch.device(device))
    except RuntimeError as error:
        raise ConfigError("unknown device", where=f"serving.device is {device}") from error


def _dtype(dtype: str, device: str) -> Any:
    import torch

    if dtype == "auto":
        return torch.float32 if device == "cpu" else torch.bfloat16
    if device == "cpu" and dtype == "bfloat16" and not torch.cpu._is_avx512_bf16_supported():
        _log.warning(
            "this processor has no instructions for bfloat16: engine.dtype=float32 is several "
            "times faster here"
        )
    return getattr(torch, dtype)


def _context(config: Any, limit: int | None) -> int:
    """Longest prompt and answer: the model's, its sliding window's and the setting's least."""
    text = config.get_text_config(decoder=True)
    limits = [int(text.max_position_embeddings)] if hasattr(text, "max_position_embeddings") else []
    kinds = getattr(text, "layer_types", None)
    window = getattr(text, "sliding_window", None)
    slides = "sliding_attention" in kinds if kinds else getattr(text, "use_sliding_window", True)
    if window is not None and slides:
        # Rows are masked by us; within its window a sliding layer sees what a full one does.
        limits.append(int(window))
    if limit is not None:
        limits.append(limit)
    if not limits:
        raise ConfigError(
            "the model does not say how long its context is", hint="set serving.max_context"
        )
    return min(limits)


def _check_quantisation(config: Any, configured: str) -> None:
    given = getattr(config, "quantization_config", None)
    method = str(dict(given).get("quant_method", "")) if isinstance(given, dict) else ""
    if given is not None and not isinstance(given, dict):
        method = str(getattr(given, "quant_method", ""))
    stored = method or "none"
    if configured != stored:
        raise ConfigError(
            "the checkpoint's quantisation differs from the configured one",
            where=f"engine.quantisation is {configured}, the checkpoint's is {stored}",
            hint=f"set engine.quantisation to {stored}, or give another checkpoint",
        )
