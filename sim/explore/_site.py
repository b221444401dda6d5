"""The files of a site: the page as it is packaged, and the data of the views."""

from __future__ import annotations

import io
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import polars as pl

from pipelines.captions import read_image, read_posters
from pipelines.config import Settings
from pipelines.contracts import MATCHED_DOMAINS
from pipelines.errors import ConfigError, UnderstudyError
from pipelines.exports import left_out
from pipelines.graph import GraphMemory, load_schema
from pipelines.progress import advance
from pipelines.raters import OK
from pipelines.scales import scale_named
from pipelines.store import Store
from pipelines.store.files import LocalFiles
from sim._release import Release
from sim.agents import AgentWorld, Simulation, match_people, open_brain, simulate
from sim.environment import PersonaTable, World, persona_users
from sim.explore._results import compared, dialogues, experiments, training
from sim.recommenders import open_recommender

#: Views of a site, in the order of its menu.
VIEWS = ("people", "visits", "dialogues", "graph", "experiments", "training", "beside")
#: Files of the packaged page.
_PAGE = (
    *("index.html", "style.css", "app.js", "results.js", "views.js"),
    *("htm-preact.js", "LICENCES.txt"),
)
#: A view, with the reasons why parts of it are ``absent``; or the reason why there is none.
View = dict[str, Any] | str
#: Width of the posters that are copied (pixels).
_POSTER = 240


class Items:
    """The items that views show, each once; views refer to them by number."""

    def __init__(self, release: Release, hidden: frozenset[str]) -> None:
        table = release["items"]
        columns = [c for c in ("item_id", "title", "year", "genres") if c in table.columns]
        self._rows = {row["item_id"]: row for row in table.polars(columns).iter_rows(named=True)}
        self._numbers: dict[str, int] = {}
        #: Columns that are not shown.
        self.hidden = hidden

    def number(self, item: str) -> int:
        """Number of an item in :meth:`rows`."""
        return self._numbers.setdefault(item, len(self._numbers))

    def __contains__(self, item: str) -> bool:
        return item in self._rows

    @property
    def ids(self) -> list[str]:
        """Ids of the items shown so far, by number."""
        return list(self._numbers)

    def rows(self, posters: Mapping[str, str]) -> list[dict[str, Any]]:
        """Id, title, year, genres and poster of the items; ``posters`` are paths by id."""
        empty: dict[str, Any] = {}
        rows = ((item, self._rows.get(item, empty)) for item in self._numbers)
        return [
            {
                "id": item,
                "title": row.get("title") or item,
                "year": row.get("year"),
                "genres": row.get("genres") or [],
                "poster": posters.get(item),
            }
            for item, row in rows
        ]


def explore(
    release: Release,
    folder: Path,
    settings: Settings,
    *,
    simulation: Path | None = None,
    dialogue: Path | None = None,
    beside: Release | None = None,
    number: int = 120,
    texts: bool = False,
) -> dict[str, Any]:
    """Write the site of a release into a folder.

    Files of an earlier site are replaced one by one, each as a whole.

    Parameters
    ----------
    release
        The release that is shown, in a local store.
    folder
        Of the site alone.
    settings
        The home, which is searched for results, and settings of what is played in it.
    simulation, dialogue
        Folders of runs of agents and of dialogues. Default: the newest of the home, the agents'
        on this release; without any, a few are played.
    beside
        A release to compare with.
    number
        Personas shown (count).
    texts
        Show columns whose sources do not allow to redistribute them, and posters of the world's
        folder (``settings.world.folder``).

    Returns
    -------
    dict
        ``release``, ``folder``, ``views`` (rows by view), ``absent`` (reasons by view or part of
        one that can't be shown), ``left_out`` (columns of items that are not shown), ``files`` and
        ``bytes`` (count).

    Raises
    ------
    ConfigError
        If the folder holds something else, or a run is of another release.
    StoreError
        If the folder can't be written.
    """
    site = LocalFiles(folder)
    foreign = [name for name in site.names(folder) if not name.startswith("_")]
    if foreign and not (folder / "data" / "index.js").exists():
        raise ConfigError(
            f"the folder is not empty ({foreign[0]})", where=str(folder), hint="choose another"
        )
    stored = Store(release.home).release(release.ref)
    items = Items(release, frozenset(left_out(stored, texts=texts).get("items", ())))
    makers: dict[str, Callable[[], View]] = {
        "people": lambda: people(release, items, number),
        "visits": lambda: visits(release, items, settings, simulation),
        "dialogues": lambda: dialogues(release, settings, dialogue),
        "graph": lambda: graph(release, items),
        "experiments": lambda: experiments(release, settings),
        "training": lambda: training(release, settings),
        "beside": lambda: compared(release, beside, settings),
    }
    shown: dict[str, dict[str, Any]] = {}
    absent: dict[str, str] = {}
    for step, name in enumerate(VIEWS):
        advance(name, step, len(VIEWS))
        view = makers[name]()
        if isinstance(view, str):
            absent[name] = view
        else:
            shown[name] = view
            absent |= {part: reason for part, reason in view.pop("absent", {}).items() if reason}
    posters = _posters(items, settings.world.folder if texts else None)
    index = {
        "release": release.ref,
        "name": release.name,
        "domain": release.domain,
        "world": release.world,
        "created_at": release.created_at,
        "tables": [{"table": name, "rows": table.rows} for name, table in release.tables.items()],
        "views": {name: len(view["rows"]) for name, view in shown.items()},
        "absent": absent,
        "items": items.rows({item: f"posters/{n}.jpg" for n, item in enumerate(posters)}),
    }
    written = {f"data/{name}.js": _script(name, view) for name, view in shown.items()}
    written |= {f"posters/{n}.jpg": data for n, data in enumerate(posters.values())}
    page = files("sim.explore").joinpath("site")
    written |= {name: page.joinpath(name).read_bytes() for name in _PAGE}
    written["data/index.js"] = _script("index", index)
    for name, data in written.items():
        site.put(folder / name, data)
    with suppress(OSError):  # another process writes here too
        site.staging_root.rmdir()
    return {
        "release": release.ref,
        "folder": str(folder),
        "views": index["views"],
        "absent": absent,
        "left_out": sorted(items.hidden),
        "files": len(written),
        "bytes": sum(map(len, written.values())),
    }


def _script(name: str, value: Any) -> bytes:
    """A value as a script that hands it to the page: pages from disk can't read JSON files."""
    option = orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS
    return b"understudy(" + orjson.dumps(name) + b"," + orjson.dumps(value, option=option) + b");\n"


def _posters(items: Items, folder: Path | None) -> dict[str, bytes]:
    """Small copies of the posters of the items shown, by item id; ``folder`` is the world's."""
    pictures: dict[str, bytes] = {}
    if folder is None:
        return pictures
    for poster in read_posters(folder, items.ids):
        image = read_image(poster.data) if poster.status == "ok" else ""
        if isinstance(image, str):
            continue
        image.thumbnail((_POSTER, 2 * _POSTER))
        data = io.BytesIO()
        image.save(data, "JPEG", quality=80)
        pictures[poster.item_id] = data.getvalue()
    return pictures


#: Ratings shown of a persona, and items that they are spread over: those that a person of this
#: taste is most likely to know.
_RATINGS, _WATCHED = 10, 40
#: Nearest personas shown of each (count).
_NEAREST = 5
#: Effects on a rating below this are not shown (points of the scale).
_LEAST = 0.03
#: Columns of a persona that are shown as they are.
_SHOWN = (
    *("persona_id", "name", "age", "gender", "job", "hobby", "likes", "dislikes"),
    *("leniency", "manner", "activity", "conformity", "origin", "writer", "description"),
)

Why = Callable[[str, str], dict[str, float]]


def people(release: Release, items: Items, number: int) -> dict[str, Any] | str:
    """The first ``number`` personas with scores, or the reason why there are none."""
    if lacking := sorted({"personas", "preference_scores"} - set(release)):
        return f"the release has no table {lacking[0]}"
    cast = PersonaTable.read(release).frame
    scored = release["preference_scores"].lazy().filter(pl.col("status") == OK)
    ids = scored.select(pl.col("persona_id").unique().sort()).collect()["persona_id"]
    # Of every cohort some: not only of that whose name comes first.
    cast = cast.filter(pl.col("persona_id").is_in(ids.implode())).with_columns(
        place=pl.int_range(pl.len()).over("cohort")
    )
    chosen = cast.sort("place", "persona_id").head(number).sort("persona_id")
    if chosen.is_empty():
        return "the release has no scores of its personas"
    names = chosen["persona_id"].to_list()
    ratings = _ratings(release, scored, names)
    raters = sorted({row["rater"] for rows in ratings.values() for row in rows})
    why, reason = _explainer(release, raters)
    scale = scale_named(next(row["scale"] for rows in ratings.values() for row in rows))
    near = _nearest(release, names)
    users = _users(release)
    rows = [
        {
            **row,
            "user": users.get(row["persona_id"]),
            "near": near[n],
            "ratings": [_rating(score, items, why) for score in ratings[row["persona_id"]]],
        }
        for n, row in enumerate(chosen.select(_SHOWN).iter_rows(named=True))
    ]
    return {
        "rows": rows,
        "total": len(ids),
        "raters": raters,
        "absent": {"reasons of ratings": "" if why else reason},
        "scale": {"name": scale.name, "answers": [float(a) for a in scale.answers]},
    }


def _ratings(
    release: Release, scored: pl.LazyFrame, names: list[str]
) -> dict[str, list[dict[str, Any]]]:
    """Scores by persona, from best to worst."""
    columns = ("item_id", "rater", "scale", "probabilities", "expected", "explanation")
    scores = scored.filter(pl.col("persona_id").is_in(names)).select("persona_id", *columns)
    if "score_plan" in release:
        plan = release["score_plan"].lazy().select("persona_id", "item_id", "exposure")
        scores = scores.join(plan, on=["persona_id", "item_id"], how="left")
    else:
        scores = scores.with_columns(exposure=0.0)
    exposure = pl.col("exposure").fill_null(0)
    ordered_scores = scores.sort("persona_id", exposure, "item_id", descending=[False, True, False])
    first = ordered_scores.group_by("persona_id", maintain_order=True).head(_WATCHED)
    chosen: dict[str, list[dict[str, Any]]] = {}
    for (name,), part in first.collect().group_by("persona_id", maintain_order=True):
        ordered = part.sort("expected", "item_id", descending=[True, False])
        spread = np.linspace(0, part.height - 1, min(_RATINGS, part.height)).round().astype(int)
        chosen[str(name)] = ordered[spread.tolist()].to_dicts()
    return chosen


def _rating(score: dict[str, Any], items: Items, why: Why | None) -> dict[str, Any]:
    parts: dict[str, float] = {}
    if why is not None and score["rater"] == "statistical":
        parts = why(score["persona_id"], score["item_id"])
    return {
        "item": items.number(score["item_id"]),
        "expected": round(score["expected"], 3),
        "p": [round(p, 4) for p in score["probabilities"]],
        "why": {name: round(v, 3) for name, v in parts.items() if abs(v) >= _LEAST},
        "text": score["explanation"],
    }


def _explainer(release: Release, raters: list[str]) -> tuple[Why | None, str]:
    """Effects on the expected rating of a pair, by name, or why there are none."""
    if "statistical" not in raters:
        return None, f"the scores are of {', '.join(raters)}: only the statistical rater gives them"
    try:
        world = World.open(release, rater="statistical")
    except UnderstudyError as error:
        return None, str(error)
    nothing = np.zeros(0, np.int64), np.zeros(0)

    def why(persona: str, item: str) -> dict[str, float]:
        return world.rater.explain(world.cast.index(persona), world.catalogue.row(item), *nothing)

    return why, ""


def _nearest(release: Release, names: list[str]) -> list[list[tuple[int, float]]]:
    """Numbers of the nearest personas by the cosine of their texts' vectors, nearest first."""
    if "persona_embeddings" not in release:
        return [[] for _ in names]
    table = release["persona_embeddings"].lazy().filter(pl.col("persona_id").is_in(names))
    frame = pl.DataFrame({"persona_id": names}).join(
        table.select("persona_id", "vector").collect(), on="persona_id", how="left",
        maintain_order="left",
    )  # fmt: skip
    embedded = frame["vector"].is_not_null().to_numpy()
    width = max(frame["vector"].list.len().drop_nulls().to_list(), default=0)
    vectors = np.zeros((len(names), width))
    if embedded.any():
        vectors[embedded] = np.array(frame["vector"].drop_nulls().to_list())
    cosine = vectors @ vectors.T
    cosine[:, ~embedded] = -np.inf
    np.fill_diagonal(cosine, -np.inf)
    order = np.argsort(-cosine, axis=1, kind="stable")[:, :_NEAREST]
    return [
        [(int(m), round(float(cosine[n, m]), 3)) for m in row if np.isfinite(cosine[n, m])]
        if embedded[n]
        else []
        for n, row in enumerate(order)
    ]


def _users(release: Release) -> dict[str, str]:
    """The real user that each matched persona stands for."""
    if "matched_personas" not in release:
        return {}
    rows = release["matched_personas"].polars(["persona_id", "user_id"])
    return dict(rows.iter_rows())


#: Items that a graph is shown around, neighbours of each, and named nodes between two (count).
_CENTRES, _NEIGHBOURS, _BETWEEN = 80, 8, 6


def graph(release: Release, items: Items) -> dict[str, Any] | str:
    """Neighbours of items and the nodes that join them, or the reason why there are none."""
    try:
        memory = GraphMemory.open(release)
    except UnderstudyError as error:
        return str(error)
    if "item_stats" in release:
        order = release["item_stats"].polars(["item_id", "popularity_rank"]).sort("popularity_rank")
    else:
        order = release["items"].polars(["item_id"]).sort("item_id")
    # What other views show comes first, so that they can link to it.
    popular = [item for item in order["item_id"] if item in items]
    centres = popular[:_CENTRES]
    if not centres:
        return "no other view shows an item of the release"
    near = {item: memory.retrieve(None, item, _NEIGHBOURS) for item in centres}
    shown = sorted({*centres, *(n.item_id for rows in near.values() for n in rows)})
    nodes, raters = _nodes(release, items, shown)
    settings = memory.settings
    labels: dict[str, int] = {}
    rows = []
    for item in centres:
        neighbours = []
        for n in near[item]:
            shared = sorted(nodes[item] & nodes[n.item_id])[:_BETWEEN]
            neighbours.append(
                {
                    "item": items.number(n.item_id),
                    "score": round(n.score, 4),
                    "rating": n.rating,
                    "paths": [(k, round(settings.alpha * v, 4)) for k, v in n.paths.items() if v],
                    "cosine": round(settings.embedding_weight * (n.parts.cosine or 0), 4),
                    "through": [labels.setdefault(node, len(labels)) for node in shared],
                    "people": len(raters[item] & raters[n.item_id]),
                }
            )
        rows.append({"item": items.number(item), "near": neighbours})
    return {
        "rows": rows,
        "nodes": [dict(zip(("kind", "label"), node.split("\t"), strict=True)) for node in labels],
        "scale": memory.scale.name,
    }


def _nodes(
    release: Release, items: Items, shown: list[str]
) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Kind and label of the nodes that each item leads to, and the people that rated it.

    Nodes that come of columns that are not shown are left out.
    """
    schema = load_schema(release.domain)
    named = {
        (e.relation, e.tail_type)
        for e in schema.edges
        if e.origin == "items" and e.node is not None and e.column not in items.hidden
    }
    first = next(e for e in schema.edges if e.origin == "interactions" and e.where == "all")
    nodes, raters = defaultdict[str, set[str]](set), defaultdict[str, set[str]](set)
    triples = release["graph_triples"].lazy().filter(pl.col("head").is_in(shown)).collect()
    for head, relation, tail, kind in triples.select(
        "head", "relation", "tail", "tail_type"
    ).iter_rows():
        if relation == first.inverse:
            raters[head].add(tail)
        elif (relation, kind) in named:
            nodes[head].add(f"{kind}\t{tail.partition(':')[2]}".replace("\n", " "))
    return nodes, raters


#: Visits shown, and as many played where the home has no run (count).
_VISITS = 24
#: Columns of a persona that introduce it.
_WHO = ("persona_id", "name", "age", "gender", "job", "likes", "dislikes")
_VIEWS = ("view", "page", "mood", "fatigue", "emotion", "action", "target", "reason", "status")
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
            {key: page[key] for key in _VIEWS}
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
