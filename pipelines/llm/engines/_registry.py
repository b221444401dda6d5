"""Engines by name; each is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError
from pipelines.llm.engines._protocol import Engine
from pipelines.plugins import LazyClasses


class EngineClass(Protocol):
    """Protocol of registered classes: open an engine from settings."""

    def open(self, engine: EngineSettings, serving: ServingSettings) -> Engine:
        """An engine that is ready to serve.

        Raises ConfigError if a setting is missing or the engine has no use for it, EngineError if
        the model can't be loaded or the server can't be reached.
        """


#: Engine classes by the name that ``engine.kind`` takes.
ENGINES: Mapping[str, EngineClass] = LazyClasses(
    {
        "transformers": "pipelines.llm.engines.transformers:TransformersEngine",
        "vllm": "pipelines.llm.engines.vllm:VllmEngine",
        "vllm_server": "pipelines.llm.engines.vllm_server:VllmServerEngine",
        "openai": "pipelines.llm.engines.openai:OpenAIEngine",
        "guidance": "pipelines.llm.grammars.engine:GuidanceEngine",
        "scripted": "pipelines.llm.engines.scripted:ScriptedEngine",
    }
)

#: Kinds that can't do without ``engine.model``.
_NEED_MODEL = frozenset({"transformers", "vllm", "vllm_server", "openai", "guidance"})


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
    if engine.kind == "none":
        raise ConfigError(
            "no language model is configured",
            where="engine.kind is none",
            hint=f"set engine.kind to one of {', '.join(ENGINES)}",
        )
    if engine.kind not in ENGINES:
        raise ConfigError(f"unknown engine {engine.kind}", hint=f"known: {', '.join(ENGINES)}")
    if engine.kind in _NEED_MODEL and not engine.model:
        raise ConfigError(
            f"the engine {engine.kind} needs a model",
            where="engine.model",
            hint="the folder of a checkpoint, or the model's name on the server",
        )
    return ENGINES[engine.kind].open(engine, serving)
