"""Policies of several seeds beside the baselines: one table, one document, pictures."""

from __future__ import annotations

import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from pipelines.errors import ConfigError, ContractError
from pipelines.progress import within
from pipelines.raters import population_rows
from sim.metrics import FIGURES, Figure, Played, evaluate, headroom_share
from sim.recommenders import (
    BASELINES,
    LIST,
    Audience,
    CommonListRecommender,
    OracleRecommender,
    Recommender,
    open_recommender,
)
from sim.training._checkpoint import write
from sim.training._settings import RunSettings
from sim.training._train import Trained, Training

if TYPE_CHECKING:
    import polars as pl

    from sim._release import Release
    from sim.environment import World

#: Figures of the table with their titles, in order.
COLUMNS = {"average_reward": FIGURES["average_reward"], "headroom": "Headroom earned", **FIGURES}
#: Ratings of the final evaluation are drawn apart from those of the curve.
_FINAL = 1_000


@dataclass(frozen=True)
class TrainingReport:
    """Figures of the trained policies beside the baselines and the ceiling."""

    #: Release, rater, whether a language model rated, algorithm, steps, seeds, users.
    metadata: dict[str, Any]
    #: Figures by recommender, the baselines first; see :func:`sim.metrics.evaluate` and
    #: :func:`sim.metrics.headroom_share`. NaN where the headroom is not known.
    rows: dict[str, dict[str, Figure]]
    #: One sentence on each recommender.
    notes: dict[str, str]
    #: Users left out of rated figures for an item without a rating, by recommender (count, over all
    #: seeds).
    unrated: dict[str, int]
    #: The trained policies, one per seed.
    runs: list[Trained]

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            **self.metadata,
            "figures": COLUMNS,
            "rows": [
                {
                    "recommender": name,
                    "trained": name == self.metadata["algo"],
                    "note": self.notes[name],
                    "unrated_users": self.unrated[name],
                    "figures": {key: figure.as_json() for key, figure in figures.items()},
                }
                for name, figures in self.rows.items()
            ],
            "runs": [
                {"seed": run.policy.metadata["seed"], "folder": str(run.folder), "curve": run.curve}
                for run in self.runs
            ],
        }

    def markdown(self) -> str:
        """The table with 95 % intervals over users, and what it was measured on."""
        head = ["recommender", *COLUMNS.values()]
        lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * len(COLUMNS)]
        for name, figures in self.rows.items():
            cells = [_cell(figures[key], 3) for key in COLUMNS]
            lines.append("| " + " | ".join([name, *cells]) + " |")
        return "\n".join([*lines, "", *(f"{line}  " for line in self.sentences())])

    def sentences(self) -> list[str]:
        """Sentences on what the table was measured on."""
        metadata = self.metadata
        seeds = len(metadata["seeds"])
        out = [
            f"{metadata['note']} Release {metadata['release']}.",
            f"{LIST} recommendations to each of {metadata['users']:,} personas; intervals: 95 %, "
            f"bootstrap over users; values: means over {seeds} seed{'s' if seeds > 1 else ''}.",
        ]
        reward = self.rows[metadata["algo"]]["average_reward"]
        if reward.seed_low is None:
            out.append(f"{seeds} of the 3 seeds that an interval over seeds needs.")
        else:
            out.append(
                f"Average reward of {metadata['algo']} over seeds: {reward.value:.3f} "
                f"[{reward.seed_low:.3f}, {reward.seed_high:.3f}] (95 %, Student's t)."
            )
        if OracleRecommender.name in self.rows:
            room = self.rows[OracleRecommender.name]["average_reward"].value
            room -= self.rows[CommonListRecommender.name]["average_reward"].value
            share = self.rows[metadata["algo"]]["headroom"]
            out.append(
                f"Headroom for personalisation (oracle minus best list for everybody): {room:.3f}; "
                f"{metadata['algo']} earns {_percent(share)} of it (bootstrap over users)."
            )
        if metadata["item_person_share"] is not None:
            own, people = (metadata["item_person_share"][side] for side in ("personas", "people"))
            out.append(f"Item x person share of the variance: personas {own}, people {people}.")
        left = {name: count for name, count in self.unrated.items() if count}
        if left:
            shown = ", ".join(f"{name} {count:,}" for name, count in left.items())
            out.append(f"Users left out for an item without a rating: {shown}.")
        return out

    def pictures(self) -> dict[str, bytes]:
        """Evaluation curves as PNG bytes by title."""
        curves = {f"seed {run.policy.metadata['seed']}": run.curve for run in self.runs}
        baselines = {
            name: {key: f.value for key, f in figures.items()}
            for name, figures in self.rows.items()
            if name != self.metadata["algo"]
        }
        kind = "a language model" if self.metadata["language_model"] else "no language model"
        subtitle = f"{self.metadata['algo']}, rater {self.metadata['rater']} ({kind})"
        return {
            f"curve: {name}": curve_picture(name, curves, baselines=baselines, subtitle=subtitle)
            for name in PICTURES
        }


def train(
    world: World,
    settings: RunSettings,
    seeds: Sequence[int],
    folder: Path,
    *,
    resume: bool = False,
    checkpoint: Path | None = None,
) -> TrainingReport:
    """Train a policy per seed and evaluate them beside the baselines.

    Parameters
    ----------
    world
        The opened release with its rater.
    settings
        Settings of the runs; the seed is replaced by each of `seeds`.
    seeds
        Distinct seeds (else ConfigError).
    folder
        Gets ``seed-<n>/`` per seed, ``report.json`` and pictures.
    resume, checkpoint
        As of :meth:`Training.run`; a seed that is done is not trained again. A checkpoint is of
        one seed only.
    """
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ConfigError("every seed once", where="seeds", hint=", ".join(map(str, seeds)))
    if checkpoint is not None and len(seeds) > 1:
        raise ConfigError("a checkpoint is of one seed", where=str(checkpoint), hint="--seed N")
    started = time.monotonic()
    audience = Audience(world, users=settings.users, retrieved=settings.retrieved)
    runs: list[Trained] = []
    for n, seed in enumerate(seeds):
        run = Training(world, replace(settings, seed=seed), folder / f"seed-{seed}", audience)
        with within(before=n * settings.steps, total=len(seeds) * settings.steps):
            runs.append(run.run(resume=resume, checkpoint=checkpoint))
    report = _judged(world, settings, list(seeds), audience, runs)
    report.metadata["seconds"] = round(time.monotonic() - started, 1)
    content = orjson.dumps(
        report.as_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    )
    write(folder / "report.json", content)
    write(folder / "report.md", report.markdown().encode())
    for title, picture in report.pictures().items():
        write(folder / f"{title.removeprefix('curve: ')}.png", picture)
    return report


def _percent(share: Figure) -> str:
    return f"{share.value:.0%} [{share.low:.0%}, {share.high:.0%}]"


def _cell(figure: Figure, digits: int) -> str:
    if figure.value != figure.value:
        return "–"
    return f"{figure.value:.{digits}f} [{figure.low:.{digits}f}, {figure.high:.{digits}f}]"


def _headroom(runs: Sequence[Played], ceiling: Sequence[Sequence[Played]]) -> Figure:
    """Share of the headroom, NaN where it is not known or there is none."""
    nan = float("nan")
    try:
        return headroom_share(runs, *ceiling) if ceiling else Figure(nan, nan, nan)
    except ContractError:
        return Figure(nan, nan, nan)


def _judged(
    world: World, settings: RunSettings, seeds: list[int], audience: Audience, runs: list[Trained]
) -> TrainingReport:
    contenders: list[Sequence[Recommender]] = []
    for name in BASELINES:
        if name == "random":
            made = [open_recommender(name, seed=s).fit(world.release) for s in seeds]
        elif name == "content" or "item_stats" in world.release:
            made = [open_recommender(name).fit(world.release)] * len(seeds)
        else:
            continue
        contenders.append(made)
    references = audience.references()
    contenders += [[one] * len(seeds) for one in references[:1]]
    contenders.append([run.policy for run in runs])
    contenders += [[one] * len(seeds) for one in references[1:]]
    played = {
        made[0].name: [
            audience.play(one, seed=_FINAL + seed) for one, seed in zip(made, seeds, strict=True)
        ]
        for made in contenders
    }
    ceiling = [played[one.name] for one in references]
    rows = {
        name: {**evaluate(lists), "headroom": _headroom(lists, ceiling)}
        for name, lists in played.items()
    }
    notes = {made[0].name: made[0].note for made in contenders}
    unrated = {name: sum(int((~p.complete).sum()) for p in ps) for name, ps in played.items()}
    metadata = {
        "release": world.release.ref,
        "rater": world.rater.name,
        "language_model": world.rater.language_model,
        "note": world.rater.note,
        "scale": world.rater.scale.name,
        "algo": settings.algo,
        "steps": settings.steps,
        "seeds": seeds,
        "users": len(audience.users),
        "item_person_share": _item_person_share(world.release),
    }
    return TrainingReport(metadata, rows, notes, unrated, runs)


def _item_person_share(release: Release) -> dict[str, str] | None:
    """Item-person share of personas and people in the release's population report."""
    import polars as pl

    if "population" not in release:
        return None
    found = release["population"].polars().filter(pl.col("figure") == "item_person_share")
    return next(
        ({"personas": own, "people": people} for _, _, own, people, _ in population_rows(found)),
        None,
    )


def policy_table(report: TrainingReport) -> pl.DataFrame:
    """The trained policies as rows of the table ``trained_policy``, by seed.

    Figures are those of each seed; intervals and baselines are in the report.
    """
    import polars as pl

    metadata, figures = report.metadata, report.rows[report.metadata["algo"]]
    rows = []
    for n, run in enumerate(report.runs):
        own = run.policy.metadata
        row = {
            "seed": own["seed"],
            "algo": own["algo"],
            "steps": own["steps"],
            "release": own["release"],
            "rater": own["rater"],
            "language_model": own["language_model"],
            "scale": metadata["scale"],
            "items_sha256": own["items"],
            "personas_sha256": own["personas"],
            "users": metadata["users"],
            **{key.replace("@", "_at_"): figures[key].by_seed[n] for key in FIGURES},
            "weights": run.weights,
        }
        rows.append({key: None if value != value else value for key, value in row.items()})
    return pl.DataFrame(sorted(rows, key=lambda row: row["seed"]))


#: Pictures by name: title, label of the vertical axis, figures with how their lines are drawn.
PICTURES: dict[str, tuple[str, str, tuple[tuple[str, str], ...]]] = {
    "reward": ("Average reward of ten recommendations", "rating", (("average_reward", "-"),)),
    "ranking": (
        "Ranking and personalization",
        "0 to 1",
        (("map@10", "-"), ("mrr@10", "--"), ("personalization@10", ":")),
    ),
    "genres": (
        "Recommendations of liked and of disliked genres",
        "share",
        (("liked@10", "-"), ("disliked@10", "--")),
    ),
}

_COLOURS = ("#2a6f97", "#bc4749", "#6a994e", "#7b5ea7", "#d68c45", "#4a4e69")


def curve_picture(
    name: str,
    curves: Mapping[str, Sequence[Mapping[str, float]]],
    *,
    baselines: Mapping[str, Mapping[str, float]] | None = None,
    subtitle: str = "",
) -> bytes:
    """Render one of `PICTURES` as PNG bytes.

    `curves` are rows of the evaluation curve by label, such as a seed; `baselines` values of
    recommenders that are not trained, drawn as horizontal lines (reward only).
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    title, label, lines = PICTURES[name]
    figure = Figure(figsize=(7.0, 4.0), dpi=110, layout="constrained")
    axes: Any = figure.subplots()
    for n, (who, rows) in enumerate(curves.items()):
        steps = [row["steps"] for row in rows]
        for key, style in lines:
            text = who if len(lines) == 1 else f"{key}, {who}"
            axes.plot(
                steps,
                [row[key] for row in rows],
                style,
                color=_COLOURS[n % len(_COLOURS)],
                label=text,
                linewidth=1.6,
            )
    if len(lines) == 1:
        for n, (who, figures) in enumerate((baselines or {}).items()):
            axes.axhline(
                figures[lines[0][0]], color="0.45", linewidth=1, linestyle=((0, (1 + n, 2)))
            )
            axes.annotate(
                who,
                (0.99, figures[lines[0][0]]),
                xycoords=("axes fraction", "data"),
                ha="right",
                va="bottom",
                fontsize=7,
                color="0.35",
            )
    axes.set_title(f"{title}\n{subtitle}" if subtitle else title, fontsize=10, loc="left")
    axes.set_xlabel("steps")
    axes.set_ylabel(label)
    axes.grid(visible=True, alpha=0.25)
    axes.legend(fontsize=7, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
    out = io.BytesIO()
    canvas: Any = FigureCanvasAgg(figure)
    canvas.print_png(out)
    return out.getvalue()
