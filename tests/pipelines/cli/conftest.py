"""A small release in a store of its own, made once for all tests of the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import small_release

from pipelines.cli.main import plugin_commands


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that holds one release, ``movies``; shared, so never write to it."""
    folder = tmp_path_factory.mktemp("cli") / "home"
    small_release.build(folder)
    return folder


@pytest.fixture
def own_home(tmp_path: Path) -> Path:
    """A store of the test's own, with the release ``movies``."""
    folder = tmp_path / "own"
    small_release.build(folder)
    return folder


PLUGIN = '''
"""Commands that fail in every way, for tests of the top level."""

import os
import time
from typing import Annotated

import typer

import pipelines.errors as errors
from pipelines.cli.options import Call, command


@command()
def fail(call: Call, kind: str) -> None:
    """Fail with an error of the given class."""
    cause = getattr(errors, kind, None)
    if cause is None:
        raise KeyError(kind)
    raise cause("it broke", where="here.csv", hint="mend it", details={"rows": [{"a": 1}]})


@command()
def wait(call: Call) -> None:
    """Say that it is ready, then wait to be interrupted."""
    print("ready", flush=True)
    time.sleep(60)


def chatter() -> None:
    """Print more than a pipe holds."""
    from pipelines.cli.options import console

    screen = console()
    for n in range(100_000):
        screen.print(f"line {n} of many")


group = typer.Typer(help="A group of commands.")


@group.command()
def inner(name: Annotated[str, typer.Argument()] = "you") -> None:
    """Greet."""
    print(f"hello {name}")


@group.command()
def other() -> None:
    """Do nothing."""
'''


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an installed distribution that registers commands, for ``PYTHONPATH``."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "failing_plugin.py").write_text("raise SystemExit('must not be imported')\n")
    package = folder / "plugin_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "commands.py").write_text(PLUGIN)
    info = folder / "plugin_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[understudy.commands]\n"
        "fail = plugin_package.commands:fail\n"
        "wait = plugin_package.commands:wait\n"
        "chatter = plugin_package.commands:chatter\n"
        "group = plugin_package.commands:group\n"
        "gone = plugin_package.commands:no_such_function\n"
        "poison = failing_plugin:command\n"
    )
    return folder


@pytest.fixture
def understudy(plugin: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the installed ``understudy`` script, with the failing commands registered."""
    script = Path(sys.executable).parent / "understudy"

    def call(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(script), *words],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, **search_path(plugin), **env},
        )

    return call


@pytest.fixture
def with_plugin(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register the failing commands in this process."""
    monkeypatch.syspath_prepend(plugin)
    plugin_commands.cache_clear()
    yield
    plugin_commands.cache_clear()


def search_path(folder: Path) -> dict[str, str]:
    """Environment in which the folder comes first where Python looks for modules."""
    others = os.environ.get("PYTHONPATH")
    return {"PYTHONPATH": str(folder) + (os.pathsep + others if others else "")}


@pytest.fixture
def popen(plugin: Path) -> Callable[..., subprocess.Popen[bytes]]:
    """Start the installed ``understudy`` script with pipes on its outputs."""
    script = Path(sys.executable).parent / "understudy"

    def start(*words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [str(script), *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **search_path(plugin)},
        )

    return start
