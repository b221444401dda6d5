"""The ``understudy`` command line: assembly of the commands and the console script."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from pipelines.cli._answers import answers_app
from pipelines.cli._config import config_app
from pipelines.cli._doctor import doctor
from pipelines.cli._graph import graph_app
from pipelines.cli._judge import judge_app
from pipelines.cli._maintenance import backup, gc, restore
from pipelines.cli._match import match
from pipelines.cli._models import models_app
from pipelines.cli._personas import personas
from pipelines.cli._release import release_app
from pipelines.cli._report import report
from pipelines.cli._status import status
from pipelines.cli.group import root_app

__all__ = ["app", "main"]

app = root_app(
    "understudy",
    "Simulated users for recommender systems, generated and evaluated as versioned datasets.",
)


app.command()(status)
app.add_typer(release_app, name="release")
app.command()(report)
app.add_typer(graph_app, name="graph")
app.add_typer(answers_app, name="answers")
app.add_typer(judge_app, name="judge")
app.add_typer(models_app, name="models")
app.command()(personas)
app.command()(match)
app.command()(gc)
app.command()(backup)
app.command()(restore)
app.command()(doctor)
app.add_typer(config_app, name="config")


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line (default ``sys.argv[1:]``) and exit with one of the documented codes."""
    typer.main.get_command(app).main(args=args, prog_name="understudy")


if __name__ == "__main__":
    main()
