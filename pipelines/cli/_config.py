"""``understudy config show``: the effective settings and where each comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pipelines.cli import options as cli

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

config = cli.group("Show the effective settings.")


@config.command()
@cli.command(rows="settings")
def show(call: cli.Call) -> None:
    """Show every setting, its value and its origin; secrets are masked.

    JSON: {"settings": [{"key", "value", "default", "origin", "identity",
    "description"}]}.
    """
    from pipelines.config import explain_settings

    settings, origins = explain_settings(call.config, call.overrides)
    rows = [
        {**row, "origin": _origin(row["key"], origins)}
        for row in _walk(settings, "", identity=True)
    ]

    def render(screen: Console) -> None:
        grid = cli.table("setting", "value", "origin")
        for row in rows:
            changed = row["origin"] != "default"
            grid.add_row(
                row["key"], _shown(row["value"]), row["origin"], style="bold" if changed else None
            )
        screen.print(grid)

    call.emit({"settings": rows}, render)


def _walk(model: BaseModel, prefix: str, *, identity: bool) -> Iterator[dict[str, Any]]:
    from pydantic import BaseModel, SecretStr
    from pydantic_core import PydanticUndefined

    identity = getattr(model, "identity", identity) is True if prefix else identity
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        key = f"{prefix}{name}"
        if isinstance(value, BaseModel):
            yield from _walk(value, f"{key}.", identity=identity)
            continue
        default = field.default if field.default is not PydanticUndefined else None
        yield {
            "key": key,
            "value": "********" if isinstance(value, SecretStr) else _plain(value),
            "default": _plain(default),
            "identity": identity and name not in getattr(model, "runtime_fields", ()),
            "description": field.description or "",
        }


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)


def _origin(key: str, origins: Mapping[str, str]) -> str:
    origin = origins.get(key, "default")
    if origin != "environment":
        return origin
    wanted = [f"UNDERSTUDY_{key.replace('.', '__').upper()}"]
    wanted += {"runtime.home": ["UNDERSTUDY_HOME"], "tmdb.token": ["TMDB_TOKEN"]}.get(key, [])
    # Variables are matched without regard to case, like the loader does.
    present = {name.upper(): name for name in os.environ}
    return next((present[name] for name in wanted if name in present), "environment")
