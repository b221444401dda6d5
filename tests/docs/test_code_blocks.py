"""Python blocks of README and docs run, command lines parse, settings are valid."""

from __future__ import annotations

import ast
import importlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import typer
import yaml
from support.environments import python_with

import understudy
from pipelines.config import Settings

REPOSITORY = Path(__file__).resolve().parents[2]
PAGES = sorted(
    [*(REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "examples/README.md")),
     *(REPOSITORY / "docs").rglob("*.md")]
)  # fmt: skip
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
SHELLS = ("console", "sh", "bash")
#: Languages of blocks; `text` is output.
LANGUAGES = {*SHELLS, "mermaid", "python", "sql", "text", "toml", "yaml"}
#: Programs of others, whose arguments are not ours to check.
OTHER_PROGRAMS = {
    "dagster",
    "dg",
    "docker",
    "git",
    "helm",
    "kubectl",
    "llama-server",
    "ollama",
    "sed",
    "source",
    "tensorboard",
    "vllm",
}
#: A block that begins with this comment shows what only a user can complete (a class of theirs).
FRAGMENT = "# fragment"


def blocks(page: Path, *languages: str) -> list[str]:
    return [
        text for language, text in BLOCK.findall(page.read_text("utf-8")) if language in languages
    ]


def python_pages() -> Iterator[object]:
    """Code of each page, and the extra that the page says to install (README has them all)."""
    for page in PAGES:
        if code := [b for b in blocks(page, "python") if not b.startswith(FRAGMENT)]:
            extra = re.search(r"pip install .*'\.\[([\w,]+)\]'", page.read_text("utf-8"))
            alone = extra[1] if extra and page.name != "README.md" else None
            yield pytest.param(code, alone, id=str(page.relative_to(REPOSITORY)))


def lines() -> Iterator[tuple[Path, list[str]]]:
    """Words of every command line, with its page."""
    for page in PAGES:
        for block in blocks(page, *SHELLS):
            for line in block.replace("\\\n", " ").splitlines():
                line = re.sub(r"<[^>]*>", "x", line.removeprefix("$ "))
                if words := shlex.split(re.sub(r"^([A-Z_]+=\S+ )+", "", line), comments=True):
                    yield page, words


def own_command_lines() -> Iterator[object]:
    for page, words in lines():
        if words[0] == "understudy":
            yield pytest.param(words, id=f"{page.name}: {' '.join(words)}")


@pytest.mark.pipeline
@pytest.mark.parametrize(("code", "extra"), list(python_pages()))
def test_python_blocks_of_a_page_run_in_order(
    code: list[str], extra: str | None, working_home: Path, tiny_model: Path, tmp_path: Path
) -> None:
    """The blocks of one page are one session on a published sample world."""
    python = python_with(extra) if extra else Path(sys.executable)
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "some-checkpoint").symlink_to(tiny_model)
    done = subprocess.run(
        [python, "-c", "\n".join(code)],
        env={
            "UNDERSTUDY_HOME": str(working_home),
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": str(python.parent),
            "PYTHONPATH": str(REPOSITORY),
        },
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", list(own_command_lines()))
def test_command_lines_are_accepted(words: list[str]) -> None:
    """The command exists, and its arguments parse; nothing is run."""
    from pipelines.cli.main import app

    command = typer.main.get_command(app)
    context = click.Context(command, info_name=words[0])
    rest = words[1:]
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None, f"no command {name!r}"
        command, context = found, click.Context(found, parent=context, info_name=name)
    command.make_context(words[-1], rest, parent=context.parent)


def test_every_block_says_its_language() -> None:
    unknown = [
        f"{page.name}: {language or text[:40]!r}"
        for page in PAGES
        for language, text in BLOCK.findall(page.read_text("utf-8"))
        if language not in LANGUAGES
    ]
    assert unknown == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_is_hidden_from_these_tests_by_indentation(page: Path) -> None:
    prose = BLOCK.sub("", page.read_text("utf-8"))
    assert re.findall(r"\n\n( {4}\S.*)", prose) == []


def test_commands_of_others_name_what_exists() -> None:
    """Targets of make, extras of pip, programs of an environment, variables of the settings."""
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))["project"]
    for page, words in lines():
        where = f"{page.name}: {' '.join(words)}"
        program = Path(words[0]).name
        if program == "make":
            assert words[1] in targets, where
        elif program == "pip":
            for extras in re.findall(r"\[(\S+)\]", " ".join(words)):
                assert set(extras.split(",")) <= set(project["optional-dependencies"]), where
            for file in re.findall(r"-r (\S+)", " ".join(words)):
                assert (REPOSITORY / file).is_file(), where
        elif program == "export":
            for name in (word.partition("=")[0] for word in words[1:]):
                if name == "UNDERSTUDY_HOME" or name.startswith("AWS_"):
                    continue
                section, _, field = name.removeprefix("UNDERSTUDY_").lower().partition("__")
                values = getattr(Settings(), section)
                assert not field or hasattr(values, field), where
        else:
            ours = program in ("understudy", "python", "python3.11", "pre-commit")
            assert ours or words[0] in OTHER_PROGRAMS, where


@pytest.mark.parametrize(
    ("page", "text"),
    [
        pytest.param(page, text, id=f"{page.name}-{n}")
        for page in PAGES
        for n, text in enumerate(blocks(page, "yaml"))
    ],
)
def test_yaml_blocks_are_settings(page: Path, text: str) -> None:
    values = yaml.safe_load(text)
    if page.name == "operations.md":  # an instance of Dagster: test_operations.py
        return
    if "resources" in values:  # the Launchpad: settings by their dotted names
        values = values["resources"]["workbench"]["config"]["set"]
        for name in values:
            section, _, field = name.partition(".")
            assert hasattr(getattr(Settings(), section), field)
        return
    assert set(values) <= set(Settings.model_fields)
    Settings(**values)


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(text, id=f"{page.name}-{n}")
        for page in PAGES
        for n, text in enumerate(blocks(page, "python"))
        if text.startswith(FRAGMENT)
    ],
)
def test_fragments_parse_and_their_imports_of_ours_exist(code: str) -> None:
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module.split(".")[0] in ("sim", "pipelines"):
            module = importlib.import_module(node.module)
            assert all(hasattr(module, alias.name) for alias in node.names)


def _programs() -> Iterator[tuple[str, str]]:
    """Name and code of everything that a reader copies: blocks, scripts, notebooks."""
    for page in PAGES:
        yield page.name, "\n".join(blocks(page, "python"))
    for file in (REPOSITORY / "examples").glob("*.py"):
        yield file.name, file.read_text("utf-8")
    for file in (REPOSITORY / "examples").glob("*.ipynb"):
        cells = json.loads(file.read_text("utf-8"))["cells"]
        yield file.name, "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")


def test_names_of_the_facade_are_imported_from_it() -> None:
    offered, others = set(understudy.__all__), []
    for name, code in _programs():
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module != "understudy":
                ours = str(node.module).split(".")[0] in ("sim", "pipelines")
                others += [f"{name}: {a.name}" for a in node.names if ours and a.name in offered]
            elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                others += [f"{name}: {node.attr}"] * (node.value.id == "understudy")
    assert others == []
