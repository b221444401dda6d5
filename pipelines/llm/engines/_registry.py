"""Engines by name; each is imported when it is first asked for."""

from __future__ import annotations

from contextlib import closing
from typing import Protocol

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError, EngineError
from pipelines.llm.engines._protocol import Choice, Engine, Message, Request
from pipelines.llm.engines.checkpoints import find_checkpoint
from pipelines.seams import ENGINES


class EngineClass(Protocol):
    """Protocol of registered classes: open an engine from settings."""

    def open(self, engine: EngineSettings, serving: ServingSettings) -> Engine:
        """An engine that is ready to serve.

        Raises ConfigError if a setting is missing or the engine has no use for it, EngineError if
        the model can't be loaded or the server can't be reached.
        """


#: Kinds that read a checkpoint on this machine, and those that can't do without ``engine.model``.
_ON_DISK = frozenset({"transformers", "vllm", "vllm_server", "guidance"})
_NEED_MODEL = _ON_DISK | {"openai"}


def load_engine(engine: EngineSettings, serving: ServingSettings) -> Engine:
    """Load the engine that the settings name.

    Raises
    ------
    ConfigError
        If the settings name no engine, an unknown one, or no model where one is needed; and as
        the engine's own ``open``.
    EngineError
        If it can't be loaded.

    Examples
    --------
    >>> from pipelines.config import EngineSettings, ServingSettings
    >>> load_engine(EngineSettings(kind="scripted"), ServingSettings()).identity.engine
    'scripted'
    """
    return _class_of(engine).open(engine, serving)


#: A rating that doctor and a run ask for before work begins.
TRIAL_RATING = Request(
    (
        Message("system", "You rate films with 1 to 5 stars. Answer with the number alone."),
        Message("user", "A quiet drama about two friends and a boat. How many stars?"),
    ),
    constraint=Choice(tuple("12345")),
)


def check_engine(
    engine: EngineSettings, serving: ServingSettings, *, choices: bool = False
) -> None:
    """Make sure that an engine can be opened, before work that needs it later.

    A server is asked, with ``choices`` also whether it answers one. Of a model on this machine the
    tokenizer and the headers of the weights are read; the weights are not loaded into memory.

    Raises
    ------
    ConfigError, EngineError
        As :func:`load_engine`; EngineError if choices can't be answered.
    """
    cls = _class_of(engine)
    if engine.kind in _ON_DISK:
        from safetensors import SafetensorError, safe_open

        from pipelines.llm.engines.tokens import model_tokenizer

        model_tokenizer(engine, serving)
        checkpoint = find_checkpoint(engine.model, engine.revision, serving.models, serving.home)
        for file in checkpoint.weight_files():
            try:
                with safe_open(file, "np"):
                    pass
            except (OSError, SafetensorError) as error:
                raise EngineError("the weights can't be read", where=f"{file}: {error}") from None
        return
    with closing(cls.open(engine, serving)) as opened:
        if choices:
            [answer] = opened.submit([TRIAL_RATING])
            if answer.status == "invalid":
                raise EngineError(
                    "the model can't be asked for ratings",
                    where=f"engine.model is {engine.model}",
                    hint=answer.detail or None,
                )


def _class_of(engine: EngineSettings) -> EngineClass:
    if engine.kind == "none":
        raise ConfigError(
            "no language model is configured",
            where="engine.kind is none",
            hint=f"set engine.kind to one of {', '.join(ENGINES)}",
        )
    if engine.kind in _NEED_MODEL and not engine.model:
        raise ConfigError(
            f"the engine {engine.kind} needs a model",
            where="engine.model",
            hint="the folder of a checkpoint, or the model's name on the server",
        )
    cls: EngineClass = ENGINES[engine.kind]
    return cls
