"""How a model's tokenizer reads the answers of a scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipelines.prompts._ratings import answer_start, rating_options
from pipelines.scales import RatingScale

if TYPE_CHECKING:
    from pipelines.llm.engines.tokens import ScaleReading

__all__ = ["scale_report"]


def scale_report(tokenizer: Any, scale: RatingScale, context: str | None = None) -> ScaleReading:
    """Which answers are one token for a model, and which are scored as sequences.

    Parameters
    ----------
    tokenizer
        The model's.
    scale
        The scale.
    context
        What stands before the answer; default: the rating prompt's own last words.

    Returns
    -------
    ScaleReading
        ``way`` is ``tokens`` (the next-token distribution is read) or ``sequences``; one entry
        per answer, in order.

    Raises
    ------
    EngineError
        If the tokenizer can't tell two answers apart.
    """
    from pipelines.llm.engines.tokens import read_scale

    before = answer_start(scale) if context is None else context
    return read_scale(tokenizer, rating_options(scale), before)
