"""Options and helpers that every command shares, also those of higher layers.

A command is a plain function with annotated parameters::

    def episode(steps: StepsOption = 10, home: HomeOption = None, config: ConfigOption = None,
                as_json: JsonOption = False) -> None:
        settings = open_settings(home, config)
        emit(payload, render, as_json=as_json)

It raises :class:`pipelines.errors.UnderstudyError` for faults; the top level prints one line and
sets the exit code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli._terminal import (
    INTERRUPTED,
    console,
    emit,
    human_age,
    human_bytes,
    human_seconds,
    progress_bar,
    shown_outcomes,
    table,
    write_json,
)
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from pipelines.config import Settings

__all__ = [
    "INTERRUPTED",
    "REF_HELP",
    "ConfigOption",
    "HomeOption",
    "JsonOption",
    "RefArgument",
    "ReleaseOption",
    "SetOption",
    "complete_refs",
    "console",
    "emit",
    "folder_option",
    "full_ref",
    "human_age",
    "human_bytes",
    "human_seconds",
    "key_values",
    "newest_run",
    "open_settings",
    "overrides_of",
    "port_fault",
    "progress_bar",
    "setting_option",
    "shown_outcomes",
    "table",
    "write_json",
]


def complete_refs(ctx: typer.Context, incomplete: str) -> list[str]:
    """Release references in the store that start with what was typed (shell completion)."""
    import os

    home = Path(ctx.params.get("home") or os.environ.get("UNDERSTUDY_HOME") or ".understudy")
    refs = sorted(p.stem for p in (home / "releases").glob("*@*.json"))
    names = sorted({ref.partition("@")[0] for ref in refs})
    return [r for r in [*(f"{n}@latest" for n in names), *refs] if r.startswith(incomplete)]


JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document instead of text.")
]
HomeOption = Annotated[
    Path | None,
    typer.Option(
        "--home",
        file_okay=False,
        help="The store's folder (default: UNDERSTUDY_HOME, else .understudy).",
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        dir_okay=False,
        help="Settings file (default: UNDERSTUDY_CONFIG, else understudy.yaml if there is one).",
    ),
]


def folder_option(flag: str, help: str) -> Any:  # noqa: A002
    """Declare an optional folder that a command writes, for ``Annotated[Path | None, ...]``."""
    return typer.Option(flag, file_okay=False, help=help)


def setting_option(flag: str, key: str, help: str, *, unset: str = "", **more: Any) -> Any:  # noqa: A002
    """Declare an option in place of a setting; its help names the setting and its default.

    ``unset`` says what an empty default means.
    """
    from pipelines.config import Settings

    section, _, name = key.partition(".")
    kind = Settings.model_fields[section].annotation
    assert isinstance(kind, type)
    value = kind.model_fields[name].default
    shown = ", ".join(map(str, value)) if isinstance(value, tuple) else value
    text = f"{help} (setting {key}; default {unset if value is None else shown})."
    return typer.Option(flag, help=text, **more)


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set one setting, such as personas.count=50; may be repeated.",
    ),
]
#: Forms of a release's name, for the help of options and arguments.
REF_HELP = "Release: NAME@latest, NAME@VERSION (a prefix is enough), NAME, latest, or a lock file."
RefArgument = Annotated[str, typer.Argument(help=REF_HELP, autocompletion=complete_refs)]
ReleaseOption = Annotated[
    str, typer.Option("--release", help=REF_HELP, autocompletion=complete_refs)
]


def open_settings(
    home: Path | str | None = None,
    config: Path | str | None = None,
    overrides: Mapping[str, Any] | Sequence[str] | None = None,
) -> Settings:
    """Effective settings of a command; see :func:`pipelines.config.load_settings`.

    ``--home`` wins over ``UNDERSTUDY_HOME`` and the file. `overrides` is a nested mapping, or the
    ``KEY=VALUE`` texts of ``--set``.
    """
    from pipelines.config import load_settings

    return load_settings(config, overrides_of(home, overrides))


def overrides_of(
    home: Path | str | None, overrides: Mapping[str, Any] | Sequence[str] | None
) -> dict[str, Any]:
    """The nested mapping that ``--home`` and ``--set`` stand for.

    >>> overrides_of("here", ["personas.count=50", "personas.seed=1"])
    {'personas': {'count': '50', 'seed': '1'}, 'runtime': {'home': 'here'}}
    >>> overrides_of(None, ['scoring.ensemble=[{"rater": "llm"}, {"rater": "statistical"}]'])
    {'scoring': {'ensemble': [{'rater': 'llm'}, {'rater': 'statistical'}]}}

    Raises
    ------
    ConfigError
        If a text is not ``section.key=value``.
    """
    from pipelines.config import read_value

    out: dict[str, Any] = {}
    if isinstance(overrides, Mapping):
        out = {k: dict(v) if isinstance(v, Mapping) else v for k, v in overrides.items()}
    else:
        for text in overrides or ():
            key, sign, value = text.partition("=")
            parts = key.strip().split(".")
            if not sign or len(parts) < 2 or not all(parts):
                raise ConfigError(
                    "--set takes section.key=value", where=key, hint="such as personas.count=50"
                )
            node = out
            for part in parts[:-1]:
                node = node.setdefault(part, {})
                if not isinstance(node, dict):
                    raise ConfigError("two values for one setting", where=f"--set {key}")
            node[parts[-1]] = read_value(value)
    if home is not None:
        out.setdefault("runtime", {})["home"] = str(home)
    return out


def key_values(texts: list[str] | None, flag: str, example: str) -> dict[str, Any]:
    """Options of a plug-in's class from ``key=value`` texts; a value is JSON, or else text.

    >>> key_values(["depth=2", "name=x"], "--agent-option", "depth=2")
    {'depth': 2, 'name': 'x'}
    """
    import json

    out: dict[str, Any] = {}
    for text in texts or ():
        key, sign, value = text.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"{flag} takes key=value", where=text, hint=f"such as {example}")
        try:
            out[key.strip()] = json.loads(value)
        except json.JSONDecodeError:
            out[key.strip()] = value
    return out


def port_fault(host: str, port: int) -> str | None:
    """Reason why no server can listen there; None if one can.

    >>> port_fault("127.0.0.1", 0) is None
    True
    """
    import socket

    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # As a web server would: a port in TIME_WAIT counts as free.
        socket.create_server(address[:2], family=family).close()
    except OSError as error:
        return error.strerror or str(error)
    return None


def newest_run(root: Path, file: str, kind: str, command: str) -> Path:
    """The newest folder below ``root`` that holds a run's ``file``; ConfigError without any."""
    runs = sorted(root.glob(f"*/{file}"), key=lambda path: path.stat().st_mtime)
    if not runs:
        raise ConfigError(f"no finished run of {kind}", where=str(root), hint=command)
    return runs[-1].parent


def full_ref(ref: str, settings: Settings) -> str:
    """A release reference with its name: ``latest`` alone means the configured release.

    >>> from pipelines.config import Settings
    >>> full_ref("latest", Settings()), full_ref("books", Settings())
    ('movies@latest', 'books')
    """
    return f"{settings.release.name}@latest" if ref == "latest" else ref
