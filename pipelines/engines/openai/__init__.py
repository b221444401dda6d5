"""Models behind an OpenAI-compatible server: vLLM's, llama.cpp's, Ollama, a hosted one."""

from pipelines.engines.openai._engine import OpenAIEngine
from pipelines.engines.openai._pace import Gate, Pace

__all__ = ["Gate", "OpenAIEngine", "Pace"]
