"""Models behind an OpenAI-compatible server: vLLM's, llama.cpp's, Ollama, a hosted one."""

from pipelines.llm.engines.openai._engine import OpenAIEngine
from pipelines.llm.engines.openai._limiter import ConcurrencyLimiter

__all__ = ["ConcurrencyLimiter", "OpenAIEngine"]
