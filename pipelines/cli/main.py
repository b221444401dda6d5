"""The ``understudy`` command line: assembly of the commands and the console script."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from pipelines.cli.group import root_app

__all__ = ["app", "main"]

app = root_app(
    "understudy",
    "Simulated users for recommender systems, generated and evaluated as versioned datasets.",
)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line (default ``sys.argv[1:]``) and exit with one of the documented codes."""
    typer.main.get_command(app).main(args=args, prog_name="understudy")


if __name__ == "__main__":
    main()
