"""Models of transformers in this process: packed prompts, constrained answers, CPU or GPU."""

from pipelines.llm.engines.transformers._engine import TransformersEngine

__all__ = ["TransformersEngine"]
