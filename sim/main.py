"""The ``sim`` command line: the commands of ``understudy`` that play with a release."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint

import typer

from pipelines.cli.group import RootGroup, root_app

__all__ = ["app", "main"]


class SimGroup(RootGroup):
    """The registered commands that live in this package."""

    def registered(self) -> dict[str, EntryPoint]:
        """Those of ``sim``; each is imported when it is called."""
        mine = super().registered().items()
        return {name: entry for name, entry in mine if entry.module.partition(".")[0] == "sim"}


app = root_app("sim", "Recommenders and simulated users on a published release.", SimGroup)


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
