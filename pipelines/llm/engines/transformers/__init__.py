"""Models of transformers in this process: packed prompts, constrained answers, CPU or GPU."""

from pipelines.llm.engines.transformers._engine import TransformersEngine
from pipelines.llm.engines.transformers._jobs import Job
from pipelines.llm.engines.transformers._model import Model

__all__ = ["Job", "Model", "TransformersEngine"]
