"""Who answers: the kind of server, its version, its models, its context."""

from __future__ import annotations

import difflib
from typing import Any

from pipelines.config import EngineSettings, ServingSettings
from pipelines.errors import ConfigError
from pipelines.llm.engines.openai._abilities import Abilities
from pipelines.llm.engines.openai._http import Connection, Fault

__all__ = ["find_server"]

_OWNERS = {"vllm": "vllm", "llamacpp": "llama.cpp", "library": "ollama"}


async def find_server(
    connection: Connection, abilities: Abilities, engine: EngineSettings, serving: ServingSettings
) -> None:
    """Fill in server, version, model and context.

    Raises
    ------
    ConfigError
        If the server lists its models and the configured one is not among them.
    EngineError
        If nothing answers, or the key is refused.
    """
    api, root = connection.address.api, connection.address.root
    listed = await connection.get(api + "/models", mode="probe")
    models: list[dict[str, Any]] = []
    if not isinstance(listed, Fault):
        data = listed.body.get("data")
        models = [m for m in data if isinstance(m, dict)] if isinstance(data, list) else []
    owners = {m.get("owned_by") for m in models}
    abilities.server = next((k for o, k in _OWNERS.items() if o in owners), "other")
    if abilities.server == "vllm":
        abilities.version = await _text(connection, root + "/version", "version")
    elif abilities.server in ("llama.cpp", "other"):
        await _llama_cpp(connection, abilities)
    if abilities.server in ("ollama", "other"):
        version = await _text(connection, root + "/api/version", "version")
        if version:
            abilities.server, abilities.version = "ollama", version
    abilities.model = _model(engine.model, models, abilities, connection.address.api)
    own = next((m for m in models if m.get("id") == abilities.model), {})
    _limit(abilities, own.get("max_model_len"))
    _limit(abilities, serving.max_context)


async def _llama_cpp(connection: Connection, abilities: Abilities) -> None:
    got = await connection.get(connection.address.root + "/props")
    if isinstance(got, Fault):
        return
    settings = got.body.get("default_generation_settings")
    if isinstance(settings, dict):
        abilities.server = "llama.cpp"
        build = got.body.get("build_info")
        abilities.version = build if isinstance(build, str) else ""
        _limit(abilities, settings.get("n_ctx"))


async def _text(connection: Connection, url: str, field: str) -> str:
    got = await connection.get(url)
    value = None if isinstance(got, Fault) else got.body.get(field)
    return connection.address.quote(value) if isinstance(value, str) else ""


def _model(wanted: str, models: list[dict[str, Any]], abilities: Abilities, where: str) -> str:
    names = [m["id"] for m in models if isinstance(m.get("id"), str)]
    same = [n for n in names if wanted in (n, n.rsplit("/", 1)[-1], n.removesuffix(":latest"))]
    if wanted in names or len(same) == 1:
        abilities.tried["model"] = "listed"
        return wanted if wanted in names else same[0]
    if names and abilities.server != "other":
        close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.3) or names[:3]
        raise ConfigError(
            f"the server has no model {wanted}",
            where=f"engine.model; {where}",
            hint=f"it lists {', '.join(close)}",
        )
    # Hosted servers have names for models that they don't list.
    abilities.tried["model"] = "not listed" if names else "the server lists no models"
    return wanted


def _limit(abilities: Abilities, value: Any) -> None:
    if type(value) is int and value > 0:
        abilities.context = min(value, abilities.context or value)
