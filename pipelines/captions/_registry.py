"""Captioners by name and from ``module:Class``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipelines.captions._protocol import Captioner
from pipelines.plugins import closing_on_error
from pipelines.seams import CAPTIONERS

if TYPE_CHECKING:
    from pipelines.config import Settings


def open_captioner(settings: Settings, name: str | None = None) -> Captioner:
    """The captioner that the settings name; one with a `close` is to be closed.

    A name is one of :data:`pipelines.seams.CAPTIONERS`; default ``captions.captioner``.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Captioner`, or it can't be opened.
    EngineError
        If the model can't be reached.
    """
    name = name or settings.captions.captioner
    if name != "model":
        captioner: Captioner = CAPTIONERS.open(name)
        return captioner
    from pipelines.captions._model import ModelCaptioner
    from pipelines.llm.answers import AnswerStore
    from pipelines.llm.engines import load_engine

    with closing_on_error(load_engine(settings.engine, settings.serving)) as engine:
        store = AnswerStore(settings.runtime.home, settings.serving)
        return ModelCaptioner(engine, store=store, serving=settings.serving)
