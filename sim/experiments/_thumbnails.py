"""Experiment ``thumbnails``: whether agents watch less where a poster is another one or tinted."""

from __future__ import annotations

import colorsys
import hashlib
import io
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from pipelines.captions import Poster, open_captioner, read_image, read_posters
from pipelines.plugins import closing
from pipelines.seeding import hash_ids
from pipelines.study import Study
from sim.agents import AgentWorld, ItemTexts
from sim.experiments._context import ExperimentContext
from sim.experiments._data import ITEMS_OF_MODEL, judged
from sim.experiments._experiment import experiment, page

if TYPE_CHECKING:
    from PIL import Image

#: Posters in the order of the table.
CONDITIONS = ("own", "another", "blue")
#: Hue of blue (share of the circle).
_BLUE = 240 / 360
_HINT = "put posters as posters/<id>.jpg into the folder that `world.folder` names"


@experiment(
    question="Do agents watch an item less where its caption is that of another item's poster, or "
    "of its own with a blue filter?",
    paper="SimUSER, Fig. 9",
    conditions=("brain", "poster"),
    **page("thumbnails"),
)
def thumbnails(
    study: Study,
    context: ExperimentContext,
    *,
    items: int = 100,  # with a poster at most (count; SimUSER: 100)
    people: int = 100,  # agents at most (count; SimUSER: 100)
    min_items: int = 10,  # with a poster
    min_people: int = 10,
    hue: float = 0.3,  # strength of the blue filter, 0-1 (SimUSER: 30, 30, 30)
    lightness: float = 0.3,
    saturation: float = 0.3,
    folder: Path | str | None = None,  # the world's, which has `posters`; by default the settings'
) -> None:
    """Put every item to every agent under three captions."""
    world = context.world()
    posters = _posters(world, folder or context.settings.world.folder, items)
    study.require("items with a poster that can be read", len(posters), min_items, _HINT)
    texts, statuses = _captions(study, context, posters, (hue, lightness, saturation))
    ids = [item for item in posters if all(item in texts[name] for name in CONDITIONS)]
    study.require("items with a poster and captions of it", len(ids), min_items, _HINT)
    numbers = {item: n for n, item in enumerate(world.catalogue.ids)}
    chosen = np.sort(np.array([numbers[item] for item in ids]))
    changed = sum(texts["own"][item] != texts["blue"][item] for item in ids)
    study.counts |= {"items": len(chosen), "captions changed by the filter": changed, **statuses}
    for name, brain, source in context.players():
        opened = context.world_of(brain)
        limit = context.agents_of(brain) if source == "model" else people
        agents = np.arange(min(len(opened), context.agents, limit))
        put = chosen[:ITEMS_OF_MODEL] if source == "model" else chosen
        pairs = pl.DataFrame(
            {"person": np.repeat(agents, len(put)), "item": np.tile(put, len(agents))}
        )
        for condition in CONDITIONS:
            captions = ItemTexts(captions=dict(texts[condition]))
            frame = judged(
                context, brain, pairs, key={"texts": captions.digest},
                world=replace(opened, texts=captions), experienced=False,
            ).filter(pl.col("status") == "ok")  # fmt: skip
            watched = frame.select(
                persona_id=opened.people["persona_id"].gather(frame["person"]),
                watched=pl.col("watched").cast(pl.Float64),
            )
            least = (f"people asked, {name}", min_people, _HINT)
            row = study.add((name, condition), source, watched, least=least)
            study.counts[f"failed, {row.title}"] = pairs.height - watched.height
    study.against("watched", poster="own")


def _posters(world: AgentWorld, folder: Path | str | None, items: int) -> dict[str, Poster]:
    """Posters that can be read, of the first items by a hash of the id."""
    readable: dict[str, Poster] = {}
    if folder is not None:
        ids = pl.Series(world.catalogue.ids)
        order = np.lexsort((ids.to_numpy(), np.asarray(hash_ids(ids))))
        for poster in read_posters(Path(folder), ids.gather(order).to_list()):
            if poster.status == "ok":
                readable[poster.item_id] = poster
            if len(readable) == items:
                break
    return readable


def _captions(
    study: Study,
    context: ExperimentContext,
    posters: Mapping[str, Poster],
    strengths: tuple[float, float, float],
) -> tuple[dict[str, dict[str, str]], dict[str, int]]:
    """Captions by condition and item, and statuses of those that failed (counts)."""
    with closing(open_captioner(context.settings)) as captioner:

        def compute() -> pl.DataFrame:
            originals = list(posters.values())
            blue = [_tinted_poster(poster, strengths) for poster in originals]
            captions = [captioner.caption(side) for side in (originals, blue)]
            return pl.DataFrame(
                {"version": version, "item_id": poster.item_id, "status": caption.status,
                 "caption": caption.text}
                for version, side in zip(("own", "blue"), captions, strict=True)
                for poster, caption in zip(originals, side, strict=True)
            )  # fmt: skip

        key = {
            "posters": {item: poster.sha256 for item, poster in posters.items()},
            "captioner": {n: v for n, v in captioner.metadata().items() if n != "calls"},
        }
        frame = context.cell(study, key, compute)
    good = pl.col("status") == "ok"
    bad = frame.remove(good).group_by("status").len().sort("status")
    sides = [
        dict(frame.filter(good, version=version).select("item_id", "caption").iter_rows())
        for version in ("own", "blue")
    ]
    return captions_by_condition(*sides), {
        f"captions, {status}": n for status, n in bad.iter_rows()
    }


def captions_by_condition(
    captions: Mapping[str, str], blue: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Captions by condition: an item's own, the next item's, and that of its tinted poster.

    >>> captions_by_condition({"a": "1", "b": "2", "c": "3"}, {"a": "x"})["another"]
    {'a': '2', 'b': '3', 'c': '1'}
    """
    ids = list(captions)
    others = dict(zip(ids, [captions[item] for item in [*ids[1:], *ids[:1]]], strict=True))
    return {"own": dict(captions), "another": others, "blue": dict(blue)}


def blue_tinted(image: Image.Image, strengths: tuple[float, float, float]) -> Image.Image:
    """A picture with a blue filter in HSL.

    Hues move towards blue on the shorter way (those of greys become blue), lightness and saturation
    towards 1, each by its share of the distance. ``strengths`` are these shares for hue, lightness
    and saturation, 0-1.
    """
    from PIL import Image

    pixels = np.asarray(image.convert("RGB"))
    colours, place = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
    tinted = np.array([_tinted(colour / 255, strengths) for colour in colours])
    rounded = np.round(tinted * 255).astype(np.uint8)
    return Image.fromarray(rounded[np.ravel(place)].reshape(pixels.shape))


def _tinted(colour: Any, strengths: tuple[float, float, float]) -> tuple[float, float, float]:
    """A colour (red, green, blue, 0-1) moved towards blue."""
    hue, light, saturation = colorsys.rgb_to_hls(*colour)
    way = (_BLUE - hue + 0.5) % 1.0 - 0.5
    return colorsys.hls_to_rgb(
        (hue + strengths[0] * way) % 1.0 if saturation > 0 else _BLUE,
        light + strengths[1] * (1.0 - light),
        saturation + strengths[2] * (1.0 - saturation),
    )


def _tinted_poster(poster: Poster, strengths: tuple[float, float, float]) -> Poster:
    image = read_image(poster.data)
    assert not isinstance(image, str)
    file = io.BytesIO()
    blue_tinted(image, strengths).save(file, "PNG")
    data = file.getvalue()
    return Poster(poster.item_id, data, hashlib.sha256(data).hexdigest(), "ok")
