"""The ``sim`` command line: the commands of ``understudy`` that play with a release."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Annotated

import typer

from pipelines.cli._errors import EXIT_CODES
from pipelines.cli._group import RootGroup, version_line

__all__ = ["app", "main"]


class SimGroup(RootGroup):
    """The registered commands that live in this package."""

    def registered(self) -> dict[str, EntryPoint]:
        """Those of ``sim``; each is imported when it is called."""
        mine = super().registered().items()
        return {name: entry for name, entry in mine if entry.module.partition(".")[0] == "sim"}


app = typer.Typer(
    name="sim",
    cls=SimGroup,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: "
    + "; ".join(f"{code} {meaning}" for code, meaning in EXIT_CODES.items())
    + ".",
)


@app.callback()
def sim(
    debug: Annotated[
        bool,
        typer.Option(
            "--debug",
            help="Show tracebacks and details of errors (also UNDERSTUDY_DEBUG=1); "
            "may stand anywhere.",
        ),
    ] = False,
    version: Annotated[
        bool,
        typer.Option(
            "--version", is_eager=True, callback=version_line, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Recommenders and simulated users on a published release."""
    del debug, version  # read by the root group and the callback, before any command runs


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and exit; the console script ``sim``.

    Parameters
    ----------
    args
        Words after the program's name; default ``sys.argv[1:]``.

    Raises
    ------
    SystemExit
        Always, with one of the documented exit codes.
    """
    typer.main.get_command(app).main(args=args, prog_name="sim")


if __name__ == "__main__":
    main()
