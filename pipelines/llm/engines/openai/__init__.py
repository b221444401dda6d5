"""Models behind an OpenAI-compatible server: vLLM's, llama.cpp's, Ollama, a hosted one."""

from pipelines.llm.engines.openai._engine import OpenAIEngine
from pipelines.llm.engines.openai._limits import HalvingSemaphore

__all__ = ["HalvingSemaphore", "OpenAIEngine"]
