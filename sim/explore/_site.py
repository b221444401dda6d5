"""The files of a site: the page as it is packaged, and the data of the views."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import orjson

from pipelines.captions import read_image, read_posters
from pipelines.config import Settings
from pipelines.errors import ConfigError
from pipelines.exports import left_out
from pipelines.progress import advance
from pipelines.store import Store
from pipelines.store.files import LocalFiles
from sim._release import Release
from sim.explore._dialogues import dialogues
from sim.explore._graph import graph
from sim.explore._people import people
from sim.explore._results import compared, experiments, training
from sim.explore._visits import visits

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
