"""Every code block of README and docs runs, and every command line in them is accepted."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted([REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")])
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
#: A block that begins with this comment shows what only a user can complete (a class of theirs).
FRAGMENT = "# fragment"


def blocks(page: Path, *languages: str) -> list[str]:
    return [
        text for language, text in BLOCK.findall(page.read_text("utf-8")) if language in languages
    ]


def python_pages() -> Iterator[object]:
    for page in PAGES:
        if found := [b for b in blocks(page, "python") if not b.startswith(FRAGMENT)]:
            yield pytest.param(found, id=str(page.relative_to(REPOSITORY)))


def command_lines() -> Iterator[object]:
    for page in PAGES:
        for block in blocks(page, "console", "sh", "bash"):
            for line in block.replace("\\\n", " ").splitlines():
                words = shlex.split(line.removeprefix("$ "), comments=True)
                if words[:1] == ["understudy"]:
                    yield pytest.param(words, id=f"{page.name}: {' '.join(words)}")


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize("code", list(python_pages()))
def test_python_blocks_of_a_page_run_in_order(
    code: list[str], published_home: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """The blocks of one page are one session on a published sample world."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "some-checkpoint").symlink_to(tiny_model)
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(code)],
        env={
            "UNDERSTUDY_HOME": str(published_home),
            "HF_HUB_OFFLINE": "1",
            "PATH": str(Path(sys.executable).parent),
            "PYTHONPATH": str(REPOSITORY),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", list(command_lines()))
def test_command_lines_are_accepted(words: list[str]) -> None:
    """The command exists, and its arguments parse; nothing is run."""
    from pipelines.cli.main import app

    command = typer.main.get_command(app)
    context = click.Context(command, info_name=words[0])
    rest = [re.sub(r"<[^>]*>", "x", word) for word in words[1:]]
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, f"no command {name!r}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    command.make_context(words[-1], rest, parent=context.parent)
