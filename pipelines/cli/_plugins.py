"""The commands: those of this package and those registered by others, loaded when called."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pipelines.errors import ConfigError
from pipelines.extras import missing_package

if TYPE_CHECKING:
    from typer.core import TyperCommand, TyperGroup

#: Entry-point group: name of the command = ``module:function`` or ``module:typer_app``.
GROUP = "understudy.commands"
#: Commands of this package, which need no entry points.
_OWN = {
    "status": "_status:status",
    "release": "_release:release",
    "report": "_report:report",
    "graph": "_graph:graph",
    "answers": "_answers:answers",
    "judge": "_judge:judge",
    "models": "_models:models",
    "personas": "_personas:personas",
    "match": "_match:match",
    "gc": "_maintenance:gc",
    "backup": "_maintenance:backup",
    "restore": "_maintenance:restore",
    "doctor": "_doctor:doctor",
    "config": "_config:config",
}


@cache
def plugin_commands() -> dict[str, EntryPoint]:
    """Entry points of the group by command name, in alphabetical order."""
    return {e.name: e for e in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def commands() -> dict[str, EntryPoint]:
    """All commands by name; nobody else's replaces one of this package."""
    own = {n: EntryPoint(n, f"pipelines.cli.{place}", GROUP) for n, place in _OWN.items()}
    return {**plugin_commands(), **own}


@cache
def help_line(entry: EntryPoint) -> str:
    """First line of the command's help, read from its source without importing or parsing it.

    Importing would cost seconds (an orchestrator, an environment library) for one line, parsing
    all modules twice the time of the help.
    """
    path = _source(entry.module)
    if path is not None:
        name = re.escape(entry.attr.partition(".")[0])
        text = path.read_text(encoding="utf-8")
        # A function's docstring, or `name = cli.group("...")`, `name = typer.Typer(help="...")`.
        for pattern in (
            rf'^def {name}\(.*?^\) -> None:\n    r?"""(.*?)(?:\n|""")',
            rf"^def {name}\([^\n]*\) -> None:\n    r?\"\"\"(.*?)(?:\n|\"\"\")",
            rf'^{name} = [\w.]+\(\s*(?:help=)?"(.*?)"[,)\n]',
        ):
            if found := re.search(pattern, text, re.MULTILINE | re.DOTALL):
                return found[1].strip()
    return f"(from {entry.module})"


def load_command(entry: EntryPoint) -> TyperCommand | TyperGroup | Any:
    """Import a command and make it ready to run; ConfigError if the installation is broken."""
    try:
        target = entry.load()
    except ModuleNotFoundError as error:
        raise missing_package(error, where=f"understudy {entry.name}") from error
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the command `{entry.name}` can't be loaded ({error})",
            where=entry.value,
            hint="reinstall the package, then run `understudy doctor`",
        ) from error
    if isinstance(target, typer.Typer):
        app = target
    else:
        app = typer.Typer(add_completion=False, rich_markup_mode="rich")
        app.command(entry.name)(target)
    app._add_completion = False
    command = typer.main.get_command(app)
    command.name = entry.name
    return command


def _source(module: str) -> Path | None:
    # find_spec on a dotted name imports the parents; only the top-level name is looked up.
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or spec.submodule_search_locations is None:
        return None
    for candidate in _candidates([Path(p) for p in spec.submodule_search_locations], rest):
        if candidate.is_file():
            return candidate
    return None


def _candidates(folders: list[Path], rest: list[str]) -> Iterator[Path]:
    for folder in folders:
        base = folder.joinpath(*rest)
        yield base / "__init__.py"
        if rest:
            yield base.with_suffix(".py")
