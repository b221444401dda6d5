"""Commands of higher layers, found through entry points and loaded only when called."""

from __future__ import annotations

import ast
import importlib.util
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


@cache
def plugin_commands() -> dict[str, EntryPoint]:
    """Entry points of the group by command name, in alphabetical order."""
    return {e.name: e for e in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def help_line(entry: EntryPoint) -> str:
    """First line of the command's docstring, read from its source without importing it.

    Importing would cost seconds (an orchestrator, an environment library) for one line.
    """
    path = _source(entry.module)
    if path is not None:
        tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
        doc = _docstring(tree, entry.attr.partition(".")[0])
        if doc:
            return doc.strip().splitlines()[0]
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


def _docstring(tree: ast.Module, name: str) -> str | None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node)
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if any(isinstance(t, ast.Name) and t.id == name for t in node.targets):
            # `app = typer.Typer(help="…")`
            for keyword in node.value.keywords:
                if keyword.arg == "help" and isinstance(keyword.value, ast.Constant):
                    return str(keyword.value.value)
    return None
