"""A model, its answer store and its tokenizer, opened together for callers that write prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING

from pipelines.config import load_settings
from pipelines.llm.answers import AnswerStore, Asking
from pipelines.llm.engines import Engine, Message, load_engine
from pipelines.llm.engines.chat import PromptMeasure, read_template
from pipelines.llm.engines.tokens import model_tokenizer
from pipelines.llm.grammars import Grammar, vocabulary

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = ["ModelSession"]


class ModelSession(Asking):
    """Base of classes that ask a model for choices and sentences of grammars.

    The settings have engine, serving and home of the answer store (None: those of this machine).
    ``engine`` replaces the settings' engine; its answers are not stored. ``session`` is another one
    whose engine, store and tokenizer are used instead; it closes them. ``begun`` is true if the
    model goes on from a begun answer; a chat endpoint answers in a turn of its own. Raises
    EngineError if the model can't be loaded.
    """

    def __init__(
        self,
        settings: Settings | None = None,
        *,
        engine: Engine | None = None,
        session: ModelSession | None = None,
    ) -> None:
        settings = settings or load_settings()
        self._borrowed = session is not None
        self._tokenizer = store = None
        if session is not None:
            engine, store, self._tokenizer = session._engine, session._store, session._tokenizer
        elif engine is None:
            engine = load_engine(settings.engine, settings.serving)
            self._tokenizer = model_tokenizer(settings.engine, settings.serving)
            store = AnswerStore(settings.runtime.home, settings.serving)
        super().__init__(engine, store, settings.serving)
        self._settings = settings
        facts = engine.metadata()
        self.begun = facts.get("endpoint") != "chat"
        self._context: int | None = facts.get("context")
        self._template = read_template(settings.serving.chat_template)
        self._words = None if self._tokenizer is None else vocabulary(self._tokenizer)
        #: Most tokens of a grammar's sentence; ConfigError if the tokenizer can't encode it.
        self.longest: Callable[[Grammar], int] = cache(self._longest)

    def close(self) -> None:
        """Release the model and commit what the store holds back, unless they are borrowed."""
        if not self._borrowed:
            super().close()

    def fits(self, messages: Sequence[Message], answer: int) -> bool:
        """True if prompt and answer (tokens) fit the context.

        True where it is unknown. Without a tokenizer a token counts as three bytes.
        """
        if self._context is None:
            return True
        if self._tokenizer is None:
            size = sum(len(message.content.encode()) for message in messages)
            return size // 3 + answer < self._context
        return PromptMeasure(self._tokenizer, self._template, self._context, answer).fits(messages)

    def _longest(self, grammar: Grammar) -> int:
        grammar.check(self._words)
        return grammar.longest(self._words)
