"""Raters that ask a language model."""

from pipelines.raters.llm._listwise import ListwiseRater
from pipelines.raters.llm._rater import EXPLANATIONS, LLMRater, llm_name

__all__ = ["EXPLANATIONS", "LLMRater", "ListwiseRater", "llm_name"]
