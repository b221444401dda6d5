"""The top level: help, errors, exit codes, interrupts, pipes."""

from __future__ import annotations

import importlib.metadata
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import pipelines.errors as errors
from pipelines.cli.main import EXIT_CODES, app, commands, guarded, load_command

Understudy = Callable[..., subprocess.CompletedProcess[str]]
Popen = Callable[..., subprocess.Popen[bytes]]

#: Every class of the tree.
SUBCLASSES = [name for name in errors.__all__ if name != "UnderstudyError"]


@pytest.mark.pipeline
def test_help_names_every_command_with_a_line_and_the_exit_codes(understudy: Understudy) -> None:
    done = understudy("--help")
    assert done.returncode == 0
    for command in ("run", "status", "release", "episode", "doctor", "config"):
        assert any(line.strip("│ ").startswith(f"{command} ") for line in done.stdout.splitlines())
    text = " ".join(done.stdout.replace("│", " ").split())
    assert "Play one episode on a release" in text
    assert "Fail with an error of the given class." in text
    assert "A group of commands." in text
    for code in EXIT_CODES:
        assert f"{code} " in text.partition("Exit codes:")[2]


@pytest.mark.pipeline
def test_help_fits_80_columns_and_has_no_colour_without_a_terminal(understudy: Understudy) -> None:
    done = understudy("--help")
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "\x1b" not in done.stdout


@pytest.mark.pipeline
def test_help_imports_neither_the_registered_commands_nor_anything_heavy() -> None:
    heavy = (
        "dagster dbt torch polars pandas duckdb pydantic gymnasium numpy pandera sim orchestration"
    )
    code = (
        "import sys\n"
        "from pipelines.__main__ import main\n"
        "sys.argv = ['understudy', '--help']\n"
        "try:\n    main()\n"
        "except SystemExit as done:\n    assert done.code == 0\n"
        f"print([m for m in {heavy.split()} if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.pipeline
def test_without_arguments_the_help_is_shown_and_the_code_is_2(understudy: Understudy) -> None:
    done = understudy()
    assert done.returncode == 2
    assert "Usage: understudy" in done.stdout + done.stderr


def test_version_is_the_package_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert result.exit_code == 0
    assert result.stdout == f"understudy {importlib.metadata.version('understudy-recsys')}\n"


@pytest.mark.parametrize("kind", SUBCLASSES)
@pytest.mark.usefixtures("with_plugin")
def test_an_error_is_one_line_with_the_exit_code_of_its_class(kind: str) -> None:
    done = CliRunner().invoke(app, ["fail", kind])
    assert done.exit_code == getattr(errors, kind).exit_code
    assert done.exit_code in EXIT_CODES
    assert done.stderr == "error: it broke: here.csv (mend it)\n"
    assert done.stdout == ""


@pytest.mark.pipeline
def test_an_error_is_json_on_stdout_when_json_is_wanted(understudy: Understudy) -> None:
    done = understudy("fail", "ReleaseError", "--json")
    assert done.returncode == 6
    assert json.loads(done.stdout) == {
        "error": {
            "type": "ReleaseError",
            "what": "it broke",
            "where": "here.csv",
            "hint": "mend it",
            "details": {"rows": [{"a": 1}]},
            "exit_code": 6,
        }
    }
    assert done.stderr == "error: it broke: here.csv (mend it)\n"


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["--debug", "fail", "SourceError"], {}),
        (["fail", "SourceError", "--debug"], {}),
        (["fail", "SourceError"], {"UNDERSTUDY_DEBUG": "1"}),
    ],
)
@pytest.mark.usefixtures("with_plugin")
def test_debug_adds_the_traceback_and_the_details(words: list[str], env: dict[str, str]) -> None:
    done = CliRunner().invoke(app, words, env=env)
    assert done.exit_code == 3
    assert "Traceback (most recent call last)" in done.stderr
    assert '"rows"' in done.stderr
    assert done.stderr.endswith("error: it broke: here.csv (mend it)\n")


@pytest.mark.pipeline
def test_an_unexpected_exception_is_one_line_that_asks_for_a_report(
    understudy: Understudy,
) -> None:
    done = understudy("fail", "no such\nclass", "--json")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "unexpected KeyError" in done.stderr
    assert "run with --debug, please report" in done.stderr
    assert json.loads(done.stdout)["error"]["type"] == "KeyError"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["statsu"], "No such command 'statsu'. Did you mean 'status'?"),
        (["episod"], "Did you mean 'episode'?"),
        (["status", "--jsno"], "No such option: --jsno"),
        (["release", "diff", "a"], "Missing argument"),
        (["status", "--config", "."], "is a directory"),
    ],
)
def test_wrong_usage_is_one_line_with_code_2(words: list[str], expected: str) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1
    assert expected in done.stderr
    assert "--help)" in done.stderr


@pytest.mark.pipeline
def test_wrong_usage_is_json_too(understudy: Understudy) -> None:
    done = understudy("status", "--jsno", "--json")
    assert done.returncode == 2
    error = json.loads(done.stdout)["error"]
    assert (error["type"], error["exit_code"]) == ("UsageError", 2)
    assert error["hint"] == "see understudy status --help"


@pytest.mark.pipeline
def test_a_registered_group_of_commands_works(understudy: Understudy) -> None:
    assert understudy("group", "inner", "all").stdout == "hello all\n"


@pytest.mark.pipeline
def test_a_registered_command_that_is_gone_is_a_named_error(understudy: Understudy) -> None:
    done = understudy("gone")
    assert done.returncode == 2
    assert "`gone` can't be loaded" in done.stderr
    assert "plugin_package.commands:no_such_function" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.pipeline
@pytest.mark.parametrize("words", [["wait"], ["wait", "--json"]])
def test_an_interrupt_is_one_line_and_code_130(words: list[str], popen: Popen) -> None:
    process = popen(*words)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == b"error: interrupted\n"
    assert bool(out) == ("--json" in words)


@pytest.mark.parametrize("words", [["run"], ["--debug", "personas"], ["agents"]])
def test_interrupted_command_says_that_it_resumes(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def call() -> None:
        raise KeyboardInterrupt

    assert guarded(call, words, debug=False) == 130
    assert "the same command resumes" in capsys.readouterr().err
    assert guarded(call, ["episode"], debug=False) == 130
    assert capsys.readouterr().err == "error: interrupted\n"


@pytest.mark.pipeline
@pytest.mark.parametrize("words", [["chatter"], ["config", "show"], ["config", "show", "--json"]])
def test_a_reader_that_goes_away_ends_it_quietly(words: list[str], popen: Popen) -> None:
    process = popen(*words)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 141
    assert err == b""


@pytest.mark.pipeline
def test_completion_offers_commands_and_releases(understudy: Understudy, home: Path) -> None:
    done = understudy(
        _UNDERSTUDY_COMPLETE="complete_bash", COMP_WORDS="understudy st", COMP_CWORD="1"
    )
    assert done.stdout.split() == ["status"]
    done = understudy(
        _UNDERSTUDY_COMPLETE="complete_bash",
        COMP_WORDS="understudy release show movies@l",
        COMP_CWORD="3",
        UNDERSTUDY_HOME=str(home),
    )
    assert done.stdout.split() == ["movies@latest"]


@pytest.fixture(scope="module")
def every_command() -> dict[str, Any]:
    """All commands of ours by their words, such as ``release show``."""

    def leaves(command: object, path: str) -> list[tuple[str, object]]:
        inner = getattr(command, "commands", None)
        if inner is None:
            return [(path, command)]
        return [leaf for name, c in inner.items() for leaf in leaves(c, f"{path} {name}")]

    return dict(
        leaf
        for name, entry in commands().items()
        if entry.module.partition(".")[0] in ("pipelines", "sim", "orchestration")
        for leaf in leaves(load_command(entry), name)
    )


def test_every_example_is_a_call_of_its_command(every_command: dict[str, Any]) -> None:
    calls = 0
    for path, command in every_command.items():
        lines = (command.help or "").replace("\\\n", "").splitlines()
        for line in (line.strip() for line in lines):
            if line.startswith("understudy "):
                words = line.removeprefix(f"understudy {path}")
                assert words != line, (path, line)
                command.make_context(path, shlex.split(words))
                calls += 1
    assert calls > 20


def test_every_command_takes_set_home_config_and_json(every_command: dict[str, Any]) -> None:
    assert len(every_command) > 45
    for path, command in every_command.items():
        options = {o for p in command.params for o in p.opts}
        assert {"--set", "--home", "--config", "--json"} <= options, path


def test_help_shows_examples_line_by_line_and_the_json_shape_last() -> None:
    text = CliRunner().invoke(app, ["dialogue", "run", "--help"]).stdout
    examples = [line.strip() for line in text.partition("Examples:")[2].splitlines()[1:5]]
    assert examples == [
        "understudy dialogue run --suite models",
        "understudy dialogue run --agent dp --agent linear --setting category",
        "understudy dialogue run --suite all --model-agent model-base \\",
        "--set engine.kind=transformers --set engine.model=smollm2-135m",
    ]
    assert text.index("--json") < text.index('JSON: {"release"')
    text = CliRunner().invoke(app, ["agents", "run", "--help"]).stdout
    assert '"p_view": [value, low, high]' in " ".join(text.split())


@pytest.mark.parametrize(
    ("words", "verb"),
    [(["agents"], "run"), (["experiment", "cost"], "run"), (["personas"], "write")],
)
def test_old_spelling_runs_the_command_with_a_warning(
    words: list[str], verb: str, tmp_path: Path
) -> None:
    # The first thing that each command does with these settings is to refuse them.
    options = ["--set", "runtime.threads=-1", "--home", str(tmp_path)]
    old = CliRunner().invoke(app, [*words, *options])
    now = CliRunner().invoke(app, [words[0], verb, *words[1:], *options])
    assert old.exit_code == now.exit_code == 2
    warning, error = old.stderr.splitlines()
    assert f"`understudy {words[0]}` is now `understudy {words[0]} {verb}`" in warning
    assert error == now.stderr.strip()
