"""The commands ``understudy recommend`` and ``understudy leaderboard``."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import orjson
import typer

from pipelines.cli import options as cli
from pipelines.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from sim.recommenders import Leaderboard, OfflineReport, Recommender

__all__ = ["app", "leaderboard"]

app = cli.group("Fit recommenders on a release and evaluate them on people's held-out ratings.")

#: Rows of every table, before the recommenders that are asked for.
SHOWN_BASELINES = ("random", "popular", "mean-rating")


@app.command()
@cli.command(rows="rows")
def evaluate(
    call: cli.Call,
    recommender: Annotated[
        list[str],
        typer.Option(
            "--recommender",
            "-r",
            help="A name of `understudy recommend list`, module:Class, or file.py:Class; may be "
            "repeated.",
        ),
    ],
    release: cli.ReleaseOption = "latest",
    split: Annotated[
        Literal["test", "validation"],
        typer.Option(help="Held-out split; tune settings on validation."),
    ] = "test",
    k: Annotated[int, typer.Option(min=1, help="Length of each list (items).")] = 20,
    against: Annotated[
        str, typer.Option(help="Recommender that the others are compared with.")
    ] = "popular",
    users: Annotated[
        int | None, typer.Option(min=1, help="Maximum number of people (count); default: all.")
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of the models, the sample of people and the intervals.")
    ] = 0,
    option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME.KEY=VALUE",
            help="Option of a recommender, such as ease.regularization=100; may be repeated.",
        ),
    ] = None,
) -> None:
    """Evaluate recommenders on people's held-out ratings, with baselines.

    Each recommender is fitted on the training split and asked for k items per person. Items
    that the person rated in training (and in validation, when evaluated on test) are masked.
    Recall@k is the share of held-out items in the list; NDCG@k also counts how early they come.
    Intervals are 95 % (bootstrap over people); differences are paired by person, so an
    interval that excludes 0 shows a difference.

    Examples:
      understudy recommend evaluate --recommender ease --recommender als
      understudy recommend evaluate -r mine.py:Mine --against ease --split validation

    JSON: {"release", "split", "masked", "k", "users", "against", "rows": [{"recommender",
    "note", "baseline", "recall", "ndcg", "recall_difference", "ndcg_difference": {"value",
    "low", "high"}, "fallbacks", "fit_seconds", "recommend_seconds"}]}.
    """
    from sim import Release
    from sim.recommenders import evaluate_offline

    names = list(dict.fromkeys([*SHOWN_BASELINES, *recommender]))
    options = _options(option or [], names)
    opened = {name: _open(name, seed, options.get(name, {})) for name in names}
    with call.progress("fitting", "recommenders"):
        report = evaluate_offline(
            opened,
            Release(call.release(release)),
            split=split,
            k=k,
            against=against,
            users=users,
            seed=seed,
        )
    call.emit(report.as_json(), lambda out: _render(out, report))


@app.command("list")
@cli.command(rows="")
def show(
    call: cli.Call,
) -> None:
    """List the recommenders by name, with their options.

    JSON: [{"recommender", "note", "baseline", "options": {name: default}, "problem"}]; problem
    says why it can't be opened, or is null.
    """
    from sim.recommenders import BASELINES, RECOMMENDERS, open_recommender

    rows: list[dict[str, Any]] = []
    for name in RECOMMENDERS.names():
        row: dict[str, Any] = {"recommender": name, "note": "", "baseline": name in BASELINES}
        try:
            recommender = open_recommender(name)
        except ConfigError as error:
            rows.append({**row, "options": {}, "problem": str(error)})
            continue
        parameters = inspect.signature(RECOMMENDERS[name]).parameters
        defaults = {k: p.default for k, p in parameters.items()}
        rows.append({**row, "note": recommender.note, "options": defaults, "problem": None})
    call.emit(rows, lambda out: _render_list(out, rows))


@cli.command(rows="rows")
def leaderboard(
    call: cli.Call,
    release: cli.RefArgument = "latest",
    recommender: Annotated[
        list[str] | None,
        typer.Option(
            "--recommender",
            "-r",
            help="One more: module:Class or file.py:Class; may be repeated.",
        ),
    ] = None,
    users: Annotated[
        int, typer.Option(min=2, help="Maximum number of people, and of personas (count).")
    ] = 500,
    k: Annotated[int, typer.Option(min=1, help="Length of the lists of the NDCG (items).")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of samples, ratings and intervals.")] = 0,
) -> None:
    """Rank ten recommenders, and yours, on people and on the personas matched to them.

    People: NDCG on the items that they rated last. Personas: the rating of ten recommendations
    one after the other, between a random recommender (0) and an oracle (1). Agreement says
    whether personas put recommenders in the order in which people do.

    Examples:
      understudy leaderboard
      understudy leaderboard books@latest -r mine.py:Mine

    JSON: {"release", "rater", "language_model", "note", "k", "people", "personas", "rows":
    [{"recommender", "note", "baseline", "ndcg", "reward", "score": {"value", "low", "high"}}],
    "agreement": {"value", "low", "high"}, "ranked", "chance"}.
    """
    from sim import Release
    from sim.agents import match_people
    from sim.recommenders import RECOMMENDERS
    from sim.recommenders import leaderboard as run

    names = [*RECOMMENDERS, *(recommender or [])]
    matched, note = match_people(Release(call.release(release)), call.settings.matching)
    with call.progress("recommenders", "steps"):
        board = run(
            matched,
            {name: partial(_open, name, seed, {}) for name in names},
            users=users,
            k=k,
            seed=seed,
        )
    call.emit(board.as_json(), lambda screen: _render_board(screen, board, note))


def _render_board(screen: Console, board: Leaderboard, note: str | None) -> None:
    columns = (f"people: NDCG@{board.k}", "personas: 0 random, 1 oracle", "mean rating")
    rows = [(row.name, row.ndcg, row.score, row.reward) for row in board.rows]
    screen.print(cli.table("recommender", *columns, rows=rows, numeric=columns))
    tau = board.agreement
    screen.print(
        f"Agreement of the two orders of {board.ranked} recommenders (Kendall's tau): "
        f"{tau.value:.2f} [{tau.low:.2f}, {tau.high:.2f}]; by chance within ±{board.chance:.2f}.",
        soft_wrap=True,
    )
    screen.print(
        f"{board.people:,} people (test split) and {board.personas:,} personas of {board.release}. "
        f"{board.note} Intervals: 95 %, bootstrap over people and personas.",
        soft_wrap=True,
    )
    if note:
        screen.print(note, soft_wrap=True)


def _options(texts: list[str], names: list[str]) -> dict[str, dict[str, Any]]:
    """Options by recommender from ``NAME.KEY=VALUE``; values are JSON, or text.

    Raises :class:`ConfigError` if a text is not of that form, or its recommender is not evaluated.
    """
    out: dict[str, dict[str, Any]] = {}
    for text in texts:
        place, equals, value = text.partition("=")
        name, dot, key = place.rpartition(".")
        if not (equals and dot and name in names):
            raise ConfigError(
                "not an option of an evaluated recommender",
                where=f"--option {text}",
                hint="NAME.KEY=VALUE, such as ease.regularization=100",
            )
        try:
            out.setdefault(name, {})[key] = orjson.loads(value)
        except orjson.JSONDecodeError:
            out.setdefault(name, {})[key] = value
    return out


def _open(name: str, seed: int, options: dict[str, Any]) -> Recommender:
    """Open a recommender, with the seed where it takes one."""
    from sim.recommenders import RECOMMENDERS, open_recommender

    takes_seed = "seed" in inspect.signature(RECOMMENDERS[name]).parameters
    return open_recommender(name, **({"seed": seed} | options if takes_seed else options))


def _render(screen: Console, report: OfflineReport) -> None:
    k = report.k
    heads = (f"Recall@{k}", f"NDCG@{k}", f"NDCG@{k} minus {report.against}")
    rows = [
        (
            row.name,
            *(
                None if f is None else f"{f.value:.4f}\n[{f.low:.3f}, {f.high:.3f}]"
                for f in (row.recall, row.ndcg, row.ndcg_difference)
            ),
            f"{row.fit_seconds:.1f}",
        )
        for row in report.rows
    ]
    columns = (*heads, "fit, s")
    screen.print(cli.table("recommender", *columns, rows=rows, numeric=columns))
    masked = " and ".join(report.masked)
    screen.print(
        f"{report.users:,} people of {report.release}, held-out split {report.split}; {masked} "
        "masked. Intervals: 95 %, bootstrap over people; differences are paired."
    )
    for row in report.rows:
        if row.fallbacks:
            screen.print(f"{row.name}: {row.fallbacks:,} people got the most popular items.")


def _render_list(screen: Console, rows: list[dict[str, Any]]) -> None:
    cells = [
        (
            row["recommender"],
            row["problem"] or row["note"],
            ", ".join(f"{k}={v}" for k, v in row["options"].items()),
        )
        for row in rows
    ]
    screen.print(cli.table("recommender", "what it is", "options", rows=cells))
