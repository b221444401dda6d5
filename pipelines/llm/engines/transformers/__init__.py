"""Models of transformers in this process: packed prompts, constrained answers, CPU or GPU."""

from pipelines.llm.engines.transformers._engine import TransformersEngine
from pipelines.llm.engines.transformers._model import Model
from pipelines.llm.engines.transformers._requests import PreparedRequest

__all__ = ["Model", "PreparedRequest", "TransformersEngine"]
