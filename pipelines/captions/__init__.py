"""Captions of items' posters: what an agent sees of an item (SimUSER, section 3.2.2).

A :class:`Captioner` describes one poster at a time. The statistical one reports facts of its pixels
and never guesses what is in the picture; the model one asks a language model that takes images.
"""

from __future__ import annotations

import hashlib
import io
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import polars as pl

from pipelines.errors import ContractError
from pipelines.llm.answers import AnswerStore, Asking
from pipelines.llm.engines import Image, Request, Sampling, load_engine
from pipelines.llm.grammars import TextLimits, prose
from pipelines.packaged import packaged_yaml
from pipelines.plugins import closing_on_error
from pipelines.progress import advance
from pipelines.prompts import CAPTION_PROMPT_VERSION, caption_messages, caption_prompt_digest
from pipelines.seams import CAPTIONERS
from pipelines.statuses import CAPTION_STATUSES

if TYPE_CHECKING:
    from PIL.Image import Image as Picture

    from pipelines.config import Settings


#: Bumped whenever the same posters and settings give other captions.
CODE_VERSION = "1"


@dataclass(frozen=True, slots=True)
class Caption:
    """Caption of one poster, or the reason that it has none."""

    #: One of `CAPTION_STATUSES`.
    status: str
    #: A single line; None unless `ok`.
    text: str | None = None


@runtime_checkable
class Captioner(Protocol):
    """Describes posters.

    Equal posters get equal captions, whatever else is asked in the same call.
    ``pipelines.captions.testing.check_captioner`` tests an implementation.
    """

    #: Value of the column ``captioner``.
    name: str

    def caption(self, posters: Sequence[Poster]) -> list[Caption]:
        """Caption posters, in their order; :func:`read_image` reads every one of them."""

    def metadata(self) -> dict[str, Any]:
        """Assumptions, and the model with its number of calls; JSON-ready."""


#: Folder of a world that holds posters.
POSTERS = "posters"
#: Largest poster (bytes, pixels); the largest of film databases are about 2000 × 3000.
_MAX_BYTES = 32 * 2**20
_MAX_PIXELS = 40_000_000
#: Decoded formats, whatever the file's suffix: none of them runs another program.
_FORMATS = ("JPEG", "PNG", "WEBP", "GIF")
_ID = re.compile(r"[\w-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Poster:
    """Poster file of an item."""

    item_id: str
    #: Bytes of the file; empty unless `status` is `ok`.
    data: bytes
    #: SHA-256 (hex) of the file; None where there is none or it is too large to be read.
    sha256: str | None
    #: `ok`, or why there is no picture to look at.
    status: str


def read_posters(folder: Path, items: Sequence[str]) -> Iterator[Poster]:
    """The posters of some items in the world's folder, in their order.

    An id without the source's prefix is the file's name: ``ml:1`` is ``posters/1.jpg``. A link that
    leads out of the folder is not followed.
    """
    root = (folder / POSTERS).resolve()
    for item in items:
        number = item.rpartition(":")[2]
        path = (root / f"{number}.jpg").resolve()
        if not _ID.fullmatch(number) or not path.is_relative_to(root) or not path.is_file():
            yield Poster(item, b"", None, "missing")
        elif path.stat().st_size > _MAX_BYTES:
            yield Poster(item, b"", None, "too_large")
        else:
            data = path.read_bytes()
            picture = read_image(data)
            status = picture if isinstance(picture, str) else "ok"
            digest = hashlib.sha256(data).hexdigest()
            yield Poster(item, data if status == "ok" else b"", digest, status)


def read_image(data: bytes) -> Picture | str:
    """The picture in a file as RGB, or the status if there is none.

    >>> read_image(b"no picture")
    'corrupt'
    """
    import PIL.Image
    from PIL import UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            # Pillow warns of many pixels; the limit here is stricter.
            warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
            with PIL.Image.open(io.BytesIO(data), formats=_FORMATS) as image:
                # From the header: nothing is decoded before it is known to be small enough.
                if image.width * image.height > _MAX_PIXELS:
                    return "too_large"
                if getattr(image, "n_frames", 1) > 1:
                    return "animated"
                if image.mode == "CMYK":
                    return "cmyk"
                image.load()
                return _opaque(image)
    except PIL.Image.DecompressionBombError:
        return "too_large"
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, EOFError):
        # Pillow raises SyntaxError for a broken PNG.
        return "corrupt"


def _opaque(image: Picture) -> Picture:
    import PIL.Image

    if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
        clear = image.convert("RGBA")
        return PIL.Image.alpha_composite(PIL.Image.new("RGBA", clear.size, "white"), clear).convert(
            "RGB"
        )
    return image.convert("RGB")


def poster_files(folder: Path) -> list[Path]:
    """Posters of a world by name; none without the folder."""
    return sorted(path for path in (folder / POSTERS).glob("*.jpg") if path.is_file())


def posters_digest(folder: Path) -> str:
    """SHA-256 (hex) of the names and contents of a world's posters; "" without any."""
    files = poster_files(folder)
    digest = hashlib.sha256()
    for path in files:
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path.name}\0{content}\n".encode())
    return digest.hexdigest() if files else ""


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
class ImageStatistics:
    """Statistics of a picture's pixels."""

    #: Up to three commonest named colours, the commonest first, and their shares of the pixels.
    colours: tuple[tuple[str, float], ...]
    #: Mean luma (0-1; ITU-R BT.601).
    brightness: float
    #: Standard deviation of the luma (0-0.5).
    contrast: float
    #: Hasler and Süsstrunk's M3 (2003), 0 to about 190.
    colourfulness: float


def image_statistics(image: Picture) -> ImageStatistics:
    """Statistics of a picture, from a copy whose longer side has at most 128 pixels."""
    import PIL.Image

    small = image.convert("RGB")
    small.thumbnail((_SIDE, _SIDE), PIL.Image.Resampling.BOX)
    pixels = np.asarray(small, np.float64).reshape(-1, 3)
    luma = pixels @ np.array([0.299, 0.587, 0.114]) / 255
    names, palette = _palette()
    distance = ((_lab(pixels)[:, None, :] - palette[None, :, :]) ** 2).sum(axis=2)
    shares = np.bincount(distance.argmin(axis=1), minlength=len(names)) / len(pixels)
    order = np.lexsort((np.arange(len(names)), -shares))[:_COLOURS]
    return ImageStatistics(
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


def _text(image: Picture) -> str:
    statistics, assumed = image_statistics(image), _assumed()
    named = [name for name, _ in statistics.colours]
    colours = " and ".join([", ".join(named[:-1]), named[-1]]) if named[1:] else named[0]
    words = [
        _word(assumed[part], getattr(statistics, part))
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


#: Longest side of the picture that is sent (pixels), and its JPEG quality.
_SENT_SIDE, _QUALITY = 512, 90


class ModelCaptioner(Asking):
    """Describes posters with a language model (SimUSER, section 3.2.2 and appendix C.3).

    Pictures are sent as JPEG of at most 512 pixels a side, without the metadata of the file. An
    engine that takes no images answers `invalid`, and the item has no caption. Answers go through
    the answer store: a rerun asks nothing again.
    """

    def __init__(self, engine: Any, **asking: Any) -> None:
        super().__init__(engine, **asking)
        self.name = engine.identity.model
        self._grammar = prose(limits=TextLimits((1, 3), (20, 200)), name="caption")
        self._longest = self._grammar.longest()

    def caption(self, posters: Sequence[Poster]) -> list[Caption]:
        """See :class:`pipelines.captions.Captioner`."""
        out = [Caption("engine_error") for _ in posters]

        def requests() -> Iterator[Request]:
            for n, poster in enumerate(posters):
                image = read_image(poster.data)
                if isinstance(image, str):
                    out[n] = Caption(image)
                    continue
                image.thumbnail((_SENT_SIDE, _SENT_SIDE))
                sent = io.BytesIO()
                image.save(sent, "JPEG", quality=_QUALITY)
                yield Request(
                    caption_messages(Image("image/jpeg", sent.getvalue())),
                    constraint=self._grammar.constraint,
                    sampling=Sampling(0.0, max_tokens=self._longest),
                    tag=n,
                )

        for request, _, answer in self._ask(requests()):
            text = answer.text if answer.status == "ok" else None
            if text is not None and self._grammar.parse(text) is None:
                out[request.tag] = Caption("invalid")
            else:
                out[request.tag] = Caption(answer.status, text)
        return out

    def metadata(self) -> dict[str, Any]:
        """Model, prompt and calls."""
        return {
            "captioner": self.name,
            "language_model": True,
            "engine": asdict(self._engine.identity),
            "answered_by": self._engine.metadata().get("answered_by", []),
            "prompt_version": CAPTION_PROMPT_VERSION,
            "prompt_sha256": caption_prompt_digest(),
            "calls": self.tally.to_dict(),
        }


def open_captioner(settings: Settings, name: str | None = None) -> Captioner:
    """The captioner that the settings name; one with a `close` is to be closed.

    A name is one of :data:`pipelines.seams.CAPTIONERS`; default ``captions.captioner``.

    Raises
    ------
    ConfigError
        If there is none of that name (naming the nearest), it is no class with the methods of
        :class:`Captioner`, or it can't be opened.
    EngineError
        If the model can't be reached.
    """
    name = name or settings.captions.captioner
    if name != "model":
        captioner: Captioner = CAPTIONERS.open(name)
        return captioner
    with closing_on_error(load_engine(settings.engine, settings.serving)) as engine:
        store = AnswerStore(settings.runtime.home, settings.serving)
        return ModelCaptioner(engine, store=store, serving=settings.serving)


#: Posters in memory at a time (count).
_AT_ONCE = 256
_SCHEMA: dict[str, Any] = {
    "item_id": pl.String,
    "caption": pl.String,
    "captioner": pl.String,
    "image_sha256": pl.String,
    "status": pl.String,
}


def caption_items(
    folder: Path,
    items: Sequence[str],
    captioner: Captioner,
) -> pl.DataFrame:
    """One row per item: ``item_id, caption, captioner, image_sha256, status``, sorted by item.

    Posters are those of the world's folder (:func:`read_posters`); the captioner is shown pictures
    only.

    Raises ContractError if the captioner returns another number of captions than there are posters,
    a status that is not known, or an `ok` one without text.
    """
    rows: list[tuple[str, str | None, str, str | None, str]] = []
    ordered = sorted(items)
    for start in range(0, len(ordered), _AT_ONCE):
        posters = list(read_posters(folder, ordered[start : start + _AT_ONCE]))
        pictures = [poster for poster in posters if poster.status == "ok"]
        captions = captioner.caption(pictures) if pictures else []
        if len(captions) != len(pictures):
            raise ContractError(
                f"{len(captions)} captions of {len(pictures)} posters",
                where=f"captioner {captioner.name}",
            )
        made = {p.item_id: c for p, c in zip(pictures, captions, strict=True)}
        for poster in posters:
            caption = made.get(poster.item_id)
            status = poster.status if caption is None else caption.status
            text = None
            if caption is not None and status == "ok":
                text = " ".join((caption.text or "").split())
            if status not in CAPTION_STATUSES or (status == "ok" and not text):
                raise ContractError(
                    f"status {status!r} with {'no text' if not text else 'a text'}",
                    where=f"captioner {captioner.name}, {poster.item_id}",
                    hint=f"a status is one of {', '.join(CAPTION_STATUSES)}; `ok` has a text",
                )
            rows.append((poster.item_id, text, captioner.name, poster.sha256, status))
        advance("captions", len(rows), len(ordered))
    return pl.DataFrame(rows, schema=_SCHEMA, orient="row")
