"""The `vllm` engine: vLLM in this process, for GPUs; on a CPU for tests.

vLLM has its own environment (``locks/vllm-gpu.txt``, ``locks/vllm-cpu.txt``); nothing here
imports it before an engine is opened. Requests are streamed into vLLM's scheduler, so that
answers come in completion order and at most a window of requests is alive.

- A `Choice` is read as exact log-probabilities of the option's tokens (``logprob_token_ids``),
  at each place of its :class:`~pipelines.llm.engines.choices.OptionTree` where the options part:
  one place for options of one token. Nothing is drawn. All places of a request share its
  prompt in vLLM's prefix cache.
- Every other constraint goes to vLLM's structured outputs (backend ``guidance``) as the same
  compiled grammar that the `transformers` engine decodes by.
"""

from pipelines.llm.engines.vllm._engine import VllmEngine
from pipelines.llm.engines.vllm._load import vllm_version

__all__ = ["VllmEngine", "vllm_version"]
