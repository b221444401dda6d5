"""``understudy judge``: questionnaires for people, and their answers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli import options as cli

if TYPE_CHECKING:
    import polars as pl

    from pipelines.store import Release

judge = cli.group(
    "Blind human judgement of ratings: write questionnaires, aggregate returned sheets."
)


@judge.command()
@cli.command()
def export(
    call: cli.Call,
    out: Annotated[Path, typer.Option(help="New or empty folder for the files.")],
    release: Annotated[
        list[str] | None,
        typer.Option(
            metavar="REF",
            help="Release whose scores are judged (default: the latest); repeat it to compare the"
            " raters of several releases on the pairs that all of them scored.",
        ),
    ] = None,
    cases: Annotated[
        int, typer.Option("--n", min=1, help="(Persona, item) pairs to judge (count).")
    ] = 10,
    judges: Annotated[int, typer.Option(min=1, help="Questionnaires to write (count).")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the pairs and their orders.")] = 0,
) -> None:
    """Write a blind questionnaire: a page and a sheet per judge, and the key for scoring.

    A control with random ratings is always among the raters. Keep key.json private and give
    each judge one page (it works offline in any browser) or one CSV sheet.

    Examples:
      understudy judge export --out ./sheets

    JSON: {"folder", "pages", "sheets", "key", "entries", "raters", "explained"}.
    """
    from pipelines.judge import draw_cases, export_questionnaire

    opened = [call.release(ref) for ref in release or [call.settings.release.name]]
    scores = _scores(opened)
    drawn = draw_cases(
        scores,
        opened[0].snapshot("personas").read(),
        opened[0].snapshot("items").read(),
        count=cases,
        seed=seed,
    )
    made = export_questionnaire(drawn, out, judges=judges, seed=seed)
    payload: dict[str, Any] = {
        "folder": str(made.folder),
        "pages": [str(p) for p in made.pages],
        "sheets": [str(p) for p in made.sheets],
        "key": str(made.key),
        "entries": made.entries,
        "raters": sorted({r.rater for case in drawn for r in case.replies}),
        "explained": all(r.explanation for case in drawn for r in case.replies),
    }
    number = len(made.pages)
    unexplained = "  Ratings are shown without explanations: not every rater gave them."
    call.emit(
        payload,
        f"Wrote {number} questionnaire{'s' * (number != 1)} to {made.folder}",
        f"  {made.entries} entries each; raters: {', '.join(payload['raters'])}",
        *([] if payload["explained"] else [unexplained]),
        f"  Keep {made.key} private; score with:",
        f"  understudy judge score {made.folder} <returned sheets>",
    )


def _scores(releases: list[Release]) -> dict[str, pl.DataFrame]:
    out: dict[str, pl.DataFrame] = {}
    for release in releases:
        frame = release.snapshot("preference_scores").read()
        for (rater,), part in frame.group_by("rater", maintain_order=True):
            # The same rater in two releases is two versions of it.
            name = str(rater) if rater not in out else f"{rater} ({release.version[:8]})"
            out[name] = part
    return out


@judge.command()
@cli.command(rows="raters")
def score(
    call: cli.Call,
    folder: Annotated[Path, typer.Argument(help="Folder of the export, or its key.json.")],
    sheets: Annotated[list[Path], typer.Argument(help="Returned CSV sheets.")],
) -> None:
    """Aggregate returned sheets: mean grade per rater, and the judges' agreement.

    JSON: {"raters": [{"rater", "mean", "low", "high", "deviation", "grades"}],
    "alpha", "judges", "cases", "ungraded"}.
    """
    from pipelines.judge import score_sheets

    key = folder if folder.is_file() else folder / "key.json"
    judged = score_sheets(key, sheets)
    rows = [
        (r["rater"], f"{r['mean']:.2f}", f"{r['low']:.2f} to {r['high']:.2f}", str(r["grades"]))
        for r in judged.raters
    ]
    columns = ("rater", "mean", "95 % interval", "grades")
    none = "not measurable: no reply has two grades"
    alpha = none if judged.alpha is None else f"{judged.alpha:.2f}"
    call.emit(
        asdict(judged),
        cli.table(*columns, rows=rows, numeric=("mean", "grades")),
        f"{judged.judges} judges, {judged.cases} cases, {judged.ungraded} entries without a "
        f"grade.  Agreement (Krippendorff's alpha): {alpha}",
    )
