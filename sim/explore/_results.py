"""Pages of what was measured on a release: experiments, training, suites, dialogues."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson
import polars as pl

from pipelines.config import Settings
from pipelines.errors import IntegrityError, UnderstudyError
from pipelines.store import Store
from sim._release import Release, open_release
from sim.dialogue import DialogueWorld, Lifetimes, open_agent, play
from sim.dialogue.suites import configured_customer, read_run
from sim.experiments import paper_rows

#: A column's shift is shown from this population stability index on.
_SHIFTED = 0.005
#: Personas that two releases rate differently, and ratings of each (count).
_PEOPLE, _MOVED = 12, 4
#: Figures of a training curve that are shown, where it has them.
_CURVES = ("average_reward", "map@10", "personalization@10")


def experiments(release: Release, settings: Settings) -> dict[str, Any] | str:
    """The newest report of experiments on the release, or why there is none."""
    report = _json(settings.runtime.home / "experiments" / "reports" / "experiments.json")
    if report is None or report["release"] != release.ref:
        return "the home has none on this release (understudy experiment run all)"
    return {"rows": [_experiment(result) for result in report["experiments"]]}


def _experiment(result: dict[str, Any]) -> dict[str, Any]:
    figure = result["figure"]
    papers = [row.as_json() for row in paper_rows(result["name"])]
    rows = [
        {
            "title": ", ".join(v for v in row["labels"].values() if v),
            "source": row["source"],
            "n": row["n"],
            "value": row["figures"][figure],
        }
        for row in [*result["rows"], *papers]
        if row["figures"].get(figure) is not None
    ]
    answer = result["answer"] or {}
    return {
        "name": result["name"],
        "question": result["question"],
        "paper": result["anchor"],
        "claim": result["claim"],
        "figure": figure,
        "measured": answer.get("measured"),
        "verdict": answer.get("verdict"),
        "too_few": result["too_few"],
        "values": rows,
    }


def training(release: Release, settings: Settings) -> dict[str, Any] | str:
    """Curves and tables of the runs of training on the release, or why there are none."""
    rows = []
    for file in sorted((settings.runtime.home / "training").glob("*/report.json")):
        report = _json(file)
        if report is None or report["release"] != release.ref:
            continue
        curves = [
            {
                "seed": run["seed"],
                "points": [
                    {key: point[key] for key in ("steps", *_CURVES) if key in point}
                    for point in run["curve"]
                ],
            }
            for run in report["runs"]
        ]
        shown = ("algo", "rater", "note", "scale", "steps", "seeds", "users")
        rows.append(
            {key: report[key] for key in shown}
            | {
                "curves": curves,
                "table": [
                    {
                        "recommender": row["recommender"],
                        "trained": row["trained"],
                        **{k: row["figures"][k] for k in ("average_reward", "headroom")},
                    }
                    for row in report["rows"]
                ],
            }
        )
    return {"rows": rows} if rows else "the home has none on this release (understudy train)"


def compared(release: Release, other: Release | None, settings: Settings) -> dict[str, Any] | str:
    """Tables of two releases: rows, versions, shifted columns, and why they differ."""
    if other is None:
        return "no second release was given (--beside)"
    diff = Store(release.home).diff(
        Store(release.home).release(release.ref),
        Store(other.home).release(other.ref),
        memory_limit_mb=settings.runtime.memory_limit_mb,
    )
    rows = [asdict(table) for table in diff.tables.values()]
    for row in rows:
        row["shifts"] = [s for s in row["shifts"] if s["psi"] >= _SHIFTED]
    people = _both(release, other)
    return {"a": diff.a, "b": diff.b, "same": diff.same, "rows": rows, "people": people}


def _both(release: Release, other: Release) -> list[dict[str, Any]]:
    """Personas that both releases rate differently on one scale, and what moved most."""
    names = ("items", "personas", "preference_scores")
    if not all(name in tables for name in names for tables in (release, other)):
        return []
    keys = ["persona_id", "item_id", "scale"]
    before, after = (
        tables["preference_scores"].lazy().select(*keys, "expected").drop_nulls("expected")
        for tables in (release, other)
    )
    pairs = before.join(after, on=keys, suffix="_after").with_columns(
        moved=(pl.col("expected_after") - pl.col("expected")).abs()
    )
    titles = release["items"].lazy().select("item_id", "title")
    people = (
        pairs.join(titles, on="item_id", how="left")
        .sort("moved", "item_id", descending=[True, False])
        .group_by("persona_id")
        .agg(
            pl.len().alias("ratings"),
            pl.col("moved").mean().alias("mean_moved"),
            pl.col("expected", "expected_after").mean(),
            items=pl.struct("title", before="expected", after="expected_after").head(_MOVED),
        )
        .filter(pl.col("mean_moved") > 0)
        .join(release["personas"].lazy().select("persona_id", "name", "likes"), on="persona_id")
        .sort("mean_moved", "persona_id", descending=[True, False])
        .head(_PEOPLE)
    )
    return people.collect().to_dicts()


def _json(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    try:
        report: dict[str, Any] = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise IntegrityError(
            "a report can't be read", where=str(path), hint="remove it, and run it again"
        ) from error
    return report


#: Episodes shown of an agent, and agents (count).
_EPISODES, _AGENTS = 4, 6
#: Agents of dialogues that are played where the home has no run, lifetimes and episodes of each.
_PLAYED = ("dp", "linear")
_LIFETIMES, _LENGTH = 4, 1
_TURN = ("turn", "role", "kind", "text", "facet_id", "value", "item_id", "regret", "rank", "top_1")
_END = ("agent", "setting", "feedback", "memory", "seed", "episode", "questions", "item_id", "rank")


def dialogues(release: Release, settings: Settings, folder: Path | None) -> dict[str, Any] | str:
    """Dialogues of a run or a few that are played, or the reason why there are none.

    Raises IntegrityError if ``folder`` holds no run, ReleaseError if its release is gone.
    """
    home = settings.runtime.home
    if folder is None:
        runs = sorted(home.glob("dialogues/runs/*/run.json"), key=lambda path: path.stat().st_mtime)
        folder = runs[-1].parent if runs else None
    if folder is not None:
        run = read_run(folder)
        world = DialogueWorld.open(open_release(run.release, home=home))
        return _shown(world, (run.episodes, run.turns))
    try:
        # Of the home that holds the release: that may be another than the one of the results.
        if release.domain != "products":
            release = open_release("products", home=release.home)
        world = DialogueWorld.open(release)
        return _shown(world, _played(world, settings))
    except UnderstudyError as error:
        return str(error)


def _played(world: DialogueWorld, settings: Settings) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Episodes and turns of a few dialogues."""
    rules = settings.dialogue
    lifetimes = Lifetimes.draw(world, range(_LIFETIMES), episodes=_LENGTH, min_best=rules.min_best)
    frames = [
        play(
            world, lifetimes, open_agent(name, settings=settings),
            configured_customer("statistical", settings), max_questions=rules.max_questions,
            probes=range(1, _LENGTH + 1),
        )
        for name in _PLAYED
    ]  # fmt: skip
    return pl.concat(f.episodes for f in frames), pl.concat(f.turns for f in frames)


def _shown(world: DialogueWorld, played: tuple[pl.DataFrame, pl.DataFrame]) -> dict[str, Any] | str:
    episodes, turns = played
    ok = episodes.filter(pl.col("status") == "ok")
    agents = ok["agent"].unique(maintain_order=True).head(_AGENTS)
    # Agents with questions first, the best of them first: the view shows what asking is worth.
    silent = (pl.col("questions") == 0).all().over("agent")
    chosen = (
        ok.filter(pl.col("agent").is_in(agents.implode()))
        .with_columns(silent=silent, mean=pl.col("regret").mean().over("agent"))
        .sort("silent", "mean", "agent", "seed", "episode")
        .group_by("agent", maintain_order=True)
        .head(_EPISODES)
    )
    if chosen.is_empty():
        return "every dialogue of the run failed"
    people = {name: n for n, name in enumerate(world.persona_ids)}
    sets = {s.category_id: s for s in world.sets}
    names = _names(world)
    rows = []
    for end in chosen.iter_rows(named=True):
        keys = ("run", "seed", "episode")
        spoken = turns.filter(*(pl.col(key) == end[key] for key in keys))
        spoken = spoken.sort("turn", "role", maintain_order=True).select(_TURN)
        shelf, person = sets[end["category_id"]], people[end["persona_id"]]
        facet_ids = set(spoken["facet_id"].drop_nulls())
        facets = [f for f in shelf.facets if f.facet_id in facet_ids]
        order = (-shelf.y[person]).argsort(kind="stable")
        rows.append(
            {
                **{key: end[key] for key in _END},
                "category": shelf.name,
                "path": shelf.path,
                "who": {
                    **world.attributes[person],
                    "persona_id": end["persona_id"],
                    "name": names.get(end["persona_id"]),
                    "description": world.descriptions[person],
                },
                "best": end["best"],
                "regret": end["regret"],
                "random_regret": end["random_regret"],
                "stars": end["stars"],
                "turns": spoken.to_dicts(),
                "shelf": [
                    {
                        "id": shelf.item_ids[n],
                        "title": shelf.titles[n],
                        "price": _number(shelf.price[n]),
                        "rating": _number(shelf.rating[n]),
                        "score": round(float(shelf.y[person, n]), 1),
                        "values": {
                            f.facet_id: f.values[int(f.of[n])] for f in facets if f.of[n] >= 0
                        },
                    }
                    for n in order.tolist()
                ],
            }
        )
    return {"rows": rows, "release": world.reference}


def _names(world: DialogueWorld) -> dict[str, str]:
    if world.release is None:
        return {}
    rows = world.release["personas"].polars(["persona_id", "name"])
    return dict(rows.drop_nulls().iter_rows())


def _number(value: Any) -> float | None:
    return None if value != value else round(float(value), 2)
