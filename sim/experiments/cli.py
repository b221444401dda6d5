"""The commands ``understudy experiment run | list``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli import options as cli

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.study import Study
    from sim.experiments import Experiment

__all__ = ["experiment"]


experiment = cli.group(
    "Experiments on simulated users, with baselines and intervals.", former="run"
)


@experiment.command()
@cli.command(rows="experiments")
def run(
    call: cli.Call,
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME... | all",
            help="Names of `understudy experiment list`, module:function, or file.py:function.",
        ),
    ],
    brain: Annotated[
        list[str] | None,
        typer.Option(
            help="model, or module:Class; may be repeated. random and statistical always run."
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "--brain-option",
            metavar="KEY=VALUE",
            help="Option of the brains given by --brain; may be repeated.",
        ),
    ] = None,
    recommender: Annotated[
        list[str] | None,
        typer.Option(
            "--recommender",
            "-r",
            help="A name of `understudy recommend list`; may be repeated (default: those "
            "installed of random, popular, mean-rating, ease, als, multvae, lightgcn).",
        ),
    ] = None,
    number: Annotated[int, typer.Option("--agents", min=1, help="Agents (count).")] = 1_000,
    pages: Annotated[int, typer.Option(min=1, help="Maximum pages of a visit (count).")] = 5,
    per_page: Annotated[int, typer.Option(min=1, help="Items per page (count).")] = 4,
    model_agents: Annotated[
        int, typer.Option(min=1, help="Agents played by a model (count).")
    ] = 20,
    model_pages: Annotated[
        int, typer.Option(min=1, help="Maximum pages of a visit for these agents (count).")
    ] = 2,
    seed: Annotated[int, typer.Option(min=0, help="Seed.")] = 0,
    out: Annotated[
        Path | None,
        cli.folder_option("--out", "Folder of the reports (default: HOME/experiments/reports)."),
    ] = None,
    release: cli.ReleaseOption = "latest",
) -> None:
    r"""Run experiments on simulated users, with baselines and intervals.

    Visits and results are cached in the home: a repeated run computes only what is missing.
    Reports are Markdown, CSV, JSON, and one HTML page with the figures.
    If there is too little data for figures, the report says so; a single experiment then fails.

    Examples:
      understudy experiment run believability distribution --agents 1000
      understudy experiment run all --brain model \
        --set engine.kind=transformers --set engine.model=smollm2-135m

    JSON: {"release", "made", "reused", "files": {...}, "experiments": [{"name", "question",
    "anchor", "too_few", "seconds", "claim", "answer": {"measured", "verdict"}, "rows": [{"labels",
    "source", "figures", "n", "note"}], "comparisons": [{"left", "right", "figure", "difference",
    "p", "n"}], "notes", "counts"}]}.
    """
    import orjson

    from pipelines.llm.engines import check_engine
    from pipelines.study import write_files, write_report
    from sim import Release
    from sim.experiments import ExperimentContext, chosen_names, run_experiments

    tree = call.settings
    opened = Release(call.release(release))
    if "model" in (brain or ()):
        check_engine(tree.engine, tree.serving)
    title = f"{len(chosen_names(names))} experiments"
    with call.progress(title, lines=True):
        context = ExperimentContext(
            opened,
            tree,
            tree.runtime.home,
            agents=number,
            pages=pages,
            per_page=per_page,
            seed=seed,
            brains=tuple(brain or ()),
            recommenders=tuple(recommender or ()),
            sample={"model_agents": model_agents, "model_pages": model_pages},
            brain_options={
                name: cli.key_values(option, "--brain-option", "rating=scale")
                for name in brain or ()
            },
        )
        try:
            studies = run_experiments(context, names)
        finally:
            context.close()
    folder = out or tree.runtime.home / "experiments" / "reports"
    files = write_report(studies, folder, release=opened.ref)
    described = {name: {**_described(s), **s.as_json()} for name, s in studies.items()}
    figures = {name: study.claim and study.claim.figure for name, study in studies.items()}
    rows = [{**row, "figure": figures[name]} for name, row in described.items()]
    data = orjson.dumps(
        {"release": opened.ref, "experiments": rows}, option=orjson.OPT_SERIALIZE_NUMPY
    )
    files |= write_files({"json": ("experiments.json", data)}, folder)
    payload: dict[str, Any] = {
        "release": opened.ref,
        "made": context.made,
        "reused": context.reused,
        "files": {kind: str(path) for kind, path in files.items()},
        "experiments": [
            {**row, "seconds": context.seconds[name]} for name, row in described.items()
        ],
    }
    call.emit(payload, lambda screen: _render(screen, payload))


@experiment.command("list")
@cli.command(rows="")
def list_(call: cli.Call) -> None:
    """List the experiments with their questions.

    JSON: [{"name", "question", "anchor", "figures"}].
    """
    from sim.experiments import EXPERIMENTS, open_experiment

    rows = [open_experiment(name) for name in EXPERIMENTS.names()]

    def render(screen: Console) -> None:
        cells = [(e.name, e.question, e.paper) for e in rows]
        screen.print(cli.table("name", "question", "papers", rows=cells))

    payload = [{**_described(e), "figures": dict(e.figures)} for e in rows]
    call.emit(payload, render)


def _described(study: Experiment | Study) -> dict[str, Any]:
    return {"name": study.name, "question": study.question, "anchor": study.paper}


def _render(screen: Console, payload: dict[str, Any]) -> None:
    for one in payload["experiments"]:
        screen.print(f"\n{one['name']}: {one['question']}", style="bold")
        if one["too_few"]:
            screen.print(f"No figures: {one['too_few']}.")
            continue
        if one["answer"]:
            screen.print(f"Claim of the paper: {one['claim']}")
            screen.print(f"Measured: {one['answer']['measured']}")
            screen.print(f"Verdict: {one['answer']['verdict']}", style="bold")
        rows = one["rows"]
        # A column without a number in any row is left to the report.
        names = list(
            dict.fromkeys(n for row in rows for n, v in row["figures"].items() if v is not None)
        )
        shown = cli.table()
        shown.add_column("row", min_width=12)
        for name in (*names, "n"):
            # Long headings wrap: numbers are narrower than they are.
            shown.add_column(name.replace("_", " "), justify="right")
        for row in rows:
            title = ", ".join(v for v in row["labels"].values() if v)
            values = [_shown(row["figures"].get(name)) for name in names]
            count = "" if row["n"] is None else f"{row['n']:,}"
            shown.add_row(f"{title} ({row['source']})", *values, count)
        screen.print(shown)
        for note in one["notes"]:
            screen.print(note)
    screen.print(
        f"\nRelease {payload['release']}; {payload['made']} results computed, {payload['reused']} "
        "reused. Rows of source statistical and baseline use no language model; intervals are in "
        "the report."
    )
    screen.print(f"Report: {payload['files']['html']}")


def _shown(value: Any) -> str:
    if value is None:
        return ""
    number = value[0] if isinstance(value, list) else value
    return f"{number:.3f}" if abs(number) < 100 else f"{number:,.0f}"
