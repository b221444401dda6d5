"""Engines on test servers, and what a plain forward pass says the answer is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from support.llm_model import PlainModel
from support.llm_server import LlmServer

from pipelines.config import EngineSettings, ServingSettings
from pipelines.llm.engines.openai import OpenAIEngine

__all__ = ["STARS", "connect", "plain_shares", "prompt_of"]

STARS = ("1", "2", "3", "4", "5")


def connect(
    server: LlmServer,
    *,
    draws: int = 0,
    pause: float = 0.01,
    require_model: Literal["any", "exact"] = "any",
    **serving: Any,
) -> OpenAIEngine:
    """An engine on a server; short pauses, few tries, unless told otherwise."""
    settings: dict[str, Any] = {"retries": 2, "timeout": 30.0, "concurrency": 8, "window": 64}
    settings |= {"base_url": server.url, "api_key": server.key} | serving
    return OpenAIEngine(
        EngineSettings(kind="openai", model=server.name, draws=draws, require_model=require_model),
        ServingSettings(**settings),
        pause=pause,
    )


def prompt_of(model: PlainModel, text: str) -> list[int]:
    """Token ids of one user's message in the chat template."""
    return model.encode(model.prompt([{"role": "user", "content": text}]))


def plain_shares(
    model: PlainModel, prompt: Sequence[int], options: Sequence[str]
) -> tuple[list[float], float]:
    """Shares of options none of which begins another, and their mass, from forward passes."""
    chances = [np.exp(model.sequence(prompt, model.encode(option))) for option in options]
    total = float(sum(chances))
    return [float(c) / total for c in chances], total
