"""``understudy report``: one page about a release."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.cli import options as cli

if TYPE_CHECKING:
    from rich.console import Console


@cli.command()
def report(
    call: cli.Call,
    release: cli.RefArgument = "latest",
    html: Annotated[bool, typer.Option("--html", help="Write a self-contained HTML page.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="File of the page; default: <name>-<version>.html in the current folder.",
        ),
    ] = None,
    persona: Annotated[str | None, typer.Option(help="Persona shown; default: the first.")] = None,
) -> None:
    """Report on a release: a persona, personas versus people, raters, checks, lineage, terms.

    JSON: {"release", "world", "persona": {"persona_id", "description", "likes", "dislikes",
    "ratings": [{"item_id", "title", "expected", "probabilities", "why"}]},
    "checks": {"passed", "warned", "failed", "not_applicable"}, "page"};
    the persona and the page are null where there is none.
    """
    from pipelines.graph import write_bytes
    from pipelines.quality import release_report, report_page

    stored = call.release(release)
    with call.progress(f"reading {stored.name}"):
        values = release_report(stored, persona=persona)
        page = None
        if html or out is not None:
            page = out or Path(f"{stored.name}-{stored.version}.html")
            write_bytes(page, report_page(values).encode())
    shown = values["persona"]
    kept = ("item_id", "title", "expected", "probabilities", "why")
    who = ("persona_id", "description", "likes", "dislikes")
    payload = {
        "release": str(stored),
        "world": stored.world,
        "persona": shown
        and {
            **{key: shown[key] for key in who},
            "ratings": [{key: rating[key] for key in kept} for rating in shown["ratings"]],
        },
        "checks": values["checks"]["counts"],
        "page": None if page is None else str(page),
    }

    def render(screen: Console) -> None:
        screen.print(values["title"], style="bold")
        screen.print(f"{stored}: {', '.join(values['contents'])}")
        for note in values["notes"]:
            screen.print(note)
        if shown:
            heading = ", ".join([shown["name"] or shown["persona_id"], *shown["facts"]])
            screen.print(f"\n{heading}", style="bold")
            screen.print(shown["description"])
            rows = [(r["title"], r["why"], f"{r['expected']:.1f}") for r in shown["ratings"]]
            screen.print(cli.table(values["item"], "why", "rating", rows=rows, numeric=["rating"]))
        screen.print(f"checks: {cli.shown_outcomes(values['checks']['counts'])}")
        screen.print("The whole report: --html." if page is None else f"Page: {page}")

    call.emit(payload, render)
