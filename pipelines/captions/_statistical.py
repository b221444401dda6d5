"""The captioner that needs no model: facts of a poster's pixels, no guesses about its content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from pipelines.captions._posters import Poster, read_image
from pipelines.captions._protocol import Caption
from pipelines.packaged import packaged_yaml

if TYPE_CHECKING:
    from PIL import Image

Floats = npt.NDArray[np.float64]
#: Longest side of the picture that is measured (pixels).
_SIDE = 128
#: Dominant colours that are named (count).
_COLOURS = 3
#: Colours below this share of the pixels are not named.
_LEAST = 0.03
_WHITE = np.array([0.95047, 1.0, 1.08883])
_TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)


@dataclass(frozen=True, slots=True)
class PosterFacts:
    """Measurements of a poster."""

    #: Up to three commonest named colours, the commonest first, and their shares of the pixels.
    colours: tuple[tuple[str, float], ...]
    #: Mean luma (0-1; ITU-R BT.601).
    brightness: float
    #: Standard deviation of the luma (0-0.5).
    contrast: float
    #: Hasler and Süsstrunk's M3 (2003), 0 to about 190.
    colourfulness: float


def facts_of(image: Image.Image) -> PosterFacts:
    """Facts of a picture, from a copy whose longer side has at most 128 pixels."""
    from PIL import Image

    small = image.convert("RGB")
    small.thumbnail((_SIDE, _SIDE), Image.Resampling.BOX)
    pixels = np.asarray(small, np.float64).reshape(-1, 3)
    luma = pixels @ np.array([0.299, 0.587, 0.114]) / 255
    names, palette = _palette()
    distance = ((_lab(pixels)[:, None, :] - palette[None, :, :]) ** 2).sum(axis=2)
    shares = np.bincount(distance.argmin(axis=1), minlength=len(names)) / len(pixels)
    order = np.lexsort((np.arange(len(names)), -shares))[:_COLOURS]
    return PosterFacts(
        tuple((names[n], float(shares[n])) for n in order.tolist() if shares[n] >= _LEAST),
        float(luma.mean()),
        float(luma.std()),
        _colourfulness(pixels),
    )


class StatisticalCaptioner:
    """Names dominant colours, brightness, contrast and colourfulness."""

    name = "statistical"

    def caption(self, posters: Sequence[Poster]) -> list[Caption]:
        """See :class:`pipelines.captions.Captioner`."""
        out = []
        for poster in posters:
            image = read_image(poster.data)
            out.append(Caption(image) if isinstance(image, str) else Caption("ok", _text(image)))
        return out

    def metadata(self) -> dict[str, Any]:
        """Thresholds of the words."""
        settings = _assumed()
        return {
            "captioner": self.name,
            "language_model": False,
            "assumed": {name: settings[name] for name in ("brightness", "contrast")},
            "colourfulness": "Hasler and Süsstrunk 2003, table 2",
        }


def _text(image: Image.Image) -> str:
    facts, assumed = facts_of(image), _assumed()
    named = [name for name, _ in facts.colours]
    colours = " and ".join([", ".join(named[:-1]), named[-1]]) if named[1:] else named[0]
    words = [
        _word(assumed[part], getattr(facts, part))
        for part in ("brightness", "contrast", "colourfulness")
    ]
    return f"Poster mostly in {colours}; {', '.join(words)}."


def _word(steps: Sequence[Sequence[Any]], value: float) -> str:
    """The word of the last step that a value reaches."""
    return str([word for least, word in steps if value >= least][-1])


def _colourfulness(pixels: Floats) -> float:
    red, green, blue = pixels.T
    opponents = np.stack([red - green, 0.5 * (red + green) - blue])
    spread, mean = opponents.std(axis=1), opponents.mean(axis=1)
    return float(np.hypot(*spread) + 0.3 * np.hypot(*mean))


def _lab(pixels: Floats) -> Floats:
    """CIELAB of sRGB values 0-255, D65."""
    share = pixels / 255
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    scaled = linear @ _TO_XYZ.T / _WHITE
    root = np.where(scaled > 216 / 24389, np.cbrt(scaled), (24389 / 27 * scaled + 16) / 116)
    x, y, z = root.T
    return np.stack([116 * y - 16, 500 * (x - y), 200 * (y - z)], axis=1)


def _assumed() -> dict[str, Any]:
    return dict(packaged_yaml("pipelines.captions", "assumed.yaml"))


@cache
def _palette() -> tuple[list[str], Floats]:
    colours = _assumed()["colours"]
    return list(colours), _lab(np.array(list(colours.values()), np.float64))
