"""Models behind an OpenAI-compatible server: vLLM's, llama.cpp's, Ollama, a hosted one."""

from pipelines.llm.engines.openai._engine import OpenAIEngine

__all__ = ["OpenAIEngine"]
