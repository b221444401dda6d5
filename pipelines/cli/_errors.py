"""From an exception to one line on stderr, a JSON document and an exit code."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import orjson
import typer

from pipelines.cli._terminal import console, log_printable, printable, reader_gone, write_json
from pipelines.errors import UnderstudyError

__all__ = ["EXIT_CODES", "guarded", "wants"]

#: Exit codes of every command, in the order they are documented.
EXIT_CODES: dict[int, str] = {
    0: "done",
    1: "unexpected fault, or a failed `doctor` line",
    2: "wrong usage or settings",
    3: "source files or services",
    4: "a contract or blocking check",
    5: "the store (locked, damaged, full)",
    6: "a release (unknown, refused)",
    7: "a model run",
    130: "interrupted",
    141: "broken pipe",
}


def wants(flag: str, words: Sequence[str]) -> bool:
    """Whether a flag is among the arguments, before any ``--``.

    Read from the words themselves, because a usage error leaves nothing parsed to look at.

    >>> wants("--json", ["status", "--json"]), wants("--json", ["x", "--", "--json"])
    (True, False)
    """
    words = list(words)
    return flag in (words[: words.index("--")] if "--" in words else words)


def guarded(call: Callable[[], Any], words: Sequence[str], *, debug: bool) -> int:
    """Run a command and turn whatever it raises into an exit code.

    Parameters
    ----------
    call
        Runs the command; returns an exit code (an ``int``) or anything else for success.
    words
        The command line without the program's name.
    debug
        Print tracebacks and the details of an error.
    """
    as_json = wants("--json", words)
    log_printable()
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
        return _report(error, "interrupted", 130, as_json=as_json, debug=debug)
    except typer.Abort as error:
        return _report(error, "aborted", 1, as_json=as_json, debug=debug)
    except typer.TyperException as error:
        return _usage(error, as_json=as_json)
    except UnderstudyError as error:
        return _report(error, str(error), error.exit_code, as_json=as_json, debug=debug)
    except Exception as error:  # noqa: BLE001 - the boundary of the process
        text = " ".join(f"unexpected {type(error).__name__}: {error}".split())
        hint = "please report it" if debug else "run with --debug, please report"
        return _report(error, f"{text} ({hint})", 1, as_json=as_json, debug=debug)
    return code


def _report(error: BaseException, line: str, code: int, *, as_json: bool, debug: bool) -> int:
    known = error if isinstance(error, UnderstudyError) else None
    if debug and not isinstance(error, KeyboardInterrupt):
        sys.stderr.write(printable("".join(traceback.format_exception(error))))
        if known and known.details:
            details = orjson.dumps(known.details, default=str, option=orjson.OPT_INDENT_2)
            print(f"details: {printable(details.decode())}", file=sys.stderr)
    _line(line)
    if as_json:
        _json_error(
            {
                "type": type(error).__name__,
                "what": known.what if known else line,
                "where": known.where if known else None,
                "hint": known.hint if known else None,
                "details": known.details if known else {},
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
    screen.print(Text.assemble(("error: ", "bold red"), text), soft_wrap=True)


def _json_error(body: dict[str, Any]) -> None:
    with suppress(typer.Exit):  # nobody reads stdout; the line on stderr has said it
        write_json({"error": body})
