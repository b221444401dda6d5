"""Policies of several seeds beside the baselines: one table, one document, pictures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl

from pipelines.errors import ConfigError, ContractError
from pipelines.progress import within
from pipelines.raters import population_rows
from pipelines.study import Points, Study, draw
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
    #: A row per recommender, the baselines first; see :func:`sim.metrics.evaluate` and
    #: :func:`sim.metrics.headroom_share`. NaN where the headroom is not known.
    study: Study
    #: Users left out of rated figures for an item without a rating, by recommender (count, over all
    #: seeds).
    unrated: dict[str, int]
    #: The trained policies, one per seed.
    runs: list[Trained]

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """Figures by recommender."""
        return {row.title: row.figures for row in self.study.rows}

    def markdown(self) -> str:
        """The page: the table with 95 % intervals, and what it was measured on."""
        return self.study.markdown(release=self.metadata["release"])

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return {
            **self.metadata,
            "figures": COLUMNS,
            "rows": [
                {
                    "recommender": row.title,
                    "trained": row.title == self.metadata["algo"],
                    "note": row.note,
                    "unrated_users": self.unrated[row.title],
                    "figures": {key: f.as_json() for key, f in self.rows[row.title].items()},
                }
                for row in self.study.rows
            ],
            "runs": [
                {"seed": run.policy.metadata["seed"], "folder": str(run.folder), "curve": run.curve}
                for run in self.runs
            ],
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
        one = settings.model_copy(update={"seed": seed})
        run = Training(world, one, folder / f"seed-{seed}", audience)
        with within(before=n * settings.steps, total=len(seeds) * settings.steps):
            runs.append(run.run(resume=resume, checkpoint=checkpoint))
    report = _judged(world, settings, list(seeds), audience, runs)
    report.metadata["seconds"] = round(time.monotonic() - started, 1)
    content = orjson.dumps(
        report.as_json(), option=orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    )
    write(folder / "report.json", content)
    write(folder / "report.md", report.study.markdown(release=world.release.ref).encode())
    for name, picture in report.study.pictures.items():
        write(folder / f"{name}.png", picture)
    return report


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
            fitted = [open_recommender(name, seed=s).fit(world.release) for s in seeds]
        elif name == "content" or "item_stats" in world.release:
            fitted = [open_recommender(name).fit(world.release)] * len(seeds)
        else:
            continue
        contenders.append(fitted)
    references = audience.references()
    contenders += [[reference] * len(seeds) for reference in references[:1]]
    contenders.append([run.policy for run in runs])
    contenders += [[reference] * len(seeds) for reference in references[1:]]
    played = {
        group[0].name: [
            audience.play(r, seed=_FINAL + seed) for r, seed in zip(group, seeds, strict=True)
        ]
        for group in contenders
    }
    ceiling = [played[reference.name] for reference in references]
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
    study = Study(
        f"{settings.algo} on {world.release.name}",
        "What does a trained policy earn beside baselines and the ceiling?",
        figures=COLUMNS,
        conditions=("recommender",),
        settings={name: metadata[name] for name in ("algo", "steps", "seeds", "rater")},
        legend=f"{LIST} recommendations to each of {len(audience.users):,} personas; intervals: "
        "95 %, bootstrap over users, and ± over at least 3 seeds (95 %, Student's t); values: "
        f"means over {len(seeds)} seed{'s' if len(seeds) > 1 else ''}.",
    )
    trained = "model" if world.rater.language_model else "statistical"
    for group in contenders:
        name, lists = group[0].name, played[group[0].name]
        figures = {**evaluate(lists), "headroom": _headroom(lists, ceiling)}
        source = trained if name == settings.algo else "baseline"
        study.add([name], source, figures=figures, n=len(audience.users), note=group[0].note)
    report = TrainingReport(metadata, study, unrated, runs)
    study.notes += _notes(report)
    study.pictures |= {name: _curves(report, name) for name in PICTURES}
    return report


def _notes(report: TrainingReport) -> list[str]:
    """Sentences on what the rows were measured on."""
    metadata, rows = report.metadata, report.rows
    notes = [f"{metadata['note']} Release {metadata['release']}."]
    if OracleRecommender.name in rows:
        room = rows[OracleRecommender.name]["average_reward"].value
        room -= rows[CommonListRecommender.name]["average_reward"].value
        share = rows[metadata["algo"]]["headroom"]
        notes.append(
            f"Headroom for personalisation (oracle minus best list for everybody): {room:.3f}; "
            f"{metadata['algo']} earns {share.value:.0%} [{share.low:.0%}, {share.high:.0%}] of it "
            "(bootstrap over users)."
        )
    if metadata["item_person_share"] is not None:
        personas, people = (metadata["item_person_share"][side] for side in ("personas", "people"))
        notes.append(f"Item x person share of the variance: personas {personas}, people {people}.")
    left = ", ".join(f"{name} {count:,}" for name, count in report.unrated.items() if count)
    return [*notes, f"Users left out for an item without a rating: {left}."] if left else notes


def _item_person_share(release: Release) -> dict[str, str] | None:
    """Item-person share of personas and people in the release's population report."""
    if "population" not in release:
        return None
    rows = release["population"].polars().filter(pl.col("figure") == "item_person_share")
    return next(
        ({"personas": share, "people": people} for _, _, share, people, _ in population_rows(rows)),
        None,
    )


def policy_table(report: TrainingReport) -> pl.DataFrame:
    """The trained policies as rows of the table ``trained_policy``, by seed.

    Figures are those of each seed; intervals and baselines are in the report.
    """
    metadata, figures = report.metadata, report.rows[report.metadata["algo"]]
    rows = []
    for n, run in enumerate(report.runs):
        facts = run.policy.metadata
        row = {
            "seed": facts["seed"],
            "algo": facts["algo"],
            "steps": facts["steps"],
            "release": facts["release"],
            "rater": facts["rater"],
            "language_model": facts["language_model"],
            "scale": metadata["scale"],
            "items_sha256": facts["items"],
            "personas_sha256": facts["personas"],
            "users": metadata["users"],
            **{key.replace("@", "_at_"): figures[key].by_seed[n] for key in FIGURES},
            "weights": run.weights,
        }
        rows.append({key: None if value != value else value for key, value in row.items()})
    return pl.DataFrame(sorted(rows, key=lambda row: row["seed"]))


#: Pictures of curves by name: title, label of the vertical axis, figures.
PICTURES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "reward": ("Average reward of ten recommendations", "rating", ("average_reward",)),
    "ranking": (
        "Ranking and personalization",
        "0 to 1",
        ("map@10", "mrr@10", "personalization@10"),
    ),
    "genres": (
        "Recommendations of liked and of disliked genres",
        "share",
        ("liked@10", "disliked@10"),
    ),
}


def _curves(report: TrainingReport, name: str) -> bytes:
    """Evaluation curves of the policies; those of the reward with baselines as level lines."""
    title, label, keys = PICTURES[name]
    lines: dict[str, Points] = {
        f"{key if len(keys) > 1 else ''} seed {run.policy.metadata['seed']}".strip(): {
            str(point["steps"]): point[key] for point in run.curve
        }
        for run in report.runs
        for key in keys
    }
    if len(keys) == 1:
        steps = [str(point["steps"]) for point in report.runs[0].curve]
        for other, figures in report.rows.items():
            if other != report.metadata["algo"]:
                lines[other] = dict.fromkeys((steps[0], steps[-1]), figures[keys[0]].value)
    kind = "a language model" if report.metadata["language_model"] else "no language model"
    heading = f"{title}: {report.metadata['algo']}, rater {report.metadata['rater']} ({kind})"
    return draw({"": lines}, title=heading, x="steps", y=label, lines=True)
