"""The command ``understudy explore``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.cli import options as cli

__all__ = ["explore"]

#: Words for the rows of views whose names are not plurals.
_COUNTED = {"graph": "items in the graph", "training": "runs of training", "beside": "tables"}


@cli.command()
def explore(
    call: cli.Call,
    release: cli.RefArgument = "latest",
    out: Annotated[
        Path | None,
        cli.folder_option("--out", "Folder of the site (default: <name>-site, where you are)."),
    ] = None,
    simulation: Annotated[
        Path | None,
        cli.folder_option(
            "--simulation",
            "Folder of a run of agents (default: the newest on the release; without any, 24 "
            "visits are played).",
        ),
    ] = None,
    dialogue: Annotated[
        Path | None,
        cli.folder_option(
            "--dialogue",
            "Folder of a run of dialogues (default: the newest; without any, a few are played if "
            "there is a release of products).",
        ),
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(help="A release to compare with.", autocompletion=cli.complete_refs),
    ] = None,
    number: Annotated[int, typer.Option("--personas", min=1, help="Personas shown (count).")] = 120,
    with_texts: Annotated[
        bool,
        typer.Option(
            "--with-texts",
            help="Show names and posters whose sources do not allow redistribution.",
        ),
    ] = False,
) -> None:
    """Write a site over a release: people, visits, dialogues, graph, experiments, training.

    It opens from disk, without a server: index.html. Posters are those of the world's folder
    (`--set world.folder=…`).

    Examples:
      understudy explore movies@latest --out ./site

    JSON: {"release", "folder", "views": {name: rows}, "absent": {view: reason}, "left_out",
    "files", "bytes"}.
    """
    from sim import Release
    from sim.explore import explore as write

    opened = Release(call.release(release))
    other = None if beside is None else Release(call.release(beside))
    with call.progress(f"the site of {opened.name}"):
        payload: dict[str, Any] = write(
            opened,
            out or Path(f"{opened.name}-site"),
            call.settings,
            simulation=simulation,
            dialogue=dialogue,
            beside=other,
            number=number,
            texts=with_texts,
        )

    counts = payload["views"].items()
    views = ", ".join(f"{count:,} {_COUNTED.get(name, name)}" for name, count in counts)
    left_out = (
        "Left out, because sources do not allow redistribution: "
        f"{', '.join(payload['left_out'])} (--with-texts)."
    )
    call.emit(
        payload,
        f"{payload['release']}: {views}",
        *(f"Without {name}: {reason}" for name, reason in payload["absent"].items()),
        *([left_out] if payload["left_out"] else []),
        f"Open {payload['folder']}/index.html ({payload['files']} files, "
        f"{cli.human_bytes(payload['bytes'])}).",
    )
