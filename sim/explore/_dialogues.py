"""Shopping dialogues beside the shelf of products, with the regret after each question."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from pipelines.config import Settings
from pipelines.errors import UnderstudyError
from sim._release import Release, open_release
from sim.dialogue import DialogueWorld, Lifetimes, open_agent, play
from sim.dialogue.suites import configured_customer, read_run

#: Episodes shown of an agent, and agents (count).
_EPISODES, _AGENTS = 4, 6
#: Agents of dialogues that are played where the home has no run, lifetimes and episodes of each.
_PLAYED = ("dp", "linear")
_LIFETIMES, _LENGTH = 4, 1
_TURN = ("turn", "role", "kind", "text", "facet_id", "value", "item_id", "regret", "rank", "top_1")
Tables = tuple[pl.DataFrame, pl.DataFrame]
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


def _played(world: DialogueWorld, settings: Settings) -> Tables:
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
    turns = [frame.turns for frame in frames if frame.turns is not None]
    return pl.concat(frame.episodes for frame in frames), pl.concat(turns)


def _shown(world: DialogueWorld, played: Tables) -> dict[str, Any] | str:
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
