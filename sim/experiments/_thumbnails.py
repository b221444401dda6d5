"""Experiment ``thumbnails``: whether agents watch less where a poster is another one or tinted."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.captions import Poster, open_captioner, read_image, read_posters
from pipelines.seeding import hash_ids
from sim.agents import AgentWorld, Brain, ItemTexts
from sim.experiments._context import ExperimentContext
from sim.experiments._figures import bars, paired, person_figures
from sim.experiments._held_out import ITEMS_OF_MODEL, judged
from sim.experiments._protocol import Comparison, Result, Row, TooFew

if TYPE_CHECKING:
    from PIL import Image

#: Meanings of the figures by name.
_FIGURES = {"watched": "share of the items that were watched, 0-1"}
#: Posters in the order of the table.
CONDITIONS = ("own", "another", "blue")
#: Hue of blue (degrees).
_BLUE = 240.0


@dataclass(frozen=True)
class ThumbnailsSettings:
    """Settings of ``thumbnails``."""

    #: Items with a poster and agents at most (counts; SimUSER: 100 of each).
    items: int = 100
    people: int = 100
    #: Items with a poster and people that figures need (counts).
    min_items: int = 10
    min_people: int = 10
    #: Strength of the blue filter (0-1; SimUSER: 30, 30, 30).
    hue: float = 0.3
    lightness: float = 0.3
    saturation: float = 0.3


class Thumbnails:
    """Views of the same items with their own poster, another item's, and their own tinted blue.

    ``folder`` is the world's, which has ``posters``; default that of the configuration.
    """

    name = "thumbnails"
    question = (
        "Do agents watch an item less where its caption is that of another item's poster, or of "
        "its own with a blue filter?"
    )
    anchor = "SimUSER, Fig. 9"
    figures = _FIGURES

    def __init__(
        self, settings: ThumbnailsSettings | None = None, folder: Path | str | None = None
    ) -> None:
        self.settings = settings or ThumbnailsSettings()
        self._folder = folder

    def run(self, context: ExperimentContext) -> Result:
        """Put every item to every agent under three captions."""
        world = context.world()
        posters = self._posters(context, world)
        texts, statuses = self._captions(context, posters)
        ids = [item for item in posters if all(item in texts[name] for name in CONDITIONS)]
        self._enough("items with a poster and captions of it", len(ids), self.settings.min_items)
        numbers = {item: n for n, item in enumerate(world.catalogue.ids)}
        items = np.sort(np.array([numbers[item] for item in ids]))
        rows: list[Row] = []
        comparisons: list[Comparison] = []
        changed = sum(texts["own"][item] != texts["blue"][item] for item in ids)
        counts = {"items": len(items), "captions changed by the filter": changed, **statuses}
        for brain in context.brains:
            mind = context.brain(brain)
            plain = None
            for condition in CONDITIONS:
                frame, asked = self._watched(context, mind, items, texts[condition])
                figures = person_figures(frame, list(_FIGURES))
                people = frame["persona_id"].n_unique()
                source, note = context.source(mind), ""
                try:
                    self._enough(f"people asked, {brain}", people, self.settings.min_people)
                except TooFew as few:
                    if source != "model":
                        raise
                    figures, note = dict.fromkeys(_FIGURES), few.what
                labels = {"brain": brain, "poster": condition}
                row = Row(labels, source, figures, people, note)
                rows.append(row)
                counts[f"failed, {row.title}"] = asked - frame.height
                if plain is None:
                    plain = row, frame
                    continue
                found = paired((row, frame), plain, "watched", seed=context.seed)
                comparisons += [] if found is None else [found]
        notes = [
            "The same agents are asked about the same items under every caption; `another` is the "
            "caption of the next item's poster, `blue` that of the own poster whose hues are moved "
            f"{self.settings.hue:.0%} of the way to blue, and whose lightness and saturation rise "
            f"by {self.settings.lightness:.0%} and {self.settings.saturation:.0%} of what is left "
            "(SimUSER gives hue = 30, lightness = 30, saturation = 30 and no more). Its second "
            "version, a frame of the trailer, is not in our data.",
            "The brains `random` and `statistical` read no captions: their rows are placebos, and "
            "their differences are exactly zero.",
        ]
        return Result(rows, comparisons, notes, {"watched": _picture(rows)}, counts)

    def _posters(self, context: ExperimentContext, world: AgentWorld) -> dict[str, Poster]:
        """Posters that can be read, of the first items by a hash of the id."""
        folder = self._folder or context.settings.world.folder
        found: dict[str, Poster] = {}
        if folder is not None:
            ids = pl.Series(world.catalogue.ids)
            order = np.lexsort((ids.to_numpy(), np.asarray(hash_ids(ids))))
            for poster in read_posters(Path(folder), ids.gather(order).to_list()):
                if poster.status == "ok":
                    found[poster.item_id] = poster
                if len(found) == self.settings.items:
                    break
        self._enough("items with a poster that can be read", len(found), self.settings.min_items)
        return found

    def _captions(
        self, context: ExperimentContext, posters: Mapping[str, Poster]
    ) -> tuple[dict[str, dict[str, str]], dict[str, int]]:
        """Captions by condition and item, and statuses of those that failed (counts)."""
        captioner = open_captioner(context.settings)
        chosen = self.settings
        strengths = (chosen.hue, chosen.lightness, chosen.saturation)

        def compute() -> pl.DataFrame:
            own = list(posters.values())
            blue = [_tinted_poster(poster, strengths) for poster in own]
            captions = [captioner.caption(side) for side in (own, blue)]
            return pl.DataFrame(
                [
                    (poster.item_id, version, caption.status, caption.text)
                    for version, side in zip(("own", "blue"), captions, strict=True)
                    for poster, caption in zip(own, side, strict=True)
                ],
                schema=["item_id", "version", "status", "caption"],
                orient="row",
            )

        try:
            key = {
                "posters": {item: poster.sha256 for item, poster in posters.items()},
                "captioner": {n: v for n, v in captioner.metadata().items() if n != "calls"},
                "filter": strengths,
            }
            frame = context.cell(self.name, key, compute)
        finally:
            close = getattr(captioner, "close", None)
            if close is not None:
                close()
        bad = frame.filter(pl.col("status") != "ok").group_by("status").len().sort("status")
        by_version = {
            version: dict(rows.select("item_id", "caption").iter_rows())
            for (version,), rows in frame.filter(pl.col("status") == "ok").group_by("version")
        }
        found = captions_by_condition(by_version.get("own", {}), by_version.get("blue", {}))
        return found, {f"captions, {status}": n for status, n in bad.iter_rows()}

    def _watched(
        self,
        context: ExperimentContext,
        brain: Brain,
        items: npt.NDArray[np.int64],
        captions: Mapping[str, str],
    ) -> tuple[pl.DataFrame, int]:
        """``persona_id, watched`` of usable judgements, and pairs asked (count)."""
        world = context.world_of(brain)
        asked = context.source(brain) == "model"
        limit = context.agents_of(brain) if asked else self.settings.people
        people = np.arange(min(len(world), context.agents, limit))
        chosen = items[:ITEMS_OF_MODEL] if asked else items
        pairs = pl.DataFrame(
            {"person": np.repeat(people, len(chosen)), "item": np.tile(chosen, len(people))}
        )
        texts = ItemTexts(captions=dict(captions))
        frame = judged(
            context,
            brain,
            pairs,
            key={"texts": texts.digest},
            world=replace(world, texts=texts),
            experienced=False,
        )
        usable = frame.filter(pl.col("status") == "ok")
        names = world.people["persona_id"].gather(usable["person"])
        return usable.select(persona_id=names, watched=pl.col("watched").cast(pl.Float64)), (
            pairs.height
        )

    def _enough(self, what: str, found: int, needed: int) -> None:
        if found < needed:
            raise TooFew(
                what,
                found=found,
                needed=needed,
                where=f"experiment {self.name}",
                hint="put posters as posters/<id>.jpg into the folder that `world.folder` names",
            )


def captions_by_condition(
    own: Mapping[str, str], blue: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Captions by condition: an item's own, the next item's, and that of its tinted poster.

    >>> captions_by_condition({"a": "1", "b": "2", "c": "3"}, {"a": "x"})["another"]
    {'a': '2', 'b': '3', 'c': '1'}
    """
    ids = list(own)
    others = dict(zip(ids, [own[item] for item in [*ids[1:], *ids[:1]]], strict=True))
    return {"own": dict(own), "another": others, "blue": dict(blue)}


def blue_tinted(image: Image.Image, strengths: tuple[float, float, float]) -> Image.Image:
    """A picture with a blue filter in HSL.

    Hues move towards blue on the shorter way (those of greys become blue), lightness and saturation
    towards 1, each by its share of the distance. ``strengths`` are these shares for hue, lightness
    and saturation, 0-1.
    """
    from PIL import Image

    pixels = np.asarray(image.convert("RGB"), np.float64) / 255
    hue, saturation, light = _hsl(pixels)
    way = (_BLUE - hue + 180.0) % 360.0 - 180.0
    hue = np.where(saturation > 0, hue + strengths[0] * way, _BLUE) % 360.0
    light = light + strengths[1] * (1.0 - light)
    saturation = saturation + strengths[2] * (1.0 - saturation)
    return Image.fromarray(np.round(_rgb(hue, saturation, light) * 255).astype(np.uint8))


Floats = npt.NDArray[np.float64]


def _hsl(pixels: Floats) -> tuple[Floats, Floats, Floats]:
    """Hue (degrees), saturation and lightness (0-1) of RGB values 0-1."""
    high, low = pixels.max(axis=-1), pixels.min(axis=-1)
    chroma, light = high - low, (high + low) / 2
    red, green, blue = np.moveaxis(pixels, -1, 0)
    safe = np.where(chroma > 0, chroma, 1.0)
    sector = np.select(
        [high == red, high == green],
        [((green - blue) / safe) % 6, (blue - red) / safe + 2],
        (red - green) / safe + 4,
    )
    span = 1.0 - np.abs(2.0 * light - 1.0)
    saturation = np.where(chroma > 0, chroma / np.where(span > 0, span, 1.0), 0.0)
    return np.where(chroma > 0, sector * 60.0, 0.0), saturation, light


def _rgb(hue: Floats, saturation: Floats, light: Floats) -> Floats:
    """RGB values 0-1 of hue (degrees), saturation and lightness (0-1)."""
    width = saturation * np.minimum(light, 1.0 - light)
    sides = []
    for offset in (0.0, 8.0, 4.0):
        place = (offset + hue / 30.0) % 12.0
        ramp = np.clip(np.minimum(place - 3.0, 9.0 - place), -1.0, 1.0)
        sides.append(light - width * ramp)
    return np.asarray(np.clip(np.stack(sides, axis=-1), 0.0, 1.0))


def _tinted_poster(poster: Poster, strengths: tuple[float, float, float]) -> Poster:
    image = read_image(poster.data)
    assert not isinstance(image, str)
    file = io.BytesIO()
    blue_tinted(image, strengths).save(file, "PNG")
    data = file.getvalue()
    return Poster(poster.item_id, data, hashlib.sha256(data).hexdigest(), "ok")


def _picture(rows: list[Row]) -> bytes:
    series: dict[str, list[Any]] = {}
    for row in rows:
        series.setdefault(row.labels["brain"], []).append(row.figures["watched"])
    return bars("Views by poster", CONDITIONS, series, "share watched (0-1)")
