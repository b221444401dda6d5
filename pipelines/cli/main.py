"""The ``understudy`` command line: lazy commands, one place for errors, and the console script."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Annotated, Any

import orjson
import typer
from typer.core import TyperCommand, TyperGroup

from pipelines.cli._terminal import (
    INTERRUPTED,
    console,
    log_printable,
    printable,
    reader_gone,
    write_in_any_encoding,
    write_json,
)
from pipelines.errors import ConfigError, UnderstudyError
from pipelines.extras import missing_package

#: Entry-point group: name of the command = ``module:function`` or ``module:typer_app``.
GROUP = "understudy.commands"
#: Commands of this package, which need no entry points.
_OWN = {
    "status": "_store:status",
    "release": "_release:release",
    "report": "_release:report",
    "graph": "_graph:graph",
    "answers": "_models:answers",
    "judge": "_judge:judge",
    "models": "_models:models",
    "personas": "_personas:personas",
    "match": "_personas:match",
    "gc": "_store:gc",
    "backup": "_store:backup",
    "restore": "_store:restore",
    "doctor": "_doctor:doctor",
    "config": "_config:config",
}


@cache
def plugin_commands() -> dict[str, EntryPoint]:
    """Entry points of the group by command name, in alphabetical order."""
    return {e.name: e for e in sorted(entry_points(group=GROUP), key=lambda e: e.name)}


def commands() -> dict[str, EntryPoint]:
    """All commands by name; nobody else's replaces one of this package."""
    packaged = {n: EntryPoint(n, f"pipelines.cli.{place}", GROUP) for n, place in _OWN.items()}
    return {**plugin_commands(), **packaged}


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
            if match := re.search(pattern, text, re.MULTILINE | re.DOTALL):
                return match[1].strip()
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


#: Exit codes of every command, in the order they are documented.
EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "unexpected error, or a failed `doctor` check",
    2: "wrong usage or settings",
    3: "source files or services",
    4: "a contract or blocking check",
    5: "the store (locked, damaged, full)",
    6: "a release (unknown, refused)",
    7: "a model run",
    130: "interrupted",
    141: "broken pipe",
}
#: Commands whose results are stored as they are computed.
RESUMED = frozenset(
    {"ablate", "agents", "dialogue", "experiment", "match", "models", "personas", "run"}
)


def wants(flag: str, words: Sequence[str]) -> bool:
    """Return True if a flag is among the arguments, before any ``--``.

    Read from the words themselves, because a usage error leaves nothing parsed to look at.

    >>> wants("--json", ["status", "--json"]), wants("--json", ["x", "--", "--json"])
    (True, False)
    """
    words = list(words)
    return flag in (words[: words.index("--")] if "--" in words else words)


def guarded(call: Callable[[], Any], words: Sequence[str], *, debug: bool) -> int:
    """Run a command and turn its exceptions into an exit code.

    ``call`` returns an exit code (an ``int``) or anything else for success; ``words`` is the
    command line without the program's name; ``debug`` prints tracebacks and the details of errors.
    """
    as_json = wants("--json", words)
    log_printable()
    write_in_any_encoding()
    try:
        try:
            result = call()
            code = result if type(result) is int else 0
            if code == 130:  # the framework's translation of KeyboardInterrupt
                raise KeyboardInterrupt
            sys.stdout.flush()
        except BrokenPipeError:
            reader_gone()
    except typer.Exit as done:
        return done.exit_code
    except KeyboardInterrupt as error:
        command = next((word for word in words if not word.startswith("-")), None)
        line = INTERRUPTED if command in RESUMED else "interrupted"
        return _report(error, line, 130, as_json=as_json, debug=debug)
    except typer.Abort as error:
        return _report(error, "aborted", 1, as_json=as_json, debug=debug)
    except typer.TyperException as error:
        return _usage(error, as_json=as_json)
    except UnderstudyError as error:
        return _report(error, str(error), error.exit_code, as_json=as_json, debug=debug)
    except ModuleNotFoundError as error:
        fault = missing_package(error, where=" ".join(["understudy", *words[:1]]))
        return _report(fault, str(fault), fault.exit_code, as_json=as_json, debug=debug)
    except Exception as error:  # noqa: BLE001 - the boundary of the process
        text = " ".join(f"unexpected {type(error).__name__}: {error}".split())
        hint = "please report it" if debug else "run with --debug, please report"
        return _report(error, f"{text} ({hint})", 1, as_json=as_json, debug=debug)
    return code


def _report(error: BaseException, line: str, code: int, *, as_json: bool, debug: bool) -> int:
    fault = error if isinstance(error, UnderstudyError) else None
    if debug and not isinstance(error, KeyboardInterrupt):
        sys.stderr.write(printable("".join(traceback.format_exception(error))))
        if fault and fault.details:
            details = orjson.dumps(fault.details, default=str, option=orjson.OPT_INDENT_2)
            print(f"details: {printable(details.decode())}", file=sys.stderr)
    _line(line)
    if as_json:
        _json_error(
            {
                "type": type(error).__name__,
                "what": fault.what if fault else line,
                "where": fault.where if fault else None,
                "hint": fault.hint if fault else None,
                "details": fault.details if fault else {},
                "exit_code": code,
            }
        )
    return code


def _usage(error: typer.TyperException, *, as_json: bool) -> int:
    if type(error).__name__ == "NoArgsIsHelpError":
        # Its message is the help text, already printed when rich draws it.
        if error.message:
            print(error.message, file=sys.stderr)
        return 2
    context = getattr(error, "ctx", None)
    hint = f"see {context.command_path} --help" if context is not None else None
    what = " ".join(error.format_message().split()).rstrip(".")
    _line(f"{what} ({hint})" if hint else what)
    if as_json:
        _json_error(
            {
                "type": "UsageError",
                "what": what,
                "where": None,
                "hint": hint,
                "details": {},
                "exit_code": error.exit_code,
            }
        )
    return error.exit_code


def _line(text: str) -> None:
    from rich.text import Text

    screen = console(stderr=True)
    # Standard error may be a file on the disk that is full: the exit code must tell all the same.
    with suppress(OSError):
        screen.print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)


def _json_error(body: dict[str, Any]) -> None:
    with suppress(typer.Exit):  # nobody reads stdout; the line on stderr is enough
        write_json({"error": body})


#: Groups of commands in ``--help``, in this order; others follow alphabetically.
_PANELS = {
    "Start": ("run", "ui", "status", "doctor", "config"),
    "Look": ("explore", "release", "report", "episode", "graph"),
    "Use": (
        *("train", "recommend", "leaderboard", "agents", "dialogue", "experiment", "ablate"),
        "episodes",
    ),
    "Make": ("personas", "match", "models", "answers", "judge"),
    "Keep": ("gc", "backup", "restore"),
}
_PANEL_OF = {name: panel for panel, names in _PANELS.items() for name in names}
_ORDER = tuple(_PANEL_OF)


def debug_wanted(words: Sequence[str]) -> bool:
    """Return True if tracebacks are to be shown: ``--debug`` anywhere, or ``UNDERSTUDY_DEBUG``."""
    return wants("--debug", words) or os.environ.get("UNDERSTUDY_DEBUG", "") not in {"", "0"}


def laid_out(command: Any) -> Any:
    """The command, with its help and that of its subcommands laid out for a terminal.

    A paragraph is one line, which fills the terminal's width; examples keep their lines; the shape
    of its JSON comes last, below the options.
    """
    if command.help:
        text, mark, shape = inspect.cleandoc(command.help).partition("\n\nJSON")
        command.help = "\n\n".join(
            part if part.startswith("Example") else " ".join(part.split())
            for part in text.split("\n\n")
        )
        # Markup would take [value, low, high] for a style.
        shape = re.sub(r"\[(?=[a-z#/@])", r"\\[", " ".join(shape.split()))
        command.epilog = f"JSON{shape}" if mark else command.epilog
    for child in getattr(command, "commands", {}).values():
        laid_out(child)
    return command


class RootGroup(TyperGroup):
    """``understudy``: commands that are imported when they are called."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands."""
        del ctx
        return sorted(
            commands(), key=lambda n: (_ORDER.index(n) if n in _ORDER else len(_ORDER), n)
        )

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A stand-in for a command, which knows only its help line."""
        del ctx
        if cmd_name not in commands():
            return None
        command: Any = TyperCommand(cmd_name, help=help_line(commands()[cmd_name]), params=[])
        command.rich_help_panel = _PANEL_OF.get(cmd_name, "Others")
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """The command to run: here it is imported."""
        name = args[0]
        if name in commands():
            return name, laid_out(load_command(commands()[name])), args[1:]
        if not name.startswith("-"):
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse, taking ``--debug`` from wherever it stands."""
        if wants("--debug", args):
            end = args.index("--") if "--" in args else len(args)
            args = ["--debug", *(a for a in args[:end] if a != "--debug"), *args[end:]]
        return super().parse_args(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run and exit with the documented code; without ``standalone_mode`` let errors out."""
        words = list(sys.argv[1:] if args is None else args)

        def call() -> Any:
            return super(RootGroup, self).main(
                words,
                prog_name=prog_name or "understudy",
                complete_var=complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        if not standalone_mode:
            return call()
        sys.exit(guarded(call, words, debug=debug_wanted(words)))


def version_line(show: bool) -> None:
    """Print the version and end."""
    if show:
        from pipelines import __version__

        typer.echo(f"understudy {__version__}")
        raise typer.Exit


def root_app(name: str, about: str) -> typer.Typer:
    """The program ``name``: options that every command shares, exit codes, commands.

    ``about`` is the first line of its help.
    """
    codes = "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    app = typer.Typer(
        name=name,
        cls=RootGroup,
        no_args_is_help=True,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog=f"Exit codes: {codes}.",
    )

    @app.callback(help=about)
    def program(
        debug: Annotated[
            bool,
            typer.Option(
                "--debug",
                help="Show tracebacks and details of errors (also UNDERSTUDY_DEBUG=1); may be "
                "given anywhere.",
            ),
        ] = False,
        version: Annotated[
            bool,
            typer.Option(
                "--version",
                is_eager=True,
                callback=version_line,
                help="Print the version and exit.",
            ),
        ] = False,
    ) -> None:
        del debug, version  # read by the root group and the callback, before any command runs

    return app


app = root_app(
    "understudy",
    "Simulated users for recommender systems, generated and evaluated as versioned datasets.",
)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line (default ``sys.argv[1:]``) and exit with one of the documented codes."""
    typer.main.get_command(app).main(args=args, prog_name="understudy")


if __name__ == "__main__":
    main()
