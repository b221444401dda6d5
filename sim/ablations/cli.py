"""The command ``understudy ablate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from pipelines import instructions
from pipelines.cli import options as cli

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.config import Settings
    from sim.ablations import Configuration, RaterSpec, SuiteResult

__all__ = ["ablate"]


@cli.command(rows="rows")
def ablate(
    call: cli.Call,
    suite: Annotated[Literal["movies", "books"], typer.Option(help="Suite to run.")],
    rater: Annotated[
        list[str] | None,
        typer.Option(
            help="llm: the engine of the settings (--set engine.kind=...). May be repeated. The "
            "statistical, random and mean raters are always evaluated."
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="With --rater llm: model of that engine; may be repeated to compare several."
        ),
    ] = None,
    question: Annotated[
        list[str] | None,
        typer.Option(
            help="With --rater llm: question that the model is asked (scale, like, compare); may "
            "be repeated to compare several. Default: scoring.question."
        ),
    ] = None,
    grid: Annotated[
        Literal["words", "small", "full"],
        typer.Option(
            help="words: only the wordings of the personas; small: one option changed at a time; "
            "full: all of them."
        ),
    ] = "small",
    seeds: Annotated[int, typer.Option(min=1, help="Independent seeds, from 0 (count).")] = 3,
    cases: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum cases per test and seed (count), spread evenly over users; a model's "
            "full grid takes days. Default: all.",
        ),
    ] = None,
    sealed: Annotated[
        bool,
        typer.Option(
            "--sealed", help="Also test the sealed half of the paraphrases; for final runs only."
        ),
    ] = False,
    retrieved: Annotated[int, typer.Option(min=1, max=50, help="Past items shown (count).")] = 3,
    release: Annotated[
        str | None, typer.Option(help="Release (default: the suite's @latest).")
    ] = None,
    out: Annotated[
        Path | None,
        cli.folder_option("--out", "Folder of the report (default: HOME/ablations/reports)."),
    ] = None,
) -> None:
    """Evaluate simulated users on hand-made tests, one configuration at a time.

    Every cell is cached in the home: an interrupted run resumes, and a repeated run only writes
    the report.

    Examples:
      understudy ablate --suite movies --rater statistical --rater random

    JSON: {"suite", "release", "seeds", "sample", "cells", "reused", "counts", "files": {...},
    "rows": [{"rater", the options, per test "score", "low", "high", ...}]}.
    """
    instructions.fix()  # before NumPy is loaded
    from pipelines.llm.answers import AnswerStore
    from pipelines.llm.engines import check_engine
    from pipelines.paths import home_path
    from pipelines.plugins import closing
    from sim.ablations import SuiteContext, run_suite, scores_frame, write_report

    settings = call.settings
    specs = _specs(rater or [], model or [], question or [], settings)
    engines = [spec.engine for spec in specs if spec.engine is not None]
    for engine in engines:
        check_engine(engine, settings.serving, choices=True)
    with closing(AnswerStore(call.home, settings.serving) if engines else None) as answers:
        context = SuiteContext.open(
            call.store(),
            call.release(release or f"{suite}@latest"),
            suite,
            settings,
            answer_store=answers,
            k=retrieved,
            sample=cases,
        )
        with call.progress(f"suite {suite}", lines=True):
            result = run_suite(context, specs, grid=grid, seeds=range(seeds), sealed=sealed)
    files = write_report(result, out or home_path(call.home) / "ablations" / "reports")
    payload = {
        "suite": suite,
        "release": result.release,
        "seeds": list(result.seeds),
        "sample": result.sample,
        "cells": result.made + result.reused,
        "reused": result.reused,
        "counts": result.counts,
        "files": {kind: str(path) for kind, path in files.items()},
        "rows": scores_frame(result).to_dicts(),
    }
    call.emit(payload, lambda screen: _render(screen, result, files))


def _specs(
    raters: list[str], models: list[str], questions: list[Any], settings: Settings
) -> list[RaterSpec]:
    """The raters that the options ask for."""
    from pipelines.errors import ConfigError
    from pipelines.hints import nearest
    from pipelines.prompts import QUESTIONS
    from pipelines.renames import current_setting
    from sim.ablations import RaterSpec

    raters = [current_setting(name, "--rater") for name in raters]
    if (models or questions) and "llm" not in raters:
        given = f"--model {models[0]}" if models else f"--question {questions[0]}"
        raise ConfigError(f"{given.split()[0]} needs --rater llm", where=given)
    for name in questions:
        if name not in QUESTIONS:
            hint = nearest(name, QUESTIONS)
            raise ConfigError("unknown question", where=f"--question {name}", hint=hint)
    specs = [RaterSpec(name) for name in raters if name != "llm"]
    if "llm" in raters:
        engines = [settings.engine.model_copy(update={"model": m}) for m in models]
        specs += [
            RaterSpec("llm", engine, question)
            for engine in engines or [settings.engine]
            for question in questions or [settings.scoring.question]
        ]
    return specs


def _render(screen: Console, result: SuiteResult, files: dict[str, Path]) -> None:
    names = list(result.configurations[0].scores)
    for rater in result.baselines:
        configurations = [c for c in result.configurations if c.rater == rater]
        # On a line of its own: a model's name may be a long path.
        screen.print(f"\n{rater}", style="bold", markup=False)
        rows = [
            [_shown(c), *(f"{s.value:.3f}" if s.rated else "" for s in c.scores.values())]
            for c in configurations
        ]
        screen.print(cli.table("options", *names, rows=rows, numeric=names))
    screen.print(
        f"{result.made} cells computed, {result.reused} reused. The statistical, random and mean "
        "raters use no language model."
    )
    empty = [t for t in result.suite.aggregate if not result.configurations[0].scores[t].cases]
    if empty:
        cli.console(stderr=True).print(
            f"The data has no cases for {', '.join(empty)}: the aggregate is of the other tests."
        )
    unreadable = sum(c.scores["aggregate"].unreadable for c in result.configurations)
    if unreadable:
        cli.console(stderr=True).print(
            f"{unreadable:,} replies could not be read and are left out. Rows marked (!) have too "
            "many of them."
        )
    screen.print(f"Report: {files['html']}")


def _shown(c: Configuration) -> str:
    """Options that a rater can see, and a mark if too many of its replies are unreadable."""
    options = [c.options.scale, c.options.retrieval, c.options.perturbation]
    options += [c.options.wording] if c.options.wording != "own" else []
    if c.kind == "llm":
        options[1:1] = [f"{c.options.shots}-shot", c.options.system]
    mark = " (!)" if any(s.flagged for s in c.scores.values()) else ""
    return " ".join(o for o in options if o != "-") + mark
