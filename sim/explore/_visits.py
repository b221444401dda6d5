"""Visits of agents to a recommender, page by page."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipelines.config import Settings
from pipelines.contracts import MATCHED_DOMAINS
from pipelines.errors import ConfigError, UnderstudyError
from sim._release import Release
from sim.agents import AgentWorld, Simulation, match_people, open_brain, simulate
from sim.environment import persona_users
from sim.recommenders import open_recommender

if TYPE_CHECKING:
    from sim.explore._site import Items

#: Visits shown, and as many played where the home has no run (count).
_VISITS = 24
#: Columns of a persona that introduce it.
_WHO = ("persona_id", "name", "age", "gender", "job", "likes", "dislikes")
_PAGE = ("view", "page", "mood", "fatigue", "emotion", "action", "target", "reason", "status")
_ITEM = ("watched", "rating", "expected", "reason", "feeling", "valence")


def visits(
    release: Release, items: Items, settings: Settings, folder: Path | None
) -> dict[str, Any] | str:
    """Visits of a run of agents on the release, or the reason why none can be shown."""
    run = _run(release, settings.runtime.home, folder)
    if run is not None:
        return _shown(run, release, items, settings)
    if release.domain not in MATCHED_DOMAINS:
        return f"agents visit releases of {', '.join(MATCHED_DOMAINS)}"
    with tempfile.TemporaryDirectory() as scratch:
        try:
            run = _played(release, settings, Path(scratch) / "run")
            return _shown(run, release, items, settings)
        except UnderstudyError as error:
            return str(error)


def _run(release: Release, home: Path, folder: Path | None) -> Simulation | None:
    """The run of a folder, or the newest of the home on the release."""
    if folder is not None:
        run = Simulation.open(folder)
        if run.identity["release"] != release.ref:
            raise ConfigError(
                f"the run is of {run.identity['release']}",
                where=str(folder),
                hint=f"understudy explore {run.identity['release']}",
            )
        return run
    files = sorted((home / "simulations").glob("*/agents.parquet"), key=lambda p: p.stat().st_mtime)
    for file in reversed(files):
        run = Simulation.open(file.parent)
        if run.identity["release"] == release.ref:
            return run
    return None


def _played(release: Release, settings: Settings, folder: Path) -> Simulation:
    """A few visits, which are not kept: matched people where there are any, else personas."""
    release, _ = match_people(release, settings.matching)
    world = AgentWorld.open(release, cast="matched" if any(persona_users(release)) else "personas")
    brain = open_brain("statistical", settings=settings).open(world)
    recommender = open_recommender("popular").fit(release)
    return simulate(world, brain, recommender, agents=_VISITS, folder=folder)


def _shown(
    run: Simulation, release: Release, items: Items, settings: Settings
) -> dict[str, Any] | str:
    agents = run.table("agents").filter(pl.col("exit_reason") != "failed").collect()
    if agents.is_empty():
        return "every visit of the run failed"
    spread = np.linspace(0, agents.height - 1, min(_VISITS, agents.height)).round().astype(int)
    agents = agents[np.unique(spread).tolist()]
    numbers = agents["agent"].to_list()
    tables = {
        name: run.table(name).filter(pl.col("agent").is_in(numbers)).collect()
        for name in ("views", "pages", "memories")
    }
    who = _who(release, agents["persona_id"].to_list(), settings)
    return {
        "rows": [_visit(agent, who, tables, items) for agent in agents.iter_rows(named=True)],
        "run": {
            key: run.identity[key]
            for key in ("brain", "note", "recommender", "recommender_note", "agents", "per_page")
        },
    }


def _who(release: Release, names: list[str], settings: Settings) -> dict[str, dict[str, Any]]:
    """Personas of agents by id; those that were matched for the run are matched again."""
    people = _rows(release, names)
    if len(people) < len(set(names)):
        people = _rows(match_people(release, settings.matching)[0], names)
    return people


def _rows(release: Release, names: list[str]) -> dict[str, dict[str, Any]]:
    rows = release["personas"].lazy().filter(pl.col("persona_id").is_in(names)).select(_WHO)
    return {row["persona_id"]: row for row in rows.collect().iter_rows(named=True)}


def _visit(
    agent: dict[str, Any],
    who: dict[str, dict[str, Any]],
    tables: dict[str, pl.DataFrame],
    items: Items,
) -> dict[str, Any]:
    mine = {name: table.filter(pl.col("agent") == agent["agent"]) for name, table in tables.items()}
    pages = []
    for page in mine["pages"].sort("view").iter_rows(named=True):
        shown = mine["views"].filter(pl.col("view") == page["view"]).sort("position")
        rows = shown.to_dicts()
        pages.append(
            {key: page[key] for key in _PAGE}
            | {
                "closer": bool(rows and rows[0]["clicked"]),
                "items": [
                    {"item": items.number(row["item_id"]), **{key: row[key] for key in _ITEM}}
                    for row in rows
                ],
            }
        )
    keys = ("agent", "user_id", "exit_page", "exit_reason", "satisfaction", "interview")
    reflections = mine["memories"].filter(pl.col("kind") == "reflection")["text"].to_list()
    return {
        **{key: agent[key] for key in keys},
        "who": who.get(agent["persona_id"], {"persona_id": agent["persona_id"]}),
        "pages": pages,
        "reflections": reflections,
    }
