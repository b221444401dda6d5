"""``understudy config show``: the effective settings and where each comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from pipelines.cli import options as cli

if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import Console

config_app = typer.Typer(no_args_is_help=True, help="Show the effective settings.")


@config_app.callback()
def config() -> None:
    """Show the effective settings."""


@config_app.command()
def show(
    home: cli.HomeOption = None,
    config: cli.ConfigOption = None,
    assignments: cli.SetOption = None,
    as_json: cli.JsonOption = False,
) -> None:
    """Show every setting, its value and its origin; secrets are masked.

    JSON: {"settings": [{"key", "value", "default", "origin", "identity",
    "description"}]}.
    """
    from pipelines.config import explain_settings

    settings, origins = explain_settings(config, cli.overrides_of(home, assignments))
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

    cli.emit({"settings": rows}, render, as_json=as_json)


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
