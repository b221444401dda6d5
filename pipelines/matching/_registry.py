"""Matchers by name and from ``module:Class``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.matching._protocol import Matcher
from pipelines.plugins import closing_on_error
from pipelines.seams import MATCHERS

if TYPE_CHECKING:
    from pipelines.config import Settings


def open_matcher(settings: Settings, name: str | None = None) -> Matcher:
    """The matcher that the settings name, before `fit`.

    A name is one of :data:`pipelines.seams.MATCHERS`; default ``matching.method``. A
    matcher with a `close` is to be closed.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Matcher`, or it can't be opened.
    EngineError
        If the model can't be loaded.
    """
    name = name or settings.matching.method
    if name != "model":
        matcher: Matcher = MATCHERS.open(name, settings=settings.matching)
        return matcher
    from pipelines.llm.answers import AnswerStore
    from pipelines.llm.engines import load_engine
    from pipelines.llm.engines.tokens import model_tokenizer
    from pipelines.matching._model import ModelMatcher

    with closing_on_error(load_engine(settings.engine, settings.serving)) as engine:
        return ModelMatcher(
            engine,
            settings.matching,
            store=AnswerStore(settings.runtime.home, settings.serving),
            serving=settings.serving,
            tokenizer=model_tokenizer(settings.engine, settings.serving),
        )
